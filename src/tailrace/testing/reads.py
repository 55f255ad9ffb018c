"""The reading side of a scripted database: snapshots, counts and pages of rows, but no SQL."""

import json
from collections.abc import Callable, Sequence
from typing import TypeVar

import pyarrow as pa
from msgspec import Struct, structs

from tailrace.model.commit import CommitId
from tailrace.model.errors import InvalidRequestError, UnknownTableError
from tailrace.model.key_interval import KeyInterval
from tailrace.model.number import Position
from tailrace.model.table import TableName, TableSchema
from tailrace.source.base import Barrier, SnapshotRows
from tailrace.source.result import ResultRows, RunLimits
from tailrace.sql.dialect import Dialect, WithoutSql
from tailrace.sql.query import Catalog, Stored
from tailrace.testing.database import ScriptedDatabase

__all__ = ["ScriptedReads"]

_T = TypeVar("_T")


class _Catalog(Struct, frozen=True):
    version: str


class _Read:
    """Some rows as they were after a commit of the database."""

    def __init__(self, schema: TableSchema, rows: Sequence[tuple[bytes, bytes]], through: int, *, end: bool) -> None:
        self.schema = schema
        self.last = rows[-1][0].decode() if rows else None
        self.end = end
        self.barrier = Barrier(Position(str(through)), str(schema.version))
        self._found: SnapshotRows | None = SnapshotRows([key for key, _ in rows], [image for _, image in rows])
        self._through = through

    def contains(self, commit: CommitId) -> bool:
        return int(commit.position) <= self._through

    def complete(self, commit: CommitId | None) -> bool:
        return True


class _Snapshot(_Read):
    async def rows(self) -> SnapshotRows | None:
        found, self._found = self._found, None
        return found

    def close(self) -> None:
        self._found = None


class _Page(_Read):
    def rows(self) -> SnapshotRows:
        assert self._found is not None
        return self._found

    def columns(self) -> pa.RecordBatch | None:
        return None


class ScriptedReads:
    """Reads the rows of a database in memory; see `QuerySource`. Keys are ordered as Python orders their values."""

    def __init__(self, name: str, database: ScriptedDatabase) -> None:
        self._name = name
        self._database = database

    @property
    def dialect(self) -> Dialect:
        """Return one that refuses all SQL."""
        return WithoutSql("scripted")

    async def newest(self, timeout_s: float) -> Barrier:
        """Return the newest commit."""
        return Barrier(Position(str(len(self._database.commits))), self._catalog.version)

    def reached(self, barrier: Barrier, position: Position | None) -> bool:
        """Compare positions by their number."""
        wanted = int(barrier.position or 0)
        # What was committed before the first opening is not in the log, and is in all rows.
        return wanted <= max(int(position or 0), min(self._database.began.values(), default=0))

    async def consult(self, use: Callable[[Catalog], _T]) -> tuple[_T, str]:
        """Return what is said of a catalog that has its version alone."""
        return use(self._catalog), self._catalog.version

    async def run(self, sql: str, arguments: Sequence[Stored], limits: RunLimits) -> ResultRows:
        """Refuse."""
        raise InvalidRequestError("a scripted database runs no SQL")

    async def snapshot(self, table: TableName, timeout_s: float) -> _Snapshot:
        """Return all rows."""
        schema, rows = self._rows(table, KeyInterval())
        return _Snapshot(schema, rows, len(self._database.commits), end=True)

    async def count(self, table: TableName) -> int:
        """Return how many rows there are."""
        return len(self._rows(table, KeyInterval())[1])

    async def last_key(self, table: TableName) -> str | None:
        """Return the greatest key."""
        _, rows = self._rows(table, KeyInterval())
        return rows[-1][0].decode() if rows else None

    async def cut(self, table: TableName, within: KeyInterval, *, rows: int, count: int) -> list[str]:
        """Return the last key of each whole run."""
        _, found = self._rows(table, within)
        return [key.decode() for key, _ in found[rows - 1 :: rows]][:count]

    async def page(self, table: TableName, within: KeyInterval, *, rows_max: int, timeout_s: float) -> _Page:
        """Return the first rows."""
        schema, rows = self._rows(table, within)
        return _Page(schema, rows[:rows_max], len(self._database.commits), end=len(rows) <= rows_max)

    async def close(self) -> None:
        """Do nothing."""

    @property
    def _catalog(self) -> _Catalog:
        return _Catalog(str(sum(map(len, self._database.histories()))))

    def _rows(self, table: TableName, within: KeyInterval) -> tuple[TableSchema, list[tuple[bytes, bytes]]]:
        found = self._database.read(table.name, table.schema)
        if found is None:
            raise UnknownTableError(table.source, table.wire)
        schema, rows = found
        after = None if within.after is None else json.loads(within.after)
        through = None if within.through is None else json.loads(within.through)
        keyed = sorted((json.loads(key), key, image) for key, image in rows)
        chosen = [
            (key, image)
            for value, key, image in keyed
            if (after is None or value > after) and (through is None or value <= through)
        ]
        return structs.replace(schema, table=structs.replace(schema.table, source=self._name)), chosen
