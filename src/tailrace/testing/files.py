"""A disk in memory that can fill up, fail, stop and forget what was not synced."""

import errno
import os
import random
import threading
from collections.abc import Callable, Sequence

__all__ = ["Crash", "MemoryFile", "MemoryFiles"]

_PAGE_BYTES = 64
"""Small, so that short frames cover many pages and can be torn in many ways."""

_RANDOM_SEED_MIN = 2


class Crash(BaseException):
    """The machine stopped. Not an `Exception`: nothing in the program under test may handle it."""


class _Content:
    """The bytes of one file, as the program sees them and as they are on disk."""

    def __init__(self) -> None:
        self.seen = bytearray()
        self.synced = b""
        self.lost = False


class MemoryFiles:
    """Files in memory with every fault that the log claims to survive. Satisfies `tailrace.log.files.Files`.

    * `capacity_bytes`: when the files together exceed it, writes fail with ENOSPC, after writing what fits.
    * `fail_syncs`, `fail_writes`: how many of the next calls fail with EIO. A failed sync loses what was not synced,
      for good: a later sync succeeds and writes nothing of it.
    * `crash_at`: the number of the operation before which the machine stops; `operations` counts them.
    * `after_crash`: the same disk after the power came back.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._names: dict[str, _Content] = {}
        self._synced_names: dict[str, _Content] = {}
        self.capacity_bytes: int | None = None
        self.fail_syncs = 0
        self.fail_writes = 0
        self.crash_at: int | None = None
        self.operations = 0

    def names(self) -> list[str]:
        """Return the names of all files, sorted."""
        with self.lock:
            return sorted(self._names)

    def open(self, name: str, *, write: bool = False) -> "MemoryFile":
        """Open an existing file."""
        with self.lock:
            if name not in self._names:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
            return MemoryFile(self, self._names[name], write=write)

    def create(self, name: str) -> "MemoryFile":
        """Create or empty a file and open it for writing."""
        with self.lock:
            self.step()
            content = self._names.setdefault(name, _Content())
            content.seen.clear()
            content.lost = False
            return MemoryFile(self, content, write=True)

    def rename(self, old: str, new: str) -> None:
        """Rename a file."""
        with self.lock:
            self.step()
            if old not in self._names:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), old)
            self._names[new] = self._names.pop(old)

    def remove(self, name: str) -> None:
        """Remove a file."""
        with self.lock:
            self.step()
            self._names.pop(name, None)

    def sync_names(self) -> None:
        """Make the names durable."""
        with self.lock:
            self.step()
            self.meet_sync_fault()
            self._synced_names = dict(self._names)

    def after_crash(self, seed: int) -> "MemoryFiles":
        """Return what may be on disk when the machine comes back: of everything unsynced, some of it, by chance.

        Seed 0 keeps nothing that was not synced, seed 1 all of it, others keep pages, lengths and names at random.
        """
        with self.lock:
            chance = random.Random(seed)  # noqa: S311

            def keep() -> bool:
                return chance.random() < 0.5 if seed >= _RANDOM_SEED_MIN else seed == 1

            after = MemoryFiles()
            names = dict(self._names if keep() else self._synced_names)
            for name, content in sorted(names.items()):
                survivor = _Content()
                survivor.seen = _survive(content, keep, chance, whole=seed < _RANDOM_SEED_MIN)
                survivor.synced = bytes(survivor.seen)
                after._names[name] = survivor
            after._synced_names = dict(after._names)
            return after

    def copy(self) -> "MemoryFiles":
        """Return an equal disk, all of it synced, for trying one fault after the other on it."""
        return self.after_crash(1)

    def bytes_of(self, name: str) -> bytes:
        """Return the whole content of a file."""
        with self.lock:
            return bytes(self._names[name].seen)

    def put(self, name: str, data: bytes) -> None:
        """Set the whole content of a file, synced: for damaging it."""
        with self.lock:
            content = self._names.setdefault(name, _Content())
            content.seen[:] = data
            content.synced = bytes(data)
            self._synced_names[name] = content

    def used_bytes(self) -> int:
        """Return how much all files take together."""
        with self.lock:
            return sum(len(content.seen) for content in self._names.values())

    def step(self) -> None:
        """Count an operation that changes something; stop before the one that was chosen, and for ever after it."""
        if self.crash_at is not None and self.operations >= self.crash_at:
            raise Crash
        self.operations += 1

    def meet_sync_fault(self) -> None:
        """Fail, if a sync is to fail now."""
        if self.fail_syncs:
            self.fail_syncs -= 1
            raise OSError(errno.EIO, os.strerror(errno.EIO))


class MemoryFile:
    """An open file of `MemoryFiles`."""

    def __init__(self, files: MemoryFiles, content: _Content, *, write: bool) -> None:
        self._files = files
        self._content = content
        self._write = write
        self._open = True

    def read_at(self, place: int, size: int) -> bytes:
        """Return bytes, fewer only where the file ends."""
        with self._files.lock:
            self._check_open(write=False)
            return bytes(self._content.seen[place : place + size])

    def read_into(self, place: int, buffer: memoryview) -> int:
        """Fill a buffer, less of it only where the file ends."""
        data = self.read_at(place, len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def write_at(self, place: int, parts: Sequence[bytes | memoryview]) -> None:
        """Write all parts; on a full disk, what fits."""
        with self._files.lock:
            self._check_open(write=True)
            self._files.step()
            data = b"".join(parts)
            if self._files.fail_writes:
                self._files.fail_writes -= 1
                self._put(place, data[: len(data) // 2])
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            fits = self._fitting(place + len(data)) - place
            self._put(place, data[: max(0, fits)])
            if fits < len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def sync(self) -> None:
        """Make the bytes durable, but those that a failed sync has lost."""
        with self._files.lock:
            self._check_open(write=True)
            self._files.step()
            try:
                self._files.meet_sync_fault()
            except OSError:
                self._content.lost = True
                raise
            if self._content.lost:
                self._content.synced = self._content.synced[: len(self._content.seen)]
            else:
                self._content.synced = bytes(self._content.seen)

    def truncate(self, size: int) -> None:
        """Cut or extend."""
        with self._files.lock:
            self._check_open(write=True)
            self._files.step()
            self._resize(size)

    def size(self) -> int:
        """Return the length."""
        with self._files.lock:
            self._check_open(write=False)
            return len(self._content.seen)

    def close(self) -> None:
        """Close it."""
        self._open = False

    def _check_open(self, *, write: bool) -> None:
        if not self._open or (write and not self._write):
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))

    def _fitting(self, end: int) -> int:
        """Return how long this file may become, if it is to be `end` long."""
        capacity = self._files.capacity_bytes
        if capacity is None:
            return end
        room = max(0, capacity - self._files.used_bytes())
        return min(end, len(self._content.seen) + room)

    def _put(self, place: int, data: bytes) -> None:
        if place + len(data) > len(self._content.seen):
            self._resize(place + len(data))
        self._content.seen[place : place + len(data)] = data

    def _resize(self, size: int) -> None:
        seen = self._content.seen
        if size < len(seen):
            del seen[size:]
        else:
            seen.extend(bytes(size - len(seen)))


def _survive(content: _Content, keep: Callable[[], bool], chance: random.Random, *, whole: bool) -> bytearray:
    """Return the bytes that are on disk after a crash: each page and the length as synced or as seen."""
    if content.lost:
        return bytearray(content.synced)
    if bytes(content.seen) == content.synced:
        return bytearray(content.seen)
    longer = max(len(content.seen), len(content.synced))
    seen, synced = bytes(content.seen).ljust(longer, b"\0"), content.synced.ljust(longer, b"\0")
    size = len(content.seen) if keep() else len(content.synced)
    result = bytearray()
    for begin in range(0, longer, _PAGE_BYTES):
        result += (seen if keep() else synced)[begin : begin + _PAGE_BYTES]
    del result[size:]
    if not whole and len(content.seen) > len(content.synced) and chance.random() < 0.2:
        del result[len(content.synced) + chance.randrange(len(content.seen) - len(content.synced)) :]
    return result
