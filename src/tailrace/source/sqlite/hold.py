"""Holds the write-ahead log until its transactions are known, so that none is lost when SQLite starts it again.

A writer starts the log again, and overwrites it, once all of it was copied into the database (a checkpoint) and nobody
reads from it. An open read transaction prevents that. So there is always one of ours, and the next one begins before
the last one ends:

* It reads from the log: nobody can start the log again, it only grows.
* It began when all was copied, so it reads from the database alone: the log can be restarted once. Nothing of the
  new one can be copied while our transaction lasts, so it is not restarted a second time.

In both cases nothing is overwritten that `BorderFinder` has not followed when the transaction began.

A log that cannot be restarted grows. From `hold_bytes` on we copy it ourselves: with the writer's pauses that is all
it takes. Where a writer makes no pause, the write lock gives one, from `hold_bytes_lock` on, for as long as the last
frames take. Where the log grows faster than it can be copied, the whole copy is made with the write lock, from a
quarter of `hold_bytes_max` on: the writer waits for the disk then, as it does when it copies the log itself. What none
of this helps against (another program's transaction that reads for hours) ends the hold at `hold_bytes_max`, until the
log is small again. All this is done by a thread of its own, whatever the reader
of changes waits for.

"The Write-Ahead Log" and "WAL-mode file format" in SQLite's documentation have the rules.
"""

import logging
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import apsw

from tailrace.clock import Clock
from tailrace.model.errors import SourceStateError, SourceUnavailableError
from tailrace.source.sqlite.border import BorderFinder, WalPlace
from tailrace.source.sqlite.change_table import CHANGE
from tailrace.source.sqlite.connection import connect, translated
from tailrace.source.sqlite.options import SqliteOptions

__all__ = ["WalHold"]

logger = logging.getLogger(__name__)

_TICK_S = 0.005
_TICK_SLOW_S = 0.02
"""Pause between two looks at the log while it grows; while it grows by little."""

_IDLE_S = 0.1
"""Pause between two looks while it does not."""

_SETTLE_S = 0.1
"""How long the log must not have grown until nobody is taken to write."""

_REST_S = 0.05
"""Pause between two copies of the log while it does not grow."""

_ROUNDS_MAX = 2
_FRAMES_FEW = 64
"""The log is copied until so few frames are left, at most this many times."""

_LOCK_TIMEOUT_S = 1.0
"""How long to try to get the write lock. Nobody waits for us meanwhile."""


class _Patience(NamedTuple):
    """How long to wait, with the write lock, for another process that copies the log, and for others who read from it.

    A writer copies the log after its commit, and syncs the disk, which may be slow. Our own reader reads for some
    milliseconds at a time; a foreign one may do so for hours.
    """

    copy_s: float
    readers_s: float


_SHORT = _Patience(copy_s=0.02, readers_s=0.0)
_URGENT = _Patience(copy_s=1.0, readers_s=0.05)
_LAST = _Patience(copy_s=1.0, readers_s=1.0)
"""The last before the hold ends."""

_URGENT_SHARE = 4
"""The whole copy is made with the write lock from this part of `hold_bytes_max` on."""

_GLANCE_TIMEOUT_S = 1.0
"""How long to try again to see the size of the log."""

_SPIN_S = 0.0002
"""Pause between two tries."""


class WalHold:
    """Holds and follows the log of one database in a thread. The other methods may be called from any one thread."""

    def __init__(self, path: Path, options: SqliteOptions, clock: Clock) -> None:
        self._path = path
        self._options = options
        self._clock = clock
        self._lock = threading.Lock()
        """Guards the finder, and the connection that it looks with."""
        self._finder = BorderFinder(path, self._visible, self._root)
        self._look: apsw.Connection | None = None
        self._thread: _HoldThread | None = None

    def open(self) -> None:
        """Hold the log from now on, if the database has one.

        Raises:
            SourceUnavailableError: The database cannot be opened now.
        """
        self._look = connect(self._path, busy_timeout_ms=0)
        self._thread = _HoldThread(self._path, self._options, self._clock, self._lock, self._finder, self._look)
        self._thread.start()

    def close(self) -> None:
        """Let the log go. Returns when the thread has ended."""
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.end()
        if self._look is not None:
            self._look.close()
            self._look = None
        self._finder.close()

    def wake(self) -> None:
        """Note that a program writes."""
        if self._thread is not None and not self._thread.wake.is_set():
            self._thread.wake.set()

    @property
    def lost(self) -> bool:
        """Return whether borders are unknown until `begin`."""
        return self._finder.lost

    def begin(self, path: tuple[int, ...], newest: int, schema_version: int) -> None:
        """See `BorderFinder.begin`."""
        with self._lock:
            self._finder.begin(path, newest, schema_version)

    def borders(self, newest: int) -> list[int]:
        """See `BorderFinder.borders`."""
        with self._lock:
            return self._finder.borders(newest)

    def follow(self) -> WalPlace | None:
        """Follow what is visible in the log by now; return how far that is, see `BorderFinder.place`."""
        with self._lock:
            self._finder.follow()
            return self._finder.place

    def take(self, newest: int) -> list[int]:
        """See `BorderFinder.take`."""
        with self._lock:
            return self._finder.take(newest)

    def _visible(self) -> int:
        assert self._look is not None
        return _glance(self._look, self._clock)[0]

    def _root(self, schema_version: int) -> int | None:
        """Return the root page of the change table; None when the schema has a newer version by now."""
        assert self._look is not None
        try:
            self._look.execute("BEGIN")
            try:
                if int(self._look.pragma("schema_version")) != schema_version:
                    return None
                found = self._look.execute("SELECT rootpage FROM sqlite_schema WHERE name = ?", (CHANGE,)).get
                return int(found) if found is not None else None
            finally:
                self._look.execute("COMMIT")
        except apsw.Error:
            return None


class _HoldThread(threading.Thread):
    """The thread, and two connections: one holds the log while the other one prepares to."""

    def __init__(
        self,
        path: Path,
        options: SqliteOptions,
        clock: Clock,
        lock: threading.Lock,
        finder: BorderFinder,
        look: apsw.Connection,
    ) -> None:
        super().__init__(name="sqlite-hold", daemon=True)
        self._path = path
        self._wal = Path(f"{path}-wal")
        self._options = options
        self._clock = clock
        self._lock = lock
        self._finder = finder
        self._look = look
        self._held = connect(path, busy_timeout_ms=0)
        self._spare = connect(path, busy_timeout_ms=0)
        self._page_bytes = int(self._held.pragma("page_size"))
        self._holding = False
        self._frames = 0
        self._copied = 0
        self._copy_time_s = 0.0
        self._ended = threading.Event()
        self.wake = threading.Event()
        with suppress(SourceUnavailableError, SourceStateError, OSError), translated(path):
            self._tick()

    def end(self) -> None:
        """End the thread, and its hold."""
        self._ended.set()
        self.wake.set()
        self.join()
        self._held.close()
        self._spare.close()

    def run(self) -> None:
        """Hold and follow the log until the end."""
        moved_s = self._clock.monotonic_s()
        while not self._ended.is_set():
            now_s = self._clock.monotonic_s()
            before = self._frames
            try:
                with translated(self._path):
                    if self._tick():
                        moved_s = now_s
            except (SourceUnavailableError, SourceStateError, OSError) as error:
                if self._holding:
                    logger.info("the write-ahead log is not held", extra={"reason": str(error)})
                self._release()
            if now_s - moved_s < _SETTLE_S:
                self._ended.wait(_TICK_S if abs(self._frames - before) >= _FRAMES_FEW else _TICK_SLOW_S)
            elif self.wake.wait(_IDLE_S):
                self.wake.clear()
                moved_s = self._clock.monotonic_s()

    def _tick(self) -> bool:
        """Follow the log, and hold it as far as we may; return whether it has grown."""
        if not self._holding and not self._wal.exists():
            return False  # there is no log: a read transaction would only be in the way of writers
        options = self._options
        with self._lock:
            self._finder.follow()
        frames, copied = self._size()
        if frames < 0:
            self._release()
            return False
        size = frames * self._page_bytes
        moved, self._frames = frames != self._frames, frames
        if not self._holding:
            if size < options.hold_bytes_max:
                self._renew()
        elif size >= options.hold_bytes_max and copied < frames:
            # It may have grown during one slow copy: let go of it only where a copy with the lock does not help.
            # It is better to lose borders than the disk: without a hold, transactions may be joined into one commit,
            # but no change is lost.
            if not self._copy_urgently(_LAST):
                logger.warning("the write-ahead log is too large to hold", extra={"size_bytes": size})
                self._release()
        elif size >= options.hold_bytes and copied < frames and self._copy_due(size, moved=moved):
            if size >= options.hold_bytes_max // _URGENT_SHARE:
                self._copy_urgently(_URGENT)
            else:
                self._copy(lock=size >= options.hold_bytes_lock)
        elif not moved:
            self._renew()  # whoever waits for all readers to leave the log gets on
        return moved

    def _size(self) -> tuple[int, int]:
        """Return how many frames the log has, and how many of them were copied into the database; -1 without a log."""
        with self._lock:
            found = _glance(self._look, self._clock)
            if found[0] < 0:  # perhaps there is one since this connection has last read
                self._look.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchall()
                found = _glance(self._look, self._clock)
            return found

    def _renew(self) -> None:
        """Begin to hold the log as it is now, then end the hold before."""
        # Begin the new hold before the old one ends. In a gap between them a writer could restart the log, and where
        # its transactions end would never be known.
        _read(self._spare)
        with self._lock:
            self._finder.hold()
        _end(self._held)
        self._held, self._spare = self._spare, self._held
        self._holding = True

    def _release(self) -> None:
        self._holding = False
        with self._lock:
            self._finder.release()
        for connection in (self._held, self._spare):
            with suppress(apsw.Error):
                _end(connection)

    def _copy_due(self, size: int, *, moved: bool) -> bool:
        """Return whether to copy the log now: it has grown enough, or nobody writes, but not all the time then."""
        # While the log grows, copy after each half of `hold_bytes`: more often would sync the disk of the writer for
        # little.
        if moved:
            return not self._copied <= size < self._copied + self._options.hold_bytes // 2
        return self._clock.monotonic_s() >= self._copy_time_s

    def _copy(self, *, lock: bool) -> None:
        """Copy the log into the database. It can be restarted when no writer has come in between."""
        for _ in range(_ROUNDS_MAX):
            self._renew()
            _checkpoint(self._spare)
            frames, copied = self._size()
            if frames - copied < _FRAMES_FEW:
                break
        self._renew()
        if lock:
            self._copy_locked(_SHORT)
        self._copied_now()

    def _copy_urgently(self, patience: _Patience) -> bool:
        """Copy all of the log with the write lock; return whether nothing is left to copy."""
        self._renew()
        complete = self._copy_locked(patience)
        self._copied_now()
        return complete

    def _copied_now(self) -> None:
        """Note how large the log is after a copy, and when to copy again though nobody writes."""
        self._copied = self._size()[0] * self._page_bytes
        self._copy_time_s = self._clock.monotonic_s() + _REST_S

    def _copy_locked(self, patience: _Patience) -> bool:
        """Copy what is left while nobody can write, if we get the lock; return whether all was copied."""
        deadline_s = self._clock.monotonic_s() + _LOCK_TIMEOUT_S
        while not _lock(self._spare):
            if self._clock.monotonic_s() > deadline_s:
                return False
            self._ended.wait(_SPIN_S)
        try:
            with self._lock:
                self._finder.hold()
            # The write lock holds the log now: nobody can add to it or restart it. Our read transaction must end, as it
            # would keep frames from being copied.
            _end(self._held)
            complete = self._copy_all(patience)
            # Hold again before the write lock is given back: the first writer after it may restart the log.
            _read(self._held)
            with self._lock:
                self._finder.hold()
            return complete
        finally:
            _end(self._spare)

    def _copy_all(self, patience: _Patience) -> bool:
        """Copy the log while nobody can write, through the connection that holds nothing; return whether all of it."""
        begin_s = self._clock.monotonic_s()
        while True:
            copied_by_us = _checkpoint(self._held)
            frames, copied = self._size()
            if frames == copied:
                return True
            # Another process that copies is nearly done, so it is worth waiting for. A foreign reader may stay for
            # hours, and every writer waits for us meanwhile.
            if self._clock.monotonic_s() - begin_s >= (patience.readers_s if copied_by_us else patience.copy_s):
                return False
            self._ended.wait(_SPIN_S)


def _lock(connection: apsw.Connection) -> bool:
    """Take the write lock, if it is free."""
    try:
        connection.execute("BEGIN IMMEDIATE")
    except apsw.BusyError:
        return False
    return True


def _read(connection: apsw.Connection) -> None:
    """Begin to read."""
    connection.execute("BEGIN")
    connection.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchall()


def _glance(connection: apsw.Connection, clock: Clock) -> tuple[int, int]:
    """Return how many frames the log has, and how many of them were copied; -1 without a log.

    SQLite says "busy" where it looks in the very moment in which a commit becomes visible. That moment is short, unless
    the writer's process is kept waiting in it.
    """
    deadline_s = clock.monotonic_s() + _GLANCE_TIMEOUT_S
    while True:
        try:
            return connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_NOOP)
        except apsw.BusyError:
            if clock.monotonic_s() > deadline_s:
                raise
            time.sleep(_SPIN_S)


def _end(connection: apsw.Connection) -> None:
    if connection.in_transaction:
        connection.execute("ROLLBACK")


def _checkpoint(connection: apsw.Connection) -> bool:
    """Copy what nobody's read transaction keeps from being copied; return False when another process does so now."""
    try:
        connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
    except apsw.BusyError:
        return False
    return True
