"""A cursor over the commits of one shard: reads windows, joins commits that lie in several, and knows what it owes."""

from bisect import bisect_right
from collections.abc import Iterator

from msgspec import Struct

from tailrace.interface.coordinode.event import WINDOW_CHANGES, CommitSlice, progress_message
from tailrace.interface.coordinode.operation import Mapper
from tailrace.interface.coordinode.selection import CommitSelection
from tailrace.interface.coordinode.token import ResumeToken
from tailrace.interface.coordinode.window import Joined, Placing, Windows
from tailrace.model.chunk import Chunk
from tailrace.model.errors import BehindHorizonError, CommitsLostError
from tailrace.model.number import Index, Offset
from tailrace.subscription.restrict import Restriction

__all__ = ["CommitCursor", "Reading"]


class Reading(Struct, frozen=True):
    """What one look at the log gave: the rest of a commit, whole commits, and the beginning of one."""

    rest: list[tuple[int, bytes]]
    """Timestamp and message of each event."""
    beginning: list[tuple[int, bytes]]
    joined: Joined
    parts: list[CommitSlice]
    first: int
    stop: int

    def pieces(self, bytes_max: int) -> Iterator[bytes]:
        """Yield all events in writes of at most this many bytes, or of one commit's."""
        for _, message in self.rest:
            yield message
        yield from self.joined.pieces(self.first, self.stop, bytes_max)
        for _, message in self.beginning:
            yield message

    def events(self) -> Iterator[tuple[int, bytes]]:
        """Yield timestamp and bytes of the events of each commit."""
        yield from self.rest
        for number in range(self.first, self.stop):
            event = self.joined.event(number)
            if event:
                yield self.parts[number].hlc, event
        yield from self.beginning


class _Open:
    """A commit that does not end where it began. What was read of it is kept up to the size of one event."""

    __slots__ = ("admitted", "before", "dropped", "matched", "ops", "part", "size_bytes")

    def __init__(self, part: CommitSlice, before: Offset, *, admitted: bool, matched: bool) -> None:
        self.part = part
        self.before = before
        self.admitted = admitted
        self.matched = matched
        self.dropped = False
        self.ops: list[bytes] = []
        self.size_bytes = 0


class CommitCursor:
    """Stands before a commit of a shard and reads on from there. For one task at a time."""

    def __init__(
        self,
        placing: Placing,
        mapper: Mapper,
        windows: Windows,
        selection: CommitSelection,
        restriction: Restriction | None,
        following: Index,
        after: Offset,
    ) -> None:
        """Begin with the commit `following`, whose changes come behind the offset `after`."""
        self.shard = placing.shard
        self.after = after
        self.read = Index(following - 1)
        """The last commit that was read whole."""
        self.sent = self.read
        """The last commit that was sent or reported."""
        self._placing = placing
        self._mapper = mapper
        self._windows = windows
        self._selection = selection
        self._restriction = restriction
        self._open: _Open | None = None
        self._matched: Index | None = None

    @property
    def owes_progress(self) -> bool:
        """Tell whether commits were read behind the last one that was sent."""
        return self.read > self.sent

    async def advance(self) -> Reading | None:
        """Return the next window's events, perhaps none; None at the head.

        Raises:
            CommitsLostError: The next commit was removed by retention.
            LogClosedError: The log was closed.
        """
        try:
            chunk = await self.shard.log.read(self.after)
        except BehindHorizonError as error:
            first = await self.shard.log.commits.first_index()
            raise CommitsLostError(requested=self.read + 1, first=first) from error
        if chunk is None:
            return None
        if self._restriction is not None:
            chunk = self._restriction.apply(chunk)
        row = self.after + 1 - chunk.first
        return self._take(chunk, row // WINDOW_CHANGES * WINDOW_CHANGES, row % WINDOW_CHANGES)

    def progress(self) -> bytes:
        """Return an event that tells how far was read, and count it as sent."""
        self.sent = self.read
        return progress_message(self.shard.number, self.read, ResumeToken(self.shard.number, self.read + 1, 0))

    def _take(self, chunk: Chunk, begin: int, row: int) -> Reading:
        """Read the window that begins at a row of a chunk, from its own row `row` on."""
        window, joined = self._windows.get(
            chunk, begin, self._mapper, self._selection, self._placing, self._restriction
        )
        parts = window.parts
        first = bisect_right(window.rows, row) - 1
        rest: list[tuple[int, bytes]] = []
        if self._open is not None:
            # Windows are cut elsewhere when the log has joined small chunks meanwhile.
            rest = self._go_on(self._open, parts[first].behind(row - window.rows[first]))
            first += 1
            if self._matched is not None:  # begin the commit again, it is wanted after all
                return Reading(rest, [], joined, parts, first, first)
        stop = len(parts) if parts[-1].ends else len(parts) - 1
        self.after = Offset(chunk.first + begin + window.rows[-1] - 1)
        if first < stop:
            self.read = parts[stop - 1].index
            wanted = (number for number in range(stop, first, -1) if joined.ends[number] > joined.ends[number - 1])
            last = next(wanted, None)
            self.sent = self.sent if last is None else parts[last - 1].index
        beginning: list[tuple[int, bytes]] = []
        if first <= stop < len(parts):
            beginning = self._begin(parts[stop], Offset(chunk.first + begin + window.rows[stop] - 1))
        return Reading(rest, beginning, joined, parts, first, max(first, stop))

    def _begin(self, part: CommitSlice, before: Offset) -> list[tuple[int, bytes]]:
        """Begin a commit that goes on in the next window."""
        matched, self._matched = self._matched == part.index, None
        admitted = self._selection.admits(migration=part.migration)
        self._open = _Open(part, before, admitted=admitted, matched=matched)
        return self._collect(self._open, part)

    def _go_on(self, commit: _Open, part: CommitSlice) -> list[tuple[int, bytes]]:
        """Take the next part of a commit that began earlier."""
        events = self._collect(commit, part)
        if self._open is None or not part.ends:
            return events
        self._open = None
        self.read = part.index
        if commit.admitted and commit.matched and (commit.ops or commit.dropped):
            events.append((part.hlc, self._event(commit, last=True)))
            self.sent = part.index
        return events

    def _collect(self, commit: _Open, part: CommitSlice) -> list[tuple[int, bytes]]:
        """Keep what a part holds, or return it as events where it is too much to keep."""
        if not commit.admitted:
            return []
        if not commit.matched and part.size_bytes and self._selection.touches(part.types):
            commit.matched = True
            if commit.dropped:
                self._open, self._matched, self.after = None, part.index, commit.before
                return []
        events: list[tuple[int, bytes]] = []
        for op in filter(None, part.ops):
            if commit.ops and commit.size_bytes + len(op) > self._placing.event_bytes_max:
                if commit.matched:
                    events.append((part.hlc, self._event(commit, last=False)))
                commit.dropped = True
                commit.ops, commit.size_bytes = [], 0
            commit.ops.append(op)
            commit.size_bytes += len(op)
        return events

    def _event(self, commit: _Open, *, last: bool) -> bytes:
        return self._placing.event(commit.part, commit.ops, self.shard.log.segment_indexes, last=last)
