"""Opening feeds: each kind of target gets its kind of feed, over the log of its source."""

import asyncio
from collections.abc import Iterator, Mapping

import msgspec

from tailrace.clock import Clock
from tailrace.model.errors import LogClosedError, TailraceError, UnknownTableError
from tailrace.model.op import Op
from tailrace.model.start import Start
from tailrace.model.subscription import (
    FilterOptions,
    Format,
    Include,
    QueryTarget,
    SourceTarget,
    Subscription,
    SubscriptionId,
    Target,
)
from tailrace.subscription.feed import Feed
from tailrace.subscription.filter import Filter
from tailrace.subscription.lag import Lags
from tailrace.subscription.log_view import LogView
from tailrace.subscription.open_feeds import OpenFeed, OpenFeeds
from tailrace.subscription.place import place_of
from tailrace.subscription.query.feed import QueryFeed, in_passing
from tailrace.subscription.query.service import QueryService, QueryShard
from tailrace.subscription.restrict import Restriction
from tailrace.subscription.snapshot import Snapshot
from tailrace.subscription.source_filter import SourceFilter
from tailrace.subscription.wake import Wake

__all__ = ["FilterCache", "Opener", "log_of"]


class FilterCache:
    """Gives equal filters only once, so that each is compiled once. The least recently used goes first."""

    def __init__(self, filters_max: int) -> None:
        self._filters_max = filters_max
        self._filters: dict[Filter, Filter] = {}

    def get(self, target: Target, options: FilterOptions) -> Filter:
        """Return the filter that a target and options make. One that looks at no rows is cheap, and not kept."""
        kind = SourceFilter if isinstance(target, SourceTarget) else Filter
        made = kind(target, options)
        if not made.looks_at_rows:
            return made
        kept = self._filters.pop(made, made)
        self._filters[kept] = kept
        if len(self._filters) > self._filters_max:
            del self._filters[next(iter(self._filters))]
        return kept


_FILTERS_KEPT = 1024
"""Compiled filters that wait for another feed, least recently used out first."""


class Opener:
    """Opens the feeds of all sources and wakes them as their logs grow. Keep `run` running in a task beside it.

    For tasks of one event loop.
    """

    def __init__(self, logs: Mapping[str, LogView], queries: QueryService | None, clock: Clock) -> None:
        self._logs = logs
        self._queries = queries
        self._clock = clock
        self._wakes = {source: Wake(log, clock) for source, log in logs.items()}
        self._filters = FilterCache(_FILTERS_KEPT)
        self._feeds = OpenFeeds()
        self._stopped = False

    @property
    def lags(self) -> Mapping[str, Lags]:
        """Return how long changes take on their way, by source name."""
        return {source: wake.lags for source, wake in self._wakes.items()}

    def feeds_open(self) -> int:
        """Return how many feeds are open now."""
        return len(self._feeds)

    def feeds(self) -> Iterator[Feed]:
        """Yield the feeds that are open now and belong to a subscription."""
        return (feed for feed in self._feeds if feed.subscription.id)

    def open(
        self, subscription: Subscription, start: Start, *, snapshot: bool, restriction: Restriction | None = None
    ) -> OpenFeed:
        """Give a feed of a subscription for the length of a `with` block; with `snapshot`, its rows come first.

        Raises:
            BeyondHeadError: The start lies beyond the newest change.
            LogClosedError: The feeds were stopped.
            UnknownTableError: The source of the subscription is not there any more.
        """
        self._check()
        log = log_of(self._logs, subscription)
        after = place_of(start, log)
        if isinstance(subscription.target, QueryTarget):
            assert self._queries is not None
            wake = self._wakes[subscription.source]
            feed: Feed = QueryFeed(subscription, log, wake, self._queries, after, restriction)
        else:
            wanted = self._filters.get(subscription.target, subscription.filter)
            after = log.head if snapshot else after
            feed = Feed(subscription, log, self._wakes[subscription.source], wanted, after, restriction)
            if snapshot and self._queries is not None:
                feed.snapshot = self._snapshot(subscription, self._queries.shard(subscription.source), restriction)
        return OpenFeed(self._feeds, feed)

    def open_query(self, target: QueryTarget, start: Start, restriction: Restriction | None = None) -> OpenFeed:
        """Give a feed of a query without a subscription, for the length of a `with` block.

        Raises:
            UnknownQueryError: There is no such query.
            BeyondHeadError: The start lies beyond the newest change.
            LogClosedError: The feeds were stopped.
        """
        assert self._queries is not None
        source = self._queries.get(target.query_id).source
        self._check()
        log = self._logs[source]
        passing = in_passing(target, source, log.head)
        feed = QueryFeed(passing, log, self._wakes[source], self._queries, place_of(start, log), restriction)
        return OpenFeed(self._feeds, feed)

    def open_source(
        self, target: SourceTarget, options: FilterOptions, restriction: Restriction | None = None
    ) -> OpenFeed:
        """Give a feed of a source from now on without a subscription, for the length of a `with` block.

        Raises:
            LogClosedError: The feeds were stopped.
        """
        self._check()
        log = self._logs[target.source]
        passing = Subscription(
            id=SubscriptionId(0),
            source=target.source,
            target=target,
            filter=options,
            include=Include(before=True, after=True),
            format=Format.OBJECTS_JSON,
            cursor=log.head,
            created_time_us=0,
        )
        wanted = self._filters.get(target, options)
        feed = Feed(passing, log, self._wakes[target.source], wanted, log.head, restriction)
        return OpenFeed(self._feeds, feed)

    def pause(self, subscription_id: SubscriptionId, *, paused: bool) -> None:
        """Have the open feeds of a subscription hold back changes, or no longer."""
        for feed in self._feeds.of(subscription_id):
            feed.pause(paused=paused)

    def end(self, subscription_id: SubscriptionId, reason: TailraceError) -> None:
        """End the open feeds of a subscription."""
        for feed in self._feeds.of(subscription_id):
            feed.end(reason)

    def stop(self) -> None:
        """End all feeds now and refuse new ones."""
        self._stopped = True
        for feed in self._feeds:
            feed.end(LogClosedError("the service stops"))

    async def run(self) -> None:
        """Wake feeds as their logs grow, until all logs are closed or this task is cancelled; then all feeds end."""
        async with asyncio.TaskGroup() as group:
            for wake in self._wakes.values():
                group.create_task(wake.run())

    def _check(self) -> None:
        if self._stopped:
            raise LogClosedError("the service stops")

    def _snapshot(self, subscription: Subscription, shard: QueryShard, restriction: Restriction | None) -> Snapshot:
        as_inserted = msgspec.structs.replace(subscription.filter, ops=(Op.INSERT,))
        wanted = self._filters.get(subscription.target, as_inserted)
        table = subscription.target.tables[0]
        return Snapshot(shard.source, shard.log, table, wanted, self._clock, restriction)


def log_of(logs: Mapping[str, LogView], subscription: Subscription) -> LogView:
    """Return the log that a subscription reads.

    Raises:
        UnknownTableError: Its source is not there any more.
    """
    log = logs.get(subscription.source)
    if log is None:
        raise UnknownTableError(subscription.source, subscription.target.tables[0].wire)
    return log
