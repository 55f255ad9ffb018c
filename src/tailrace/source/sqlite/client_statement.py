"""Running one statement of a client, which may write, in a transaction of its own. Blocking.

A statement that changes the schema is followed by fitting capture to it in the same transaction, so that nothing can be
written to a new table unseen. All that a client can influence the cost of is under one clock and one authorizer.
"""

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import apsw

from tailrace.model.errors import InvalidRequestError, QueryTimeoutError, ResultTooLargeError
from tailrace.model.value import Value
from tailrace.source.reader import Reader
from tailrace.source.result import RunLimits, StatementResult
from tailrace.source.sqlite.capture_setup import ensure_capture, run_ddl
from tailrace.source.sqlite.client_query import STEPS
from tailrace.source.sqlite.connection import connect
from tailrace.source.sqlite.one_statement import describe, refresh_schema, run_one
from tailrace.source.sqlite.registry import read_capture
from tailrace.source.sqlite.sandbox import check_schema_change, key_value_objects, restrict, writing
from tailrace.sql.query import Stored

__all__ = ["open_writing", "run_statement"]

_BUSY_TIMEOUT_MS = 5000

_Rows = tuple[tuple[str, ...], list[tuple[Value, ...]]]


def open_writing(path: Path) -> apsw.Connection:
    """Return a connection for statements of clients."""
    connection = connect(path, busy_timeout_ms=_BUSY_TIMEOUT_MS)
    restrict(connection)
    return connection


def run_statement(
    connection: apsw.Connection,
    reader: Reader | None,
    sql: str,
    arguments: Sequence[Stored],
    limits: RunLimits,
    deadline_s: float,
    before_commit: Callable[[], None],
) -> StatementResult:
    """Run a statement until the `deadline_s` of the monotonic clock; see `StatementRunner.execute`.

    `reader` is who captures the database; None for nobody. `before_commit` is called when all that can take long is
    done, of a statement that writes; what it raises undoes the statement.

    Raises:
        apsw.Error: The database is locked, full or cannot be used; all other errors are ours.
    """
    connection.set_busy_timeout(min(_BUSY_TIMEOUT_MS, max(0, round((deadline_s - time.monotonic()) * 1000))))
    connection.set_progress_handler(lambda: time.monotonic() > deadline_s, STEPS)
    try:
        return _transact(connection, reader, sql, arguments, limits, before_commit)
    except apsw.InterruptError as error:
        raise QueryTimeoutError(f"the statement takes longer than {limits.timeout_s:g} s: ask for less") from error
    except (apsw.TooBigError, apsw.NoMemError) as error:
        raise ResultTooLargeError("a value of the statement is too large") from error
    except apsw.BindingsError as error:
        raise InvalidRequestError("pass one value for each ? in the statement") from error
    except UnicodeDecodeError as error:
        raise InvalidRequestError("a text in the result is not valid text: CAST it AS BLOB") from error
    except UnicodeEncodeError as error:
        raise InvalidRequestError("the statement or a value is not valid Unicode text") from error
    except (apsw.SQLError, apsw.ConstraintError, apsw.AuthError, apsw.MismatchError, apsw.RangeError) as error:
        raise InvalidRequestError(f"the database rejected the statement: {error}") from error
    except apsw.ReadOnlyError as error:
        raise InvalidRequestError("the database is read-only") from error
    finally:
        connection.set_progress_handler(None)


def _transact(
    connection: apsw.Connection,
    reader: Reader | None,
    sql: str,
    arguments: Sequence[Stored],
    limits: RunLimits,
    before_commit: Callable[[], None],
) -> StatementResult:
    refresh_schema(connection)
    with writing(connection) as actions:
        reads_only = describe(connection, sql, arguments)

    def run() -> _Rows:
        with writing(connection):
            return run_one(connection, sql, arguments, limits)

    connection.execute("BEGIN" if reads_only else "BEGIN IMMEDIATE")
    try:
        refresh_schema(connection)
        version = int(connection.pragma("schema_version"))
        values = set() if reads_only else key_value_objects(connection)
        before = connection.total_changes()
        if apsw.SQLITE_ALTER_TABLE in actions and read_capture(connection) is not None:
            columns, rows = run_ddl(connection, run)
        else:
            columns, rows = run()
        changes = connection.changes() if connection.total_changes() != before else 0
        if int(connection.pragma("schema_version")) != version:
            check_schema_change(sql)
            if not key_value_objects(connection) <= values:
                raise InvalidRequestError("SQL cannot create or alter the table kv, nor indexes and triggers on it")
            if reader is not None:
                ensure_capture(connection, reader)
        if not reads_only:
            before_commit()
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
    return StatementResult(columns, rows, changes)
