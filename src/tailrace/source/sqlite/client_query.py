"""Running one query of a client on a connection that only reads. Blocking."""

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import apsw

from tailrace.model.errors import InvalidRequestError, QueryTimeoutError, ResultTooLargeError
from tailrace.source.result import ResultRows, RunLimits
from tailrace.source.sqlite.one_statement import refresh_schema, run_one
from tailrace.source.sqlite.sandbox import reading, restrict
from tailrace.sql.query import Stored

__all__ = ["STEPS", "open_reading", "run_query", "snapshot"]

STEPS = 5000
"""Instructions of SQLite's machine between two looks at the clock."""

_BUSY_TIMEOUT_MS = 2000

_UNAVAILABLE = (
    apsw.BusyError,
    apsw.LockedError,
    apsw.CantOpenError,
    apsw.IOError,
    apsw.SchemaChangeError,
    apsw.FullError,
    apsw.ReadOnlyError,  # a writer was killed, and a process that may write has to roll it back first
    apsw.CorruptError,
    apsw.NotADBError,
)
"""Errors that are not the query's own."""


def open_reading(path: Path) -> apsw.Connection:
    """Return a connection for queries of clients."""
    connection = apsw.Connection(os.fspath(path), flags=apsw.SQLITE_OPEN_READONLY)
    connection.set_busy_timeout(_BUSY_TIMEOUT_MS)
    connection.execute("PRAGMA query_only = 1").fetchall()
    restrict(connection)
    return connection


@contextmanager
def snapshot(connection: apsw.Connection) -> Iterator[None]:
    """Read in one transaction."""
    connection.execute("BEGIN")
    try:
        yield
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def run_query(
    connection: apsw.Connection, sql: str, arguments: Sequence[Stored], limits: RunLimits, deadline_s: float
) -> ResultRows:
    """Run a query until the `deadline_s` of the monotonic clock; see `QuerySource.run`.

    Raises:
        apsw.Error: The database is locked or cannot be read; all other errors are ours.
    """
    with snapshot(connection):
        refresh_schema(connection)
        version = str(connection.pragma("schema_version"))
        connection.set_progress_handler(lambda: time.monotonic() > deadline_s, STEPS)
        try:
            with reading(connection):
                columns, rows = run_one(connection, sql, arguments, limits)
            return ResultRows(columns, rows, version)
        except apsw.InterruptError as error:
            raise QueryTimeoutError(f"the query takes longer than {limits.timeout_s:g} s: ask for less") from error
        except (apsw.TooBigError, apsw.NoMemError) as error:
            raise ResultTooLargeError("a value of the query is too large") from error
        except _UNAVAILABLE:
            raise
        except UnicodeDecodeError as error:
            raise InvalidRequestError("a text in the result is not valid text: CAST it AS BLOB") from error
        except UnicodeEncodeError as error:
            raise InvalidRequestError("the query or an argument is not valid Unicode text") from error
        except apsw.Error as error:
            raise InvalidRequestError(f"the database rejected the query: {error}") from error
        finally:
            connection.set_progress_handler(None)
