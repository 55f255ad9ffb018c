"""Removes changes that every reader has confirmed, in short transactions, at its own pace.

Nothing waits for it: when the database is locked it gives up and comes back later. What was confirmed is kept in the
database only for this purpose; where a source resumes is decided by its log.
"""
# ruff: noqa: S608 (the statements are put together from our own constants)

import logging
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path

import apsw

from tailrace.clock import Clock
from tailrace.model.errors import SourceStateError, SourceUnavailableError
from tailrace.source.reader import Reader
from tailrace.source.sqlite.capture_setup import remove_from
from tailrace.source.sqlite.change_table import CHANGE, READER
from tailrace.source.sqlite.connection import FileId, connect, file_id, translated, writing
from tailrace.source.sqlite.journal import RollbackJournal
from tailrace.source.sqlite.options import SqliteOptions
from tailrace.source.sqlite.registry import leave_reader, mark_reader, read_capture, read_entry, read_readers, window

__all__ = ["Trimmer"]

logger = logging.getLogger(__name__)

_PAUSE_S = 0.002
"""Rest between two transactions, in which writers get their turn."""


class Trimmer:
    """Confirms for one reader and removes what nobody needs. `confirmed` and `due` may be called from any thread."""

    def __init__(self, path: Path, reader: Reader, options: SqliteOptions, clock: Clock) -> None:
        self._path = path.resolve()
        self._reader = reader
        self._options = options
        self._clock = clock
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="sqlite-trim")
        self._stop = threading.Event()
        self._running: Future[None] | None = None
        self._confirmed: tuple[int, str] = (0, "")
        self._trimmed = 0
        self.marks: frozenset[str | None] = frozenset()
        """The marks with which the reader may be entered now: the last one, and the one that is being written."""

        self.file: FileId | None = None
        """The file that is read; in no other anything is written."""

        self.fitted = -1
        """The number of the schema that the reading side has looked at last; in any other, nothing is removed."""

        self._journal = RollbackJournal(self._path, clock)
        self._time_s = clock.monotonic_s()
        self._trim_time_s = self._time_s

    def confirmed(self, number: int, mark: str) -> None:
        """Take notice that the log has everything through a row; `mark` is that of the history up to it."""
        if number > self._confirmed[0]:
            self._confirmed = (number, mark)
        self.due()

    def due(self) -> None:
        """Begin to remove changes when there are enough of them, or they have waited long enough."""
        waiting = self._confirmed[0] - self._trimmed
        late = self._clock.monotonic_s() - self._time_s >= self._options.trim_interval_s
        idle = self._running is None or self._running.done()
        if waiting > 0 and idle and (late or waiting >= self._options.trim_backlog):
            self._time_s = self._clock.monotonic_s()
            self._running = self._executor.submit(self._trim)

    def close(self) -> None:
        """Confirm what is left, leave (an ephemeral reader is forgotten), stop. Blocks for at most the busy timeout."""
        self._stop.set()
        self._executor.submit(self._finish).result()
        self._executor.shutdown()

    def _trim(self) -> None:
        # Nothing depends on trimming being prompt, and everything on the writer not waiting for it.
        if not self._may_lock():
            return
        self._trim_time_s = self._clock.monotonic_s()
        target = self._confirmed
        try:
            connection = self._connect(self._options.trim_busy_timeout_ms)
            with translated(self._path), closing(connection):
                _relax(connection)
                while not self._slice(connection, target):
                    self._stop.wait(_PAUSE_S)
                    self._journal.wait_for_gap()
            self._trimmed = target[0]
        except SourceUnavailableError:
            logger.info("trimming put off, the database is busy", extra={"through": target[0]})
        except _UnfamiliarError:
            logger.info("trimming put off, the database has changed", extra={"through": target[0]})

    def _may_lock(self) -> bool:
        """Return whether to remove changes now: without WAL that takes long, so it waits until nobody writes."""
        waited_s = self._clock.monotonic_s() - self._trim_time_s
        pressing = waited_s >= self._options.trim_rest_max_s or (
            self._confirmed[0] - self._trimmed >= self._options.trim_backlog
        )
        return self._journal.rests(0.0 if pressing else self._options.trim_rest_s)

    def _connect(self, busy_timeout_ms: int) -> apsw.Connection:
        """Connect to the file that is read.

        Raises:
            _UnfamiliarError: Another one is in its place.
        """
        # Compared before and after connecting: a file that is exchanged in between would get our marks, and changes
        # that belong to another history would be removed.
        if file_id(self._path) != self.file:
            raise _UnfamiliarError
        connection = connect(self._path, busy_timeout_ms=busy_timeout_ms)
        if file_id(self._path) != self.file:
            connection.close()
            raise _UnfamiliarError
        return connection

    def _slice(self, connection: apsw.Connection, target: tuple[int, str]) -> bool:
        """Remove some changes in one transaction; return whether no more can be removed now.

        Raises:
            _UnfamiliarError: The database may have been restored from a copy since the reading side has looked at it.
                A mark of the log must not get into another history, where it would hide the difference.
        """
        number, mark = target
        with writing(connection):
            if read_capture(connection) is None:
                return True
            entry = read_entry(connection, self._reader.name)
            if int(connection.pragma("schema_version")) != self.fitted or (entry and entry[1] not in self.marks):
                raise _UnfamiliarError
            if entry is not None and number > entry[0]:
                # Both marks are valid while the transaction commits: the reading side looks at any time and must
                # recognize either.
                self.marks = frozenset({entry[1], mark})
                mark_reader(connection, self._reader.name, number, mark)
            connection.execute(f"UPDATE {READER} SET seen = julianday('now') WHERE name = ?", (self._reader.name,))
            for row in read_readers(connection):
                if not row.alive:
                    connection.execute(f"DELETE FROM {READER} WHERE name = ?", (row.name,))
            first, last = window(connection)
            floor = min((row.confirmed for row in read_readers(connection)), default=number)
            # The newest row stays: the highest row number is in it, and an empty table would let SQLite number from 1
            # again.
            goal = min(floor, last - 1)
            # A bounded slice, then a pause: each transaction holds the write lock of the application's database.
            through = min(goal, first + self._options.trim_changes_max - 1)
            connection.execute(f"DELETE FROM {CHANGE} WHERE id <= ?", (through,))
            return through >= goal or self._stop.is_set()

    def _finish(self) -> None:
        try:
            connection = self._connect(self._options.busy_timeout_ms)
            with translated(self._path), closing(connection):
                if self._reader.ephemeral or self._confirmed[0] > self._trimmed:
                    with suppress(_UnfamiliarError):  # the changes stay for the next start, which compares them
                        self._slice(connection, self._confirmed)
                self._leave(connection)
        except SourceUnavailableError:
            logger.warning("the database is busy, the reader stays registered", extra={"reader": self._reader.name})
        except (SourceStateError, _UnfamiliarError) as error:  # the file is gone, say: the reading side reports it
            logger.info("the reader stays registered", extra={"reader": self._reader.name, "reason": str(error)})

    def _leave(self, connection: apsw.Connection) -> None:
        """Leave; forget an ephemeral reader, and capture too, when this reader has set it up and nobody else reads."""
        with writing(connection):
            capture = read_capture(connection)
            if capture is None:
                return
            if not self._reader.ephemeral:
                leave_reader(connection, self._reader.name)
                return
            connection.execute(f"DELETE FROM {READER} WHERE name = ?", (self._reader.name,))
            if capture.owner == self._reader.name and not read_readers(connection):
                remove_from(connection)


class _UnfamiliarError(Exception):
    """The database is not the one that the reading side has seen, or not in the state in which it has seen it."""

    def __init__(self) -> None:
        super().__init__("the database was replaced or its schema has changed")


def _relax(connection: apsw.Connection) -> None:
    """Do not sync each transaction in WAL mode: losing the last trimming in a power failure costs nothing."""
    if connection.pragma("journal_mode") == "wal":
        connection.pragma("synchronous", 1)
