"""SQL statements of clients in an SQLite database, in a thread of their own."""

import asyncio
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import apsw

from tailrace.model.catalog import fold
from tailrace.model.errors import (
    InvalidRequestError,
    QueryTimeoutError,
    ResultTooLargeError,
    SourceUnavailableError,
)
from tailrace.source.base import RunLimits, Stored
from tailrace.source.sqlite.capture_setup import ensure_capture, exec_ddl
from tailrace.source.sqlite.change_table import PREFIX
from tailrace.source.sqlite.connection import connect
from tailrace.source.sqlite.connection_thread import ConnectionThread
from tailrace.source.sqlite.one_statement import describe, refresh_schema, run_one
from tailrace.source.sqlite.options import Reader
from tailrace.source.statement import StatementResult

__all__ = ["SqliteStatementRunner"]

_T = TypeVar("_T")

_BUSY_TIMEOUT_MS = 5000
_STEPS = 5000
"""Instructions of SQLite's machine between two looks at the clock."""

_CELL_BYTES_MAX = 16 << 20
"""Largest text or blob that a statement may make."""

_WAITING_MAX = 64
"""Statements that may wait for their turn."""

_FORBIDDEN = {
    apsw.SQLITE_ATTACH,
    apsw.SQLITE_DETACH,
    apsw.SQLITE_TRANSACTION,
    apsw.SQLITE_SAVEPOINT,
    apsw.SQLITE_CREATE_TEMP_INDEX,
    apsw.SQLITE_CREATE_TEMP_TABLE,
    apsw.SQLITE_CREATE_TEMP_TRIGGER,
    apsw.SQLITE_CREATE_TEMP_VIEW,
    apsw.SQLITE_CREATE_VTABLE,
}
_PRAGMAS = {"table_info", "table_xinfo", "table_list", "index_list", "index_info", "index_xinfo", "foreign_key_list"}
"""Pragmas that only tell about tables."""

_FORBIDDEN_FUNCTIONS = {"load_extension", "fts3_tokenizer"}
_LIFTED = {apsw.SQLITE_DROP_TRIGGER, apsw.SQLITE_DROP_INDEX, apsw.SQLITE_REINDEX}
"""What may also hit triggers and indexes of ours, as when their table is dropped; capture is fitted to that at once."""


class SqliteStatementRunner:
    """Satisfies `tailrace.source.statement.StatementRunner`. `reader` is who captures the database; None for nobody.

    A statement that changes the schema is followed by fitting capture to it, in the same transaction, so that nothing
    can be written to a new table unseen.
    """

    def __init__(self, path: Path, reader: Reader | None) -> None:
        self._path = path
        self._reader = reader
        self._thread = ConnectionThread(lambda: _connect(path), "sqlite-statement")
        self._waiting = 0
        self._stopping = False

    async def execute(self, sql: str, arguments: Sequence[Stored], limits: RunLimits) -> StatementResult:
        """Run one statement; see `StatementRunner.execute`."""
        if self._waiting >= _WAITING_MAX:
            raise SourceUnavailableError("too many statements wait for the database: try again later")
        deadline_s = time.monotonic() + limits.timeout_s
        self._waiting += 1
        try:
            running = self._thread.submit(lambda connection: self._run(connection, sql, arguments, limits, deadline_s))
            return await asyncio.shield(running)
        finally:
            self._waiting -= 1

    async def close(self) -> None:
        """End what runs, and disconnect."""
        self._stopping = True  # an interrupt that comes between two statements ends nothing
        self._thread.interrupt()
        await self._thread.close()

    def _run(
        self, connection: apsw.Connection, sql: str, arguments: Sequence[Stored], limits: RunLimits, deadline_s: float
    ) -> StatementResult:
        connection.set_busy_timeout(min(_BUSY_TIMEOUT_MS, max(0, round((deadline_s - time.monotonic()) * 1000))))
        connection.set_progress_handler(lambda: self._stopping or time.monotonic() > deadline_s, _STEPS)
        try:
            try:
                return self._transact(connection, sql, arguments, limits)
            except apsw.SQLError as error:
                if PREFIX not in str(error):
                    raise
                exec_ddl(self._path, sql)  # our triggers are in its way
                return StatementResult((), [], 0)
        except apsw.InterruptError as error:
            if time.monotonic() > deadline_s:
                reason = f"the statement takes longer than {limits.timeout_s:g} s: ask for less"
                raise QueryTimeoutError(reason) from error
            raise SourceUnavailableError("the server stops") from error
        except (apsw.TooBigError, apsw.NoMemError) as error:
            raise ResultTooLargeError("a value of the statement is too large") from error
        except apsw.BindingsError as error:
            raise InvalidRequestError("give one value for each ? of the statement") from error
        except UnicodeDecodeError as error:
            raise InvalidRequestError("a text in the result is not valid text: CAST it AS BLOB") from error
        except (apsw.SQLError, apsw.ConstraintError, apsw.AuthError, apsw.MismatchError, apsw.RangeError) as error:
            raise InvalidRequestError(f"the database does not take the statement: {error}") from error
        except apsw.ReadOnlyError as error:
            raise InvalidRequestError("the database can only be read") from error
        finally:
            connection.set_progress_handler(None)

    def _transact(
        self, connection: apsw.Connection, sql: str, arguments: Sequence[Stored], limits: RunLimits
    ) -> StatementResult:
        refresh_schema(connection)
        reads_only = _authorized(connection, lambda: describe(connection, sql, arguments))
        version = int(connection.pragma("schema_version"))
        connection.execute("BEGIN" if reads_only else "BEGIN IMMEDIATE")
        try:
            refresh_schema(connection)
            before = connection.total_changes()
            columns, rows = _authorized(connection, lambda: run_one(connection, sql, arguments, limits))
            changes = connection.changes() if connection.total_changes() != before else 0
            if self._reader is not None and int(connection.pragma("schema_version")) != version:
                ensure_capture(connection, self._reader)
            connection.execute("COMMIT")
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        return StatementResult(columns, rows, changes)


def _connect(path: Path) -> apsw.Connection:
    connection = connect(path, busy_timeout_ms=_BUSY_TIMEOUT_MS)
    connection.limit(apsw.SQLITE_LIMIT_LENGTH, _CELL_BYTES_MAX)
    connection.limit(apsw.SQLITE_LIMIT_ATTACHED, 0)
    return connection


def _authorized(connection: apsw.Connection, use: Callable[[], _T]) -> _T:
    """Return `use()`, in which nothing is prepared that clients may not run."""
    connection.authorizer = _authorize
    try:
        return use()
    finally:
        connection.authorizer = None


def _authorize(action: int, first: Any, second: Any, schema: Any, trigger: Any) -> int:
    """Let a statement use the tables of the main schema, but nothing beyond the database and nothing of capture's."""
    if trigger is not None and fold(trigger).startswith(PREFIX):
        return apsw.SQLITE_OK
    if action == apsw.SQLITE_ALTER_TABLE:
        first, schema = second, first
    if action in _FORBIDDEN or schema not in (None, "", "main", "temp"):
        return apsw.SQLITE_DENY
    if action == apsw.SQLITE_PRAGMA:
        return apsw.SQLITE_OK if first.lower() in _PRAGMAS else apsw.SQLITE_DENY
    if action == apsw.SQLITE_FUNCTION:
        return apsw.SQLITE_DENY if second.lower() in _FORBIDDEN_FUNCTIONS else apsw.SQLITE_OK
    names = [fold(name) for name in (first, second) if isinstance(name, str)]
    if action not in _LIFTED and any(name.startswith(PREFIX) for name in names):
        return apsw.SQLITE_DENY
    return apsw.SQLITE_OK
