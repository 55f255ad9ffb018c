"""Reading for those who want few changes: runs of blocks from which nothing else is taken, shared and read ahead."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from functools import partial

from msgspec import Struct

from tailrace.log.segments import Segments
from tailrace.log.statistics import Skipper
from tailrace.model.chunk import Chunk, PickedChunk
from tailrace.model.number import Offset
from tailrace.model.wanted import Wanted

__all__ = ["Picker"]

_KEPT_BYTES_MAX = 4 * 1024 * 1024
_AHEAD_MAX = 4
"""Nothing is read ahead while this many runs are being read, or were read and not asked for."""

_Key = tuple[Offset, Wanted]


class _Run(Struct):
    """A run that was read, and whether a reader has had it."""

    chunk: PickedChunk
    used: bool


class Picker:
    """Reads runs in threads. For tasks of one event loop.

    Readers that want the same from the same place share a run: the newest are kept, within bounds.
    """

    def __init__(self, segments: Segments, skipper: Skipper, put: Callable[[list[Chunk]], None]) -> None:
        """Give blocks that are wanted for the most part to `put`, which keeps them for all readers."""
        self._segments = segments
        self._skipper = skipper
        self._put = put
        self._reading: dict[_Key, asyncio.Future[PickedChunk | list[Chunk]]] = {}
        self._kept: OrderedDict[_Key, _Run] = OrderedDict()
        self._bytes = 0

    async def read(self, offset: Offset, through: Offset, wanted: Wanted) -> Chunk:
        """Return the changes from `offset` on that may be wanted, as far as they lie on the way to `through`.

        Where most are wanted, the chunk is one with all changes.

        Raises:
            CorruptSegmentError: A segment is damaged.
            FileNotFoundError: Retention has just removed one.
        """
        run = self._find(offset, wanted)
        if run is None:
            found = await asyncio.shield(self._begin((offset, wanted), through))
            if isinstance(found, list):
                return next(chunk for chunk in found if offset <= chunk.last)
            run = self._find(offset, wanted) or _Run(found, used=True)
        run.used = True
        self._read_ahead((Offset(run.chunk.last + 1), wanted), through)
        return run.chunk

    async def finish(self) -> None:
        """Wait for the runs that are being read."""
        if self._reading:
            await asyncio.wait(self._reading.values())

    def _find(self, offset: Offset, wanted: Wanted) -> _Run | None:
        """Return a run that holds a change, which may have begun before it: a reader takes a part at a time."""
        for key, run in self._kept.items():
            if run.chunk.first <= offset <= run.chunk.last and key[1] == wanted:
                self._kept.move_to_end(key)
                return run
        return None

    def _read_ahead(self, key: _Key, through: Offset) -> None:
        if key[0] > through or key in self._kept:
            return
        if len(self._reading) + sum(not run.used for run in self._kept.values()) < _AHEAD_MAX:
            self._begin(key, through)

    def _begin(self, key: _Key, through: Offset) -> asyncio.Future[PickedChunk | list[Chunk]]:
        reading = self._reading.get(key)
        if reading is None:
            offset, wanted = key
            skip = partial(self._skipper.skip, wanted=wanted)
            run = partial(self._segments.pick_run, offset, through, wanted, skip)
            reading = self._reading[key] = asyncio.get_running_loop().run_in_executor(None, run)
            reading.add_done_callback(partial(self._end, key))
        return reading

    def _end(self, key: _Key, reading: asyncio.Future[PickedChunk | list[Chunk]]) -> None:
        del self._reading[key]
        if reading.cancelled() or reading.exception() is not None:  # an error is for those who wait for it
            return
        found = reading.result()
        if isinstance(found, list):
            self._put(found)
            return
        if key in self._kept:
            self._bytes -= self._kept.pop(key).chunk.held_bytes
        self._kept[key] = _Run(found, used=False)
        self._bytes += found.held_bytes
        while self._bytes > _KEPT_BYTES_MAX and len(self._kept) > 1:
            self._bytes -= self._kept.popitem(last=False)[1].chunk.held_bytes
