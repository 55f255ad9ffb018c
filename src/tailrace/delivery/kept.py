"""What was encoded and is kept for whoever comes next, bounded in memory: found by its chunk, or by its place."""

from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Hashable
from typing import NamedTuple

from tailrace.delivery.encoded import Encoded
from tailrace.delivery.stretch import Kind, Stretch
from tailrace.model.number import Offset

__all__ = ["ABSENT", "Kept"]

ABSENT = Encoded.of_list((), (), Offset(0))
"""Stands for what is not kept."""

_ENTRY_BYTES = 512
"""About what an entry takes besides its events."""


class Kept:
    """Encoded events, least recently used out first, up to `bytes_max`. For tasks of one event loop.

    Counted by bytes and not by entries: one chunk may be a kilobyte or megabytes.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._entries: OrderedDict[Hashable, Encoded | Stretch | Offset | None] = OrderedDict()
        self._firsts: dict[Kind, list[Offset]] = {}
        self._bytes = 0

    @property
    def size_bytes(self) -> int:
        """Return about how much memory is held."""
        return self._bytes

    def __contains__(self, key: Hashable) -> bool:
        return key in self._entries

    def get(self, key: Hashable) -> Encoded | None:
        """Return what is kept for a key; None for a note, `ABSENT` where there is nothing."""
        found = self._entries.get(key, ABSENT)
        if found is not ABSENT:
            self._entries.move_to_end(key)
        assert not isinstance(found, Stretch | int)
        return found

    def put(self, key: Hashable, made: Encoded | None) -> None:
        """Keep something for a key; None is a note."""
        self._put(key, made)

    def stretch(self, kind: Kind, offset: Offset) -> Stretch | None:
        """Return the stretch of a kind that holds a change; None where there is none."""
        firsts = self._firsts.get(kind, ())
        place = bisect_right(firsts, offset)
        if not place:
            return None
        key = _Place(kind, firsts[place - 1])
        found = self._entries[key]
        self._entries.move_to_end(key)
        if isinstance(found, int):
            found = self.whole(kind, key.first, found)
            if found is not None:
                self._entries.move_to_end(_Place(_whole_of(kind), key.first))
        return found if isinstance(found, Stretch) and offset <= found.last else None

    def whole(self, kind: Kind, first: Offset, last: Offset) -> Stretch | None:
        """Return a stretch of which all changes pass, whatever filter it was made for. For any thread."""
        found = self._entries.get(_Place(_whole_of(kind), first))
        return found if isinstance(found, Stretch) and found.last == last else None

    def put_stretch(self, kind: Kind, stretch: Stretch) -> None:
        """Keep a stretch; one of which all changes pass, for all filters of which that is so."""
        if stretch.is_whole:
            self._put(_Place(_whole_of(kind), stretch.first), stretch)
        key = _Place(kind, stretch.first)
        if key not in self._entries:
            firsts = self._firsts.setdefault(kind, [])
            firsts.insert(bisect_right(firsts, stretch.first), stretch.first)
        # Where it ends is noted with it: one that another filter puts in its place may be longer, and whether the rest
        # passes this filter nobody has looked at.
        self._put(key, stretch.last if stretch.is_whole else stretch)

    def _put(self, key: Hashable, made: Encoded | Stretch | Offset | None) -> None:
        if key in self._entries:
            self._bytes -= _charge(self._entries.pop(key))
        self._entries[key] = made
        self._bytes += _charge(made)
        while self._bytes > self._bytes_max:
            oldest, dropped = self._entries.popitem(last=False)
            self._bytes -= _charge(dropped)
            if isinstance(oldest, _Place):
                self._forget(oldest)

    def _forget(self, key: "_Place") -> None:
        firsts = self._firsts.get(key.kind)
        if firsts is not None:  # there is none of those that are kept for all filters
            del firsts[bisect_left(firsts, key.first)]
            if not firsts:
                del self._firsts[key.kind]


class _Place(NamedTuple):
    """The key of a stretch."""

    kind: Kind
    first: Offset


def _whole_of(kind: Kind) -> Kind:
    return kind[0], kind[1], None


def _charge(made: Encoded | Stretch | Offset | None) -> int:
    if isinstance(made, Stretch):
        made = made.encoded
    return _ENTRY_BYTES + (made.size_bytes if isinstance(made, Encoded) else 0)
