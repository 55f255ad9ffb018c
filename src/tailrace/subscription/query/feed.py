"""The feed of a query subscription: the changes that can touch its result, each as an invalidation."""

import asyncio

from msgspec import structs

from tailrace.model.errors import BehindHorizonError, PredicateError, SourceUnavailableError, TailraceError
from tailrace.model.number import Offset
from tailrace.model.op import Op
from tailrace.model.subscription import (
    Deliver,
    FilterOptions,
    Format,
    Include,
    QueryTarget,
    Subscription,
    SubscriptionId,
)
from tailrace.model.value import from_literal
from tailrace.subscription.feed import Feed
from tailrace.subscription.feed_batch import FeedBatch
from tailrace.subscription.log_view import LogView
from tailrace.subscription.query.precise import VerifiedResult, is_invalidated, moved_to, passed
from tailrace.subscription.query.query_filter import InvalidationMark, QueryFilter
from tailrace.subscription.query.service import QueryService
from tailrace.subscription.query.tracker import QueryStanding, Tracker
from tailrace.subscription.restrict import Restriction
from tailrace.subscription.wake import Wake
from tailrace.subscription.window import WINDOW_CHANGES_MAX, window_of

__all__ = ["QueryFeed", "in_passing"]

_UNREACHABLE_PAUSE_S = 0.1
"""How long to wait before a database that cannot be reached is asked again for its schema's version."""


class QueryFeed(Feed):
    """Reads the log for one subscriber of a query; otherwise like any feed.

    Each batch carries the ETag that the result has after all of the batch's changes, or a newer one; where nobody has
    run the query since, it carries the tag of its state instead. While the database cannot tell whether its schema is
    still the one that the query was analysed for, there is no batch.
    """

    __slots__ = ("_alone", "_news", "_queries", "_target", "_verified")

    def __init__(
        self,
        subscription: Subscription,
        log: LogView,
        wake: Wake,
        queries: QueryService,
        after: Offset,
        restriction: Restriction | None = None,
    ) -> None:
        assert isinstance(subscription.target, QueryTarget)
        self.subscription = subscription
        self.after = after
        self.paused = subscription.paused
        self.snapshot = None
        self.window_changes_max = WINDOW_CHANGES_MAX
        self._target = subscription.target
        self._queries = queries
        self._verified: VerifiedResult | None = None
        self._alone = True
        self._log = log
        self._wake = wake
        self.restriction = restriction
        self.runner = None
        self._news = asyncio.Event()
        self._interrupted = False
        self._ended: TailraceError | None = None

    async def ready(self, timeout_s: float) -> None:
        """Return when `next` may have something to say; see `Feed.ready`. Raises what `next` raises."""
        await self.next(timeout_s)

    async def next(self, timeout_s: float) -> FeedBatch | None:
        """Return the changes that follow `after`; see `Feed.next`.

        Raises:
            BehindHorizonError: The next change was removed by retention.
            UnknownSubscriptionError: The subscription was closed.
            UnknownQueryError: The query is not known any more.
            LogClosedError: The log was closed, or the service stops.
            SourceUnavailableError: The schema changed, and the database cannot be reached.
            PermissionDeniedError: The query depends on a table now that the reader may not see whole.
            UnauthenticatedError: The reader's credentials are no longer good.
        """
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + timeout_s
        while True:
            self._news.clear()
            batch = await self._read()
            left_s = deadline_s - loop.time()
            if batch is not None or left_s <= 0 or self._interrupted:
                self._interrupted = False
                return batch
            await self._sleep(left_s)

    async def following(self, _place: Offset) -> None:
        """Return nothing: what a change means to the query is found out when its turn comes."""

    @property
    def is_plain(self) -> bool:
        """Tell that more than table and op decides."""
        return False

    @property
    def caught_up(self) -> bool:
        """Tell whether the feed stands at the head."""
        return self.after >= self._log.head

    def delivered(self, batch: FeedBatch) -> None:
        """Note that the changes of a batch up to the feed's place are on their way, and count them as invalidations."""
        super().delivered(batch)
        first = batch.chunk.first
        invalidating = sum(batch.after < first + row <= self.after for row in _before_failure(batch).rows())
        self._queries.metrics.query_invalidations.inc(invalidating)

    def pause(self, *, paused: bool) -> None:
        """Hold back changes, or no longer; the present or next call of `next` returns early, for the caller to see."""
        self.paused = paused
        self._interrupted = True
        self._news.set()

    def end(self, reason: TailraceError) -> None:
        """Make the present or next call of `next` raise `reason`."""
        self._ended = reason
        self._news.set()

    def release(self) -> None:
        """Leave what is verified to the next feed of the subscription, if no other was open meanwhile."""
        if self._verified is not None and self._ended is None and self.subscription.id and self._alone:
            self._queries.verified[self.subscription.id] = self._verified

    def share(self) -> None:
        """Keep what is verified to this feed: another one of the same subscription is open at the same time.

        What one reader was spared, another one may need. So neither takes over what a former feed left, nor leaves
        anything to a later one, which then begins without a result to compare with.
        """
        self._alone = False
        self._queries.verified.pop(self.subscription.id, None)

    async def _sleep(self, timeout_s: float) -> None:
        """Return when the log has grown, someone set `_news`, or after the time-out."""
        after = self._log.head if self.paused else self.after
        tasks = [
            asyncio.ensure_future(self._log.wait(after, timeout_s)),
            asyncio.ensure_future(self._news.wait()),
        ]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _read(self) -> FeedBatch | None:
        if self._ended is not None:
            raise self._ended
        if self.paused:
            if self.after + 1 < self._log.horizon:
                raise BehindHorizonError(requested=self.after + 1, horizon=self._log.horizon)
            return None
        chunk = await self._log.read(self.after)
        if chunk is None:
            if self._target.precise:
                await self._establish()
            return None
        window = window_of(chunk, self.after)
        target = self._target
        tracker = await self._tracker()
        try:
            catalog = await self._queries.catalog(tracker, window.last)
        except SourceUnavailableError:
            await asyncio.sleep(_UNREACHABLE_PAUSE_S)  # the changes stay where they are until someone can judge them
            return None
        standing = await tracker.follow(window.last, catalog)
        tag = standing.tag()
        mark = InvalidationMark(target.query_id, tracker.etag_at(tag) or tag)
        chosen = QueryFilter(self.subscription.filter, standing, mark, self._source)
        if self.restriction is not None:
            self.restriction.require_whole(chosen.tables)
            window, chosen = self.restriction.apply(window), chosen.restricted(self.restriction)
        batch = FeedBatch(self._source, window, chosen, self.after)
        if chosen.costly:
            batch = await self._wake.evaluator.evaluate(batch)
        if target.precise:
            batch = await self._verified_batch(_before_failure(batch), tracker, standing, chosen)
        if target.deliver is Deliver.RESULT:
            batch = _before_failure(batch)
            if any(batch.chunk.first + row > self.after for row in batch.rows()):
                chosen.mark = await self._with_result(tracker, standing, chosen.mark)
        return batch

    async def _establish(self) -> None:
        """Find out the result of this moment, if it is not known yet and nothing can have touched it."""
        if self._known().etag is None:
            found = await self._queries.establish(await self._tracker(), self.after)
            self._verified = found or self._verified

    async def _verified_batch(
        self, batch: FeedBatch, tracker: Tracker, standing: QueryStanding, chosen: QueryFilter
    ) -> FeedBatch:
        """Return a batch without the invalidations after which the result is the same as before."""
        chunk, rows, known = batch.chunk, batch.rows(), self._known()
        if any(chunk.first + row > max(known.high, self.after) for row in rows):
            known = await self._queries.verify(tracker, standing, known, chunk.last)
        else:
            known = passed(known, chunk.last)
        self._verified = known
        invalidating = [row for row in rows if is_invalidated(known, Offset(chunk.first + row))]
        chosen.invalidating = tuple(invalidating)
        if known.etag is not None:
            chosen.mark = InvalidationMark(chosen.mark.query_id, known.etag)
        return structs.replace(batch, passing=invalidating)

    def _known(self) -> VerifiedResult:
        """Return what is verified, by this feed or by the last one of the same subscription."""
        if self._verified is None:
            self._verified = self._queries.verified.pop(self.subscription.id, None)
        self._verified = moved_to(self._verified, self.after)
        return self._verified

    async def _tracker(self) -> Tracker:
        args = [from_literal(literal) for literal in self._target.args]
        return await self._queries.tracker(self._target.query_id, args)

    async def _with_result(self, tracker: Tracker, standing: QueryStanding, mark: InvalidationMark) -> InvalidationMark:
        etag, extra = await self._queries.inline(tracker, standing, self.subscription.format)
        return InvalidationMark(mark.query_id, etag or mark.etag, extra)

    @property
    def _source(self) -> str:
        return self.subscription.source


def _before_failure(batch: FeedBatch) -> FeedBatch:
    """Return a batch, or what comes before the change on which its filter fails."""
    try:
        batch.rows()
    except PredicateError:
        return batch.before_failure()
    return batch


def in_passing(target: QueryTarget, source: str, cursor: Offset) -> Subscription:
    """Return a subscription that nobody keeps, for whoever watches a query only while connected. Its number is none."""
    return Subscription(
        id=SubscriptionId(0),
        source=source,
        target=target,
        filter=FilterOptions((Op.INSERT, Op.UPDATE, Op.DELETE)),
        include=Include(),
        format=Format.PLAIN_JSON,
        cursor=cursor,
        created_time_us=0,
    )
