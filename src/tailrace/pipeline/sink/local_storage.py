"""Files of a sink in a directory of this machine; see `tailrace.pipeline.sink.storage`."""

import errno
import os
import shutil
import uuid
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from msgspec import Struct

from tailrace.pipeline.sink.disk import disk_errors, replace_file, sync_directory, sync_tree
from tailrace.pipeline.sink.storage import MANIFEST, Held

__all__ = ["LocalStorage"]


class LocalStorage(Struct, frozen=True):
    """A directory. A group is a directory in it that is written beside, synced, and renamed into place."""

    directory: Path

    def errors(self) -> AbstractContextManager[None]:
        """Raise what the disk says as an error of the sink."""
        return disk_errors(self.directory)

    def open(self) -> None:
        """Make the directory."""
        self.directory.mkdir(parents=True, exist_ok=True)

    def below(self, path: str) -> "LocalStorage":
        """Return the storage of a directory below this one."""
        return LocalStorage(self.directory / path)

    def read(self, name: str) -> Held | None:
        """Return a small file."""
        try:
            with (self.directory / name).open("rb") as file:
                return Held(file.read(), written_ns=os.fstat(file.fileno()).st_mtime_ns)
        except FileNotFoundError:
            return None

    def replace(self, name: str, data: bytes, held: Held | None) -> bool:
        """Put a file in the place of another, unless another process has."""
        expected = None if held is None else held.data

        def require() -> None:
            found = self.read(name)
            if (None if found is None else found.data) != expected:
                raise _OvertakenError

        try:
            replace_file(self.directory / name, data, require)
        except _OvertakenError:
            return False
        return True

    def create(self, name: str) -> "_LocalFile":
        """Begin a file. It is in its place from the beginning, under a name that nobody knows."""
        path = self.directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return _LocalFile(path)

    @contextmanager
    def fetched(self, name: str) -> Iterator[Path]:
        """Give the file itself."""
        yield self.directory / name

    def names(self, folder: str) -> Iterator[str]:
        """Return the names of all files below a folder."""
        for found, _, files in os.walk(self.directory / folder):
            for name in files:
                yield str((Path(found) / name).relative_to(self.directory))

    def remove(self, names: Sequence[str]) -> None:
        """Remove files, and the directories that become empty by it."""
        for name in names:
            path = self.directory / name
            path.unlink(missing_ok=True)
            for parent in path.relative_to(self.directory).parents[:-1]:
                try:
                    (self.directory / parent).rmdir()
                except OSError:
                    break

    @contextmanager
    def group(self, folder: str, name: str) -> Iterator["_LocalGroup"]:
        """Begin a group beside its place."""
        home = self.directory / folder
        beside = home / f"_{name}.{uuid.uuid4().hex}.tmp"
        beside.mkdir(parents=True)
        try:
            yield _LocalGroup(beside, home / name)
        finally:
            shutil.rmtree(beside, ignore_errors=True)

    def groups(self, folder: str) -> list[str]:
        """Return the names of the groups in a folder."""
        return sorted(path.name for path in (self.directory / folder).glob("[!_]*") if path.is_dir())

    def tidy(self, folder: str, abandoned: bytes) -> None:
        """Remove groups that were being written. One that is not whole is under no name that counts."""
        for path in (self.directory / folder).glob("_*.tmp"):
            shutil.rmtree(path)


class _OvertakenError(Exception):
    """Another process has written a file."""


class _LocalFile(Struct, frozen=True):
    path: Path

    def keep(self, *, durable: bool = True) -> None:
        if durable:
            with self.path.open("rb") as file:
                os.fsync(file.fileno())
            sync_directory(self.path.parent)


class _LocalGroup(Struct, frozen=True):
    beside: Path
    place: Path

    def add(self, stem: str, suffix: str) -> tuple[str, Path]:
        name = f"{stem}.{suffix}"
        path = self.beside / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return name, path

    def commit(self, manifest: bytes) -> bool:
        (self.beside / MANIFEST).write_bytes(manifest)
        sync_tree(self.beside)
        try:
            self.beside.rename(self.place)
        except OSError as error:
            if error.errno not in {errno.ENOTEMPTY, errno.EEXIST}:
                raise
            return False
        sync_directory(self.place.parent)
        return True
