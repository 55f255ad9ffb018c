"""Tending sealed segments in the background, one at a time, with rests: compaction, then statistics."""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Generator, Mapping
from time import monotonic
from typing import TypeVar

from tailrace.log.compact import Compacted, compact, may_compact, put_in_place
from tailrace.log.files import Files
from tailrace.log.options import LogOptions
from tailrace.log.segment import Segment
from tailrace.log.segments import Segments
from tailrace.log.statistics import Skipper, survey
from tailrace.model.errors import LogError
from tailrace.model.number import Index, Offset

__all__ = ["Tender"]

logger = logging.getLogger(__name__)

_T = TypeVar("_T")

_SHARE_IDLE = 0.5
"""Share of the time that it works while nothing is appended."""

_SHARE_BUSY = 0.1
"""The same while changes are appended: capture goes first."""


class Tender:
    """Looks after the sealed segments of one log. For tasks of its event loop; it works in threads.

    `lock` keeps retention away while a segment is replaced: what retention knows of a segment stays true meanwhile.
    """

    def __init__(
        self,
        files: Files,
        segments: Segments,
        skipper: Skipper,
        options: LogOptions,
        lock: asyncio.Lock,
        head: Callable[[], Offset],
        named: Mapping[str, str],
    ) -> None:
        self._files = files
        self._segments = segments
        self._skipper = skipper
        self._options = options
        self._lock = lock
        self._head = head
        self._named = named
        self._done: dict[Index, int] = {}
        """Identities of the segments that need nothing more, or cannot be had."""

        self._closing = asyncio.Event()

    async def run(self) -> None:
        """Tend segments until `close`."""
        while self._options.compact and not await self._rest(self._options.compact_interval_s):
            try:
                await self.tend()
            except OSError as error:  # a full disk, mostly; it is tried again
                logger.warning("segment not compacted", extra={**self._named, "problem": str(error)})

    async def tend(self) -> None:
        """Tend each sealed segment that was not tended before, the newest first.

        Raises:
            OSError: The disk refused.
        """
        for segment in reversed(self._segments.entries[:-1]):
            if self._closing.is_set():
                return
            if self._done.get(segment.first_index) != segment.identity:
                try:
                    await self._tend(segment)
                except FileNotFoundError:
                    continue  # retention has removed it
                except LogError as error:
                    logger.warning("segment not compacted", extra={**self._named, "problem": str(error)})
                    self._done[segment.first_index] = segment.identity
        present = {segment.first_index for segment in self._segments.entries}
        self._done = {first: identity for first, identity in self._done.items() if first in present}

    def close(self) -> None:
        """Let `run` return soon; what was begun is given up."""
        self._closing.set()

    async def _tend(self, segment: Segment) -> None:
        compacted = await self._drive(compact(self._files, segment)) if may_compact(segment) else None
        if self._closing.is_set():
            if compacted is not None:  # it was finished just as the log was closed
                await asyncio.to_thread(self._files.remove, f"{segment.name}.tmp")
            return
        if compacted is not None:
            segment = await self._replace(compacted)
        await self._drive(survey(self._files, self._segments, segment))
        self._skipper.look_again(segment)
        self._done[segment.first_index] = segment.identity

    async def _drive(self, steps: Generator[None, None, _T]) -> _T | None:
        """Take all steps in threads, with rests between them."""
        with contextlib.closing(steps):
            head = self._head()
            while True:
                begin_s = monotonic()
                ended = await asyncio.to_thread(_step, steps)
                if ended is not None:
                    return ended[0]
                busy, head = head != self._head(), self._head()
                share = _SHARE_BUSY if busy else _SHARE_IDLE
                if await self._rest((monotonic() - begin_s) * (1 / share - 1)):
                    return None

    async def _replace(self, compacted: Compacted) -> Segment:
        """Put a compacted segment in place, unless retention has removed it meanwhile."""
        segment = compacted.segment
        async with self._lock:
            if segment.first_index not in {entry.first_index for entry in self._segments.entries}:
                await asyncio.to_thread(self._files.remove, f"{segment.name}.tmp")
                raise FileNotFoundError(segment.name)
            await asyncio.to_thread(put_in_place, self._files, compacted)
            self._segments.renew(segment)
        extra = {"segment": segment.name, "size_bytes": compacted.size_bytes}
        logger.info("segment compacted", extra={**self._named, **extra})
        return segment

    async def _rest(self, time_s: float) -> bool:
        """Wait; return whether it is to end."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(time_s):
                await self._closing.wait()
        return self._closing.is_set()


def _step(steps: Generator[None, None, _T]) -> tuple[_T] | None:
    """Take one step; return what it came to, if it was the last."""
    try:
        next(steps)
    except StopIteration as stop:
        return (stop.value,)
    return None
