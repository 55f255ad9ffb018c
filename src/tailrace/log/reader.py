"""The log of a shard, read by another process than the one that writes it."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import closing

from tailrace.log.cache import BlockCache
from tailrace.log.commits import LogCommits
from tailrace.log.files import Files
from tailrace.log.recover import examine, read_state
from tailrace.log.schemas import Schemas
from tailrace.log.segment import read_identity
from tailrace.log.segments import Segments, SegmentSummary, index_segment, list_segments
from tailrace.log.sparse import SparseIndex
from tailrace.log.state import State
from tailrace.log.statistics import Skipper
from tailrace.model.chunk import Chunk
from tailrace.model.errors import BehindHorizonError, BeyondHeadError, CorruptSegmentError
from tailrace.model.number import Index, Offset, SchemaId
from tailrace.model.table import TableSchema
from tailrace.model.wanted import Wanted

__all__ = ["LogReader"]

_CACHE_BYTES_MAX = 6 * 1024 * 1024
_RUN_BYTES_MAX = 4 * 1024 * 1024
_TRIES_MAX = 10


class LogReader:
    """Reads a log beside its writer, or without one, and never changes a file.

    It shows what was synced when it last looked: at the beginning, on `refresh`, and when `read` comes to the end. One
    call at a time; all but `read` block while they look at the disk.

    Raises:
        CorruptSegmentError: The log is damaged.
        FormatVersionError: A newer version wrote it.
    """

    def __init__(self, files: Files) -> None:
        self._files = files
        self._schemas = Schemas(files)
        self._segments = Segments(files, self._schemas.known)
        self._skipper = Skipper(files, self._segments)
        self._cache = BlockCache(_CACHE_BYTES_MAX)
        self._sparse = SparseIndex()
        self._block: list[Chunk] = []
        self._head = Offset(0)
        self._horizon = Offset(1)
        self._last_index = Index(0)
        self.commits = LogCommits(self._segments, lambda: (self._horizon, self._head, self._last_index))
        self.refresh()

    @property
    def head(self) -> Offset:
        """Return the offset of the newest change that was synced; 0 when there is none."""
        return self._head

    @property
    def horizon(self) -> Offset:
        """Return the offset of the oldest change that can be read; `head` + 1 when there is none."""
        return self._horizon

    @property
    def last_index(self) -> Index:
        """Return the index of the newest commit; 0 when there is none."""
        return self._last_index

    def schemas(self) -> Mapping[SchemaId, TableSchema]:
        """Return all schema versions by number."""
        return self._schemas.known

    async def read(self, after: Offset) -> Chunk | None:
        """Return the chunk that holds the change after `after`; None when that is the head. See `Log.read`.

        Raises:
            BehindHorizonError: The change was removed by retention.
            BeyondHeadError: `after` is larger than the head.
            CorruptSegmentError: The segment that holds it is damaged.
        """
        wanted = Offset(after + 1)
        cached = self._cache.find(wanted)
        if cached is not None and self._horizon <= wanted <= self._head:
            return cached
        return await asyncio.to_thread(self._read, wanted)

    def load(self, after: Offset) -> Chunk | None:
        """Do what `read` does, and block meanwhile. For one who reads on: it keeps the last block alone.

        Raises:
            BehindHorizonError: The change was removed by retention.
            BeyondHeadError: `after` is larger than the head.
            CorruptSegmentError: The segment that holds it is damaged.
        """
        wanted = Offset(after + 1)
        if not self._block or not self._block[0].first <= wanted <= min(self._block[-1].last, self._head):
            if not self._check(wanted):
                return None
            self._block = self._load(wanted)
        return next(chunk for chunk in self._block if wanted <= chunk.last)

    def load_run(self, after: Offset, through: Offset) -> Chunk | None:
        """Return the change after `after` and many that follow it, up to `through` or beyond; None at the head. Blocks.

        For one who wants all: they are copied once, and nothing is kept.

        Raises:
            BehindHorizonError: The change was removed by retention.
            BeyondHeadError: `after` is larger than the head.
            CorruptSegmentError: The segment that holds it is damaged.
        """
        wanted = Offset(after + 1)
        if not self._check(wanted):
            return None
        (chunk,) = self._loaded(wanted, lambda: [self._segments.load_run(wanted, through, _RUN_BYTES_MAX)])
        return chunk

    def skip(self, after: Offset, wanted: Wanted) -> Offset:
        """Return an offset, `after` or a later one, up to which no change is wanted. See `Log.skip`. Blocks."""
        return Offset(self._skipper.skip(Offset(after + 1), wanted) - 1)

    def refresh(self) -> None:
        """Look how far the log is now: at its state or, where there is none, at the segments themselves.

        Raises:
            CorruptSegmentError: It is damaged.
            FormatVersionError: A newer version wrote it.
        """
        for _ in range(_TRIES_MAX):
            state = read_state(self._files)
            try:
                if state is None:
                    self._take_examined()
                else:
                    self._take_state(state)
                return
            except FileNotFoundError:
                continue  # a segment was removed or compacted between listing and opening it
        raise CorruptSegmentError("state", place=0, reason="segments disappear faster than they can be listed")

    def segments(self) -> list[SegmentSummary]:
        """Return a line for each segment, oldest first."""
        return self._segments.summaries()

    def _read(self, wanted: Offset) -> Chunk | None:
        if not self._check(wanted):
            return None
        chunks = self._load(wanted)
        self._cache.put(chunks)
        return self._cache.find(wanted)

    def _check(self, wanted: Offset) -> bool:
        """Tell whether a change is there yet; raise where it never will be."""
        if wanted > self._head:
            self.refresh()
        if wanted > self._head + 1:
            raise BeyondHeadError(requested=wanted - 1, head=self._head)
        if wanted < self._horizon:
            raise BehindHorizonError(requested=wanted, horizon=self._horizon)
        return wanted <= self._head

    def _load(self, wanted: Offset) -> list[Chunk]:
        return self._loaded(wanted, lambda: self._segments.load(wanted))

    def _loaded(self, wanted: Offset, load: Callable[[], list[Chunk]]) -> list[Chunk]:
        try:
            chunks = load()
        except FileNotFoundError:
            self.refresh()
            raise BehindHorizonError(requested=wanted, horizon=self._horizon) from None
        if chunks[-1].last > self._head:
            self.refresh()  # the newest segment that we know was sealed and compacted since: all of it was synced
        return chunks

    def _take_state(self, state: State) -> None:
        entries = self._segments.entries
        passed = len(entries) > 1 and entries[1].first_offset <= state.horizon
        if not entries or entries[-1].first_index != state.active_index or passed:
            entries = tuple(list_segments(self._files, state.active_index))
            if state.active_index and (not entries or entries[-1].first_index != state.active_index):
                raise CorruptSegmentError("state", place=0, reason=f"segment {state.active_index} is missing")
            if not self._segments.entries or self._segments.entries[-1].first_index != state.active_index:
                self._sparse = SparseIndex()
        self._schemas.load()
        if entries:
            with closing(self._files.open(entries[-1].name)) as file:
                if read_identity(file) != entries[-1].identity:
                    raise FileNotFoundError(f"{entries[-1].name} was compacted")  # it is the newest no longer
                index_segment(file, entries[-1], self._sparse, state.synced_bytes)
            self._segments.replace(entries, self._sparse, state.synced_bytes)
        self._head, self._last_index = state.head, state.last_index
        self._horizon = max(state.horizon, entries[0].first_offset if entries else Offset(1))

    def _take_examined(self) -> None:
        found = examine(self._files)
        self._schemas.load()
        self._segments.replace(found.segments, found.sparse, found.end)
        self._sparse = found.sparse
        self._head, self._last_index, self._horizon = found.head, found.last_index, found.horizon
