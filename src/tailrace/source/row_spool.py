"""Rows in a temporary file: written by one thread as fast as a database gives them, handed out as slowly as need be."""

import struct
import tempfile
import threading

from tailrace.source.base import SnapshotRows

__all__ = ["RowSpool"]

_BUFFER_BYTES = 1 << 18
_ROWS_MAX = 512
_BYTES_MAX = 128 << 10
"""Bounds of what is handed out at one time; one row may be larger."""

_LENGTHS = struct.Struct("=II")


class RowSpool:
    """Keys and images of rows. First all are added, then they are read from the beginning."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile(prefix="tailrace-snapshot-", buffering=_BUFFER_BYTES)  # noqa: SIM115
        self._lock = threading.Lock()

    def add(self, key: bytes, image: bytes) -> None:
        """Add a row."""
        write = self._file.write
        write(_LENGTHS.pack(len(key), len(image)))
        write(key)
        write(image)

    def rewind(self) -> None:
        """Begin to read."""
        self._file.seek(0)

    def read(self) -> SnapshotRows | None:
        """Return the next rows; None when there are no more, or it is closed."""
        taken = SnapshotRows([], [])
        size_bytes = 0
        with self._lock:
            if self._file.closed:
                return None
            while len(taken.keys) < _ROWS_MAX and size_bytes < _BYTES_MAX:
                lengths = self._file.read(_LENGTHS.size)
                if not lengths:
                    break
                key_bytes, image_bytes = _LENGTHS.unpack(lengths)
                taken.keys.append(self._file.read(key_bytes))
                taken.images.append(self._file.read(image_bytes))
                size_bytes += key_bytes + image_bytes
        return taken if taken.keys else None

    def close(self) -> None:
        """Let go of the rows. Safe to repeat."""
        with self._lock:
            self._file.close()
