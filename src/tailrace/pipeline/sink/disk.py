"""What sinks in directories do with the disk, and what its errors mean to a pipeline."""

import errno
import fcntl
import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

from tailrace.model.errors import SinkError, SinkRefusedError, SinkUnavailableError

__all__ = ["disk_errors", "replace_file", "sync_directory", "sync_since", "sync_tree"]

_REFUSING = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.EEXIST}


@contextmanager
def disk_errors(directory: Path) -> Iterator[None]:
    """Raise what the disk says as an error of the sink in that directory."""
    try:
        yield
    except OSError as error:
        raise disk_error(directory, error) from None


def disk_error(directory: Path, error: OSError) -> SinkError:
    """Return the error of a sink for an error of the disk."""
    reason = f"the sink in {directory}: {os.strerror(error.errno) if error.errno else type(error).__name__}"
    if error.errno in _REFUSING:
        return SinkRefusedError(f"{reason}; name a directory that can be written (three slashes begin at the root)")
    return SinkUnavailableError(reason)


def replace_file(path: Path, data: bytes, allow: Callable[[], None] | None = None) -> None:
    """Put a file in place of another, at once and durably.

    With `allow`, one process does so at a time: what that raises leaves the file as it is.

    Raises:
        SinkUnavailableError: Another process is at it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f"{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        with beside.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        with nullcontext() if allow is None else _locked(path.with_suffix(".lock")):
            if allow is not None:
                allow()
            beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
    sync_directory(path.parent)


def sync_directory(directory: Path) -> None:
    """Make the names in a directory durable."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_tree(directory: Path) -> None:
    """Make all files below a directory and their names durable."""
    for folder, _, names in os.walk(directory):
        for name in names:
            with (Path(folder) / name).open("rb") as file:
                os.fsync(file.fileno())
        sync_directory(Path(folder))


def sync_since(directory: Path, since_ns: int) -> None:
    """Make what was written below a directory since that time of its file system durable."""
    for folder, _, names in os.walk(directory):
        for name in names:
            path = Path(folder) / name
            if path.stat().st_mtime_ns >= since_ns:
                with path.open("rb") as file:
                    os.fsync(file.fileno())
        if Path(folder).stat().st_mtime_ns >= since_ns:
            sync_directory(Path(folder))


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Be the only process inside a `with` block of this file's lock, which ends with the process, too.

    Raises:
        SinkUnavailableError: Another one is inside.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SinkUnavailableError(f"another worker is writing {path.parent}") from None
        yield
