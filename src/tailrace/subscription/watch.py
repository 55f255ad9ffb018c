"""A watch: what is known about the changes that one feed waits for. Pure but for sleeping on the event loop.

Whoever evaluates new changes for all feeds at once tells a watch where its matches are, and that there are none up to
an offset. So a feed reads the log only where something is for it:

    since ...... after ...... first ...... last ...... scanned
                      no match     matches     no match

Before `since` nobody evaluated anything for this feed: there it looks for itself.
"""

import asyncio

from tailrace.model.number import Offset
from tailrace.subscription.filter import Filter

__all__ = ["FeedWatch"]


class FeedWatch:
    """The matches that one feed has not looked at yet. For tasks of one event loop; one of them may sleep."""

    __slots__ = ("_alarm", "_alarm_s", "_first", "_last", "_news", "_waiter", "filter", "since")

    def __init__(self, filter_: Filter) -> None:
        self.filter = filter_
        self.since: Offset | None = None  # None: nobody evaluates for it
        self._first = self._last = Offset(0)
        self._news = False
        self._waiter: asyncio.Future[None] | None = None
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_s = 0.0

    def is_clear(self, after: Offset) -> bool:
        """Tell whether nothing is known to follow `after`, by someone who would know."""
        return self.since is not None and self.since <= after and self._last <= after

    def skip(self, after: Offset, scanned: Offset) -> Offset:
        """Return the offset to which a feed that stands at `after` may move without looking."""
        if self.since is None or after < self.since:
            return after
        if self._last <= after:
            self._first = self._last = Offset(0)
            return max(after, scanned)
        return max(after, Offset(self._first - 1))

    def tell(self, first: Offset, last: Offset) -> None:
        """Note that there are matches, the first and the last at these offsets, and wake the feed."""
        if self._last == 0:
            self._first = first
        self._last = last
        self.wake()

    def wake(self) -> None:
        """End the present or next sleep."""
        self._news = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def sleep(self, timeout_s: float) -> None:
        """Return when woken, or after the time-out; once in that time, perhaps earlier.

        An alarm stays for the sleeps that follow: to set up and cancel one for each single change costs more than to
        wake without effect now and then.
        """
        if not self._news:
            loop = asyncio.get_running_loop()
            due_s = loop.time() + timeout_s
            if self._alarm is None or due_s < self._alarm_s:
                self.release()
                self._alarm, self._alarm_s = loop.call_at(due_s, self._ring), due_s
            self._waiter = loop.create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        self._news = False

    def release(self) -> None:
        """Give up the alarm."""
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    def _ring(self) -> None:
        self._alarm = None
        if self._waiter is not None:
            self.wake()
