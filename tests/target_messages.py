"""Messages for targets: the changes of rows of some tables, as a sink would send them."""

import json

from changing import change
from tailrace.message.base import Message
from tailrace.model.op import Op
from tailrace.model.table import Column, Kind, TableName, TableSchema


def table_schema(name="orders", version=1):
    columns = (Column("id", Kind.I64, nullable=False), Column("n", Kind.I64), Column("text", Kind.STR))
    return TableSchema(TableName("shop", name), version, columns, ("id",))


class Teller:
    """Tells changes of rows with rising offsets, each message with an id of its own."""

    def __init__(self, *names):
        self.schemas = [table_schema(name) for name in names or ("orders",)]
        self.offset = 0
        self.rows = {}

    def changes(self, count, keys=7, table=0):
        """Return messages of that many changes, all rows in turn: each is inserted, then updated."""
        return [self.change(number % keys, table=table) for number in range(count)]

    def change(self, key, text="", table=0):
        """Return the message of a row that comes or changes."""
        self.offset += 1
        before = self.rows.get((table, key))
        after = {"id": key, "n": self.offset, "text": text}
        self.rows[table, key] = after
        op = Op.INSERT if before is None else Op.UPDATE
        return self._message(op, before, after, table)

    def delete(self, key, table=0):
        """Return the messages of a row that goes: the deletion and its tombstone."""
        self.offset += 1
        before = self.rows.pop((table, key))
        message = self._message(Op.DELETE, before, None, table)
        gone = f"{message.id}/tombstone"
        return [
            message,
            Message(message.change, gone, None, message.key, (("tailrace-id", gone), *message.headers[1:])),
        ]

    def snapshot(self, count, table=0):
        """Return the messages of the rows of a snapshot, which all have the offset of the newest change."""
        return [
            self._message(Op.INSERT, None, {"id": key, "n": self.offset, "text": "read"}, table, snapshot=True)
            for key in range(count)
        ]

    def _message(self, op, before, after, table, *, snapshot=False):
        schema = self.schemas[table]
        told = change(op, before, after, schema=schema, offset=self.offset, index=self.offset)
        key = json.dumps([(after or before)["id"]]).encode()
        id_ = f"shop/{self.offset}"
        if snapshot:
            id_ = f"{id_}/{schema.table.wire}/{key.decode()}"
        value = json.dumps({"op": op.word, "before": before, "after": after}, ensure_ascii=False).encode()
        headers = (
            ("tailrace-id", id_),
            ("tailrace-op", op.word),
            ("tailrace-offset", str(self.offset)),
            ("tailrace-index", str(self.offset)),
            ("tailrace-schema-version", "1"),
        )
        return Message(told, id_, value, key, headers, snapshot=snapshot)
