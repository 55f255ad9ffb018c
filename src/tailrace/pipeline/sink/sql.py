"""SQL databases as sinks: all tables of a batch and its number in one transaction."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Protocol, assert_never

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import structs

from tailrace.model.errors import ConfigError, SinkError, SinkRefusedError
from tailrace.model.table import Kind, TableSchema
from tailrace.pipeline.declared import kind_of
from tailrace.pipeline.evolve import aligned, united
from tailrace.pipeline.fold import DELETED, OFFSET, fold_current, fold_history, whole_changes
from tailrace.pipeline.sink.base import Batch, Mode, SinkProgress, SinkTraits, TableChanges
from tailrace.pipeline.sink.progress import KeepsProgress, after, forgotten, has, place, refuse_lost
from tailrace.pipeline.sink.replay import column_names, replayed
from tailrace.pipeline.sink.row import key_names, key_text, refused_row
from tailrace.pipeline.sink.shape import columns_of, is_late, target_key
from tailrace.pipeline.truncation import spelled_out
from tailrace.sink_url import Spelling, refuse_shared

__all__ = [
    "ARRIVALS",
    "BATCHES",
    "BATCHES_KEPT",
    "DECLARED",
    "SqlDatabase",
    "SqlSink",
    "declared_types",
    "refuse_far_times",
]

DECLARED = "declared"
"""Name in a field's metadata of the type that a database has for its values."""

_NATIVE_KINDS = frozenset({Kind.INTERVAL, Kind.NETWORK, Kind.BIT, Kind.RANGE})
"""Kinds whose types another database of the same kind may have, with the same texts."""


def declared_types(columns: pa.Schema) -> dict[str, str]:
    """Return what `DECLARED` says of columns."""
    found = {field.name: field.metadata or {} for field in columns}
    return {name: facts[DECLARED.encode()].decode() for name, facts in found.items() if DECLARED.encode() in facts}


_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896
"""The first day of year 1 and the last of year 9999, from 1970 on."""

_DAY_US = 86_400_000_000


def refuse_far_times(rows: pa.Table) -> None:
    """Check that dates and times are in years that Arrow can write and drivers can read.

    Raises:
        SinkRefusedError: One is not.
    """
    for field in rows.schema:
        if pa.types.is_date32(field.type) or pa.types.is_timestamp(field.type):
            unit = 1 if pa.types.is_date32(field.type) else _DAY_US
            ends = pc.min_max(rows[field.name])
            first, last = ends["min"].value, ends["max"].value
            if first is not None and (first < _FIRST_DAY * unit or last >= (_LAST_DAY + 1) * unit):
                raise SinkRefusedError(f"column {field.name!r} has a date outside the years 1 to 9999")


ARRIVALS = "_tailrace_arrivals"
"""Temporary table in which the rows of a batch arrive on a database server."""

BATCHES = "_tailrace_batches"
"""Table of the batches that a database has: `pipeline`, `number`, `offsets`, `highest`, `changes`."""

BATCHES_KEPT = 10_000
"""How many of the last batches of a pipeline stay in that table."""


class SqlDatabase(Protocol):
    """One connection to one database. Everything raises SinkError alone; after a failed transaction all is as before.

    Names of tables are bare. Types are given in Arrow; a column of a type that the target does not use itself has the
    type null: it is someone else's choice, and takes what fits it. A field of text may have the source's name of its
    type in its metadata, as `DECLARED`: a database that has that type may use it in the place of text.
    """

    @property
    def has_arrays(self) -> bool:
        """Return whether columns can be lists. Elsewhere a list is the text of a JSON array."""

    def connect(self) -> None:
        """Connect, and make the table of batches where it is missing."""

    def close(self) -> None:
        """Disconnect. Safe to repeat."""

    def transaction(self) -> AbstractContextManager[None]:
        """Do what is inside wholly or not at all."""

    def last_batch(self, pipeline: str) -> SinkProgress | None:
        """Return the last batch of a pipeline."""

    def note_batch(self, pipeline: str, progress: SinkProgress, changes: int) -> None:
        """Note a batch in the transaction, and forget those of long ago; whoever notes the same one too has to wait."""

    def canonical(self, table: str) -> str:
        """Return the name of a table, the same for names that the database does not tell apart.

        Raises:
            SinkRefusedError: It has no such names.
        """

    def columns(self, table: str) -> pa.Schema | None:
        """Return the columns of a table; None where there is none."""

    def key(self, table: str) -> list[str]:
        """Return the columns of the primary key."""

    def create(self, table: str, columns: pa.Schema, key: Sequence[str]) -> None:
        """Make a table."""

    def add_columns(self, table: str, columns: Sequence[pa.Field]) -> None:
        """Add columns that may be null."""

    def retype(self, table: str, columns: pa.Schema, names: Sequence[str]) -> None:
        """Give the named columns their new types; `columns` are all of the table then."""

    def insert(self, table: str, rows: pa.Table) -> None:
        """Add rows."""

    def delete(self, table: str, rows: pa.Table, key: Sequence[str]) -> None:
        """Remove the rows with these keys, unless they are newer than `_offset`."""

    def upsert(self, table: str, rows: pa.Table, key: Sequence[str]) -> None:
        """Add rows or put them in place of those with the same key, unless those are newer than `_offset`."""

    def close_versions(self, table: str, closings: pa.Table, key: Sequence[str]) -> None:
        """Put an end to the open versions of these keys."""

    def known(self, table: str, keys: pa.Table, key: Sequence[str]) -> pa.Table:
        """Return the last offset that a history has of each of these keys, as `_known`."""

    def held(self, table: str, keys: pa.Table, columns: pa.Schema, *, open_versions: bool) -> pa.Table:
        """Return columns of the rows with these keys, which are different, that a table has."""

    def read(self, table: str, columns: pa.Schema, *, open_versions: bool) -> Iterator[pa.RecordBatch]:
        """Return the rows of a table."""


class SqlSink(KeepsProgress):
    """Tables of an SQL database.

    A batch is one transaction that also adds its number to the table `_tailrace_batches`, so it is applied once, and
    readers see all of its tables change together. A table that is missing is made, its key the primary key; one that
    is there is used as it is, and given the columns that it lacks.
    """

    def __init__(self, database: SqlDatabase, template: str, mode: Mode, pipeline: str) -> None:
        self._database = database
        self._named = Spelling(template)
        self._mode = mode
        self._pipeline = pipeline
        self._columns: dict[str, pa.Schema] = {}
        self._keys: dict[str, list[str]] = {}
        self._declared: dict[str, dict[str, str]] = {}
        """What the source calls the types of text columns, as of the last change of a table."""
        self._connected = False

    @property
    def traits(self) -> SinkTraits:
        """Return that it can forget tables."""
        return SinkTraits(forget=self.forget)

    def open(self, schemas: Sequence[TableSchema]) -> None:
        """Connect, and check that the tables that were there still are."""
        try:
            self._connect()
            self._refuse_names([self._name(schema) for schema in schemas])
            refuse_lost(self._progress, schemas, self._there(schemas))
        except (ConfigError, SinkError):
            self._disconnect()
            raise

    def forget(self, schemas: Sequence[TableSchema]) -> None:
        """Forget the tables that are gone, by a batch without changes."""
        try:
            self._connect()
            if self._progress is not None:
                progress = forgotten(self._progress, schemas, self._there(schemas))
                with self._database.transaction():
                    self._database.note_batch(self._pipeline, structs.replace(progress, number=progress.number + 1), 0)
        finally:
            self._disconnect()

    def apply(self, batch: Batch) -> None:
        """Apply a batch in one transaction. What it needs of tables and columns is made before."""
        if not self._connected:
            self._connect()
        if has(self._progress, batch):
            return
        progress = after(self._progress, batch)
        try:
            tables = [(one, spelled_out(one, self._mode, partial(self.rows, one.schema))) for one in batch.tables]
            if any(spelled is not one for one, spelled in tables):
                batch = structs.replace(batch, tables=[spelled for _, spelled in tables])
            for one in batch.tables:
                self._evolve(one)
            self._write(batch, progress)
        except SinkError:
            self._disconnect()
            raise
        self._progress = progress

    def rows(self, schema: TableSchema) -> Iterator[pa.RecordBatch]:
        """Return the rows of a table: the open versions of a history, what changes make together."""
        if not self._connected:
            self._connect()
        columns = self._database.columns(self._name(schema))
        if columns is None:
            return iter(())
        if self._mode is Mode.APPEND:
            found = self._database.read(self._name(schema), columns, open_versions=False)
            return replayed((pa.table(batch) for batch in found), schema)
        wanted = pa.schema([columns.field(name) for name in column_names(schema) if name in columns.names])
        return self._database.read(self._name(schema), wanted, open_versions=self._mode is Mode.HISTORY)

    def close(self) -> None:
        """Disconnect."""
        self._disconnect()

    def _connect(self) -> None:
        self._database.connect()
        self._progress = self._database.last_batch(self._pipeline)
        self._connected = True

    def _disconnect(self) -> None:
        """Forget everything: after an error nobody knows whether the batch was taken."""
        self._connected = False
        self._columns.clear()
        self._database.close()

    def _refuse_names(self, names: Sequence[str]) -> None:
        """Check that each table has a name of its own.

        Raises:
            ConfigError: Several have the same one, or one has the name of a table that we need.
        """
        tables = [self._database.canonical(name) for name in names]
        refuse_shared(tables, "sink's option `table`")
        for own in (BATCHES, ARRIVALS):
            if self._database.canonical(own) in tables:
                raise ConfigError(f"{own} is a table of the sink itself: write more than {{table}} into `table`")

    def _there(self, schemas: Sequence[TableSchema]) -> list[TableSchema]:
        """Return those of these tables that are there."""
        return [schema for schema in schemas if self._database.columns(self._name(schema)) is not None]

    def _name(self, schema: TableSchema) -> str:
        return self._named(schema.table)

    def _evolve(self, one: TableChanges) -> None:
        """Make the table, or the columns and types that it lacks."""
        name, key = self._name(one.schema), target_key(one, self._mode)
        columns = self._shaped(columns_of(one, self._mode), one.schema)
        known = self._columns.get(name)
        declared = declared_types(columns)
        is_same = known is not None and (self._keys[name], self._declared[name]) == (key, declared)
        if is_same and united(known, columns) == known:
            return
        self._keys[name], self._declared[name] = key, declared
        present = self._database.columns(name)
        if present is None:
            with self._database.transaction():
                self._database.create(name, columns, key)
            self._columns[name] = columns
            return
        found = self._database.key(name)
        if key and (found or self._mode is Mode.CURRENT) and sorted(found) != sorted(key):
            reason = f"the sink's table {name!r} has another key, or none: reset the pipeline, or name another table"
            raise SinkRefusedError(reason, table=one.schema.table.wire)
        target = united(present, columns)
        added = [columns.field(column) for column in target.names if column not in present.names]
        others = [field for field in present if not pa.types.is_null(field.type)]
        # A column of a type of the database's own becomes text where the source's column is of another type now.
        used = declared_types(present)
        retyped = [
            field.name
            for field in others
            if target.field(field.name).type != field.type
            or (field.name in used and field.name in columns.names and used[field.name] != declared.get(field.name))
        ]
        with self._database.transaction():
            if added:
                self._database.add_columns(name, added)
            if retyped:
                self._database.retype(name, target, retyped)
        self._columns[name] = target

    def _shaped(self, columns: pa.Schema, schema: TableSchema) -> pa.Schema:
        """Return columns as the database can have them, with the source's names of types that may be its own."""
        fields = []
        for field in columns:
            column = schema.column(field.name)
            if pa.types.is_list(field.type) and not self._database.has_arrays:
                fields.append(pa.field(field.name, pa.string()))
            elif column is not None and kind_of(column) in _NATIVE_KINDS and pa.types.is_string(field.type):
                fields.append(field.with_metadata({DECLARED: column.declared.lower()}))
            else:
                fields.append(field)
        return pa.schema(fields)

    def _write(self, batch: Batch, progress: SinkProgress) -> None:
        """Write all tables of a batch in one transaction.

        Raises:
            SinkRefusedError: Naming the row, where it is one.
        """
        written: TableChanges | None = None
        try:
            with self._database.transaction():
                self._database.note_batch(self._pipeline, progress, sum(one.changes.num_rows for one in batch.tables))
                for one in batch.tables:
                    written = one
                    self._put(one)
        except SinkRefusedError as error:
            raise (error if written is None else self._blamed(written, error)) from None

    def _put(self, one: TableChanges) -> None:
        """Write the changes of one table by its mode."""
        name, key = self._name(one.schema), key_names(one.schema)
        changes = aligned(one.changes, self._columns[name])
        if self._mode is not Mode.APPEND:
            changes = whole_changes(changes, key, lambda keys, names: self._held(name, keys, names))
        refuse_far_times(changes)
        match self._mode:
            case Mode.APPEND:
                self._database.insert(name, changes)
            case Mode.CURRENT:
                last = fold_current(changes, key)
                gone = last.filter(last[DELETED]).select([*key, OFFSET])
                self._database.delete(name, gone, key)
                self._database.upsert(name, last.filter(pc.invert(last[DELETED])).drop_columns([DELETED]), key)
            case Mode.HISTORY:
                seen = None if self._progress is None else self._progress.highest.get(place(one.schema))
                known = self._database.known(name, changes.select(key), key) if is_late(one, seen) else None
                folded = fold_history(changes, key, known)
                self._database.close_versions(name, folded.closings, key)
                self._database.insert(name, folded.versions)
            case _:
                assert_never(self._mode)

    def _held(self, table: str, keys: pa.Table, names: Sequence[str]) -> pa.Table:
        """Return columns of the rows with these keys, of a history those of the open versions."""
        columns = pa.schema([self._columns[table].field(name) for name in (*keys.column_names, *names)])
        return self._database.held(table, keys, columns, open_versions=self._mode is Mode.HISTORY)

    def _blamed(self, one: TableChanges, error: SinkRefusedError) -> SinkRefusedError:
        """Find the row that a database does not take, and return the error that names it."""
        wire = one.schema.table.wire

        def takes(changes: pa.Table) -> bool:
            try:
                with self._database.transaction():
                    self._put(TableChanges(one.schema, changes))
                    raise _Undone
            except _Undone:
                return True
            except SinkRefusedError:
                return False

        row = refused_row(one.changes, takes)
        key = "" if row is None else key_text(one.changes, one.schema, row)
        return SinkRefusedError(error.reason, table=wire, key=key)


class _Undone(Exception):  # noqa: N818 - no error: it ends a transaction that shall leave nothing behind
    pass
