"""Wakes the reader when someone writes to the database's files.

On Linux by inotify. A watch is one-shot, so that a busy writer raises one event and no more until the reader looks
again; it then costs the writer nothing while the reader is awake. Or it lasts, for single commits: then it need not be
set up again after each, with one more look because something may have been written before. Elsewhere, and for whatever
the kernel misses, the reader looks at intervals.
"""

import contextlib
import ctypes
import logging
import os
import select
import struct
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
_IN_Q_OVERFLOW = 0x4000
_IN_IGNORED = 0x8000
_IN_ONESHOT = 0x80000000
_IN_NONBLOCK = 0o4000
_IN_CLOEXEC = 0o2000000
_EVENTS_BYTES = 65536
_OTHERS_S = 0.001
"""Pause after an event that is about other files: a directory in which files come and go must not keep us busy."""

_EVENT = struct.Struct("iIII")
"""An event: watch, mask, cookie, and the size of the name that follows."""


class FileWatch:
    """Waits for writes to a database. One thread waits, any thread may `wake` it."""

    def __init__(self, database: Path) -> None:
        files = [Path(f"{database}{suffix}") for suffix in ("-wal", "", "-journal")]
        self._names = {os.fsencode(file.name) for file in files}
        self._files = [os.fsencode(file) for file in files]
        self._directory = os.fsencode(database.parent)
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        os.set_blocking(self._wake_write, False)
        self._inotify = _make_inotify()
        self._armed: dict[bytes, int] = {}
        """The watches that have not fired yet, by path."""

        self._lasting = -1
        """The watch that stays when it has fired."""

        self._poll = select.poll()
        self._poll.register(self._wake_read, select.POLLIN)
        if self._inotify is not None:
            self._poll.register(self._inotify.fileno, select.POLLIN)

    @property
    def lasts(self) -> bool:
        """Tell whether whatever is written after the last `wait` ends the next one, without `arm`."""
        return self._lasting in self._armed.values()

    def arm(self, *, wal_alone: bool, lasting: bool = False) -> None:
        """Watch from now on. Look once more after this and before `wait`, so that nothing falls in between.

        In WAL mode all commits go through the write-ahead log: with `wal_alone` nobody is woken by writes to the
        database itself, which are copies of what was there. The watch of that log may be `lasting`.
        """
        if self._inotify is None:
            return
        # What has come before this is covered by the look that follows.
        if self._poll.poll(0):
            self._take_events(self._inotify)
        # The directory first: a file that appears after we looked for it then leaves an event.
        self._watch(self._inotify, self._directory, _IN_CREATE | _IN_DELETE | _IN_MOVED)
        if self.lasts is not lasting:
            self._armed.pop(self._files[0], None)  # it is set up again, in the other way
        for file in self._files[:1] if wal_alone else self._files:
            self._watch(self._inotify, file, _IN_MODIFY | _IN_ATTRIB, lasting=lasting)

    def wait(self, timeout_s: float) -> bool:
        """Wait for a write since `arm`, for `wake`, or for the time to pass; return True only after a write or `wake`.

        It may also end early without any of these.
        """
        ready = [file for file, _ in self._poll.poll(timeout_s * 1000)]
        if self._wake_read in ready:
            os.read(self._wake_read, 4096)
            return True
        if not ready or self._inotify is None:
            return False
        touched = self._take_events(self._inotify)
        if not touched:
            time.sleep(_OTHERS_S)
        return touched

    def _watch(self, inotify: "_Inotify", path: bytes, mask: int, *, lasting: bool = False) -> None:
        """Watch a path, unless it is watched."""
        if path not in self._armed:
            number = inotify.watch(path, mask if lasting else mask | _IN_ONESHOT)
            if number >= 0:
                self._armed[path] = number
                self._lasting = number if lasting else -1 if number == self._lasting else self._lasting

    def _take_events(self, inotify: "_Inotify") -> bool:
        """Note which watches have fired; return whether the database was touched."""
        touched = False
        for number, mask, name in inotify.events():
            if mask & _IN_Q_OVERFLOW or number == self._armed.get(self._directory):
                # Other files may be there under the same names: watch them all anew.
                self._armed.clear()
                touched = touched or bool(mask & _IN_Q_OVERFLOW) or name in self._names
                continue
            for path, armed in self._armed.items():
                if armed == number:
                    touched = True
                    if number != self._lasting or mask & _IN_IGNORED:
                        del self._armed[path]
                    break
        return touched

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

    def watch(self, path: bytes, mask: int) -> int:
        """Watch a file or directory; return the number of the watch, -1 where it does not exist."""
        return int(self._add_watch(self.fileno, path, mask))

    def events(self) -> list[tuple[int, int, bytes]]:
        """Return what has come: the number of a watch, what happened, and to which name in a directory."""
        try:
            data = os.read(self.fileno, _EVENTS_BYTES)
        except BlockingIOError:
            return []
        found = []
        place = 0
        while place < len(data):
            number, mask, _, size = _EVENT.unpack_from(data, place)
            place += _EVENT.size
            found.append((number, mask, data[place : place + size].rstrip(b"\0")))
            place += size
        return found
