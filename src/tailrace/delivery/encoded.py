"""Encoded changes: the bytes of a chunk's events, to be cut into writes without encoding again. Pure."""

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from msgspec import Struct

from tailrace.model.number import Offset
from tailrace.subscription.filter import Rows

__all__ = ["Encoded", "Piece"]


class Piece(Struct, frozen=True):
    """Some consecutive events as bytes. Everything up to `through` is in it, was before it, or is not wanted."""

    data: bytes
    count: int
    through: Offset


class Encoded:
    """One event per wanted change of a chunk, back to back in one buffer; shared by many feeds, never changed."""

    __slots__ = ("_data", "_ends", "_last", "_offsets", "array")

    def __init__(self, array: Any, offsets: Sequence[int], last: Offset) -> None:
        """Take an Arrow binary array of events, the offsets of their changes, and the chunk's last offset."""
        assert len(array) == len(offsets)
        self.array = array
        self._offsets = offsets
        self._last = last
        self._data, self._ends = _buffers(array)

    @property
    def count(self) -> int:
        """Return how many events there are."""
        return len(self._offsets)

    @property
    def size_bytes(self) -> int:
        """Return about how much memory this takes."""
        return self._ends[-1] - self._ends[0] + 16 * len(self._offsets)

    def pick(self, rows: Rows) -> "Encoded":
        """Return the events of some rows, of an object that holds those of all rows of a chunk."""
        if isinstance(rows, range):
            return Encoded(self.array.slice(rows.start, len(rows)), self._offsets[rows.start : rows.stop], self._last)
        return Encoded(self.array.take(pa.array(rows, pa.int64())), [self._offsets[row] for row in rows], self._last)

    def cut(self, after: Offset, changes_max: int, bytes_max: int) -> Piece:
        """Return the events that follow `after`, at most so many and so large, but one however large it is."""
        begin = bisect_right(self._offsets, after)
        end = min(begin + changes_max, len(self._offsets))
        if self._ends[end] - self._ends[begin] > bytes_max:
            end = max(begin + 1, bisect_right(self._ends, self._ends[begin] + bytes_max, begin, end) - 1)
        through = self._last if end == len(self._offsets) else Offset(self._offsets[end] - 1)
        return Piece(bytes(self._data[self._ends[begin] : self._ends[end]]), end - begin, through)


def _buffers(array: Any) -> tuple[memoryview, Sequence[int]]:
    """Return the data of a binary array and where each value ends in it, the start of the first one in front."""
    if len(array) == 0:
        return memoryview(b""), (0,)
    _, ends, data = array.buffers()
    view = memoryview(ends).cast("B")
    numbers = view.cast("q") if pa.types.is_large_binary(array.type) else view.cast("i")
    return memoryview(data if data is not None else b""), numbers[array.offset : array.offset + len(array) + 1]
