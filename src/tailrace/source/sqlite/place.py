"""Whether the database that is open is still the file at its path, and what another one finds there.

`mv`, `rsync` and most tools that restore put a new file in the place of the old one. Who has the old one open keeps it,
and sees nothing of the new one. In WAL mode the write-ahead log has the database's name and not its identity: SQLite
would apply what the old file left there to the new one, and damage it.
"""

import contextlib
import os
from pathlib import Path

import apsw

from tailrace.model.errors import SourceStateError, SourceUnavailableError
from tailrace.source.sqlite.connection import FileId, file_id

__all__ = ["DatabaseFile"]


class DatabaseFile:
    """The path of a database and the file that was opened there. Used by one thread at a time.

    `stale` is the write-ahead log that an earlier file left behind at this path, if it did.
    """

    def __init__(self, path: Path, stale: FileId | None) -> None:
        self._path = path
        self._name = os.fspath(path)
        self._wal = Path(f"{path.resolve()}-wal")
        self._wal_file: FileId | None = None
        self.stale = stale
        self.file: FileId | None = None
        """The file that is open."""

    def before_open(self) -> None:
        """Look what is there before it is opened.

        Raises:
            SourceStateError: A write-ahead log of another file lies beside it.
        """
        if self.stale is not None and _left(self._wal, self.stale):
            name = os.fspath(self._path)
            raise SourceStateError(
                f"database {name!r} was replaced while {self._wal.name} had changes of the old file, and SQLite would "
                f"mix both: stop all programs that use it, remove {self._wal.name} and {self._wal.name[:-3]}shm, put "
                "the copy in place again, and start the server; see docs/how-to/restore.md"
            )
        self.stale = None
        self.file = file_id(self._path)

    def after_open(self) -> None:
        """Look whether what was opened is what is there.

        Raises:
            SourceUnavailableError: It is just being replaced.
        """
        file = file_id(self._path)
        if file is None or self.file not in (None, file):
            raise SourceUnavailableError(f"database {os.fspath(self._path)!r} is being replaced")
        self.file = file

    def check(self, connection: apsw.Connection) -> None:
        """Look whether the file that is open is still there, when someone has written to its write-ahead log.

        That is the same one as at the last `look`.

        Raises:
            SourceUnavailableError: As `look`.
        """
        if file_id(self._name) != self.file:
            self.look(connection, unwritten=False)

    def look(self, connection: apsw.Connection, *, unwritten: bool) -> None:
        """Look whether the file that is open is still there; `unwritten` when nobody has written since the last look.

        Raises:
            SourceUnavailableError: It is not: open what is there now, once there is something.
        """
        file = file_id(self._name)
        if file == self.file:
            if not unwritten:
                self._wal_file = file_id(self._wal)
            return
        if self._wal_file is not None and _left(self._wal, self._wal_file):
            if unwritten:  # so all that it holds belongs to the old file, which is open: put it there
                with contextlib.suppress(apsw.Error):
                    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            if _left(self._wal, self._wal_file):
                self.stale = self._wal_file
        name = os.fspath(self._path)
        if file is None:
            raise SourceUnavailableError(f"database {name!r} no longer exists: it was moved or deleted")
        raise SourceUnavailableError(f"database {name!r} was replaced by another file, which is opened now")


def _left(wal: Path, file: FileId) -> bool:
    """Return whether a write-ahead log is still there, with something in it."""
    return file_id(wal) == file and wal.stat().st_size > 0
