"""The reading side of a PostgreSQL database: what is committed, and rows, each in a transaction of its own."""

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from msgspec import Struct

from tailrace.model.errors import InvalidRequestError, SourceStateError
from tailrace.model.key_interval import KeyInterval
from tailrace.model.number import Position
from tailrace.model.table import TableName
from tailrace.source.base import Barrier, ResultRows, RunLimits
from tailrace.source.postgres.commit_watch import CommitWatch
from tailrace.source.postgres.key_page import PostgresPage, count_rows, cut_keys, find_last_key, read_page
from tailrace.source.postgres.lane import Lane
from tailrace.source.postgres.options import PostgresSettings
from tailrace.source.postgres.position import parse_position
from tailrace.source.postgres.read_connection import ReadConnection
from tailrace.source.postgres.snapshot import PostgresSnapshot, copy_table
from tailrace.source.postgres.table_shape import DIALECT
from tailrace.sql.dialect import dialect_of
from tailrace.sql.query import Catalog, Stored

__all__ = ["PostgresQuerySource"]

_T = TypeVar("_T")

_LOOKS_MAX = 2
_PAGES_MAX = 4
"""Intervals of keys that are read at one time."""

_SNAPSHOTS_MAX = 2
"""Tables that are copied at one time."""


class _Version(Struct, frozen=True):
    """The catalog as far as it is known here: its version."""

    version: str


class PostgresQuerySource:
    """Reads one PostgreSQL database; satisfies `tailrace.source.base.QuerySource`. There are no queries of clients."""

    def __init__(self, name: str, url: str, settings: PostgresSettings, watch: CommitWatch) -> None:
        self.dialect = dialect_of(DIALECT)
        self._watch = watch
        self._stopping = threading.Event()

        def connect() -> ReadConnection:
            return ReadConnection(name, url, settings, watch)

        self._looks = Lane(connect, _LOOKS_MAX, "postgres-look", self._stopping)
        self._pages = Lane(connect, _PAGES_MAX, "postgres-page", self._stopping)
        self._copies = Lane(connect, _SNAPSHOTS_MAX, "postgres-snapshot", self._stopping)

    async def newest(self, timeout_s: float) -> Barrier:
        """Return what is committed now; see `QuerySource.newest`."""
        deadline_s = time.monotonic() + timeout_s

        def run(connection: ReadConnection) -> Barrier:
            seen = connection.await_capture(deadline_s, self._stopping)
            return self._watch.newest(seen.lsn, seen.catalog)

        return await self._looks.call(run)

    def reached(self, barrier: Barrier, position: Position | None) -> bool:
        """Tell whether a log that ends at `position` has everything that the barrier stands for."""
        if barrier.position is None:
            return True
        if position is None:
            return False
        try:
            wanted, place = parse_position(barrier.position), parse_position(position)
        except SourceStateError:
            return False
        return wanted.system == place.system and wanted.lsn <= place.lsn

    async def consult(self, use: Callable[[Catalog], _T]) -> tuple[_T, str]:
        """Return `use(catalog)` of a catalog that has its version alone, and that version."""

        def run(connection: ReadConnection) -> tuple[_T, str]:
            version = connection.look()[0].catalog
            return use(_Version(version)), version

        return await self._looks.call(run)

    async def run(self, sql: str, arguments: Sequence[Stored], limits: RunLimits) -> ResultRows:
        """Refuse: a query is refused before, when its text is parsed."""
        raise InvalidRequestError("there are no queries for postgresql sources: subscribe to tables instead")

    async def snapshot(self, table: TableName, timeout_s: float) -> PostgresSnapshot:
        """Return all rows of a table; see `QuerySource.snapshot`."""
        deadline_s = time.monotonic() + timeout_s
        cancelled = threading.Event()
        copying = asyncio.ensure_future(
            self._copies.call(lambda one: copy_table(one, table, deadline_s, self._stopping, cancelled))
        )
        try:
            return await asyncio.shield(copying)
        except asyncio.CancelledError:
            cancelled.set()
            copying.add_done_callback(_let_go)
            raise

    async def count(self, table: TableName) -> int:
        """Return how many rows a table has; see `QuerySource.count`."""
        return await self._pages.call(lambda one: count_rows(one, table))

    async def last_key(self, table: TableName) -> str | None:
        """Return the greatest key of a table; see `QuerySource.last_key`."""
        return await self._pages.call(lambda one: find_last_key(one, table))

    async def cut(self, table: TableName, within: KeyInterval, *, rows: int, count: int) -> list[str]:
        """Cut an interval of keys into runs; see `QuerySource.cut`."""
        return await self._pages.call(lambda one: cut_keys(one, table, within, rows, count))

    async def page(self, table: TableName, within: KeyInterval, *, rows_max: int, timeout_s: float) -> PostgresPage:
        """Return the first rows of an interval of keys; see `QuerySource.page`."""
        deadline_s = time.monotonic() + timeout_s
        return await self._pages.call(lambda one: read_page(one, table, within, rows_max, deadline_s, self._stopping))

    async def close(self) -> None:
        """Disconnect; what runs is ended."""
        self._stopping.set()
        for lane in (self._copies, self._pages, self._looks):
            await lane.close()


def _let_go(copying: "asyncio.Future[PostgresSnapshot]") -> None:
    """Close a snapshot for which nobody waits any more."""
    if not copying.cancelled() and copying.exception() is None:
        copying.result().close()
