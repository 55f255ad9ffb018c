"""Copy on write into Delta tables by tasks, for batches that are too large for one process.

1. `Folding`: changes come together by hash of their key; each bucket is folded to the last state of each key, which is
   put beside the table, in order of keys.
2. `Rewriting`: each file of the table that may hold one of those keys, by its statistics, is looked through; one that
   does is written again, with the new state of its rows in the place of the old. So rows stay with their neighbours.
3. `Inserting`: the states that no file had a row for are new rows.

One commit removes the old files and adds the new ones. All of it runs in tasks, but the commit.
"""

import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from msgspec import Struct, structs

from tailrace.model.table import TableSchema
from tailrace.pipeline.duck import connection
from tailrace.pipeline.evolve import aligned, fitted, united
from tailrace.pipeline.fold import CHANGE_COLUMNS, DELETED, OFFSET, fold_current, last_changes
from tailrace.pipeline.sink.base import Mode, TableChanges
from tailrace.pipeline.sink.delta_file import DataFile, PartWriter
from tailrace.pipeline.sink.delta_lake import DeltaLake
from tailrace.pipeline.sink.delta_table import is_ordered
from tailrace.pipeline.sink.progress import highest
from tailrace.pipeline.sink.row import key_names
from tailrace.pipeline.sink.shape import columns_of
from tailrace.pipeline.sink.storage import Storage
from tailrace.pipeline.unchanged import lacking

__all__ = ["Dividing", "Folded", "Folding", "Inserting", "Rewriting", "Rewritten", "States"]

_PLACE = "_place"
"""Column of the number of a state in its file, from 0."""

_ROW = "_row"
_NEWER = "_newer"
_HELD = "_held"
_ROW_GROUP_ROWS = 32_768
_SHUFFLED = ("_change_type", OFFSET)


class States(Struct, frozen=True):
    """A file of the last states of the keys of one bucket. `path` is its name in the table's directory."""

    path: str
    rows: int


class Folded(Struct, frozen=True):
    """What the changes of one table in one bucket come to."""

    schema: TableSchema
    columns: bytes
    """The columns that the table needs for them, as an Arrow IPC schema message."""

    states: States
    bounds: tuple[Any, Any]
    """The least and the greatest value of the first column of the key."""

    highest: int


class Rewritten(Struct, frozen=True):
    """What became of some files of a table."""

    removed: list[str]
    parts: list[DataFile]
    met: list[bytes]
    """Of each file of states, a bit for each state that a file of the table had a row for."""


class Dividing(Struct, frozen=True):
    """Cuts changes into buckets by hash of their key, the last of each key alone. Runs in a task."""

    buckets: int

    def __call__(self, one: TableChanges) -> Iterator[tuple[int, TableChanges]]:
        """Yield the changes of each bucket."""
        columns_of(one, Mode.CURRENT)
        key = key_names(one.schema)
        last = last_changes(one.changes, key)
        last = last.drop_columns([name for name in CHANGE_COLUMNS if name not in _SHUFFLED])
        numbers = _hashes(last.select(key)) % self.buckets
        for bucket in range(self.buckets):
            chosen = last.filter(pa.array(numbers == bucket))
            if chosen.num_rows:
                yield bucket, structs.replace(one, changes=chosen)


class Folding(Struct, frozen=True):
    """Folds the changes of a bucket, and puts the states beside their table. Runs in a task."""

    lake: DeltaLake
    beside: str
    """Name of the directory in that of a table where states go."""

    def __call__(self, bucket: int, changes: list[TableChanges]) -> Iterator[Folded]:
        """Fold each table."""
        for name in sorted({one.schema.table.wire for one in changes}):
            some = [one for one in changes if one.schema.table.wire == name]
            newest = max((one.schema for one in some), key=lambda schema: schema.version)
            columns: pa.Schema | None = None
            for one in some:
                columns = united(columns, one.changes.schema)
            whole = pa.concat_tables([fitted(one.changes, columns) for one in some])
            folded = TableChanges(newest, whole)
            yield self._staged(bucket, folded)

    def _staged(self, bucket: int, one: TableChanges) -> Folded:
        key = key_names(one.schema)
        states = fold_current(one.changes, key).sort_by(key[0])
        states = states.append_column(_PLACE, pa.array(np.arange(states.num_rows)))
        files = self.lake.files(one.schema)
        name = f"{self.beside}/{bucket}-{uuid.uuid4().hex}.parquet"
        with files.errors():
            file = files.create(name)
            pq.write_table(states, file.path, row_group_size=_ROW_GROUP_ROWS, compression="lz4")
            file.keep(durable=False)
        first = states[key[0]]
        bounds = first[0].as_py(), first[-1].as_py()
        columns = columns_of(one, Mode.CURRENT).serialize().to_pybytes()
        return Folded(one.schema, columns, States(name, states.num_rows), bounds, highest(one))


class Rewriting(Struct, frozen=True):
    """Writes files of a table again with the new states of their rows. Runs in a task."""

    files: Storage
    target: bytes
    key: tuple[str, ...]
    states: tuple[States, ...]

    def __call__(self, files: Sequence[str]) -> Iterator[Rewritten]:
        """Look through some files of the table; those that hold no row that changes stay as they are."""
        target = _schema(self.target)
        with self.files.errors(), ExitStack() as stack:
            states = {one: stack.enter_context(self.files.fetched(one.path)) for one in self.states}
            writer = PartWriter(self.files, target)
            met = [np.zeros(one.rows, dtype=bool) for one in self.states]
            removed = []
            for name in files:
                with self.files.fetched(unquote(name)) as path:
                    if self._rewrite(pq.ParquetFile(path), states, target, writer, met):
                        removed.append(name)
            yield Rewritten(removed, writer.close(), [np.packbits(one).tobytes() for one in met])

    def _rewrite(
        self, file: Any, states: Mapping[States, Path], target: pa.Schema, writer: PartWriter, met: Sequence[Any]
    ) -> bool:
        """Write one file again, if a row of it changes; tell whether it was."""
        there = [name for name in (*self.key, OFFSET) if name in file.schema_arrow.names]
        held = fitted(file.read(there), pa.schema([target.field(name) for name in (*self.key, OFFSET)]))
        held = held.rename_columns([*self.key, _HELD]).append_column(_ROW, pa.array(np.arange(held.num_rows)))
        stays = np.ones(held.num_rows, dtype=bool)
        changed = []
        for number, one in enumerate(self.states):
            pairs = held.join(_read_keys(states[one], held, self.key, target), list(self.key), join_type="inner")
            if not pairs.num_rows:
                continue
            met[number][pairs[_PLACE].to_numpy()] = True
            newer = pairs.filter(pc.fill_null(pc.greater_equal(pairs[_NEWER], pairs[_HELD]), fill_value=True))
            stays[newer[_ROW].to_numpy()] = False
            live = newer.filter(pc.invert(newer[DELETED]))
            if live.num_rows:
                changed.append((states[one], live))
        if stays.all():
            return False
        begin = 0
        for batch in file.iter_batches():
            some = pa.array(stays[begin : begin + batch.num_rows])
            writer.write(fitted(pa.table(batch), target).filter(some))  # delta-rs writes types that have no filter
            begin += batch.num_rows
        for path, live in changed:
            writer.write(_updated(file, path, live, target))
        return True


class Inserting(Struct, frozen=True):
    """Writes the states that no file of the table had a row for. Runs in a task."""

    files: Storage
    target: bytes

    def __call__(self, some: Sequence[tuple[States, bytes]]) -> Iterator[list[DataFile]]:
        """Write the new rows among some states, each with the bits of those that are not new."""
        target = _schema(self.target)
        with self.files.errors():
            writer = PartWriter(self.files, target)
            for states, bits in some:
                met = np.unpackbits(np.frombuffer(bits, np.uint8), count=states.rows).astype(bool)
                with self.files.fetched(states.path) as path:
                    rows = pq.read_table(path)
                new = pc.and_not(pc.invert(rows[DELETED]), pa.array(met))
                writer.write(fitted(rows.filter(new), target))
            yield writer.close()


def _read_keys(states: Path, held: pa.Table, key: Sequence[str], target: pa.Schema) -> pa.Table:
    """Return the keys of those states in a file that may be among the rows of a file, with their offsets."""
    first = key[0]
    bounds = pc.min_max(held[first]) if held.num_rows and is_ordered(target.field(first).type) else None
    mask = None
    if bounds is not None and pq.read_schema(states).field(first).type == target.field(first).type:
        mask = (pc.field(first) >= bounds["min"]) & (pc.field(first) <= bounds["max"])
    rows = pq.read_table(states, columns=[*key, OFFSET, DELETED, _PLACE], filters=mask)
    return aligned(rows, target).rename_columns([*key, _NEWER, DELETED, _PLACE])


def _updated(file: Any, states: Path, live: pa.Table, target: pa.Schema) -> pa.Table:
    """Return the new rows for those that change: what the changes do not tell stays as it was."""
    rows = pq.read_table(states).take(live[_PLACE])
    for name, mask in lacking(rows).items():
        if name in file.schema_arrow.names:
            held = fitted(file.read([name]), pa.schema([rows.schema.field(name)]))[name].take(live[_ROW])
            column = pc.if_else(pa.array(mask), held, rows[name])
            rows = rows.set_column(rows.schema.get_field_index(name), rows.schema.field(name), column)
    names = [name for name in file.schema_arrow.names if name not in rows.column_names]
    for name in names:
        held = fitted(file.read([name]), pa.schema([target.field(name)]))
        rows = rows.append_column(name, held[name].take(live[_ROW]))
    return fitted(rows, target)


def _hashes(keys: pa.Table) -> Any:
    """Return a number for each key, the same in each process."""
    names = ", ".join('"' + name.replace('"', '""') + '"' for name in keys.column_names)
    relation = connection().from_arrow(keys)
    hashed: pa.Table = relation.query("given", f"SELECT hash({names}) AS h FROM given").to_arrow_table()  # noqa: S608
    return hashed["h"].to_numpy()


def _schema(message: bytes) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(message))
