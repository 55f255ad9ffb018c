"""A source in memory that tells its changes as batches, and what sinks should make of them."""

import json
from datetime import UTC, datetime, timedelta

import pyarrow as pa

from tailrace.model.table import Column, Kind, TableName, TableSchema
from tailrace.pipeline.sink.base import Batch, TableChanges
from tailrace.pipeline.unchanged import UNCHANGED

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
CHANGE = [
    ("_change_type", pa.string()),
    ("_offset", pa.int64()),
    ("_commit_version", pa.int64()),
    ("_commit_timestamp", pa.timestamp("us", tz="UTC")),
]

ORDERS = (("id", pa.int64()), ("customer", pa.string()), ("total", pa.float64()))


class ChangingTable:
    """One table of a `ChangingSource`: its rows now, its versions, and its changes."""

    def __init__(self, source, name, columns=ORDERS, key=("id",)):
        self.source, self.name, self.key = source, name, tuple(key)
        self.columns = dict(columns)
        self.facts = {}
        """What is known of columns beyond their type, by name."""
        self.version = 1
        self.rows = {}
        self.versions = []
        self.changes = []
        self.told = 0
        self.partial = False
        """Whether updates send the key before and what changed after, and deletes the key."""
        self._waiting = []

    @property
    def schema(self):
        names = [name for name in self.columns if name != "rowid" or self.key != ("rowid",)]
        columns = tuple(self.facts.get(name) or Column(name, Kind.ANY) for name in names)
        key = () if self.key == ("rowid",) else self.key
        return TableSchema(TableName(self.source.name, self.name), self.version, columns, key)

    def key_of(self, row):
        return tuple(row[name] for name in self.key)

    def insert(self, *values, **named):
        row = dict(zip(self.columns, values, strict=False)) | named
        row = {name: row.get(name) for name in self.columns}
        self._change([("insert", row)], {self.key_of(row): row})

    def update(self, key, **named):
        old = self.rows[_tuple(key)]
        new = {name: named.get(name, old.get(name)) for name in self.columns}
        sent = {name: new[name] for name in new if name in named or name in self.key} if self.partial else new
        pair = [("update_preimage", self._before(old)), ("update_postimage", sent)]
        self._change(pair, {self.key_of(old): None, self.key_of(new): new})

    def delete(self, key):
        old = self.rows[_tuple(key)]
        self._change([("delete", self._before(old))], {self.key_of(old): None})

    def truncate(self):
        """Remove all rows at once, without telling which."""
        self._change([("truncate", dict.fromkeys(self.columns))], dict.fromkeys(self.rows))

    def read(self):
        """Tell all rows again, as a snapshot at the head does."""
        for row in self.rows.values():
            self._tell("read", row, self.source.offset)

    def alter(self, add=(), drop=(), retype=()):
        """Change the columns as a database does: rows have null, or the converted value."""
        self.columns = {name: type_ for name, type_ in self.columns.items() if name not in drop}
        self.columns |= dict(add)
        for name, (type_, convert) in dict(retype).items():
            self.columns[name] = type_
            for row in self.rows.values():
                row[name] = None if row[name] is None else convert(row[name])
        self.version += 1

    def _before(self, row):
        return {name: row[name] for name in self.key} if self.partial else row

    def _change(self, told, touched):
        self.source.offset += 1
        for kind, row in told:
            self._tell(kind, row, self.source.offset)
        for key, row in touched.items():
            if row is None:
                self.rows.pop(key, None)
            else:
                self.rows[key] = row
            self._waiting.append((key, row, self.source.offset))
        self.source.changed.add(self)

    def _tell(self, kind, row, offset):
        told = {"_change_type": kind, "_offset": offset, "_commit_version": self.source.commits}
        self.told += 1
        unsent = [name for name in self.columns if name not in row]
        if unsent:
            told[UNCHANGED] = json.dumps(unsent)
        self.changes.append(told | {"_commit_timestamp": self.source.time} | row)

    def end_commit(self):
        """Keep the versions that the commit leaves: what it held in between nobody has seen."""
        for key, row, offset in {key: (key, row, offset) for key, row, offset in self._waiting}.values():
            opened = [one for one in self.versions if one["key"] == key and one["valid_to_offset"] is None]
            for version in opened:
                version |= {"valid_to": self.source.time, "valid_to_offset": offset}
            if row is not None:
                begin = {"valid_from": self.source.time, "valid_from_offset": offset}
                self.versions.append({"key": key, "row": row, "valid_to": None, "valid_to_offset": None} | begin)
        self._waiting = []

    def table_changes(self, changes):
        fields = [*CHANGE, *self.columns.items()]
        fields += [(UNCHANGED, pa.string())] if any(UNCHANGED in one for one in changes) else []
        arrays = [pa.array([one.get(name) for one in changes], type_) for name, type_ in fields]
        table = pa.table(arrays, schema=pa.schema(fields))
        return TableChanges(self.schema, table)


class ChangingSource:
    """Counts offsets and commits; cuts what its tables tell into batches."""

    def __init__(self, name="shop", pipeline="copy"):
        self.name, self.pipeline = name, pipeline
        self.offset, self.commits = 0, 1
        self.changed = set()
        self.number = 0
        self.tables = []

    @property
    def time(self):
        return EPOCH + timedelta(seconds=self.commits)

    def table(self, name="orders", columns=ORDERS, key=("id",)):
        self.tables.append(ChangingTable(self, name, columns, key))
        return self.tables[-1]

    def commit(self):
        for table in self.changed:
            table.end_commit()
        self.changed.clear()
        self.commits += 1

    def batch(self):
        """End the commit and return a batch of all that was told since the last one."""
        self.commit()
        told = [(table, table.changes) for table in self.tables if table.changes]
        batch = Batch(self.pipeline, self.number, {self.name: self.offset}, [t.table_changes(c) for t, c in told])
        for table, _ in told:
            table.changes = []
        self.number += 1
        return batch

    @property
    def schemas(self):
        return [table.schema for table in self.tables]


def _tuple(key):
    return key if isinstance(key, tuple) else (key,)
