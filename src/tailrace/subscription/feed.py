"""A feed: the ordered changes of one session over one subscription, first those in the log, then those that come."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from tailrace.model.chunk import Chunk
from tailrace.model.errors import BehindHorizonError, LogClosedError, TailraceError
from tailrace.model.number import Offset
from tailrace.model.op import Op
from tailrace.model.subscription import FilterOptions, Subscription, TableTarget
from tailrace.model.wanted import Wanted
from tailrace.subscription.feed_batch import FeedBatch
from tailrace.subscription.filter import Filter
from tailrace.subscription.log_view import LogView
from tailrace.subscription.restrict import Restriction
from tailrace.subscription.snapshot import Snapshot
from tailrace.subscription.wake import Wake
from tailrace.subscription.watch import FeedWatch
from tailrace.subscription.window import WINDOW_CHANGES_MAX, window_of

__all__ = ["Feed", "FeedBatch", "FeedRunner"]

_T = TypeVar("_T")


class FeedRunner(Protocol):
    """Who runs a feed elsewhere, in another process: what happens to the feed here is passed on to it."""

    def pause(self, *, paused: bool) -> None:
        """Hold back changes, or no longer."""

    def end(self, reason: TailraceError) -> None:
        """End the feed for a reason."""

    def change(self, subscription: Subscription) -> None:
        """Take the subscription as it is now."""


class Feed:
    """Reads the log for one subscriber, in order, without a gap or a repeat where replay becomes following.

    The feed stands at `after`. It moves by `advance`, so a subscriber takes of a batch as much as it can
    send, and in `next` past changes that are known not to be for it. Nothing is kept between two calls: a subscriber
    that does not read costs no chunk. For one task at a time, except `pause` and `end`.

    `window_changes_max` is how many changes a batch may have: whoever serves the feed may set it to `WIDE_CHANGES_MAX`
    where `is_plain` and events are not made on the event loop.

    While there is a `snapshot`, its rows come first: whoever serves the feed takes them, moves the feed to the
    snapshot's offset, and sets `snapshot` to None. A feed that has a `runner` is run by that, and stands here for it.
    """

    __slots__ = (
        "_ended",
        "_filter",
        "_interrupted",
        "_log",
        "_schema_count",
        "_sought",
        "_wake",
        "_watch",
        "after",
        "paused",
        "restriction",
        "runner",
        "snapshot",
        "subscription",
        "window_changes_max",
    )

    def __init__(
        self,
        subscription: Subscription,
        log: LogView,
        wake: Wake,
        compiled: Filter,
        after: Offset,
        restriction: Restriction | None = None,
    ) -> None:
        self.subscription = subscription
        self.after = after
        self.paused = subscription.paused
        self.snapshot: Snapshot | None = None
        self.window_changes_max = WINDOW_CHANGES_MAX
        self.restriction = restriction
        self.runner: FeedRunner | None = None
        self._log = log
        self._wake = wake
        self._filter = compiled if restriction is None else compiled.restricted(restriction)
        self._watch = FeedWatch(_watched(compiled, restriction))
        self._schema_count = 0
        self._sought: Wanted | None = None
        self._interrupted = False
        self._ended: TailraceError | None = None

    async def next(self, timeout_s: float) -> FeedBatch | None:
        """Return the changes that follow `after`; None when none came in time, or when the feed was paused or resumed.

        A paused feed has no changes, but it loses its place like any other.

        Raises:
            BehindHorizonError: The next change was removed by retention.
            UnknownSubscriptionError: The subscription was closed.
            LogClosedError: The log was closed, or the service stops.
            PermissionDeniedError: What the reader may see of a table is unknown.
            UnauthenticatedError: The reader's credentials are no longer good.
            PredicateError: A slow filter failed on the next change.
        """
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + timeout_s
        while True:
            batch = await self._read()
            left_s = deadline_s - loop.time()
            if batch is not None or left_s <= 0 or self._interrupted:
                self._interrupted = False
                return batch
            if self._watch.since is None:
                self._wake.add(self._watch)  # and look once more: what came meanwhile is not evaluated for it
            else:
                await self._watch.sleep(left_s)

    async def ready(self, timeout_s: float) -> None:
        """Return when `next` may have something to say: changes, an error, a pause or its end; or after the time-out.

        Reads nothing of the log, unlike `next`.
        """
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + timeout_s
        while not (self._interrupted or self._ended is not None or self._wake.closed):
            if not self.paused:
                self.after = self._watch.skip(self.after, self._wake.scanned)
                if self.after < self._log.head and not self._watch.is_clear(self.after):
                    return
            left_s = deadline_s - loop.time()
            if left_s <= 0:
                return
            if self._watch.since is None:
                self._wake.add(self._watch)
            else:
                await self._watch.sleep(left_s)

    @property
    def behind(self) -> int:
        """Return how many changes are between its place and the head."""
        return self._log.head - self.after

    @property
    def caught_up(self) -> bool:
        """Tell whether the feed stands at the head, or nothing after its place is for it as far as anybody knows."""
        return self.after >= self._log.head or self._watch.is_clear(self.after)

    @property
    def is_plain(self) -> bool:
        """Tell whether tables and ops alone decide what is wanted: Arrow then finds it without a look at each row."""
        return self.restriction is None and not self._filter.looks_at_rows

    @property
    def filter(self) -> Filter:
        """Return what says which changes are wanted."""
        return self._filter

    def is_stored(self, place: Offset) -> bool:
        """Tell whether what follows a place is in the log's files alone, and tables and ops decide what is wanted.

        Then `lend` has it, and what was made of it for others is the same for this feed.
        """
        log = self._log
        there = log.horizon <= place + 1 <= log.head and log.recent(place) is None
        return there and not self.paused and self.is_plain

    def stands_in_store(self) -> bool:
        """Tell whether that is so of what the feed will have next, so that `next` need not be asked for it.

        Raises:
            UnknownSubscriptionError: The subscription was closed.
            LogClosedError: The log was closed, or the service stops.
        """
        self.check()
        if not self.is_plain or self._interrupted or self._watch.is_clear(self.after):
            return False
        if not self.is_stored(self.after):
            return False
        self.after = self._watch.skip(self.after, self._wake.scanned)
        return self.is_stored(self.after)

    async def lend(self, place: Offset, bytes_max: int, take: Callable[[Sequence[Chunk]], _T]) -> list[_T]:
        """Return what `take` makes of the changes that follow a place, up to the head at most. See `LogView.lend`."""
        return await self._log.lend(place, self._log.head, bytes_max, take)

    def run_behind(self, place: Offset, bytes_max: int) -> Offset | None:
        """Return the place behind what `lend` gives from a place on, where that is known. See `LogView.run_behind`."""
        return self._log.run_behind(place, bytes_max)

    def advance(self, through: Offset) -> None:
        """Move to `through`: everything up to it has been sent or was not wanted."""
        assert through >= self.after
        self.after = through

    def delivered(self, batch: FeedBatch) -> None:
        """Note that the changes of a batch up to the feed's place are on their way, for the lags of the log."""
        self._wake.lags.delivered(batch.chunk, self.after)

    def delivered_stored(self, commit_time_us: int) -> None:
        """Note that changes up to the feed's place are on their way, which were committed by then."""
        self._wake.lags.delivered_stored(self.after, commit_time_us)

    def pause(self, *, paused: bool) -> None:
        """Hold back changes, or no longer; the present or next call of `next` returns early, for the caller to see."""
        self.paused = paused
        self._interrupted = True
        self._watch.wake()
        if self.runner is not None:
            self.runner.pause(paused=paused)

    def end(self, reason: TailraceError) -> None:
        """Make the present or next call of `next` raise `reason`."""
        self._ended = reason
        self._watch.wake()
        if self.runner is not None:
            self.runner.end(reason)

    def change(self, subscription: Subscription) -> None:
        """Note that the subscription is another now: its cursor has moved, or it was paused or resumed."""
        if self.runner is not None:
            self.runner.change(subscription)

    def share(self) -> None:
        """Note that another feed of the same subscription is open at the same time: they share nothing."""

    def release(self) -> None:
        """Have nobody evaluate changes for this feed any more. It is not used after that."""
        self._wake.remove(self._watch)
        self._watch.release()
        if self.snapshot is not None:
            self.snapshot.close()

    def check(self) -> None:
        """Raise why the feed has ended, if it has.

        Raises:
            UnknownSubscriptionError: The subscription was closed.
            LogClosedError: The log was closed, or the service stops.
        """
        if self._ended is None and self._wake.closed:
            self._ended = LogClosedError("the log was closed")
        if self._ended is not None:
            raise self._ended

    async def following(self, place: Offset) -> FeedBatch | None:
        """Return the changes that `next` will return from a place further on; None where that is not to be foreseen.

        It does not move the feed and waits for no change.

        Raises:
            BehindHorizonError: The next change was removed by retention.
            LogClosedError: The log was closed.
        """
        if self.paused or not self.is_plain or place >= self._log.head:
            return None
        place = await self._log.skip(place, self._wanted)
        chunk = await self._log.read(place, self._wanted)
        if chunk is None:
            return None
        window = window_of(chunk, place, self.window_changes_max)
        return FeedBatch(self.subscription.source, window, self._filter, place)

    async def _read(self) -> FeedBatch | None:
        self.check()
        if self.paused:
            if self.after + 1 < self._log.horizon:
                raise BehindHorizonError(requested=self.after + 1, horizon=self._log.horizon)
            return None
        self.after = self._watch.skip(self.after, self._wake.scanned)
        if self._watch.is_clear(self.after):
            return None
        chunk = None if self.after + 1 < self._log.horizon else self._log.recent(self.after)
        if chunk is None:
            self.after = await self._log.skip(self.after, self._wanted)
            chunk = await self._log.read(self.after, self._wanted)
        if chunk is None:
            self._schema_count, self._sought = 0, None  # from here on it follows, as most feeds do
            return None
        window = window_of(chunk, self.after, self.window_changes_max)
        if self.restriction is not None:
            window = self.restriction.apply(window)
        batch = FeedBatch(self.subscription.source, window, self._filter, self.after)
        return await self._wake.evaluator.evaluate(batch) if self._filter.costly else batch

    def _wanted(self) -> Wanted | None:
        """Return what tells blocks in which nothing is for this feed; None where there are none."""
        schemas = self._log.schemas()
        if self._schema_count != len(schemas):  # it only grows
            self._schema_count, self._sought = len(schemas), self._watch.filter.wanted(schemas)
        return self._sought


def _watched(wanted: Filter, restriction: Restriction | None) -> Filter:
    """Return a filter that no change for a feed escapes: one that crosses the border of what is seen has another op."""
    if restriction is None or not restriction.narrows_any(wanted.tables):
        return wanted
    ops = {Op.INSERT, Op.UPDATE, Op.DELETE} | wanted.ops
    return Filter(TableTarget(tuple(wanted.tables)), FilterOptions(tuple(sorted(ops))))
