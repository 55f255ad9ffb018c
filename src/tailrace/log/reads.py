"""The changes of a log for the readers of one process: from memory, or from segments, each block read once for all."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from tailrace.log.cache import BlockCache
from tailrace.log.picker import Picker
from tailrace.log.ring import Ring
from tailrace.log.segments import Segments
from tailrace.log.statistics import Skipper
from tailrace.model.chunk import Chunk
from tailrace.model.errors import BehindHorizonError, BeyondHeadError
from tailrace.model.number import Offset
from tailrace.model.wanted import Wanted

__all__ = ["Reads"]

_T = TypeVar("_T")

_RUN_BYTES_MAX = 1536 * 1024
"""Most bytes that are read at once for one who wants many changes."""

_READ_AHEAD_MAX = 2
"""Nothing is read ahead while this many blocks are being read."""


class Reads:
    """Reads a log for as many tasks of one event loop as there are.

    `window` returns horizon and head as they are now, and raises where the log is closed. `removed` returns the horizon
    after a segment was found to be gone.
    """

    def __init__(
        self,
        segments: Segments,
        skipper: Skipper,
        ring: Ring,
        cache_bytes_max: int,
        window: Callable[[], tuple[Offset, Offset]],
        removed: Callable[[], Offset],
    ) -> None:
        self._segments = segments
        self._skipper = skipper
        self._ring = ring
        self._cache = BlockCache(cache_bytes_max)
        self._picker = Picker(segments, skipper, self._cache.put)
        self._window = window
        self._removed = removed
        self._loading: dict[Offset, asyncio.Future[list[Chunk]]] = {}

    async def read(self, after: Offset, wanted: Callable[[], Wanted | None] | None = None) -> Chunk | None:
        """Return the chunk that holds the change after `after`; None when that is the head. See `Log.read`."""
        offset = self._following(after)
        if offset is None:
            return None
        chunk = self._ring.find(offset) or self._cache.find(offset)
        sought = None if chunk is not None or wanted is None else wanted()
        if chunk is None:
            if sought is None or self._is_wanted_whole(offset):
                chunk = await self._load(offset)
            else:
                chunk = await self._pick(offset, sought)
        if chunk.picked is None and self._ring.find(offset) is not chunk:
            following = Offset((self._cache.last_of(chunk.first) or chunk.last) + 1)
            ahead = following if wanted is None else self._next_wanted(following, wanted)
            if ahead is not None and self._cache.has_room_beside(chunk.first):
                self._read_ahead(ahead)
        return chunk

    async def skip(self, after: Offset, wanted: Callable[[], Wanted | None]) -> Offset:
        """Return an offset, `after` or a later one, up to which no change is wanted. See `Log.skip`."""
        offset = self._following(after)
        while offset is not None and offset <= self._window()[1] and self._ring.find(offset) is None:
            segment = self._skipper.segment_of(offset)
            if segment is None or self._skipper.is_absent(segment):
                break
            sought = wanted()
            if sought is None:
                break
            found = self._skipper.find(segment)
            if found is None:  # this segment and those behind it are looked at in one trip to a thread
                offset = await asyncio.to_thread(self._skipper.skip, offset, sought)
                break
            further, more_known = found.skip_in_memory(offset, sought)
            if further == offset:
                if more_known and self._cache.find(offset) is None:
                    offset = await asyncio.to_thread(self._skipper.skip, offset, sought)
                break
            offset = further
        return after if offset is None else Offset(offset - 1)

    async def read_run(self, after: Offset, through: Offset, take: Callable[[Sequence[Chunk]], _T]) -> _T:
        """Return what `take` makes, in a worker thread, of consecutive chunks. See `Log.read_run`."""
        wanted, head = self._following(after), self._window()[1]
        if wanted is None or through > head:
            raise BeyondHeadError(requested=through, head=head)
        chunk = self._ring.find(wanted) or self._cache.find(wanted)
        if chunk is None:
            try:
                run = await asyncio.to_thread(self._segments.take_run, wanted, through, _RUN_BYTES_MAX, take)
            except FileNotFoundError:
                raise BehindHorizonError(requested=wanted, horizon=self._removed()) from None
            if run is not None:
                return run[0]
            chunk = await self._load(wanted)
        return await asyncio.to_thread(take, [chunk])

    async def lend(
        self, after: Offset, through: Offset, bytes_max: int, take: Callable[[Sequence[Chunk]], _T]
    ) -> list[_T]:
        """Return what `take` makes, in a worker thread, of the chunks of some blocks. See `Log.lend`."""
        wanted, head = self._following(after), self._window()[1]
        if wanted is None or through > head:
            raise BeyondHeadError(requested=through, head=head)
        chunk = self._ring.find(wanted) or self._cache.find(wanted)
        if chunk is None:
            try:
                run = await asyncio.to_thread(self._segments.lend_run, wanted, through, bytes_max, take)
            except FileNotFoundError:
                raise BehindHorizonError(requested=wanted, horizon=self._removed()) from None
            if run is not None:
                return run
            chunk = await self._load(wanted)
        if chunk.last > through:
            chunk = chunk.part(0, through - chunk.first + 1)
        return [await asyncio.to_thread(take, [chunk])]

    async def finish(self) -> None:
        """Wait until nothing is being read any more."""
        await self._picker.finish()
        if self._loading:
            await asyncio.wait(self._loading.values())

    def _following(self, after: Offset) -> Offset | None:
        """Return the offset after `after`; None where that is the head."""
        horizon, head = self._window()
        if after > head:
            raise BeyondHeadError(requested=after, head=head)
        wanted = Offset(after + 1)
        if wanted < horizon:
            raise BehindHorizonError(requested=wanted, horizon=horizon)
        return wanted if wanted <= head else None

    async def _load(self, wanted: Offset) -> Chunk:
        """Return the chunk that holds a change, read from its segment once for all who want it now."""
        try:
            chunks = await asyncio.shield(self._begin_load(wanted))
        except FileNotFoundError:
            raise BehindHorizonError(requested=wanted, horizon=self._removed()) from None
        return next(chunk for chunk in chunks if wanted <= chunk.last)

    def _is_wanted_whole(self, offset: Offset) -> bool:
        """Tell whether a block is being read whole, or follows one that was: then picking would read it a second time.

        Only blocks of which much is wanted are read whole, and neighbours are mostly alike.
        """
        return offset in self._loading or self._cache.find(Offset(offset - 1)) is not None

    async def _pick(self, offset: Offset, wanted: Wanted) -> Chunk:
        """Return the wanted changes of some blocks, or the chunk that holds a change where most are wanted."""
        floor, head = self._ring.floor, self._window()[1]
        try:
            return await self._picker.read(offset, head if floor is None else Offset(floor - 1), wanted)
        except FileNotFoundError:
            raise BehindHorizonError(requested=offset, horizon=self._removed()) from None

    def _next_wanted(self, offset: Offset, wanted: Callable[[], Wanted | None]) -> Offset | None:
        """Return the first change from `offset` on that may be wanted; None where memory does not say it."""
        while (segment := self._skipper.segment_of(offset)) is not None and (sought := wanted()) is not None:
            found = self._skipper.find(segment)
            if found is None:
                return offset if self._skipper.is_absent(segment) else None
            further, more_known = found.skip_in_memory(offset, sought)
            if further == offset:
                return None if more_known else offset
            offset = further
        return offset

    def _read_ahead(self, following: Offset) -> None:
        """Begin to read the block that a reader will want next, while it works on what it has."""
        if following > self._window()[1] or len(self._loading) >= _READ_AHEAD_MAX:
            return
        if self._ring.find(following) is None and self._cache.find(following) is None:
            self._begin_load(following)

    def _begin_load(self, wanted: Offset) -> asyncio.Future[list[Chunk]]:
        loading = self._loading.get(wanted)
        if loading is None:
            loading = asyncio.get_running_loop().run_in_executor(None, self._segments.load, wanted)
            self._loading[wanted] = loading
            loading.add_done_callback(partial(self._end_load, wanted))
        return loading

    def _end_load(self, wanted: Offset, loading: asyncio.Future[list[Chunk]]) -> None:
        del self._loading[wanted]
        if not loading.cancelled() and loading.exception() is None:  # an error is for those who wait for it
            self._cache.put(loading.result())
