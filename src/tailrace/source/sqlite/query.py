"""The reading side of an SQLite database: barriers and its catalog in threads, SQL of clients in processes."""

import asyncio
import functools
import os
import threading
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import apsw

from tailrace.metrics import Metrics
from tailrace.model.errors import QueryTimeoutError, SourceUnavailableError
from tailrace.model.key_interval import KeyInterval
from tailrace.model.number import Position
from tailrace.model.table import TableName
from tailrace.source.base import Barrier, Reader, ResultRows, RunLimits
from tailrace.source.sqlite.barrier import look, reached
from tailrace.source.sqlite.client_query import snapshot
from tailrace.source.sqlite.connection import file_id
from tailrace.source.sqlite.key_page import SqlitePage, count_rows, cut_keys, find_last_key, read_page
from tailrace.source.sqlite.process_message import (
    FootprintRequest,
    ProcessFailure,
    QueryAnswer,
    QueryRequest,
    Touched,
    answer_bytes_max,
)
from tailrace.source.sqlite.process_pool import STOPS, ProcessPool
from tailrace.source.sqlite.query_catalog import QueryCatalog
from tailrace.source.sqlite.snapshot import SqliteSnapshot, copy_table
from tailrace.sql.dialect import dialect_of
from tailrace.sql.query import Catalog, Stored

__all__ = ["SqliteQuerySource"]

_T = TypeVar("_T")

_SNAPSHOTS_MAX = 2
"""Tables that are copied at one time."""

_PAGES_MAX = 4
"""Intervals of keys that are read at one time."""

_BUSY_TIMEOUT_MS = 2000
_FIT_PAUSE_S = 0.005
"""How often to look whether capture has followed a schema change."""

_LOOK_TIMEOUT_S = 5.0
"""How long SQLite may take to compile a query when it is prepared."""

_LOOK_BYTES_MAX = 4 << 20
_TOUCHED_MAX = 256
"""Statements of which it is remembered what they touch."""

_ATTEMPTS_MAX = 4


class SqliteQuerySource:
    """Reads one SQLite database; satisfies `tailrace.source.base.QuerySource`.

    All connections are read-only. Barriers and the catalog have separate threads, and SQL of clients runs in processes
    that can be killed, so that no query keeps anybody from learning that a result is still valid. At most `runs_max`
    queries run at one time; one more process may look what a query touches.
    """

    def __init__(self, path: Path, reader: Reader, runs_max: int = 4, metrics: Metrics | None = None) -> None:
        self.dialect = dialect_of("sqlite")
        self._path = path
        self._reader = reader
        self._stopping = threading.Event()
        self._barriers = _Lane(path, 1, "sqlite-barrier", self._stopping)
        self._catalogs = _Lane(path, 1, "sqlite-catalog", self._stopping)
        self._processes = ProcessPool(path, metrics)
        self._turns = asyncio.Semaphore(runs_max)
        self._looks = asyncio.Semaphore(1)
        self._catalog: tuple[str, QueryCatalog] | None = None
        self._touched: OrderedDict[tuple[str, int], Touched] = OrderedDict()
        self._copies = ThreadPoolExecutor(_SNAPSHOTS_MAX, thread_name_prefix="sqlite-snapshot")
        self._pages = _Lane(path, _PAGES_MAX, "sqlite-page", self._stopping)
        self._cancels: set[threading.Event] = set()

    async def newest(self, timeout_s: float) -> Barrier:
        """Return what is committed now; see `QuerySource.newest`."""
        deadline_s = time.monotonic() + timeout_s
        while True:
            barrier = await self._barriers.call(self._look)
            if barrier is not None:
                return barrier
            if time.monotonic() > deadline_s:
                raise SourceUnavailableError("capture does not fit the schema of the database yet")
            await asyncio.sleep(_FIT_PAUSE_S)

    def reached(self, barrier: Barrier, position: Position | None) -> bool:
        """Tell whether a log that ends at `position` has everything that the barrier stands for."""
        return reached(barrier, position)

    async def consult(self, use: Callable[[Catalog], _T]) -> tuple[_T, str]:
        """Return `use(catalog)` of the newest catalog, and the name of the schema's version."""

        def run(connection: apsw.Connection) -> tuple[_T, str]:
            version = str(connection.pragma("schema_version"))
            if self._catalog is None or self._catalog[0] != version:
                self._catalog = (version, QueryCatalog(connection, functools.partial(self._touched_in, version)))
            return use(self._catalog[1]), version

        for _ in range(_ATTEMPTS_MAX):
            try:
                return await self._catalogs.call(run)
            except _UntouchedError as needed:
                self._touched[needed.key] = await self._touch(*needed.key)
                if len(self._touched) > _TOUCHED_MAX:
                    self._touched.popitem(last=False)
        raise SourceUnavailableError("the schema of the database keeps changing")

    async def run(self, sql: str, arguments: Sequence[Stored], limits: RunLimits) -> ResultRows:
        """Run a query that only reads; see `QuerySource.run`."""
        deadline_s = time.monotonic() + limits.timeout_s
        async with _turn(self._turns, limits.timeout_s), self._processes.lease() as process:
            left_s = deadline_s - time.monotonic()
            request = QueryRequest(sql, tuple(arguments), limits, left_s)
            late = f"the query takes longer than {limits.timeout_s:g} s: ask for less"
            match await process.ask(request, left_s, answer_bytes_max(limits), late):
                case QueryAnswer() as found:
                    return found.result()
                case ProcessFailure() as failure:
                    raise failure.error()
                case other:
                    raise AssertionError(f"a query was answered with {type(other).__name__}")

    async def snapshot(self, table: TableName, timeout_s: float) -> SqliteSnapshot:
        """Return all rows of a table; see `QuerySource.snapshot`."""
        cancelled = threading.Event()
        loop = asyncio.get_running_loop()
        copying = loop.run_in_executor(
            self._copies, lambda: copy_table(self._path, self._reader, table, timeout_s, cancelled)
        )
        self._cancels.add(cancelled)
        try:
            return await asyncio.shield(copying)
        except asyncio.CancelledError:
            cancelled.set()
            copying.add_done_callback(_let_go)
            raise
        finally:
            self._cancels.discard(cancelled)

    async def count(self, table: TableName) -> int:
        """Return how many rows a table has; see `QuerySource.count`."""
        return await self._pages.call(lambda connection: count_rows(connection, table))

    async def last_key(self, table: TableName) -> str | None:
        """Return the greatest key of a table; see `QuerySource.last_key`."""
        return await self._pages.call(lambda connection: find_last_key(connection, table))

    async def cut(self, table: TableName, within: KeyInterval, *, rows: int, count: int) -> list[str]:
        """Cut an interval of keys into runs; see `QuerySource.cut`."""
        return await self._pages.call(lambda connection: cut_keys(connection, table, within, rows, count))

    async def page(self, table: TableName, within: KeyInterval, *, rows_max: int, timeout_s: float) -> SqlitePage:
        """Return the first rows of an interval of keys; see `QuerySource.page`."""
        deadline_s = time.monotonic() + timeout_s

        def run(connection: apsw.Connection) -> SqlitePage:
            return read_page(connection, self._reader, table, within, rows_max, deadline_s, self._stopping)

        return await self._pages.call(run)

    async def close(self) -> None:
        """Disconnect; runs under way are ended."""
        self._stopping.set()
        for cancelled in self._cancels:
            cancelled.set()
        await asyncio.to_thread(self._copies.shutdown, cancel_futures=True)
        await self._processes.close()
        for lane in (self._pages, self._catalogs, self._barriers):
            await lane.close()

    def _touched_in(self, version: str, sql: str, arguments: int) -> Touched:
        """Return what is known of a statement in a version of the schema, for a thread."""
        found = self._touched.get((sql, arguments))
        if found is None or found.catalog != version:
            raise _UntouchedError((sql, arguments))
        return found

    async def _touch(self, sql: str, arguments: int) -> Touched:
        """Have a process look what a statement touches: SQLite may take for ever to compile it."""
        deadline_s = time.monotonic() + _LOOK_TIMEOUT_S
        async with _turn(self._looks, _LOOK_TIMEOUT_S), self._processes.lease() as process:
            left_s = deadline_s - time.monotonic()
            request = FootprintRequest(sql, arguments, left_s)
            late = "the query takes too long to prepare: make it simpler"
            match await process.ask(request, left_s, _LOOK_BYTES_MAX, late):
                case Touched() as touched:
                    return touched
                case ProcessFailure() as failure:
                    raise failure.error()
                case other:
                    raise AssertionError(f"a look was answered with {type(other).__name__}")

    def _look(self, connection: apsw.Connection) -> Barrier | None:
        """Return the barrier of this moment; None while capture does not fit the schema."""
        with snapshot(connection):
            found = look(connection, self._reader)
        return None if found is None else found.barrier


class _UntouchedError(Exception):
    """It is not known yet what the statement `key` (its text, its number of arguments) touches."""

    def __init__(self, key: tuple[str, int]) -> None:
        self.key = key
        super().__init__("what a statement touches is not known yet")


@asynccontextmanager
async def _turn(turns: asyncio.Semaphore, timeout_s: float) -> AsyncIterator[None]:
    """Wait for a turn, and have it.

    Raises:
        QueryTimeoutError: None came in time.
    """
    try:
        async with asyncio.timeout(timeout_s):
            await turns.acquire()
    except TimeoutError:
        raise QueryTimeoutError("too many queries are running: try again later") from None
    try:
        yield
    finally:
        turns.release()


def _let_go(copying: asyncio.Future[SqliteSnapshot]) -> None:
    """Close a snapshot for which nobody waits any more."""
    if not copying.cancelled() and copying.exception() is None:
        copying.result().close()


def _open(path: Path) -> apsw.Connection:
    """Return a connection for what the server itself reads."""
    connection = apsw.Connection(os.fspath(path), flags=apsw.SQLITE_OPEN_READONLY)
    connection.set_busy_timeout(_BUSY_TIMEOUT_MS)
    connection.execute("PRAGMA query_only = 1").fetchall()
    connection.limit(apsw.SQLITE_LIMIT_ATTACHED, 0)
    return connection


class _Lane:
    """Threads of one purpose, each with its own connection, which is made when it is first needed.

    Once `stopping` is set, nothing more is begun.
    """

    def __init__(self, path: Path, threads: int, name: str, stopping: threading.Event) -> None:
        self._path = path
        self._stopping = stopping
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._own = threading.local()
        self._connections: list[apsw.Connection] = []

    async def call(self, use: Callable[[apsw.Connection], _T]) -> _T:
        """Return `use(connection)`, run in one of the threads."""
        if self._stopping.is_set():
            raise SourceUnavailableError(STOPS)
        calling = asyncio.get_running_loop().run_in_executor(self._executor, self._call, use)
        try:
            return await calling
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if self._stopping.is_set() and task is not None and not task.cancelling():
                raise SourceUnavailableError(STOPS) from None  # no thread had come to it
            raise

    async def close(self) -> None:
        """End what runs and disconnect."""
        for connection in self._connections:
            connection.interrupt()
        await asyncio.to_thread(self._executor.shutdown, cancel_futures=True)
        for connection in self._connections:
            connection.close()
        self._connections.clear()

    def _call(self, use: Callable[[apsw.Connection], _T]) -> _T:
        try:
            return use(self._connection())
        except (apsw.BusyError, apsw.LockedError, apsw.CantOpenError, apsw.IOError, apsw.SchemaChangeError) as error:
            raise SourceUnavailableError(f"the database cannot be read now: {error}") from error
        except apsw.InterruptError as error:
            raise SourceUnavailableError(STOPS) from error
        except (apsw.CorruptError, apsw.NotADBError) as error:
            raise SourceUnavailableError(f"the database cannot be read: {error}") from error

    def _connection(self) -> apsw.Connection:
        connection: apsw.Connection | None = getattr(self._own, "connection", None)
        file = file_id(self._path)
        if connection is not None and self._own.file != file:
            self._connections.remove(connection)  # another file was put in the place of the one that we have open
            connection.close()
            connection = None
        if connection is None:
            connection = _open(self._path)
            self._own.connection, self._own.file = connection, file
            self._connections.append(connection)
        return connection
