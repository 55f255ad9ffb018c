"""A window of a chunk as events, encoded once and shared by all streams. Pure."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate

from msgspec import Struct

from tailrace.delivery.grpc.coordinode.event import Part, Stamp, event_message, parts_of, segment_token
from tailrace.delivery.grpc.coordinode.operation import Mapper
from tailrace.delivery.grpc.coordinode.selection import Selection
from tailrace.delivery.grpc.coordinode.token import Token, merged_token
from tailrace.model.chunk import Chunk
from tailrace.model.number import Index
from tailrace.subscription.change_stream.shard import StreamShard

__all__ = ["Joined", "Placing", "Window"]

_SELECTIONS_KEPT = 16
"""Most selections of one window that are kept for others."""


class Joined(Struct, frozen=True):
    """The events of the commits that a selection wants, back to back; those of part `n` end at byte `ends[n + 1]`."""

    data: bytes
    ends: Sequence[int]

    def pieces(self, first: int, stop: int, bytes_max: int) -> Iterator[bytes]:
        """Yield the events of the parts `first` up to `stop` in writes of at most so many bytes, or of one part."""
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

    def event(self, part: Part, ops: Sequence[bytes], segments: Sequence[Index], *, last: bool) -> bytes:
        """Return an event of a commit; only the `last` one of a commit is behind it."""
        stamp = Stamp(self.shard.number, self.shard.terms.of(part.index), part.index, part.hlc, part.migration)
        return event_message(stamp, ops, self._position(part, segments, last=last))

    def events(self, part: Part, segments: Sequence[Index]) -> bytes:
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

    def _position(self, part: Part, segments: Sequence[Index], *, last: bool) -> Token:
        number = self.shard.number
        if self.merged:
            return merged_token(part.hlc, number + last)
        return segment_token(number, segments, Index(part.index + last))


class Window:
    """The commits of one window, in parts. `rows` are the first rows of the parts, counted from the window's first."""

    def __init__(self, chunk: Chunk, begin: int, mapper: Mapper) -> None:
        self.parts = parts_of(chunk, begin, mapper)
        self.rows = list(accumulate((len(part.ops) for part in self.parts), initial=0))
        self._joined: dict[tuple[Selection, bool], Joined] = {}

    def joined(self, selection: Selection, placing: Placing) -> Joined:
        """Return the events of all commits that end in the window, each as if it began there, too."""
        key = (selection, placing.merged)
        if key not in self._joined:
            if len(self._joined) >= _SELECTIONS_KEPT:
                self._joined.clear()
            segments = placing.shard.log.segment_indexes
            events = [
                placing.events(part, segments) if part.ends and _wants(selection, part) else b"" for part in self.parts
            ]
            self._joined[key] = Joined(b"".join(events), list(accumulate(map(len, events), initial=0)))
        return self._joined[key]


def _wants(selection: Selection, part: Part) -> bool:
    return part.size_bytes > 0 and selection.admits(migration=part.migration) and selection.touches(part.types)
