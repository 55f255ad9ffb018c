"""Tables of a catalog of Spark, written by Spark's own MERGE: Delta or Iceberg with the jars of the user's cluster."""

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, assert_never

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import structs

from tailrace.model.errors import ConfigError, SinkRefusedError, SinkUnavailableError
from tailrace.model.table import TableSchema
from tailrace.pipeline.evolve import aligned, united
from tailrace.pipeline.fold import OFFSET, whole_changes
from tailrace.pipeline.sink import catalog_statements as statements
from tailrace.pipeline.sink.base import Batch, Mode, SinkProgress, SinkTraits, TableChanges
from tailrace.pipeline.sink.catalog_session import CatalogSession, SparkCatalog
from tailrace.pipeline.sink.catalog_statements import CatalogTarget, named
from tailrace.pipeline.sink.progress import (
    KeepsProgress,
    after,
    decode_columns,
    encode_columns,
    forgotten,
    has,
    place,
    refuse_lost,
)
from tailrace.pipeline.sink.replay import column_names, replayed
from tailrace.pipeline.sink.row import key_names
from tailrace.pipeline.sink.shape import columns_of, is_late, is_ours
from tailrace.pipeline.truncation import spelled_out
from tailrace.sink_url import Spelling, refuse_shared

__all__ = ["BATCHES", "BATCHES_KEPT", "CatalogSink"]

BATCHES = "_tailrace_batches"
"""Table of the batches that a namespace has: `pipeline`, `number`, `offsets`, `highest`, `changes`, `applied_at`."""

BATCHES_KEPT = 1000
"""How many of the last batches of a pipeline stay in that table, at least; each is a small file."""

_VIEW = "tailrace_changes"
_NOTE = "tailrace_batch"


class CatalogSink(KeepsProgress):
    """One table of a catalog for each table of the pipeline.

    A table takes a batch in one statement, which is atomic as the table's format makes it. The number of the batch is
    noted after that in the table `_tailrace_batches` beside the tables. So changes may be given again that some tables
    have, or all; until a batch has gone through after the sink was opened or has failed, and no table has changes
    behind it, statements leave out what a table has: `current` by the offset of each row, `history` by the last offset
    of each key, `append` by offset, kind of the change and key. Tables are not committed together: a reader may see one
    of them a batch ahead of another.
    """

    def __init__(self, name: Sequence[str], using: str, mode: Mode, pipeline: str) -> None:
        self._start: Callable[[], CatalogSession] | None = None
        self._namespace = tuple(name[:-1])
        self._named = Spelling(name[-1])
        self._using = using
        self._mode = mode
        self._pipeline = pipeline
        self._batches = (*self._namespace, BATCHES)
        self._opened: CatalogSession | None = None
        self._columns: dict[tuple[str, ...], pa.Schema] = {}
        self._doubt = True
        self._schemas: Sequence[TableSchema] = ()

    @property
    def traits(self) -> SinkTraits:
        """Return that it works through Spark, and can forget tables."""
        return SinkTraits(forget=self.forget, use_spark=self.use)

    def use(self, session: Callable[[], Any]) -> None:
        """Take the session from there."""
        self.connect_by(lambda: SparkCatalog(session()))

    def connect_by(self, start: Callable[[], CatalogSession]) -> None:
        """Have statements run by what this returns."""
        self._start = start

    def open(self, schemas: Sequence[TableSchema]) -> None:
        """Make the table of batches, and check that the tables that were there still are."""
        refuse_shared([self._name(schema) for schema in schemas])
        self._connect()
        self._session.run(statements.create(self._batches, statements.BATCHES_COLUMNS, self._using))
        self._progress = self._last()
        self._doubt = True
        self._schemas = schemas
        there = [schema for schema in schemas if self._session.exists(named(self._name(schema)))]
        refuse_lost(self._progress, schemas, there)

    def forget(self, schemas: Sequence[TableSchema]) -> None:
        """Forget those of these tables that are gone: another note of the last batch no longer names them."""
        self._connect()
        progress = self._last()
        there = [schema for schema in schemas if self._session.exists(named(self._name(schema)))]
        if progress is not None:
            self._note(forgotten(progress, schemas, there), 0)

    def apply(self, batch: Batch) -> None:
        """Give one table after the other its changes, then note that all have them."""
        if self._doubt:
            self._progress = self._last()
        if has(self._progress, batch):
            return
        doubt, self._doubt = self._doubt, True
        changes = 0
        for one in batch.tables:
            self._put(spelled_out(one, self._mode, partial(self.rows, one.schema)), doubt=doubt)
            changes += one.changes.num_rows
        self._progress = self._note(after(self._progress, batch), changes)
        self._doubt = doubt and self._mode is Mode.APPEND and any(self._is_beyond(one, batch) for one in self._schemas)

    def rows(self, schema: TableSchema) -> Iterator[pa.RecordBatch]:
        """Return the rows of a table: the open versions of a history, what changes make together."""
        name = self._name(schema)
        if not self._session.exists(named(name)):
            return iter(())
        columns = self._present(name)
        if self._mode is Mode.APPEND:
            found = self._session.run(statements.select(name, columns.names))
            return replayed([found], schema)
        wanted = [column for column in column_names(schema) if column in columns.names]
        query = statements.select(name, wanted, open_versions=self._mode is Mode.HISTORY)
        return iter(self._session.run(query).to_batches())

    def close(self) -> None:
        """Leave the session to those who opened it."""
        self._opened = None
        self._columns.clear()

    def _is_beyond(self, schema: TableSchema, batch: Batch) -> bool:
        """Tell whether a table has changes behind a batch: of one that was larger, and that broke off."""
        name, through = self._name(schema), batch.offsets.get(schema.table.source)
        if through is None or not self._session.exists(named(name)):
            return False
        return bool(self._session.run(statements.beyond(name, through)).num_rows)

    def _connect(self) -> None:
        if self._start is None:
            raise ConfigError("a catalog sink works through Spark: it needs a session")
        self._opened = self._start()

    @property
    def _session(self) -> CatalogSession:
        if self._opened is None:
            raise SinkUnavailableError("the catalog of Spark is not open")
        return self._opened

    def _name(self, schema: TableSchema) -> tuple[str, ...]:
        return (*self._namespace, self._named(schema.table))

    def _last(self) -> SinkProgress | None:
        """Return the last batch that was noted."""
        found = self._session.run(statements.last_batch(self._batches, self._pipeline)).to_pylist()
        return decode_columns(*found[0].values()) if found else None

    def _note(self, progress: SinkProgress, changes: int) -> SinkProgress:
        """Note a batch, and from time to time forget those of long ago."""
        number, offsets, highest = encode_columns(progress)
        row = [self._pipeline, number, offsets, highest, changes, datetime.now(UTC)]
        cells = [pa.array([cell], field.type) for cell, field in zip(row, statements.BATCHES_COLUMNS, strict=True)]
        self._session.stage(_NOTE, pa.table(cells, schema=statements.BATCHES_COLUMNS))
        self._session.run(statements.note_batch(self._batches, _NOTE))
        if number % BATCHES_KEPT == BATCHES_KEPT - 1:
            self._session.run(statements.forget_batches(self._batches, self._pipeline, number - BATCHES_KEPT))
        return progress

    def _put(self, one: TableChanges, *, doubt: bool) -> None:
        """Give a table its changes.

        Raises:
            SinkRefusedError: Naming the table.
        """
        try:
            columns = self._evolve(one)
            if not one.changes.num_rows:
                return
            changes = aligned(one.changes, columns)
            if self._mode is not Mode.APPEND:
                key, name = key_names(one.schema), self._name(one.schema)
                changes = whole_changes(changes, key, lambda keys, names: self._held(name, keys, names))
                one = structs.replace(one, changes=changes)
            self._session.stage(_VIEW, changes)
            try:
                self._session.run(self._statement(one, columns, doubt=doubt))
            finally:
                self._session.drop(_VIEW)
        except SinkRefusedError as error:
            self._columns.clear()
            raise SinkRefusedError(error.reason, table=one.schema.table.wire, key=error.key) from None

    def _statement(self, one: TableChanges, columns: pa.Schema, *, doubt: bool) -> str:
        """Return the statement for the changes of one table."""
        names = tuple(one.changes.column_names)
        key = tuple(key_names(one.schema))
        target = CatalogTarget(self._name(one.schema), tuple(columns.names), key, _VIEW, names)
        new = one.fresh and not doubt
        match self._mode:
            case Mode.APPEND:
                ends = pc.min_max(one.changes[OFFSET]).as_py()
                return statements.append(target, (ends["min"], ends["max"]) if doubt else None)
            case Mode.CURRENT:
                return statements.insert_current(target) if new else statements.merge_current(target)
            case Mode.HISTORY:
                seen = None if self._progress is None else self._progress.highest.get(place(one.schema))
                late = doubt or is_late(one, seen)
                return statements.insert_history(target) if new else statements.merge_history(target, late=late)
            case _:
                assert_never(self._mode)

    def _held(self, name: tuple[str, ...], keys: pa.Table, names: Sequence[str]) -> pa.Table:
        """Return columns of the rows with these keys, of a history those of the open versions."""
        columns = (*keys.column_names, *names)
        self._session.stage(_VIEW, keys)
        try:
            target = CatalogTarget(name, columns, tuple(keys.column_names), _VIEW, tuple(keys.column_names))
            return self._session.run(statements.held(target, open_versions=self._mode is Mode.HISTORY))
        finally:
            self._session.drop(_VIEW)

    def _evolve(self, one: TableChanges) -> pa.Schema:
        """Make the table, or the columns and types that it lacks; return its columns."""
        name, wanted = self._name(one.schema), columns_of(one, self._mode)
        known = self._columns.get(name)
        if known is not None and united(known, wanted) == known:
            return known
        if not self._session.exists(named(name)):
            self._session.run(statements.create(name, wanted, self._using))
        present = self._present(name)
        target = united(present, wanted)
        others = [field for field in present if not pa.types.is_null(field.type)]
        if any(target.field(field.name).type != field.type for field in others):
            self._retype(name, present, target)
        if len(target) > len(present):
            self._session.run(statements.add_columns(name, list(target)[len(present) :]))
        self._columns[name] = target
        return target

    def _retype(self, name: tuple[str, ...], present: pa.Schema, target: pa.Schema) -> None:
        """Write a table again with wider types.

        Raises:
            SinkRefusedError: It is divided into partitions, which would be lost.
        """
        described = self._session.run(f"DESCRIBE TABLE {named(name)}")["col_name"].to_pylist()
        if any(line.startswith("# Partition") for line in described):
            changed = [field.name for field in present if target.field(field.name).type != field.type]
            raise SinkRefusedError(
                f"a column of the source has a wider type now ({', '.join(changed)}), and the sink's table is "
                "partitioned: change the type of that column yourself"
            )
        self._session.run(statements.retyped(name, present, target, self._using))

    def _present(self, name: tuple[str, ...]) -> pa.Schema:
        """Return the columns of a table; those of a type that we do not use have the type null."""
        found = self._session.run(f"SELECT * FROM {named(name)} LIMIT 0").schema  # noqa: S608 - the name is quoted
        return pa.schema([field if is_ours(field.type) else pa.field(field.name, pa.null()) for field in found])
