"""Encoded changes: the bytes of a chunk's events, to be cut into writes without encoding again. Pure."""

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

from msgspec import Struct

from tailrace.delivery.join import Joined
from tailrace.model.number import Offset
from tailrace.subscription.filter import Rows

__all__ = ["Encoded", "Piece"]

_CUTS_MAX = 64
"""Most pieces of one chunk that are kept for others."""

_CUT_BYTES = 192
"""What a piece takes besides its events, about."""

_OBJECT_BYTES = 768
"""What an object takes besides its events and their numbers, about."""


class Piece(Struct, frozen=True):
    """Some consecutive events as bytes. Everything up to `through` is in it, was before it, or is not wanted.

    `last` is the offset of the last event; 0 where there is none.
    """

    data: bytes
    count: int
    through: Offset
    last: Offset = Offset(0)


class Encoded:
    """One event per wanted change of a chunk, back to back in one buffer; shared by many feeds, never changed.

    Event `n` lies between `ends[n]` and `ends[n + 1]`. `offsets` are those of the changes, `last` that of the chunk.
    """

    __slots__ = ("_cuts", "_data", "_ends", "_last", "_offsets")

    def __init__(self, data: memoryview, ends: Sequence[int], offsets: Sequence[int], last: Offset) -> None:
        assert len(ends) == len(offsets) + 1
        self._data = data
        self._ends = ends
        self._offsets = offsets
        self._last = last
        self._cuts: dict[tuple[int, int], bytes] = {}

    @classmethod
    def of_list(cls, events: Sequence[bytes], offsets: Sequence[int], last: Offset) -> "Encoded":
        """Join single events."""
        numbers = offsets if isinstance(offsets, range) else array("q", offsets)
        ends = array("q", accumulate(map(len, events), initial=0))
        return cls(memoryview(b"".join(events)), ends, numbers, last)

    @classmethod
    def of_joined(cls, joined: Joined, offsets: Sequence[int], last: Offset) -> "Encoded":
        """Take over the memory of joined events."""
        numbers = offsets if isinstance(offsets, range) else array("q", offsets)
        return cls(joined.data, joined.ends, numbers, last)

    @property
    def last(self) -> Offset:
        """Return the offset of the last change of the chunk."""
        return self._last

    @property
    def count(self) -> int:
        """Return how many events there are."""
        return len(self._offsets)

    @property
    def data_bytes(self) -> int:
        """Return how many bytes the events have."""
        return len(self._data)

    @property
    def size_bytes(self) -> int:
        """Return about how much memory this may hold, with what is kept of it for others."""
        cuts = _CUT_BYTES * min(_CUTS_MAX, len(self._ends) ** 2) + self._ends[-1] - self._ends[0]
        return _OBJECT_BYTES + len(self._data) + 8 * (len(self._ends) + len(self._offsets)) + cuts

    def events(self) -> list[bytes]:
        """Return the events one by one."""
        return Joined(self._data, self._ends).events()

    def pick(self, rows: Rows) -> "Encoded":
        """Return the events of some rows, of an object that holds those of all rows of a chunk."""
        events = [bytes(self._data[self._ends[row] : self._ends[row + 1]]) for row in rows]
        return Encoded.of_list(events, [self._offsets[row] for row in rows], self._last)

    def cut(self, after: Offset, changes_max: int, bytes_max: int) -> Piece:
        """Return the events that follow `after`, at most this many and so large, but one however large it is."""
        begin = bisect_right(self._offsets, after)
        end = min(begin + changes_max, len(self._offsets))
        if self._ends[end] - self._ends[begin] > bytes_max:
            end = max(begin + 1, bisect_right(self._ends, self._ends[begin] + bytes_max, begin, end) - 1)
        through = self._last if end == len(self._offsets) else Offset(self._offsets[end] - 1)
        last = Offset(self._offsets[end - 1]) if end > begin else Offset(0)
        return Piece(self._bytes(begin, end), end - begin, through, last)

    def _bytes(self, begin: int, end: int) -> bytes:
        """Return consecutive events. Feeds cut mostly at the same places, so they share the bytes."""
        whole = self._data.obj
        if begin == 0 and end == len(self._offsets) and isinstance(whole, bytes) and len(whole) == len(self._data):
            return whole
        found = self._cuts.get((begin, end))
        if found is None:
            found = bytes(self._data[self._ends[begin] : self._ends[end]])
            kept_bytes = sum(map(len, self._cuts.values()))
            if kept_bytes + len(found) > self._ends[-1] - self._ends[0] or len(self._cuts) >= _CUTS_MAX:
                self._cuts.clear()
            self._cuts[begin, end] = found
        return found
