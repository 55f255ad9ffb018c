"""Removing entries as their time is over: when to look, for every store of keys and values."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from tailrace.clock import Clock
from tailrace.model.errors import SourceError
from tailrace.retry import Backoff, Retry
from tailrace.source.key_value import Entry

__all__ = ["ExpiryLoop"]

logger = logging.getLogger(__name__)

_LOOK_S_MAX = 60.0
"""Longest time between two looks for entries whose time is over: other processes may write the table, too."""

_US_PER_S = 1_000_000
_BACKOFF = Backoff(first_s=0.5, longest_s=_LOOK_S_MAX)


class ExpiryLoop:
    """Calls `sweep` whenever an entry's time is over. That returns when the next one's is; None when no one's is."""

    def __init__(self, clock: Clock, sweep: Callable[[], Awaitable[int | None]]) -> None:
        self._clock = clock
        self._sweep = sweep
        self._due_us: int | None = None
        self._earlier = asyncio.Event()

    def note(self, entries: Sequence[Entry]) -> None:
        """Note that entries were put: one of them may be the next whose time is over."""
        first_s = min((entry.ttl_s for entry in entries if entry.ttl_s), default=None)
        if first_s is not None and (self._due_us is None or self._clock.now_us() + first_s * _US_PER_S < self._due_us):
            self._earlier.set()

    async def run(self) -> None:
        """Sweep until cancelled. Survives what passes."""
        retry = Retry(_BACKOFF)
        while True:
            self._earlier.clear()
            try:
                self._due_us = await self._sweep()
                retry.recovered()
                pause_s = self._pause_s()
            except SourceError as error:
                pause_s = retry.failed(error)
                logger.warning("expired entries stay for now", extra={"reason": type(error).__name__})
            try:
                async with asyncio.timeout(pause_s):
                    await self._earlier.wait()
            except TimeoutError:
                continue

    def _pause_s(self) -> float:
        if self._due_us is None:
            return _LOOK_S_MAX
        return min(max(0.001, (self._due_us - self._clock.now_us()) / _US_PER_S), _LOOK_S_MAX)
