"""A feed: the ordered changes of one session over one subscription, first those in the log, then those that come."""

import asyncio

from msgspec import Struct

from tailrace.model.chunk import Chunk
from tailrace.model.errors import BehindHorizonError, LogClosedError, TailraceError
from tailrace.model.number import Offset
from tailrace.model.subscription import Subscription
from tailrace.subscription.filter import Filter, Rows
from tailrace.subscription.log_view import LogView
from tailrace.subscription.wake import Wake

__all__ = ["Feed", "FeedBatch"]

_BATCH_CHANGES_MAX = 2048
"""Most changes that are filtered and encoded in one go, so that no feed holds the event loop for long."""


class FeedBatch(Struct, frozen=True):
    """The next changes to look at: those of `chunk` after the offset `after`. Some, all or none pass the filter."""

    source: str
    chunk: Chunk
    filter: Filter
    after: Offset

    def rows(self) -> Rows:
        """Return the rows that pass, of the *whole* chunk: the same for every feed with this filter."""
        return self.filter.select(self.chunk)


class Feed:
    """Reads the log for one subscriber, in order, without a gap or a repeat where replay becomes following.

    The feed stands at `after` and moves only when told by `advance`, so a subscriber takes of a batch as much as it can
    send. Nothing is kept between two calls: a subscriber that does not read costs no chunk. For one task at a time,
    except `pause` and `end`.
    """

    def __init__(self, subscription: Subscription, log: LogView, wake: Wake, compiled: Filter, after: Offset) -> None:
        self.subscription = subscription
        self.after = after
        self._log = log
        self._wake = wake
        self._filter = compiled
        self.paused = subscription.paused
        self._news = asyncio.Event()
        self._interrupted = False
        self._ended: TailraceError | None = None

    async def next(self, timeout_s: float) -> FeedBatch | None:
        """Return the changes that follow `after`; None when none came in time, or when the feed was paused or resumed.

        A paused feed has no changes, but it loses its place like any other.

        Raises:
            BehindHorizonError: The next change was removed by retention.
            UnknownSubscriptionError: The subscription was closed.
            LogClosedError: The log was closed, or the service stops.
        """
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + timeout_s
        while True:
            batch = await self._read()
            left_s = deadline_s - loop.time()
            if batch is not None or left_s <= 0 or self._interrupted:
                self._interrupted = False
                return batch
            await self._wake.wait(self._log.head if self.paused else self.after, self._news, left_s)
            self._news.clear()

    @property
    def caught_up(self) -> bool:
        """Tell whether the feed stands at the head."""
        return self.after >= self._log.head

    def advance(self, through: Offset) -> None:
        """Move to `through`: everything up to it has been sent or was not wanted."""
        assert through >= self.after
        self.after = through

    def pause(self, *, paused: bool) -> None:
        """Hold back changes, or no longer; the present or next call of `next` returns early, for the caller to see."""
        self.paused = paused
        self._interrupted = True
        self._news.set()

    def end(self, reason: TailraceError) -> None:
        """Make the present or next call of `next` raise `reason`."""
        self._ended = reason
        self._news.set()

    async def _read(self) -> FeedBatch | None:
        if self._ended is None and self._wake.closed:
            self._ended = LogClosedError("the log was closed")
        if self._ended is not None:
            raise self._ended
        if self.paused:
            if self.after + 1 < self._log.horizon:
                raise BehindHorizonError(requested=self.after + 1, horizon=self._log.horizon)
            return None
        chunk = await self._log.read(self.after)
        if chunk is None:
            return None
        return FeedBatch(self.subscription.source, _window(chunk, self.after), self._filter, self.after)


def _window(chunk: Chunk, after: Offset) -> Chunk:
    """Return the part of a chunk that holds the change following `after`. All feeds cut at the same places."""
    if len(chunk) <= _BATCH_CHANGES_MAX:
        return chunk
    row = (after + 1 - chunk.first) // _BATCH_CHANGES_MAX * _BATCH_CHANGES_MAX
    return Chunk(chunk.batch.slice(row, _BATCH_CHANGES_MAX), chunk.schemas)
