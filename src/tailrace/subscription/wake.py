"""Waking feeds when their log grows.

One task per log waits for it (`Wake.run`), however many feeds there are; a waiting feed is one event in a set.
"""

import asyncio
import logging

from tailrace.model.errors import LogClosedError
from tailrace.model.number import Offset
from tailrace.subscription.log_view import LogView

__all__ = ["Wake"]

logger = logging.getLogger(__name__)

_WAIT_MAX_S = 60.0
"""Longest single wait for the log; it is renewed at once."""


class Wake:
    """Tells the feeds of one log that there is something new."""

    def __init__(self, log: LogView) -> None:
        self._log = log
        self._sleepers: set[asyncio.Event] = set()
        self.closed = False

    async def run(self) -> None:
        """Wake sleepers as the log grows, until it is closed or this task is cancelled; then wake them for ever."""
        known = self._log.head
        try:
            while True:
                if await self._log.wait(known, _WAIT_MAX_S):
                    known = self._log.head
                    self._wake()
        except LogClosedError:
            logger.info("log closed: its feeds end")
        finally:
            self.closed = True
            self._wake()

    async def wait(self, after: Offset, event: asyncio.Event, timeout_s: float) -> None:
        """Return when the head is beyond `after`, when somebody sets `event`, or after the time-out."""
        if self._log.head > after or self.closed or event.is_set():
            return
        self._sleepers.add(event)
        try:
            async with asyncio.timeout(timeout_s):
                await event.wait()
        except TimeoutError:
            pass
        finally:
            self._sleepers.discard(event)

    def _wake(self) -> None:
        sleepers, self._sleepers = self._sleepers, set()
        for event in sleepers:
            event.set()
