"""Wakes the reader when someone writes to the database's files, without costing the writer anything while it is awake.

On Linux by inotify: the watches are one-shot, so a busy writer raises one event and no more until the reader has caught
up and watches again. Elsewhere, and for whatever the kernel misses, the reader looks at intervals.
"""

import contextlib
import ctypes
import logging
import os
import select
import sys
import time
from pathlib import Path

__all__ = ["FileWatch"]

logger = logging.getLogger(__name__)

_IN_MODIFY = 0x2
_IN_ATTRIB = 0x4
_IN_MOVED = 0xC0
_IN_CREATE = 0x100
_IN_DELETE = 0x200
_IN_ONESHOT = 0x80000000
_IN_NONBLOCK = 0o4000
_IN_CLOEXEC = 0o2000000
_EVENTS_BYTES = 65536


class FileWatch:
    """Waits for writes to a database. One thread waits, any thread may `wake` it."""

    def __init__(self, database: Path) -> None:
        self._files = [Path(f"{database}{suffix}") for suffix in ("", "-wal", "-journal")]
        self._directory = database.parent
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        os.set_blocking(self._wake_write, False)
        self._inotify = _make_inotify()
        self._poll = select.poll()
        self._poll.register(self._wake_read, select.POLLIN)
        if self._inotify is not None:
            self._poll.register(self._inotify.fileno, select.POLLIN)

    def arm(self) -> None:
        """Watch from now on. Look once more after this and before `wait`, so that nothing falls in between."""
        if self._inotify is None:
            return
        self._inotify.drain()
        for file in self._files:
            self._inotify.watch(file, _IN_MODIFY | _IN_ATTRIB | _IN_ONESHOT)
        self._inotify.watch(self._directory, _IN_CREATE | _IN_DELETE | _IN_MOVED | _IN_ONESHOT)

    def wait(self, timeout_s: float) -> bool:
        """Wait until something was written since `arm`, `wake` was called, or the time is over; True unless it is."""
        ready = [file for file, _ in self._poll.poll(timeout_s * 1000)]
        if self._wake_read in ready:
            os.read(self._wake_read, 4096)
        return bool(ready)

    def pause(self, seconds: float) -> None:
        """Wait a while; from a millisecond up, `wake` shortens it."""
        if seconds < 0.001:
            time.sleep(seconds)
            return
        poll = select.poll()
        poll.register(self._wake_read, select.POLLIN)
        poll.poll(seconds * 1000)

    def wake(self) -> None:
        """End a wait."""
        with contextlib.suppress(BlockingIOError):  # it is full of wake-ups already
            os.write(self._wake_write, b"w")

    def close(self) -> None:
        """Give the files back. Nobody may wait any more."""
        os.close(self._wake_read)
        os.close(self._wake_write)
        if self._inotify is not None:
            os.close(self._inotify.fileno)


def _make_inotify() -> "_Inotify | None":
    """Return inotify where the system has it and has some left."""
    if sys.platform != "linux":
        return None
    try:
        return _Inotify()
    except OSError as error:
        logger.info("no inotify, polling instead", extra={"reason": str(error)})
        return None


class _Inotify:
    """The three calls of inotify(7) that we need."""

    def __init__(self) -> None:
        library = ctypes.CDLL(None, use_errno=True)
        self._add_watch = library.inotify_add_watch
        self._add_watch.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_uint32]
        self.fileno: int = library.inotify_init1(_IN_NONBLOCK | _IN_CLOEXEC)
        if self.fileno < 0:
            raise OSError(ctypes.get_errno(), "inotify_init1")

    def watch(self, file: Path, mask: int) -> None:
        """Watch a file or directory; nothing happens when it does not exist."""
        self._add_watch(self.fileno, os.fsencode(file), mask)

    def drain(self) -> None:
        """Forget the events that have come."""
        with contextlib.suppress(BlockingIOError):
            while os.read(self.fileno, _EVENTS_BYTES):
                pass
