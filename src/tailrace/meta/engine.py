"""Connections to a metadata database by its URL, and transactions on them."""

import contextlib
import os
import sqlite3
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url, text
from sqlalchemy.exc import SQLAlchemyError

from tailrace.model.errors import ConfigError, MetadataError

__all__ = ["SQLITE_REASONS", "TEXT_AS_IT_IS", "open_engine", "require_sound", "transact"]

_T = TypeVar("_T")

_CHARSET, _COLLATION = "utf8mb4", "utf8mb4_bin"

TEXT_AS_IT_IS: dict[str, Any] = {
    "mysql_charset": _CHARSET,
    "mysql_collate": _COLLATION,
    "mariadb_charset": _CHARSET,
    "mariadb_collate": _COLLATION,
}
"""Options of a table that takes any text and tells all texts apart, which MySQL by itself does not: case counts."""


def transact(engine: Engine, statements: Callable[[Connection], _T]) -> _T:
    """Run statements as one transaction and return what they do; durable on return.

    Raises:
        MetadataError: The database refused; its cause tells why.
    """
    try:
        with engine.begin() as connection:
            return statements(connection)
    except SQLAlchemyError as error:
        raise MetadataError(f"the metadata database refused: {_reason(error)}") from error
    except UnicodeDecodeError as error:  # in a text, or in SQLite's own message that quotes one
        raise MetadataError(_DAMAGED) from error


def require_sound(connection: Connection) -> None:
    """Refuse a file of SQLite whose parts do not fit together: it would be read without what is lost.

    A value that has become another one is not found: SQLite keeps no checksums.

    Raises:
        MetadataError: It is damaged.
    """
    if connection.dialect.name == "sqlite" and connection.execute(text("PRAGMA integrity_check(1)")).scalar() != "ok":
        raise MetadataError(_DAMAGED)


SQLITE_REASONS = {
    sqlite3.SQLITE_NOTADB: "its file is no SQLite database; restore it from a backup",
    sqlite3.SQLITE_CORRUPT: "its file is damaged; restore it from a backup",
    sqlite3.SQLITE_CANTOPEN: "its file cannot be opened; it must be a file that this user may write",
    sqlite3.SQLITE_READONLY: "its file is read-only; it must be a file that this user may write",
    sqlite3.SQLITE_BUSY: "another process keeps its file locked; end that process, then try again",
    sqlite3.SQLITE_FULL: "its disk is full; free some space",
    sqlite3.SQLITE_IOERR: "its disk failed",
}
"""What is wrong with the file, by the code of SQLite's error. Messages of other databases may hold values."""

_DAMAGED = f"the metadata database refused: {SQLITE_REASONS[sqlite3.SQLITE_CORRUPT]}"


def _reason(error: SQLAlchemyError) -> str:
    """Return why the database refused, without anything that may be a value."""
    code = getattr(getattr(error, "orig", None), "sqlite_errorcode", None)
    known = None if code is None else SQLITE_REASONS.get(code & 0xFF)
    return known or type(error).__name__


def open_engine(url: str) -> Engine:
    """Return the database at a URL, not connected yet; each commit will be synced to disk before it counts.

    Raises:
        ConfigError: The URL is malformed or its driver is not installed.
    """
    try:
        parsed = make_url(url)
        # A connection may have been ended since it was last used: by a restart, or as nobody had used it for hours.
        lasting = parsed.get_backend_name() == "sqlite"
        engine = create_engine(parsed, hide_parameters=True, pool_pre_ping=not lasting)
    except (SQLAlchemyError, ImportError) as error:
        raise ConfigError(f"the metadata database URL is not usable: {type(error).__name__}") from error
    if lasting:
        _harden_sqlite(engine, parsed)
    return engine


def _harden_sqlite(engine: Engine, url: URL) -> None:
    """Have every connection sync each commit to disk before it counts, and a new file be for its owner alone."""
    on_disk = url.database not in {None, "", ":memory:"}

    def protect(_dialect: object, _record: object, arguments: Sequence[Any], _options: object) -> None:
        if on_disk and not arguments[0].startswith("file:"):
            # Never one that is there: to close a file ends all locks that this process has on it, SQLite's among them.
            with contextlib.suppress(OSError):  # connecting tells what is wrong
                os.close(os.open(arguments[0], os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600))

    def configure(connection: Any, _record: object) -> None:
        if on_disk:
            connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")

    event.listen(engine, "do_connect", protect)
    event.listen(engine, "connect", configure)
