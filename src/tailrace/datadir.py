"""The data directory: where its parts lie, who owns it, and who may read it."""

import fcntl
import logging
import os
from pathlib import Path
from types import TracebackType
from typing import Self

from tailrace.model.errors import ConfigError, DataDirectoryInUseError

__all__ = ["DataDirectory", "make_private"]

logger = logging.getLogger(__name__)

_OTHERS = 0o077
"""Permissions of all but the owner."""


def make_private(directory: Path) -> None:
    """Make a directory, and those above it that are missing, for its owner alone. One that is there stays as it is."""
    missing = [path for path in (directory, *directory.parents) if not path.exists()]
    for path in reversed(missing):
        path.mkdir(mode=0o700, exist_ok=True)


class DataDirectory:
    """A data directory, owned by this process from `acquire` until `release`.

    Ownership is the operating system's advisory lock on the file `lock`: it ends with the process, however that ends.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = -1

    @property
    def metadata(self) -> Path:
        """Return the path of the default metadata database."""
        return self.path / "metadata.db"

    def metadata_at(self, url: str) -> tuple[str, Path | None]:
        """Return the URL of the metadata database: the given one, or that of the default file.

        With the default comes the file in which an older version may have kept pipelines.
        """
        return (url, None) if url else (f"sqlite:///{self.metadata}", self.older_pipelines)

    @property
    def pipelines(self) -> Path:
        """Return the directory of what workers of pipelines need while they run."""
        return self.path / "pipeline"

    @property
    def older_pipelines(self) -> Path:
        """Return the path of the database in which older versions kept pipelines."""
        return self.pipelines / "pipelines.db"

    @property
    def embedded(self) -> Path:
        """Return the path of the embedded database."""
        return self.path / "embedded.db"

    def shard(self, shard_id: int) -> Path:
        """Return the directory of a shard's log."""
        return self.path / "oplog" / str(shard_id)

    def acquire(self) -> Self:
        """Make the directory if need be, for its owner's eyes alone as it holds rows, and take ownership.

        Raises:
            DataDirectoryInUseError: Another process owns it.
            ConfigError: It cannot be made or written.
        """
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise ConfigError(f"data directory {self.path}: {error.strerror}") from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.pread(descriptor, 64, 0).decode(errors="replace").strip() or "another process"
            os.close(descriptor)
            raise DataDirectoryInUseError(str(self.path), owner) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"process {os.getpid()}\n".encode(), 0)
        self._descriptor = descriptor
        self._warn_of_others()
        return self

    def release(self) -> None:
        """Give up ownership. Safe to repeat."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _warn_of_others(self) -> None:
        """Say which parts other users may read: another program made them, or an earlier version did."""
        if not self.path.stat().st_mode & _OTHERS:
            return
        parts = [self.embedded, self.metadata, self.pipelines, self.shard(0).parent]
        parts = [part for part in parts if part.exists() and part.stat().st_mode & _OTHERS]
        if parts:
            fields = {"paths": [str(part) for part in parts], "advice": f"chmod -R go= {self.path}"}
            logger.warning("other users may read the data directory", extra=fields)

    def __enter__(self) -> Self:
        return self.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.release()
