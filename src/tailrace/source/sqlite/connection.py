"""Connections to the captured database, its errors in our words, and write transactions."""

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import apsw

from tailrace.model.errors import SourceStateError, SourceUnavailableError

__all__ = ["FileId", "connect", "create_database", "file_id", "require_capturable", "rows", "translated", "writing"]

_EFFECTIVE = os.access in os.supports_effective_ids

FileId = tuple[int, int]
"""Device and inode: what tells a file from another one that was put in its place."""


def connect(path: Path, *, busy_timeout_ms: int, create: bool = False) -> apsw.Connection:
    """Open the database for reading and writing.

    Raises:
        SourceStateError: There is no such file, or it is not a database.
        SourceUnavailableError: It cannot be opened now.
    """
    if not create:
        _require_file(path)
    flags = apsw.SQLITE_OPEN_READWRITE | (apsw.SQLITE_OPEN_CREATE if create else 0)
    with translated(path):
        connection = apsw.Connection(os.fspath(path), flags=flags)
        connection.set_busy_timeout(busy_timeout_ms)
        connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()
    return connection


def require_capturable(path: Path) -> None:
    """Look whether a database can be captured, as far as can be seen without changing it. A locked one counts.

    Raises:
        SourceStateError: There is no database, or this process may not write to it.
    """
    _require_file(path)
    places = ((path, os.R_OK | os.W_OK), (path.parent, os.W_OK | os.X_OK))
    if not all(os.access(place, mode, effective_ids=_EFFECTIVE) for place, mode in places):
        raise SourceStateError(_unwritable(path))
    with contextlib.suppress(SourceUnavailableError), contextlib.closing(connect(path, busy_timeout_ms=0)) as opened:
        if opened.readonly("main"):
            raise SourceStateError(_unwritable(path))


def _require_file(path: Path) -> None:
    if not path.exists():
        raise SourceStateError(f"database {os.fspath(path)!r} does not exist: create it or correct the URL")
    if not path.is_file():
        kind = "a directory" if path.is_dir() else "no file"
        raise SourceStateError(f"{os.fspath(path)!r} is {kind}, not a database: correct the URL")


def _unwritable(path: Path) -> str:
    return (
        f"database {os.fspath(path)!r} cannot be written: capture records changes in the database itself, so let this "
        "process write to the file and to its directory"
    )


def file_id(path: Path | str) -> FileId | None:
    """Return which file is at a path now; None where there is none."""
    try:
        found = os.stat(path)  # noqa: PTH116  quicker than the path's own method, and each look passes here
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_dev, found.st_ino


def create_database(path: Path) -> None:
    """Make a database that keeps a write-ahead log, for its owner alone, unless there is one.

    Raises:
        SourceStateError: What is there is no database.
        SourceUnavailableError: It cannot be made now.
    """
    if not path.exists():
        with contextlib.suppress(OSError):  # connecting says what is wrong
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600))
        connection = connect(path, busy_timeout_ms=0, create=True)
        with translated(path):
            connection.pragma("journal_mode", "wal")
            connection.close()


def rows(connection: apsw.Connection, sql: str, bindings: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
    """Return all rows of a query."""
    return connection.execute(sql, bindings).fetchall()


class translated:  # noqa: N801  used as a function; a class, because each look passes it and a generator takes longer
    """Turn SQLite's errors into ours."""

    __slots__ = ("_path",)

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Raise our error in place of SQLite's."""
        if isinstance(error, apsw.Error):
            raise _translation(self._path, error) from error


def _translation(path: Path, error: apsw.Error) -> SourceUnavailableError | SourceStateError:
    name = os.fspath(path)
    match error:
        case apsw.BusyError() | apsw.LockedError() | apsw.CantOpenError() | apsw.IOError() | apsw.FullError():
            return SourceUnavailableError(f"database {name!r}: {error}")
        case apsw.NotADBError():
            return SourceStateError(f"{name!r} is not an SQLite database: correct the URL")
        case apsw.ReadOnlyError() if getattr(error, "extendedresult", 0) == apsw.SQLITE_READONLY_DBMOVED:
            return SourceUnavailableError(f"database {name!r} was replaced or moved away")
        case apsw.ReadOnlyError():
            return SourceStateError(_unwritable(path))
    return SourceStateError(f"database {name!r}: {error}")


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
