"""The log of a shard in a process that does not write it, but is notified by the one that does.

What is readable is what the writer has published, and nothing beyond: the writer says how far that is, by the same
figures as in the state file. The newest changes are read from the file as soon as they are published, while the system
has them in memory, and kept in a ring as in the writer's own process.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from tailrace.log.batch import gather
from tailrace.log.commits import LogCommits
from tailrace.log.decode import decode
from tailrace.log.files import File, Files
from tailrace.log.frame import walk
from tailrace.log.options import LogOptions
from tailrace.log.reads import Reads
from tailrace.log.recover import read_state
from tailrace.log.ring import Ring
from tailrace.log.schemas import Schemas
from tailrace.log.segment import read_segment_header, segment_name
from tailrace.log.segments import Segments, index_segment, list_segments
from tailrace.log.sparse import SparseIndex
from tailrace.log.state import State
from tailrace.log.statistics import Skipper
from tailrace.log.waiters import Waiters
from tailrace.model.chunk import Chunk
from tailrace.model.errors import LogClosedError
from tailrace.model.number import Index, Offset, SchemaId
from tailrace.model.table import TableName, TableSchema
from tailrace.model.wanted import Wanted

__all__ = ["FollowedLog"]

_T = TypeVar("_T")

_FRESH_BYTES_MAX = 1024 * 1024
"""Up to this many new bytes are decoded as soon as they are published; more are left to those who read them."""


class FollowedLog:
    """A log that another process writes. `follow` is called with each state of it, oldest first; `close` at the end.

    All methods are called on one event loop, from as many tasks as there are. What they return and raise is what those
    of `Log` do.
    """

    def __init__(self, files: Files, options: LogOptions) -> None:
        self._files = files
        self._schemas = Schemas(files)
        self._segments = Segments(files, self._schemas.known)
        self._skipper = Skipper(files, self._segments)
        self._ring = Ring(options.ring_changes_max, options.ring_bytes_max)
        self._sparse = SparseIndex()
        self._file: File | None = None
        """The active segment. An open file stays what it is, though it is compacted or removed meanwhile."""

        self._end = 0
        self._head = Offset(0)
        self._horizon = Offset(1)
        self._last_index = Index(0)
        self._waiters = Waiters()
        self._closed = False
        self.commits = LogCommits(self._segments, lambda: (self._horizon, self._head, self._last_index))
        self._reads = Reads(
            self._segments,
            self._skipper,
            self._ring,
            options.cache_bytes_max,
            window=self._readable,
            removed=self._removed,
        )

    @property
    def head(self) -> Offset:
        """Return the offset of the newest change that was published; 0 when there is none."""
        return self._head

    @property
    def horizon(self) -> Offset:
        """Return the offset of the oldest change that can be read; `head` + 1 when there is none."""
        return self._horizon

    @property
    def last_index(self) -> Index:
        """Return the index of the newest commit that was published; 0 when there is none."""
        return self._last_index

    def follow(self, state: State, schema_count: int) -> None:
        """Take how far the writer has published its log, and how many schema versions it has; wake those who wait.

        A state that is no longer true because the file is gone is passed over: its writer has published a newer one.

        Raises:
            CorruptSegmentError: The log is damaged.
            FormatVersionError: A newer version wrote it.
        """
        if schema_count > len(self._schemas.known):
            self._schemas.load()
        moved = state.head > self._head
        if state.active_index:
            entries = self._segments.entries
            if not entries or entries[-1].first_index != state.active_index:
                try:
                    self._enter(state)
                except FileNotFoundError:
                    return
            elif state.synced_bytes > self._end:
                self._take_fresh(state.synced_bytes)
        self._head, self._last_index = state.head, state.last_index
        self._horizon = max(self._horizon, state.horizon)
        self._forget_removed()
        if moved:
            self._waiters.wake()

    def close(self) -> None:
        """Let everybody know that there will be no more."""
        self._closed = True
        self._waiters.close()
        if self._file is not None:
            self._file.close()
            self._file = None

    def latest_schema(self, table: TableName) -> tuple[SchemaId, TableSchema] | None:
        """Return the newest known version of a table's schema."""
        return self._schemas.latest(table)

    def schemas(self) -> Mapping[SchemaId, TableSchema]:
        """Return all schema versions by number: a live mapping that only grows."""
        return self._schemas.known

    async def read(self, after: Offset, wanted: Callable[[], Wanted | None] | None = None) -> Chunk | None:
        """Return the chunk that holds the change after `after`; None when that is the head. See `Log.read`."""
        chunk = await self._reads.read(after, wanted)
        if chunk is not None and chunk.picked is None and chunk.last > self._head:
            # The segment that was the newest is sealed and compacted: its file shows more than we were notified of.
            return Chunk(chunk.batch.slice(0, self._head - chunk.first + 1), chunk.schemas)
        return chunk

    async def skip(self, after: Offset, wanted: Callable[[], Wanted | None]) -> Offset:
        """Return an offset, `after` or a later one, up to which no change is wanted. See `Log.skip`."""
        return await self._reads.skip(after, wanted)

    async def read_run(self, after: Offset, through: Offset, take: Callable[[Sequence[Chunk]], _T]) -> _T:
        """Return what `take` makes, in a worker thread, of consecutive chunks. See `Log.read_run`."""
        return await self._reads.read_run(after, through, take)

    async def lend(
        self, after: Offset, through: Offset, bytes_max: int, take: Callable[[Sequence[Chunk]], _T]
    ) -> list[_T]:
        """Return what `take` makes, in a worker thread, of the chunks of some blocks. See `Log.lend`."""
        return await self._reads.lend(after, through, bytes_max, take)

    def run_behind(self, after: Offset, bytes_max: int) -> Offset | None:
        """Return the offset up to which `lend` will go from `after` on. See `Log.run_behind`."""
        return self._segments.run_behind(Offset(after + 1), bytes_max)

    def recent(self, after: Offset) -> Chunk | None:
        """Return the chunk that holds the change after `after`, where that is in memory, as the newest changes are."""
        return None if self._closed else self._ring.find(Offset(after + 1))

    def listen(self, grown: Callable[[], None]) -> Callable[[], None]:
        """Have `grown` called on the event loop each time the head has moved, and at the end; return what ends that."""
        return self._waiters.listen(grown)

    async def wait(self, after: Offset, timeout_s: float) -> bool:
        """Return True as soon as the head is beyond `after`, False after the timeout.

        Raises:
            LogClosedError: The log was closed.
        """
        if self._closed and self._head <= after:
            raise LogClosedError("the log is closed")
        return await self._waiters.wait_until(lambda: self._head > after, timeout_s)

    def _enter(self, state: State) -> None:
        """Take another segment as the active one."""
        file = self._files.open(segment_name(state.active_index))
        try:
            segment = read_segment_header(file, segment_name(state.active_index))
            entries = self._segments.entries
            if entries and segment.previous_index == entries[-1].first_index:
                entries = (*entries, segment)
            else:
                entries = tuple(list_segments(self._files, state.active_index))
        except BaseException:
            file.close()
            raise
        if self._file is not None:
            self._file.close()
        self._file, self._sparse, self._end = file, SparseIndex(), segment.header_bytes
        self._segments.replace(entries, self._sparse, self._end)
        self._take_fresh(state.synced_bytes)

    def _take_fresh(self, end: int) -> None:
        """Take the frames behind those that are known, up to byte `end` of the active segment."""
        segment, begin = self._segments.entries[-1], self._end
        assert self._file is not None
        if end - begin > _FRESH_BYTES_MAX:
            index_segment(self._file, segment, self._sparse, end)
            self._ring.clear()
        else:
            data = self._file.read_at(begin, end - begin)
            for batch in gather(decode(data, begin, segment)):
                self._remember(Chunk(batch, self._schemas.known))
            for at, header in walk(data, begin):
                self._sparse.add(header, begin + at)
        self._end = end
        self._segments.advance(segment, self._sparse, end)

    def _remember(self, fresh: Chunk) -> None:
        """Keep the newest changes in memory; those before them only where none is missing in between."""
        if self._ring.find(Offset(fresh.first - 1)) is None:
            self._ring.clear()
        self._ring.add(fresh)

    def _forget_removed(self) -> None:
        """Forget segments that lie wholly below the horizon."""
        entries = self._segments.entries
        count = 0
        while count + 1 < len(entries) and entries[count + 1].first_offset <= self._horizon:
            count += 1
        if count:
            self._segments.drop(count)

    def _readable(self) -> tuple[Offset, Offset]:
        if self._closed:
            raise LogClosedError("the log is closed")
        return self._horizon, self._head

    def _removed(self) -> Offset:
        """Return the horizon as it is on disk: retention writes it down before it removes files."""
        state = read_state(self._files)
        if state is not None:
            self._horizon = max(self._horizon, min(state.horizon, Offset(self._head + 1)))
        return self._horizon
