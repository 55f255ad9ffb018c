"""Where what Spark prints goes: a file of bounded size, away from what a command tells."""

import os
import threading
from collections import deque
from collections.abc import Sequence
from pathlib import Path

__all__ = ["SparkLog"]

_FILE_BYTES_MAX = 8 << 20
"""A file that is larger becomes the older of two."""

_READ_BYTES = 64 << 10
_LINES_LAST = 200


class SparkLog:
    """Takes what the processes of Spark print into the file `path`, and keeps the newest lines in memory.

    The file is appended to, and becomes `path` with `.1` behind it when it is large: two of them is all there is. Any
    number of processes may share a path.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lines: deque[str] = deque(maxlen=_LINES_LAST)
        self._rest = b""

    def __str__(self) -> str:
        return str(self._path)

    def open(self) -> int:
        """Return a descriptor to print to; close it when it is handed on. What is printed is taken until its end."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        reading, writing = os.pipe()
        threading.Thread(target=self._take, args=(reading,), name="tailrace-spark-log", daemon=True).start()
        return writing

    def last(self) -> Sequence[str]:
        """Return the newest lines, oldest first."""
        return list(self._lines)

    def _take(self, reading: int) -> None:
        """Append what comes, until everyone who prints has ended."""
        file = _appending(self._path)
        try:
            while data := os.read(reading, _READ_BYTES):
                *lines, self._rest = (self._rest + data).split(b"\n")
                self._lines.extend(line.decode(errors="replace") for line in lines)
                self._rest = self._rest[-_READ_BYTES:]
                file = self._roomy(file)
                _write(file, data)
        finally:
            os.close(reading)
            os.close(file)

    def _roomy(self, file: int) -> int:
        """Return the file if there is room in it, else a new one."""
        here = os.fstat(file)
        if here.st_size < _FILE_BYTES_MAX:
            return file
        os.close(file)
        try:
            if self._path.stat().st_ino == here.st_ino:  # nobody else has put it aside
                self._path.replace(self._path.with_name(f"{self._path.name}.1"))
        except FileNotFoundError:
            pass
        return _appending(self._path)


def _appending(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)


def _write(file: int, data: bytes) -> None:
    """Write it all; a full disk must not stop Spark, whose output would then wait for us."""
    try:
        while data:
            data = data[os.write(file, data) :]
    except OSError:
        return
