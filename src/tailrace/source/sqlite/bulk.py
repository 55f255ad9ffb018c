"""Bulk loads: statements whose changes are marked as moved data."""

from pathlib import Path

import apsw

from tailrace.model.errors import InvalidRequestError, SourceStateError
from tailrace.source.sqlite.capture_setup import ensure_capture
from tailrace.source.sqlite.change_table import CHANGE, MIGRATION, MIGRATION_END
from tailrace.source.sqlite.connection import connect, translated, writing
from tailrace.source.sqlite.options import SqliteOptions
from tailrace.source.sqlite.registry import read_capture

__all__ = ["exec_bulk"]

_FORBIDDEN = {apsw.SQLITE_TRANSACTION, apsw.SQLITE_SAVEPOINT, apsw.SQLITE_ATTACH, apsw.SQLITE_DETACH}
"""What would end the transaction, or write elsewhere."""

_MARK = f"INSERT INTO {CHANGE}(h, c0) VALUES(0, ?)"


def exec_bulk(path: Path, sql: str, options: SqliteOptions | None = None) -> None:
    """Run statements in one transaction whose changes are marked as moved data; all of them count, or none.

    Raises:
        InvalidRequestError: SQLite refuses a statement, or one of them begins or ends a transaction.
        SourceStateError: Capture is not set up.
        SourceUnavailableError: The database is locked.
    """
    options = options or SqliteOptions()
    connection = connect(path, busy_timeout_ms=options.busy_timeout_ms)
    try:
        with translated(path), writing(connection):
            if read_capture(connection) is None:
                raise SourceStateError("capture is not set up in this database; run the statements as usual")
            ensure_capture(connection, None)
            connection.execute(_MARK, (MIGRATION,))
            _run(connection, sql)
            ensure_capture(connection, None)
            connection.execute(_MARK, (MIGRATION_END,))
    finally:
        connection.close()


def _run(connection: apsw.Connection, sql: str) -> None:
    connection.authorizer = _admit
    try:
        connection.execute(sql).fetchall()
    except (apsw.SQLError, apsw.ConstraintError, apsw.AuthError, apsw.MismatchError, apsw.TooBigError) as error:
        raise InvalidRequestError(f"SQLite refuses a statement: {error}") from error
    finally:
        connection.authorizer = None


def _admit(action: int, *_: object) -> int:
    return apsw.SQLITE_DENY if action in _FORBIDDEN else apsw.SQLITE_OK
