"""The reading side of a scripted database: snapshots, counts and pages of rows; with SQL, or without."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import apsw
import pyarrow as pa
from msgspec import DecodeError, Struct, structs

from tailrace.model.commit import CommitId
from tailrace.model.errors import (
    InvalidRequestError,
    InvalidValueError,
    QueryTimeoutError,
    ResultTooLargeError,
    SourceUnavailableError,
    UnknownTableError,
)
from tailrace.model.image import decode_image, decode_key
from tailrace.model.key_interval import KeyInterval
from tailrace.model.number import Position
from tailrace.model.table import Kind, TableName, TableSchema
from tailrace.model.value import Value
from tailrace.source.base import Barrier, SnapshotRows
from tailrace.source.result import ResultRows, RunLimits
from tailrace.source.sqlite.query_catalog import QueryCatalog
from tailrace.sql.dialect import Dialect, WithoutSql, dialect_of
from tailrace.sql.query import Catalog, Stored
from tailrace.testing.database import ReadTable, ScriptedDatabase

__all__ = ["ScriptedQueries", "ScriptedReads"]

_T = TypeVar("_T")

_TYPES = {
    Kind.I64: ("INTEGER", pa.int64()),
    Kind.F64: ("REAL", pa.float64()),
    Kind.STR: ("TEXT", pa.string()),
    Kind.BYTES: ("BLOB", pa.binary()),
}
"""The types of the kinds that have one, in SQL and in Arrow."""

_STEPS = 1000
"""Steps of SQLite between two looks at the time."""


class _Catalog(Struct, frozen=True):
    version: str


class _Read:
    """Some rows as they were after a commit of the database."""

    def __init__(self, table: ReadTable, *, end: bool = True) -> None:
        self.schema = table.schema
        self.last = table.rows[-1][0].decode() if table.rows else None
        self.end = end
        self.barrier = Barrier(Position(str(table.through)), table.catalog)
        self._table = table

    def contains(self, commit: CommitId) -> bool:
        return int(commit.position) <= self._table.through

    def complete(self, commit: CommitId | None) -> bool:
        return True

    def _all(self) -> SnapshotRows:
        return SnapshotRows([key for key, _ in self._table.rows], [image for _, image in self._table.rows])


class _Snapshot(_Read):
    def __init__(self, table: ReadTable) -> None:
        super().__init__(table)
        self._left = bool(table.rows)

    async def rows(self) -> SnapshotRows | None:
        left, self._left = self._left, False
        return self._all() if left else None

    def close(self) -> None:
        self._left = False


class _Page(_Read):
    def rows(self) -> SnapshotRows:
        return self._all()

    def columns(self) -> pa.RecordBatch | None:
        hidden = () if self.schema.key else self.schema.key_columns
        columns = (*hidden, *self.schema.columns)
        if any(column.kind not in _TYPES for column in columns):
            return None
        rows = [
            {**dict(zip((column.name for column in hidden), decode_key(key, self.schema), strict=False)), **image}
            for key, image in ((key, decode_image(image, self.schema)) for key, image in self._table.rows)
        ]
        arrays = [pa.array([row[column.name] for row in rows], _TYPES[column.kind][1]) for column in columns]
        return pa.RecordBatch.from_arrays(arrays, names=[column.name for column in columns])


class ScriptedReads:
    """Reads the rows of a database in memory; see `QuerySource`. It has no SQL.

    Keys are ordered as Python orders their values. After `close` it is unavailable.
    """

    def __init__(self, name: str, database: ScriptedDatabase) -> None:
        self._name = name
        self._database = database
        self._closed = False

    @property
    def dialect(self) -> Dialect:
        """Return a dialect that refuses all SQL."""
        return WithoutSql("scripted")

    async def newest(self, timeout_s: float) -> Barrier:
        """Return the newest commit."""
        self._require_open()
        return Barrier(Position(str(len(self._database.commits))), self._database.catalog)

    def reached(self, barrier: Barrier, position: Position | None) -> bool:
        """Compare positions by their number."""
        wanted = int(barrier.position or 0)
        # What was committed before the first opening is not in the log, and is in all rows.
        return wanted <= max(int(position or 0), min(self._database.began.values(), default=0))

    async def consult(self, use: Callable[[Catalog], _T]) -> tuple[_T, str]:
        """Return what is said of a catalog that has its version alone."""
        self._require_open()
        version = self._database.catalog
        return await asyncio.to_thread(use, _Catalog(version)), version

    async def run(self, sql: str, arguments: Sequence[Stored], limits: RunLimits) -> ResultRows:
        """Refuse."""
        raise InvalidRequestError("a scripted database runs no SQL")

    async def snapshot(self, table: TableName, timeout_s: float) -> _Snapshot:
        """Return all rows."""
        return _Snapshot(await self._read(table, KeyInterval()))

    async def count(self, table: TableName) -> int:
        """Return how many rows there are."""
        return len((await self._read(table, KeyInterval())).rows)

    async def last_key(self, table: TableName) -> str | None:
        """Return the greatest key."""
        rows = (await self._read(table, KeyInterval())).rows
        return rows[-1][0].decode() if rows else None

    async def cut(self, table: TableName, within: KeyInterval, *, rows: int, count: int) -> list[str]:
        """Return the last key of each whole run."""
        found = (await self._read(table, within)).rows
        return [key.decode() for key, _ in found[rows - 1 :: rows]][:count]

    async def page(self, table: TableName, within: KeyInterval, *, rows_max: int, timeout_s: float) -> _Page:
        """Return the first rows."""
        found = await self._read(table, within)
        return _Page(structs.replace(found, rows=found.rows[:rows_max]), end=len(found.rows) <= rows_max)

    async def close(self) -> None:
        """Refuse everything from now on."""
        self._closed = True

    def _require_open(self) -> None:
        if self._closed:
            raise SourceUnavailableError("the reading side is closed")

    async def _read(self, table: TableName, within: KeyInterval) -> ReadTable:
        """Return the rows of an interval. In a thread, as other databases: the event loop goes on meanwhile."""
        self._require_open()
        return await asyncio.to_thread(self._rows_of, table, within)

    def _rows_of(self, table: TableName, within: KeyInterval) -> ReadTable:
        found = self._database.read(table.name, table.schema)
        if found is None:
            raise UnknownTableError(table.source, table.wire)
        schema = structs.replace(found.schema, table=structs.replace(found.schema.table, source=self._name))
        after, through = _bound(within.after, schema), _bound(within.through, schema)
        keyed: list[tuple[Any, bytes, bytes]] = [(decode_key(key, schema), key, image) for key, image in found.rows]
        chosen = [
            (key, image)
            for value, key, image in sorted(keyed)
            if (after is None or value > after) and (through is None or value <= through)
        ]
        return structs.replace(found, schema=schema, rows=chosen)


class ScriptedQueries(ScriptedReads):
    """Reads the rows of a database in memory, also by SQL: an SQLite in memory runs it on a copy of the rows."""

    def __init__(self, name: str, database: ScriptedDatabase) -> None:
        super().__init__(name, database)
        self._running: set[apsw.Connection] = set()

    @property
    def dialect(self) -> Dialect:
        """Return SQLite's dialect."""
        return dialect_of("sqlite")

    async def consult(self, use: Callable[[Catalog], _T]) -> tuple[_T, str]:
        """Return what is said of the catalog of a copy: that of the default schema."""
        self._require_open()
        return await asyncio.to_thread(self._consult, use)

    async def run(self, sql: str, arguments: Sequence[Stored], limits: RunLimits) -> ResultRows:
        """Run a query on a copy of the rows; see `QuerySource.run`."""
        self._require_open()
        return await asyncio.to_thread(self._run, sql, arguments, limits)

    async def close(self) -> None:
        """End what runs, and refuse everything from now on."""
        await super().close()
        for connection in tuple(self._running):
            connection.interrupt()

    def _consult(self, use: Callable[[Catalog], _T]) -> tuple[_T, str]:
        with self._copied() as (connection, version):
            return use(QueryCatalog(connection)), version

    def _run(self, sql: str, arguments: Sequence[Stored], limits: RunLimits) -> ResultRows:
        deadline_s = time.monotonic() + limits.timeout_s
        with self._copied() as (connection, version):
            connection.set_progress_handler(lambda: self._closed or time.monotonic() > deadline_s, _STEPS)
            connection.pragma("query_only", 1)
            cursor = connection.cursor()
            columns: list[str] = []

            def note(running: apsw.Cursor, _sql: str, _bindings: Any) -> bool:
                columns[:] = [name for name, *_ in running.get_description()]  # a result without rows has none later
                return True

            cursor.exec_trace = note
            try:
                rows = self._bounded(cursor.execute(sql, tuple(arguments)), limits)
            except apsw.InterruptError as error:
                self._require_open()
                raise QueryTimeoutError(f"the query takes longer than {limits.timeout_s:g} s") from error
            except apsw.Error as error:
                raise InvalidRequestError(f"the database rejected the query: {error}") from error
        return ResultRows(tuple(columns), rows, version)

    @staticmethod
    def _bounded(cursor: apsw.Cursor, limits: RunLimits) -> list[tuple[Value, ...]]:
        rows: list[tuple[Value, ...]] = []
        size_bytes = 0
        for row in cursor:
            rows.append(row)
            size_bytes += sum(len(cell) if isinstance(cell, str | bytes) else 8 for cell in row)
            if len(rows) > limits.rows_max:
                raise ResultTooLargeError(f"the result has more than {limits.rows_max} rows")
            if size_bytes > limits.bytes_max:
                raise ResultTooLargeError(f"the result has more than {limits.bytes_max} bytes")
        return rows

    @contextlib.contextmanager
    def _copied(self) -> Iterator[tuple[apsw.Connection, str]]:
        """Give a database in memory with a copy of all rows, and the version of the schemas."""
        tables = self._database.read_all()
        connection = apsw.Connection(":memory:")
        self._running.add(connection)
        try:
            for schema in sorted({table.schema.table.schema for table in tables} - {""}):
                connection.execute(f"ATTACH ':memory:' AS {_quoted(schema)}")
            for table in tables:
                _copy(connection, table)
            yield connection, tables[0].catalog if tables else self._database.catalog
        finally:
            self._running.discard(connection)
            connection.close()


def _copy(connection: apsw.Connection, table: ReadTable) -> None:
    schema = table.schema
    columns = [f"{_quoted(column.name)} {_TYPES.get(column.kind, ('',))[0]}" for column in schema.columns]
    key = [f"PRIMARY KEY({', '.join(map(_quoted, schema.key))})"] if schema.key else []
    name = f"{_quoted(schema.table.schema or 'main')}.{_quoted(schema.table.name)}"
    connection.execute(f"CREATE TABLE {name}({', '.join([*columns, *key])})")
    places = ", ".join("?" * len(schema.columns))
    images = (decode_image(image, schema) for _, image in table.rows)
    values = [tuple(image.get(column.name) for column in schema.columns) for image in images]
    connection.executemany(f"INSERT INTO {name} VALUES({places})", values)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _bound(key: str | None, schema: TableSchema) -> tuple[Value, ...] | None:
    """Return the values of a key; None where there is no bound.

    Raises:
        InvalidValueError: It is no key of the table.
    """
    if key is None:
        return None
    try:
        return decode_key(key.encode(), schema)
    except (DecodeError, TypeError, ValueError) as error:
        raise InvalidValueError(f"this is no key of table {schema.table.name!r}: {key[:64]!r}") from error
