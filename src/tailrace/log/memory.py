"""Memory into which blocks are read, over and over: fresh memory for each costs more than reading and checking it."""

from collections.abc import Iterator
from contextlib import contextmanager

from tailrace.log.files import File

__all__ = ["Memory", "borrowed"]

_STEP = 1024 * 1024
_SPARE_MAX = 2
_SPARE_BYTES_MAX = 4 * 1024 * 1024

_spare: "list[Memory]" = []
"""For all logs of the process. Taking the last of a list and putting one there are safe in many threads."""


class Memory:
    """A buffer that grows with what is read into it. For one thread at a time."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    @property
    def size_bytes(self) -> int:
        """Return how much it takes."""
        return len(self._buffer)

    def read(self, file: File, place: int, size: int) -> memoryview:
        """Return bytes of a file, fewer only where it ends. They are good until the next call."""
        if len(self._buffer) < size:
            self._buffer = bytearray(-(-size // _STEP) * _STEP)  # the next may be a little larger
        view = memoryview(self._buffer)[:size]
        return view[: file.read_into(place, view)]


@contextmanager
def borrowed() -> Iterator[Memory]:
    """Lend memory. Nothing that shows bytes of it may be used afterwards."""
    try:
        memory = _spare.pop()
    except IndexError:
        memory = Memory()
    try:
        yield memory
    finally:
        if len(_spare) < _SPARE_MAX and memory.size_bytes <= _SPARE_BYTES_MAX:
            _spare.append(memory)
