"""Events of SochDB's WebSocket gateway as bytes: one JSON object a line. Pure.

Members, in this order: sequence, timestamp_us, txn_id, table, operation, key, before_value, after_value, ddl. `key` and
the values are base64 of the bytes that SochDB's gRPC events carry; null where there is none, and so is `ddl`.
"""

from binascii import b2a_base64

import msgspec

from tailrace.delivery.column_encoder import ddl_of, encode_rows, rows_of
from tailrace.delivery.encoded import Encoded
from tailrace.delivery.view import View, Wire
from tailrace.interface.sochdb.raw_image import is_key_value, raw_of_image
from tailrace.model.chunk import Chunk
from tailrace.model.op import Op
from tailrace.model.raw_key import raw_kind, raw_of_key
from tailrace.model.table import TableSchema
from tailrace.subscription.filter import Rows

__all__ = ["GATEWAY", "OPERATIONS", "encode_gateway_events"]

OPERATIONS = {
    Op.INSERT: "Insert",
    Op.UPDATE: "Update",
    Op.DELETE: "Delete",
    Op.SCHEMA: "SchemaChange",
    Op.TRUNCATE: "SchemaChange",
}
"""Name of each op in an event. A truncation is a schema change with the statement `TRUNCATE TABLE` as its DDL."""

_COLUMNS = ("offset", "index", "commit_time_us", "schema", "op", "key", "before", "after")
_NULL = b"null"


def encode_gateway_events(chunk: Chunk, rows: Rows, _view: View) -> Encoded:
    """Return the events of the given rows of a chunk, each with a line break behind it. There is but one view."""
    return encode_rows(chunk, rows, lambda: _events(chunk, rows))


GATEWAY = Wire("gateway", encode_gateway_events)


def _events(chunk: Chunk, rows: Rows) -> list[bytes]:
    columns = [column.to_pylist() for column in rows_of(chunk, rows, _COLUMNS).columns]
    middles = {(number, op): _middle(chunk.schemas[number], op) for number, op in set(zip(*columns[3:5], strict=True))}
    as_they_are = {number for number, _ in middles if _is_as_kept(chunk.schemas[number])}
    return [
        b'{"sequence":%d,"timestamp_us":%d,"txn_id":%d%s%s}\n'
        % (
            offset,
            time_us,
            index,
            middles[number, op],
            _truncation(chunk.schemas[number])
            if op == Op.TRUNCATE
            else _row(op, key, before, after, None if number in as_they_are else chunk.schemas[number]),
        )
        for offset, index, time_us, number, op, key, before, after in zip(*columns, strict=True)
    ]


def _middle(schema: TableSchema, op: int) -> bytes:
    """Return what all events of a table and an op have in common."""
    table = msgspec.json.encode(schema.table.wire)
    return b',"table":%s,"operation":"%s",' % (table, OPERATIONS[Op(op)].encode())


def _is_as_kept(schema: TableSchema) -> bool:
    """Tell whether keys and images of a table are sent as the log keeps them."""
    return raw_kind(schema) is None and not is_key_value(schema)


def _row(op: int, key: bytes, before: bytes | None, after: bytes | None, schema: TableSchema | None) -> bytes:
    """Return the members that tell of the row, or of the schema. Without a schema nothing is converted."""
    if op == Op.SCHEMA:
        return _ddl(ddl_of(after))
    if schema is not None:
        key = raw_of_key(key, schema)
        before = None if before is None else raw_of_image(before, schema)
        after = None if after is None else raw_of_image(after, schema)
    return b'"key":%s,"before_value":%s,"after_value":%s,"ddl":null' % (_base64(key), _base64(before), _base64(after))


def _truncation(schema: TableSchema) -> bytes:
    return _ddl(schema.table.truncate_statement)


def _ddl(text: str) -> bytes:
    return b'"key":null,"before_value":null,"after_value":null,"ddl":%s' % msgspec.json.encode(text)


def _base64(data: bytes | None) -> bytes:
    return _NULL if data is None else b'"%s"' % b2a_base64(data, newline=False)
