"""Setting capture up in a database, looking at it, and removing it without a trace."""
# ruff: noqa: S608 (identifiers are quoted, values are bound)

import contextlib
import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TypeVar

import apsw

from tailrace.model.errors import InvalidRequestError, NotFoundError, SourceStateError
from tailrace.source.administration import CaptureStatus, ReaderStatus
from tailrace.source.reader import Reader
from tailrace.source.sqlite.change_table import (
    CAPTURE,
    CHANGE,
    FORMAT,
    MIGRATION,
    MIGRATION_END,
    PREFIX,
    READER,
    TABLE,
    ChangeCode,
    create_statements,
    quote,
)
from tailrace.source.sqlite.connection import connect, rows, translated, writing
from tailrace.source.sqlite.options import SqliteOptions
from tailrace.source.sqlite.reconcile import drop_triggers, reconcile, width_of
from tailrace.source.sqlite.registry import (
    Capture,
    ReaderRow,
    add_reader,
    load_versions,
    note,
    read_capture,
    read_readers,
    upgrade_readers,
    window,
)
from tailrace.source.sqlite.schema import read_schema

__all__ = [
    "Status",
    "ensure_capture",
    "exec_bulk",
    "exec_ddl",
    "remove",
    "remove_from",
    "remove_reader",
    "run_ddl",
    "set_up",
    "status",
]


_T = TypeVar("_T")

_COMMENTS = re.compile(r"--[^\n]*|/\*.*?\*/", re.DOTALL)

_NOT_IN_BULK = frozenset({apsw.SQLITE_TRANSACTION, apsw.SQLITE_SAVEPOINT, apsw.SQLITE_ATTACH, apsw.SQLITE_DETACH})
"""What would end the transaction of a bulk load, or write elsewhere."""

_MARK = f"INSERT INTO {CHANGE}(h, c0) VALUES(0, ?)"


class Status(CaptureStatus, frozen=True):
    """What capture is doing in an SQLite database."""

    journal_mode: str = ""

    def facts(self) -> Mapping[str, str]:
        """Return the journal mode."""
        return {"journal mode": self.journal_mode}


def set_up(path: Path, options: SqliteOptions | None = None) -> None:
    """Set capture up: from now on every write of any process is recorded. Repeating it fits capture to the schema.

    Raises:
        SourceStateError: The database does not let us.
        SourceUnavailableError: It is locked.
    """
    with _session(path, options) as connection, writing(connection):
        ensure_capture(connection, None)


def remove(path: Path, options: SqliteOptions | None = None, *, force: bool = False) -> bool:
    """Remove capture with everything that it added, also changes that nobody has read. Return whether there was any.

    Raises:
        SourceStateError: Someone reads it now, who would fail; unless `force`.
    """
    with _session(path, options) as connection, writing(connection):
        found = read_capture(connection) is not None
        if found and not force:
            _check_nobody_reads(read_readers(connection))
        remove_from(connection)
        return found


def status(path: Path, options: SqliteOptions | None = None) -> Status:
    """Return what capture is doing; changes nothing."""
    with _session(path, options) as connection:
        connection.execute("BEGIN")
        capture = read_capture(connection)
        if capture is None:
            return Status(None)
        first, last = window(connection)
        readers = tuple(
            ReaderStatus(row.name, last - row.confirmed, row.pid is not None, row.alive, row.reading)
            for row in read_readers(connection)
        )
        tables = tuple(sorted(version.name for version in load_versions(connection, live=True).values()))
        size = connection.execute("SELECT pgsize FROM dbstat WHERE aggregate = 1 AND name = ?", (CHANGE,)).get
        waiting = max((reader.waiting for reader in readers if reader.alive), default=last - first)
        mode = str(connection.pragma("journal_mode"))
        return Status(capture.capture, tables, waiting, int(size), readers, mode)


def remove_reader(path: Path, name: str, options: SqliteOptions | None = None, *, force: bool = False) -> None:
    """Forget a reader that will not come back, so that it stops keeping changes in the database.

    Raises:
        NotFoundError: There is no such reader.
        SourceStateError: It reads now; unless `force`.
    """
    with _session(path, options) as connection, writing(connection):
        known = read_readers(connection) if read_capture(connection) is not None else []
        if name not in {row.name for row in known}:
            raise NotFoundError(f"reader {name!r} not found")
        if not force:
            _check_nobody_reads([row for row in known if row.name == name])
        connection.execute(f"DELETE FROM {READER} WHERE name = ?", (name,))


def exec_ddl(path: Path, sql: str, options: SqliteOptions | None = None) -> None:
    """Run schema changes that our triggers would forbid, such as ALTER TABLE DROP COLUMN, and fit capture to them.

    All in one transaction: nobody can write while the triggers are away.

    Raises:
        InvalidRequestError: A statement is not CREATE, ALTER or DROP, or SQLite refuses it.
    """
    with _session(path, options) as connection:
        statements = _ddl_statements(sql)
        with writing(connection):
            if read_capture(connection) is None:
                raise SourceStateError("capture is not set up in this database; run the statement as usual")
            for statement in statements:
                try:
                    run_ddl(connection, lambda: connection.execute(statement))  # noqa: B023 (runs before the next one)
                except apsw.SQLError as error:
                    raise InvalidRequestError(f"SQLite rejected the statement: {error}") from error
            ensure_capture(connection, None)


def exec_bulk(path: Path, sql: str, options: SqliteOptions | None = None) -> None:
    """Run statements in one transaction whose changes are marked as moved data; all of them count, or none.

    Raises:
        InvalidRequestError: SQLite refuses a statement, or one of them begins or ends a transaction.
        SourceStateError: Capture is not set up.
        SourceUnavailableError: The database is locked.
    """
    with _session(path, options) as connection, writing(connection):
        if read_capture(connection) is None:
            raise SourceStateError("capture is not set up in this database; run the statements as usual")
        ensure_capture(connection, None)
        connection.execute(_MARK, (MIGRATION,))
        _run_bulk(connection, sql)
        ensure_capture(connection, None)
        connection.execute(_MARK, (MIGRATION_END,))


def run_ddl(connection: apsw.Connection, run: Callable[[], _T]) -> _T:
    """Return `run()`, which runs one statement; it is repeated without our triggers if they are in its way.

    In the caller's write transaction, in a database with capture. Where the triggers had to go, capture is fitted right
    before and after the statement, so that what changed is known to be its work alone: which column is gone cannot be
    seen after several statements.

    Raises:
        apsw.SQLError: SQLite refuses the statement.
    """
    connection.execute("SAVEPOINT ddl")
    try:
        return run()
    except apsw.SQLError as error:
        if PREFIX not in str(error):
            raise
        connection.execute("ROLLBACK TO ddl")
    capture = ensure_capture(connection, None)
    versions = load_versions(connection, live=True)
    schema = read_schema(connection)
    for version in versions:
        drop_triggers(connection, schema, version)
    result = run()
    held = frozenset(number for number, version in versions.items() if _exists(connection, version.name))
    reconcile(connection, capture, held=held)
    return result


def ensure_capture(connection: apsw.Connection, reader: Reader | None) -> Capture:
    """Make or fit capture in the caller's write transaction, and enter the reader. Return the capture."""
    capture = read_capture(connection)
    if capture is None:
        width = width_of(read_schema(connection))
        for statement in create_statements(width):
            connection.execute(statement)
        owner = reader.name if reader is not None and reader.ephemeral else None
        capture = Capture(secrets.token_hex(4), FORMAT, width, 0, owner)
        connection.execute(
            f"INSERT INTO {CAPTURE} VALUES(?, ?, ?, ?, ?)",
            (capture.capture, capture.format, capture.width, capture.schema_version, capture.owner),
        )
        note(connection, 0, ChangeCode.NOTE)
        reconcile(connection, capture, first=True)
    elif capture.format != FORMAT:
        raise SourceStateError(
            f"capture was set up in format {capture.format}, this version uses format {FORMAT}: "
            "remove capture and set it up again"
        )
    elif upgrade_readers(connection) or capture.schema_version != int(connection.pragma("schema_version")):
        reconcile(connection, capture)
    if reader is not None:
        add_reader(connection, reader)
        if not reader.ephemeral:
            connection.execute(f"UPDATE {CAPTURE} SET owner = NULL")
    current = read_capture(connection)
    assert current is not None
    return current


def remove_from(connection: apsw.Connection) -> None:
    """Remove everything that capture added, in the caller's write transaction."""
    for kind, name in rows(connection, "SELECT type, name FROM sqlite_schema WHERE type IN ('trigger', 'index')"):
        if name.startswith(PREFIX):
            connection.execute(f"DROP {kind} {quote(name)}")
    for table in (CHANGE, TABLE, READER, CAPTURE):
        connection.execute(f"DROP TABLE IF EXISTS {table}")


def _check_nobody_reads(readers: Iterable[ReaderRow]) -> None:
    """Look whether some reader is read for now, as far as can be known."""
    reading = [row.name for row in readers if row.reading]
    if reading:
        raise SourceStateError(
            f"reader {', '.join(reading)} is active, or was within the last minute, and would fail: stop the server "
            "or tail first, or use --force"
        )


@contextlib.contextmanager
def _session(path: Path, options: SqliteOptions | None) -> Iterator[apsw.Connection]:
    """Give a connection for one command."""
    options = options or SqliteOptions()
    connection = connect(path, busy_timeout_ms=options.busy_timeout_ms)
    try:
        with translated(path):
            yield connection
    finally:
        connection.close()


def _run_bulk(connection: apsw.Connection, sql: str) -> None:
    connection.authorizer = _admit_in_bulk
    try:
        connection.execute(sql).fetchall()
    except (apsw.SQLError, apsw.ConstraintError, apsw.AuthError, apsw.MismatchError, apsw.TooBigError) as error:
        raise InvalidRequestError(f"SQLite refuses a statement: {error}") from error
    finally:
        connection.authorizer = None


def _admit_in_bulk(action: int, *_: object) -> int:
    return apsw.SQLITE_DENY if action in _NOT_IN_BULK else apsw.SQLITE_OK


def _ddl_statements(sql: str) -> list[str]:
    """Return the statements of a text, each of which changes the schema."""
    statements = [""]
    for piece in re.split("(;)", sql):
        statements[-1] += piece
        if piece == ";" and apsw.complete(statements[-1]):
            statements.append("")
    found = [statement.strip() for statement in statements if _COMMENTS.sub(" ", statement).strip(" \t\r\n;")]
    for statement in found:
        words = _COMMENTS.sub(" ", statement).split()
        if words[0].upper() not in ("CREATE", "ALTER", "DROP"):
            raise InvalidRequestError(f"only CREATE, ALTER and DROP can be run here, not {words[0].upper()}")
    return found


def _exists(connection: apsw.Connection, table: str) -> bool:
    return bool(connection.execute("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?", (table,)).get)
