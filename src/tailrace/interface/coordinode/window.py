"""A window of a chunk as events, encoded once and shared by all streams. Pure."""

from array import array
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Hashable, Iterator, Sequence
from itertools import accumulate

from msgspec import Struct

from tailrace.interface.coordinode.event import (
    WINDOW_CHANGES,
    CommitSlice,
    Stamp,
    event_message,
    parts_of,
    segment_token,
)
from tailrace.interface.coordinode.operation import Mapper
from tailrace.interface.coordinode.selection import CommitSelection
from tailrace.interface.coordinode.shard import StreamShard
from tailrace.interface.coordinode.token import ResumeToken, merged_token
from tailrace.model.chunk import Chunk
from tailrace.model.number import Index
from tailrace.subscription.restrict import Restriction

__all__ = ["CommitWindow", "Joined", "Placing", "Windows"]

_ENTRY_BYTES = 1024
"""About what an entry takes besides what is kept in it."""

_PART_BYTES = 320
"""About what a part takes besides its operations."""

_OP_BYTES = 48
"""About what an operation takes besides its bytes."""


class Joined(Struct, frozen=True):
    """The events of the commits that a selection wants, back to back; those of part `n` end at byte `ends[n + 1]`."""

    data: bytes
    ends: Sequence[int]

    def pieces(self, first: int, stop: int, bytes_max: int) -> Iterator[bytes]:
        """Yield the events of the parts `first` up to `stop` in writes of at most this many bytes, or of one part."""
        while first < stop:
            end = bisect_right(self.ends, self.ends[first] + bytes_max, first, stop + 1) - 1
            end = max(end, first + 1)
            if self.ends[end] > self.ends[first]:
                yield self.data[self.ends[first] : self.ends[end]]
            first = end

    def event(self, number: int) -> bytes:
        """Return the event or events of one part; nothing where it is not wanted."""
        return self.data[self.ends[number] : self.ends[number + 1]]


class Placing:
    """Makes the events of one shard, with the positions of its own stream or of the merged one. Kept by the server."""

    def __init__(self, shard: StreamShard, event_bytes_max: int, *, merged: bool) -> None:
        self.shard = shard
        self.event_bytes_max = event_bytes_max
        self.merged = merged

    def event(self, part: CommitSlice, ops: Sequence[bytes], segments: Sequence[Index], *, last: bool) -> bytes:
        """Return an event of a commit; only the `last` one of a commit is behind it."""
        stamp = Stamp(self.shard.number, self.shard.terms.of(part.index), part.index, part.hlc, part.migration)
        return event_message(stamp, ops, self._position(part, segments, last=last))

    def events(self, part: CommitSlice, segments: Sequence[Index]) -> bytes:
        """Return a commit that is in one part as an event, or as several where it is too large for one."""
        if part.size_bytes <= self.event_bytes_max:
            return self.event(part, part.ops, segments, last=True)
        messages: list[bytes] = []
        ops: list[bytes] = []
        size = 0
        for op in part.ops:
            if ops and size + len(op) > self.event_bytes_max:
                messages.append(self.event(part, ops, segments, last=False))
                ops, size = [], 0
            ops.append(op)
            size += len(op)
        messages.append(self.event(part, ops, segments, last=True))
        return b"".join(messages)

    def _position(self, part: CommitSlice, segments: Sequence[Index], *, last: bool) -> ResumeToken:
        number = self.shard.number
        if self.merged:
            return merged_token(part.hlc, number + last)
        return segment_token(number, segments, Index(part.index + last))


class CommitWindow:
    """The commits of one window, in parts. `rows` are the first rows of the parts, counted from the window's first."""

    def __init__(self, chunk: Chunk, begin: int, mapper: Mapper) -> None:
        self.parts = parts_of(chunk, begin, mapper)
        self.rows = array("q", accumulate((len(part.ops) for part in self.parts), initial=0))

    @property
    def size_bytes(self) -> int:
        """Return about how much memory this holds."""
        ops = sum(part.size_bytes + _OP_BYTES * len(part.ops) for part in self.parts)
        return _PART_BYTES * len(self.parts) + ops

    def joined(self, selection: CommitSelection, placing: Placing) -> Joined:
        """Return the events of all commits that end in the window, each as if it began there, too."""
        segments = placing.shard.log.segment_indexes
        events = [
            placing.events(part, segments) if part.ends and _wants(selection, part) else b"" for part in self.parts
        ]
        return Joined(b"".join(events), array("q", accumulate(map(len, events), initial=0)))


class Windows:
    """The windows used last and the events made of them, for all streams of a server, bounded in bytes.

    The log never changes what an offset means, so a window is known by its shard and its first and last offsets.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._cache: OrderedDict[Hashable, tuple[CommitWindow | Joined, int]] = OrderedDict()
        self._bytes = 0

    @property
    def size_bytes(self) -> int:
        """Return about how much memory is held by what is kept."""
        return self._bytes

    def get(
        self,
        chunk: Chunk,
        begin: int,
        mapper: Mapper,
        selection: CommitSelection,
        placing: Placing,
        seen: Restriction | None,
    ) -> tuple[CommitWindow, Joined]:
        """Return the window of a chunk that begins at a row, and the events in it that a selection wants.

        `seen` is what the chunk was restricted to.
        """
        first = chunk.first + begin
        key = (placing.shard.number, first, min(chunk.last, first + WINDOW_CHANGES - 1), seen)
        window = self._find(key)
        if not isinstance(window, CommitWindow):
            window = CommitWindow(chunk, begin, mapper)
            self._keep(key, window, window.size_bytes)
        joined_key = (*key, selection, placing.merged)
        joined = self._find(joined_key)
        if not isinstance(joined, Joined):
            joined = window.joined(selection, placing)
            self._keep(joined_key, joined, len(joined.data) + 8 * len(joined.ends))
        return window, joined

    def _find(self, key: Hashable) -> CommitWindow | Joined | None:
        if key not in self._cache:
            return None
        self._cache.move_to_end(key)
        return self._cache[key][0]

    def _keep(self, key: Hashable, window: CommitWindow | Joined, size_bytes: int) -> None:
        self._cache[key] = window, size_bytes + _ENTRY_BYTES
        self._bytes += size_bytes + _ENTRY_BYTES
        while self._bytes > self._bytes_max:
            _, (_, oldest_bytes) = self._cache.popitem(last=False)
            self._bytes -= oldest_bytes


def _wants(selection: CommitSelection, part: CommitSlice) -> bool:
    return part.size_bytes > 0 and selection.admits(migration=part.migration) and selection.touches(part.types)
