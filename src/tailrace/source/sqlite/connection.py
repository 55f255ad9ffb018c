"""Connections to the captured database, its errors in our words, and write transactions."""

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import apsw

from tailrace.model.errors import SourceStateError, SourceUnavailableError

__all__ = ["FileId", "connect", "create_database", "file_id", "require_file", "rows", "translated", "writing"]

FileId = tuple[int, int]
"""Device and inode: what tells a file from another one that was put in its place."""


def connect(path: Path, *, busy_timeout_ms: int, create: bool = False) -> apsw.Connection:
    """Open the database for reading and writing.

    Raises:
        SourceStateError: There is no such file, or it is not a database.
        SourceUnavailableError: It cannot be opened now.
    """
    if not create:
        require_file(path)
    flags = apsw.SQLITE_OPEN_READWRITE | (apsw.SQLITE_OPEN_CREATE if create else 0)
    with translated(path):
        connection = apsw.Connection(os.fspath(path), flags=flags)
        connection.set_busy_timeout(busy_timeout_ms)
        connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()
    return connection


def require_file(path: Path) -> None:
    """Look whether the file of a database is there, without opening it.

    Raises:
        SourceStateError: It is not.
    """
    if not path.exists():
        raise SourceStateError(f"there is no database {os.fspath(path)!r}; make it first or correct the URL")


def file_id(path: Path) -> FileId | None:
    """Return which file is at a path now; None where there is none."""
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_dev, found.st_ino


def create_database(path: Path) -> None:
    """Make a database that keeps a write-ahead log, unless there is one.

    Raises:
        SourceStateError: What is there is no database.
        SourceUnavailableError: It cannot be made now.
    """
    if not path.exists():
        connection = connect(path, busy_timeout_ms=0, create=True)
        with translated(path):
            connection.pragma("journal_mode", "wal")
            connection.close()


def rows(connection: apsw.Connection, sql: str, bindings: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
    """Return all rows of a query."""
    return connection.execute(sql, bindings).fetchall()


@contextlib.contextmanager
def translated(path: Path) -> Iterator[None]:
    """Turn SQLite's errors into ours."""
    try:
        yield
    except (apsw.BusyError, apsw.LockedError, apsw.CantOpenError, apsw.IOError, apsw.FullError) as error:
        raise SourceUnavailableError(f"database {os.fspath(path)!r}: {error}") from error
    except apsw.Error as error:
        raise SourceStateError(f"database {os.fspath(path)!r}: {error}") from error


@contextlib.contextmanager
def writing(connection: apsw.Connection) -> Iterator[None]:
    """Run a block in one write transaction that holds the lock from the start."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
