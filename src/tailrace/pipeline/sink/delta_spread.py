"""Delta tables written by tasks: files first, then one commit for each table that names them."""

import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable
from deltalake.transaction import AddAction, RemoveAction

from tailrace.model.errors import SinkError
from tailrace.model.table import TableSchema
from tailrace.pipeline.evolve import united
from tailrace.pipeline.sink.base import Mode, TableMark
from tailrace.pipeline.sink.delta_append import AppendedFiles, Appending, Refitting
from tailrace.pipeline.sink.delta_file import DataFile, add_action
from tailrace.pipeline.sink.delta_lake import DeltaLake
from tailrace.pipeline.sink.delta_merge import Dividing, Folded, Folding, Inserting, Rewriting, States
from tailrace.pipeline.sink.delta_table import FirstKey, Notes, delta_errors, evolve, files_near, opened
from tailrace.pipeline.sink.progress import has_batch
from tailrace.pipeline.sink.row import key_names
from tailrace.pipeline.sink.spread import Spread, SpreadBatch, Tally
from tailrace.pipeline.sink.storage import Storage

__all__ = ["TableDraft", "drafted"]

_CHANGES_PER_BUCKET = 250_000
_BUCKETS_MAX = 256

_ROWS_PER_TASK = 500_000
"""Rows of files that one task looks through, and of states that one task inserts: smaller files go together."""

_STATES = "_tailrace"
"""Directory beside a table's files where states are, in a directory for each batch, `PIPELINE.HEX`."""


class TableDraft(Protocol):
    """The changes of a batch to one table, written but not yet seen by anybody."""

    schema: TableSchema
    highest: int
    """Highest offset of the changes."""

    def commit(self, given: TableMark, known: TableMark | None, notes: Notes) -> DeltaTable | None:
        """Commit them, unless the table has that batch. Return the table; None where it had it."""


@contextmanager
def drafted(lake: DeltaLake, mode: Mode, batch: SpreadBatch) -> Iterator[tuple[list[TableDraft], Tally]]:
    """Have tasks write the changes of a batch beside their tables, within a `with` block.

    What is not committed then is left behind as files that nobody refers to, and removed as such files are. States that
    an earlier batch of the pipeline left beside a table, because its process was killed, are removed with ours.
    """
    if mode is Mode.APPEND or batch.fresh:
        appended = batch.changes.each(Appending(lake, mode))
        yield [_AppendDraft(lake, some, batch.changes) for some in _by_table(appended.results)], appended.tally
        return
    beside = f"{_STATES}/{batch.pipeline}.{uuid.uuid4().hex}"
    buckets = min(1 + batch.changes_max // _CHANGES_PER_BUCKET, _BUCKETS_MAX)
    folded = batch.changes.gathered(Dividing(buckets), buckets, Folding(lake, beside))
    merges = [_MergeDraft(lake, some, batch.changes) for some in _by_table(folded.results)]
    try:
        yield list(merges), folded.tally
    finally:
        for one in merges:
            _forget(lake.files(one.schema), batch.pipeline)


class _AppendDraft:
    """Files to be added."""

    def __init__(self, lake: DeltaLake, files: Sequence[AppendedFiles], tasks: Spread) -> None:
        self.schema = _newest(files)
        self.highest = max(one.highest for one in files)
        self._lake = lake
        self._files = files
        self._tasks = tasks

    def commit(self, given: TableMark, known: TableMark | None, notes: Notes) -> DeltaTable | None:
        with delta_errors(self.schema):
            columns = _columns(self._files)
            table = opened(self._lake, self.schema, columns)
            if has_batch(notes.mark(table), given, known):
                return None
            target = evolve(table, self._lake.files(self.schema), columns)
            actions: list[AddAction | RemoveAction] = [
                add_action(part) for one in self._files for part in self._fitting(one, target)
            ]
            properties = notes.commit(table, given, self.highest)
            table.create_write_transaction(actions, "append", table.schema(), commit_properties=properties)
            return table

    def _fitting(self, one: AppendedFiles, target: pa.Schema) -> list[DataFile]:
        """Return files whose columns are of the types that the table has."""
        if all(target.field(field.name).type == field.type for field in _schema(one.columns)):
            return one.parts
        return self._tasks.over(one.parts, Refitting(self._lake.files(self.schema), target.serialize().to_pybytes()))


class _MergeDraft:
    """States of keys that are to be merged."""

    def __init__(self, lake: DeltaLake, folded: Sequence[Folded], tasks: Spread) -> None:
        self.schema = _newest(folded)
        self.highest = max(one.highest for one in folded)
        self._lake = lake
        self._folded = folded
        self._tasks = tasks

    def commit(self, given: TableMark, known: TableMark | None, notes: Notes) -> DeltaTable | None:
        with delta_errors(self.schema):
            columns = _columns(self._folded)
            table = opened(self._lake, self.schema, columns)
            if has_batch(notes.mark(table), given, known):
                return None
            target = evolve(table, self._lake.files(self.schema), columns)
            removed, parts = self._written(table, target)
            actions: list[AddAction | RemoveAction] = [_remove_action(path) for path in removed]
            actions += [add_action(part) for part in parts]
            properties = notes.commit(table, given, self.highest)
            table.create_write_transaction(actions, "append", table.schema(), commit_properties=properties)
            return table

    def _written(self, table: DeltaTable, target: pa.Schema) -> tuple[list[str], list[DataFile]]:
        """Have tasks write what changes. Return the files to be removed from the table, and those to be added."""
        states = tuple(one.states for one in self._folded)
        files, message = self._lake.files(self.schema), target.serialize().to_pybytes()
        key = tuple(key_names(self.schema))
        groups = _grouped(files_near(table, self._first(target.field(key[0]))))
        rewritten = self._tasks.over(groups, Rewriting(files, message, key, states))
        left = _unmet(states, [one.met for one in rewritten])
        inserted = self._tasks.over(left, Inserting(files, message))
        removed = [path for one in rewritten for path in one.removed]
        return removed, [part for parts in [*(one.parts for one in rewritten), *inserted] for part in parts]

    def _first(self, field: pa.Field) -> FirstKey:
        """Return the first column of the key, with bounds where all tasks have it in the type of the table."""
        if any(_schema(one.columns).field(field.name).type != field.type for one in self._folded):
            return FirstKey(field)
        low, high = (choose(one.bounds[side] for one in self._folded) for side, choose in enumerate((min, max)))
        return FirstKey(field, low, high)


def _forget(files: Storage, pipeline: str) -> None:
    """Remove the states of all batches of a pipeline: only one of them is at work, and it has done."""
    with suppress(SinkError), files.errors():
        parts = [name.split("/") for name in files.names(_STATES)]
        # What a lake of one table keeps beside it, `PIPELINE.json`, is a file; states are in directories.
        files.remove(["/".join(one) for one in parts if len(one) > 2 and one[1].rpartition(".")[0] == pipeline])


def _grouped(files: Sequence[tuple[str, int | None]]) -> list[tuple[str, ...]]:
    """Return the files in groups of some size; neighbours stay together."""
    groups: list[list[str]] = []
    room = 0
    for path, rows in files:
        if room <= 0:
            groups.append([])
            room = _ROWS_PER_TASK
        groups[-1].append(path)
        room -= rows or _ROWS_PER_TASK
    return [tuple(group) for group in groups]


def _unmet(states: Sequence[States], met: Sequence[Sequence[bytes]]) -> list[list[tuple[States, bytes]]]:
    """Return the states with new keys, with the bits of those that were met, in groups of some size."""
    groups: list[list[tuple[States, bytes]]] = []
    room = 0
    for number, one in enumerate(states):
        bits = np.zeros((one.rows + 7) // 8, np.uint8)
        for some in met:
            bits |= np.frombuffer(some[number], np.uint8)
        new = one.rows - int(np.unpackbits(bits).sum())
        if not new:
            continue
        if room <= 0:
            groups.append([])
            room = _ROWS_PER_TASK
        groups[-1].append((one, bits.tobytes()))
        room -= new
    return groups


def _by_table(drafts: Sequence[Any]) -> list[list[Any]]:
    """Return what tasks made by table."""
    names = sorted({one.schema.table for one in drafts})
    return [[one for one in drafts if one.schema.table == name] for name in names]


def _newest(drafts: Sequence[Any]) -> TableSchema:
    schema: TableSchema = max((one.schema for one in drafts), key=lambda schema: schema.version)
    return schema


def _columns(drafts: Sequence[Any]) -> pa.Schema:
    """Return the columns that hold what all tasks made, in order of the versions of the table."""
    columns: pa.Schema | None = None
    for one in sorted(drafts, key=lambda one: one.schema.version):
        columns = united(columns, _schema(one.columns))
    return columns


def _remove_action(path: str) -> RemoveAction:
    return RemoveAction(path, data_change=True, deletion_timestamp=time.time_ns() // 1_000_000)


def _schema(message: bytes) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(message))
