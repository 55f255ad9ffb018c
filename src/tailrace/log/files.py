"""The disk seam: the few things that the log does with files, and how durable each is."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from tailrace.datadir import make_private

__all__ = ["DiskFiles", "File", "Files"]


class File(Protocol):
    """One open file. Reads may run in many threads at once; everything else is called by one thread at a time."""

    def read_at(self, place: int, size: int) -> bytes:
        """Return `size` bytes from `place`, fewer only where the file ends."""

    def read_into(self, place: int, buffer: memoryview) -> int:
        """Fill a buffer with the bytes from `place`; return how many there are, fewer only where the file ends."""

    def write_at(self, place: int, parts: Sequence[bytes | memoryview]) -> None:
        """Write all parts one after the other from `place`. Not durable before `sync`; an error may leave any part."""

    def sync(self) -> None:
        """Make what was written, and the length, durable."""

    def truncate(self, size: int) -> None:
        """Cut the file to `size` bytes, or extend it with zeros. Not durable before `sync`."""

    def size(self) -> int:
        """Return the length of the file in bytes."""

    def close(self) -> None:
        """Close it. Syncs nothing."""


class Files(Protocol):
    """The files of one directory, by bare names. Safe to call from many threads."""

    def names(self) -> list[str]:
        """Return the names of all files, sorted."""

    def open(self, name: str, *, write: bool = False) -> File:
        """Open an existing file. An open file stays readable when it is removed.

        Raises:
            FileNotFoundError: There is none of that name.
        """

    def create(self, name: str) -> File:
        """Create a file, or empty the one that is there, and open it for writing. Its name is not durable yet."""

    def rename(self, old: str, new: str) -> None:
        """Rename a file, at once, in place of one that has the new name. Not durable before `sync_names`."""

    def remove(self, name: str) -> None:
        """Remove a file; nothing happens where there is none. Not durable before `sync_names`."""

    def sync_names(self) -> None:
        """Make creations, renames and removals durable."""


class DiskFiles:
    """Files in a directory of the machine. The directory is made when it is not there, unless `make` is off."""

    def __init__(self, directory: Path, *, make: bool = True) -> None:
        self.directory = directory
        if make:
            make_private(directory)

    def names(self) -> list[str]:
        """Return the names of all files, sorted; none where there is no directory."""
        try:
            return sorted(entry.name for entry in os.scandir(self.directory) if entry.is_file())
        except FileNotFoundError:
            return []

    def open(self, name: str, *, write: bool = False) -> File:
        """Open an existing file."""
        return DiskFile(os.open(self.directory / name, (os.O_RDWR if write else os.O_RDONLY) | os.O_CLOEXEC))

    def create(self, name: str) -> File:
        """Create or empty a file and open it for writing. A group that may read the directory may read the file."""
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        mode = 0o600 | self.directory.stat().st_mode & 0o040
        return DiskFile(os.open(self.directory / name, flags, mode))

    def rename(self, old: str, new: str) -> None:
        """Rename a file."""
        (self.directory / old).replace(self.directory / new)

    def remove(self, name: str) -> None:
        """Remove a file."""
        (self.directory / name).unlink(missing_ok=True)

    def sync_names(self) -> None:
        """Sync the directory."""
        descriptor = os.open(self.directory, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


class DiskFile:
    """An open file of the machine."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def read_at(self, place: int, size: int) -> bytes:
        """Read; a short read is continued until the file ends."""
        data = os.pread(self._descriptor, size, place)
        if len(data) == size or not data:
            return data
        parts = [data]
        while data:
            place += len(data)
            size -= len(data)
            data = os.pread(self._descriptor, size, place) if size else b""
            parts.append(data)
        return b"".join(parts)

    def read_into(self, place: int, buffer: memoryview) -> int:
        """Read; a short read is continued until the file ends."""
        done = 0
        while done < len(buffer):
            count = os.preadv(self._descriptor, [buffer[done:]], place + done)
            if not count:
                break
            done += count
        return done

    def write_at(self, place: int, parts: Sequence[bytes | memoryview]) -> None:
        """Write; a short write is continued."""
        written = os.pwritev(self._descriptor, parts, place)
        if written == sum(map(len, parts)):
            return
        views = [memoryview(part).cast("B") for part in parts]
        while views:
            place += written
            while views and written >= len(views[0]):
                written -= len(views.pop(0))
            if views:
                views[0] = views[0][written:]
                written = os.pwritev(self._descriptor, views, place)

    def sync(self) -> None:
        """Sync data and length."""
        _sync(self._descriptor)

    def truncate(self, size: int) -> None:
        """Cut or extend."""
        os.ftruncate(self._descriptor, size)

    def size(self) -> int:
        """Return the length."""
        return os.fstat(self._descriptor).st_size

    def close(self) -> None:
        """Close it."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __del__(self) -> None:
        self.close()


_sync = getattr(os, "fdatasync", os.fsync)
