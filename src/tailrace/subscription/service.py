"""The subscription service: the one door through which every interface subscribes, reads, acknowledges and closes."""

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec

from tailrace.clock import Clock, SystemClock
from tailrace.meta.store import MetaStore
from tailrace.model.errors import (
    BeyondHeadError,
    InvalidRequestError,
    LogClosedError,
    UnknownSubscriptionError,
    UnknownTableError,
)
from tailrace.model.number import Offset
from tailrace.model.op import Op
from tailrace.model.start import CursorStart, Latest, Start
from tailrace.model.subscription import (
    FilterOptions,
    Format,
    Include,
    QueryTarget,
    Subscription,
    SubscriptionDraft,
    SubscriptionId,
    TableTarget,
)
from tailrace.model.table import TableSchema
from tailrace.subscription.feed import Feed
from tailrace.subscription.filter import compile_filter
from tailrace.subscription.filters import FilterCache
from tailrace.subscription.lag import Lags
from tailrace.subscription.log_view import LogView
from tailrace.subscription.open_feeds import OpenFeed, OpenFeeds
from tailrace.subscription.options import ServiceOptions
from tailrace.subscription.place import find_place, place_of
from tailrace.subscription.pressure import pressure_of
from tailrace.subscription.query.feed import QueryFeed, in_passing
from tailrace.subscription.query.service import QueryService, QueryShard
from tailrace.subscription.snapshot import Snapshot
from tailrace.subscription.status import SubscriptionStatus
from tailrace.subscription.table import find_table
from tailrace.subscription.wake import Wake

__all__ = ["ServiceOptions", "SubscriptionService", "SubscriptionStatus"]

_NOW = Latest()

_FILTERS_KEPT = 1024
"""Compiled filters that wait for another feed, least recently used out first."""


class SubscriptionService:
    """Subscriptions of all sources. Get one by `open` and keep `run` running in a task beside it.

    Subscriptions are kept in memory and in the metadata database; whatever a method changed is durable when it returns.
    All methods may be called from any task of the service's event loop.
    """

    def __init__(
        self,
        logs: Mapping[str, LogView],
        store: MetaStore,
        options: ServiceOptions,
        queries: QueryService | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.queries = queries
        self._logs = dict(logs)
        self._clock = clock or SystemClock()
        self._wakes = {source: Wake(log, self._clock) for source, log in logs.items()}
        self._store = store
        self._options = options
        self._subscriptions: dict[SubscriptionId, Subscription] = {}
        self._feeds = OpenFeeds()
        self._filters = FilterCache(options.dialect, _FILTERS_KEPT)
        self._stopped = False

    @classmethod
    async def open(
        cls, logs: Mapping[str, LogView], store: MetaStore, options: ServiceOptions, queries: QueryService | None = None
    ) -> "SubscriptionService":
        """Return a service that knows the subscriptions in the metadata database."""
        service = cls(logs, store, options, queries)
        service._subscriptions = {subscription.id: subscription for subscription in await store.subscriptions()}
        return service

    @property
    def logs(self) -> Mapping[str, LogView]:
        """Return the logs by source name."""
        return self._logs

    @property
    def lags(self) -> Mapping[str, Lags]:
        """Return how long changes take on their way, by source name."""
        return {source: wake.lags for source, wake in self._wakes.items()}

    @property
    def retention_changes(self) -> int | None:
        """Return how many changes each log keeps; None where retention does not count changes."""
        return self._options.retention_changes

    def shard(self, source: str) -> int:
        """Return the number of the shard that holds the log of a source."""
        return self._options.shards.get(source, 0)

    def subscriptions(self) -> list[Subscription]:
        """Return all subscriptions in order of their numbers."""
        return list(self._subscriptions.values())

    def subscription(self, subscription_id: SubscriptionId) -> Subscription:
        """Return a subscription as it is now.

        Raises:
            UnknownSubscriptionError: There is none of that number.
        """
        found = self._subscriptions.get(subscription_id)
        if found is None:
            raise UnknownSubscriptionError(f"sub-{subscription_id}")
        return found

    def table(self, source: str, wire: str) -> TableSchema:
        """Return the newest schema of the table that has this name on the wires: `table` or `schema.table`.

        Raises:
            UnknownTableError: No such source or table.
        """
        return find_table(self._logs, source, wire)

    async def subscribe_tables(
        self,
        target: TableTarget,
        *,
        filter_options: FilterOptions,
        include: Include,
        format_: Format,
        auto_ack: bool = False,
        snapshot: bool = False,
        start: CursorStart = _NOW,
    ) -> Subscription:
        """Make a subscription for the changes from now on, the rows of a `snapshot` first, or from a place in the log.

        Raises:
            UnknownTableError: A table is not captured.
            InvalidRequestError: The tables are of several sources, the filter asks for what a table does not have,
                there are too many subscriptions, or a snapshot cannot be had or begins elsewhere than now.
            BeyondHeadError: The start lies beyond the newest change.
        """
        sources = {table.source for table in target.tables}
        if len(sources) != 1:
            raise InvalidRequestError("a subscription is for tables of one source")
        source = sources.pop()
        for table in target.tables:
            if source not in self._logs or self._logs[source].latest_schema(table) is None:
                raise UnknownTableError(source, table.wire)
        self._validate(target, filter_options)
        if snapshot and (start != _NOW or self.queries is None):
            raise InvalidRequestError("a snapshot is of the rows as they are now: leave out `from`")
        cursor = await find_place(start, self._logs[source])
        draft = SubscriptionDraft(source, target, filter_options, include, format_, cursor, auto_ack=auto_ack)
        return await self._add(msgspec.structs.replace(draft, snapshot=snapshot))

    async def subscribe_query(
        self,
        target: QueryTarget,
        *,
        filter_options: FilterOptions,
        include: Include,
        format_: Format,
        auto_ack: bool = False,
        start: CursorStart = _NOW,
    ) -> Subscription:
        """Make a subscription for the changes that can touch the result of a prepared query; see `subscribe_tables`.

        Raises:
            UnknownQueryError: There is no such query.
            InvalidRequestError: The arguments are not those of the query, or there are too many subscriptions.
            SourceUnavailableError: The database cannot be reached.
        """
        assert self.queries is not None
        source = self.queries.get(target.query_id).source
        cursor = await find_place(start, self._logs[source])
        target = await self.queries.resolve(target)
        draft = SubscriptionDraft(source, target, filter_options, include, format_, cursor, auto_ack=auto_ack)
        return await self._add(draft)

    async def acknowledge(self, subscription_id: SubscriptionId, offset: Offset) -> Subscription:
        """Move the cursor to `offset`; one that is already further stays. Return the subscription as it is then.

        Where a snapshot comes first, the cursor stays until that was wholly sent and its offset is acknowledged.

        Raises:
            UnknownSubscriptionError: There is none of that number.
            BeyondHeadError: The log has no such change yet.
        """
        subscription = self.subscription(subscription_id)
        head = self._log(subscription).head
        if offset > head:
            raise BeyondHeadError(requested=offset, head=head)
        sent = subscription.snapshot_offset
        if subscription.snapshot and (sent is None or offset < sent):
            return subscription
        if offset > subscription.cursor:
            await self._store.advance(subscription_id, offset)
            subscription = self._changed(subscription_id, cursor=max(offset, self.subscription(subscription_id).cursor))
        return await self._set_snapshot(subscription_id, wanted=False) if subscription.snapshot else subscription

    async def snapshot_sent(self, subscription_id: SubscriptionId, offset: Offset | None) -> None:
        """Note where the snapshot belongs that was wholly sent; None when one is begun."""
        subscription = self.subscription(subscription_id)
        if subscription.snapshot and subscription.snapshot_offset != offset:
            await self._set_snapshot(subscription_id, wanted=True, sent=offset)

    async def pause(self, subscription_id: SubscriptionId) -> Subscription:
        """Hold back changes until `resume`. Cursor and horizon go on counting. Feeds notice at once.

        Raises:
            UnknownSubscriptionError: There is none of that number.
        """
        return await self._pause(subscription_id, paused=True)

    async def resume(self, subscription_id: SubscriptionId) -> Subscription:
        """Deliver changes again, those of the pause first.

        Raises:
            UnknownSubscriptionError: There is none of that number.
        """
        return await self._pause(subscription_id, paused=False)

    async def reset(self, subscription_id: SubscriptionId, start: CursorStart) -> Subscription:
        """Move the cursor to a place in the log, forwards or back. Open feeds go on from where they are.

        A snapshot that should have come first is no longer wanted.

        Raises:
            UnknownSubscriptionError: There is none of that number.
            BeyondHeadError: The place lies beyond the newest change.
        """
        cursor = await find_place(start, self._log(self.subscription(subscription_id)))
        await self._store.reset(subscription_id, cursor)
        self._changed(subscription_id, cursor=cursor)
        return await self._set_snapshot(subscription_id, wanted=False)

    async def restore(self, drafts: Mapping[SubscriptionId, SubscriptionDraft]) -> None:
        """Keep table subscriptions under the numbers that they had elsewhere, in place of those that have them here.

        Raises:
            InvalidRequestError: A filter asks for what its table does not have; then none is kept.
        """
        for draft in drafts.values():
            assert isinstance(draft.target, TableTarget)
            self._validate(draft.target, draft.filter)
        for subscription_id, draft in drafts.items():
            if subscription_id in self._subscriptions:
                await self.close(subscription_id)
            self._subscriptions[subscription_id] = await self._store.put(subscription_id, draft)
        self._subscriptions = dict(sorted(self._subscriptions.items()))

    async def close(self, subscription_id: SubscriptionId) -> None:
        """Remove a subscription and end its feeds.

        Raises:
            UnknownSubscriptionError: There is none of that number.
        """
        self.subscription(subscription_id)
        await self._store.remove(subscription_id)
        self._subscriptions.pop(subscription_id, None)
        for feed in self._feeds.of(subscription_id):
            feed.end(UnknownSubscriptionError(f"sub-{subscription_id}"))

    def status(self, subscription_id: SubscriptionId) -> SubscriptionStatus:
        """Return where a subscription stands now.

        Raises:
            UnknownSubscriptionError: There is none of that number.
        """
        subscription = self.subscription(subscription_id)
        log = self._log(subscription)
        pressure = pressure_of(
            cursor=subscription.cursor,
            head=log.head,
            horizon=log.horizon,
            retention_changes=self._options.retention_changes,
            paused=subscription.paused,
        )
        return SubscriptionStatus(subscription, log.head, log.horizon, pressure)

    def lag_max(self) -> int:
        """Return the largest lag of any subscription, in changes."""
        heads = {source: log.head for source, log in self._logs.items()}
        lags = (heads.get(entry.source, entry.cursor) - entry.cursor for entry in self._subscriptions.values())
        return max(lags, default=0)

    def feeds_open(self) -> int:
        """Return how many feeds are open now, those of waiting polls among them."""
        return len(self._feeds)

    def feed(self, subscription_id: SubscriptionId, start: Start, *, snapshot: bool = False) -> OpenFeed:
        """Give a feed of a subscription for the length of a `with` block. It never moves the cursor.

        With `snapshot`, which only subscriptions to tables have, the feed begins with that instead of at `start`.

        Raises:
            UnknownSubscriptionError: There is none of that number.
            BeyondHeadError: The start lies beyond the newest change.
            LogClosedError: The service stops.
        """
        subscription = self.subscription(subscription_id)
        if self._stopped:
            raise LogClosedError("the service stops")
        log = self._log(subscription)
        after = place_of(start, log)
        if isinstance(subscription.target, QueryTarget):
            assert self.queries is not None
            feed: Feed = QueryFeed(subscription, log, self._wakes[subscription.source], self.queries, after)
        else:
            wanted = self._filters.get(subscription.target, subscription.filter)
            feed = Feed(subscription, log, self._wakes[subscription.source], wanted, log.head if snapshot else after)
            if snapshot and self.queries is not None:
                feed.snapshot = self._snapshot(subscription, self.queries.shard(subscription.source))
        return OpenFeed(self._feeds, feed)

    def feed_of_query(self, target: QueryTarget, start: Start) -> OpenFeed:
        """Give a feed of a query without a subscription, for the length of a `with` block.

        Raises:
            UnknownQueryError: There is no such query.
            BeyondHeadError: The start lies beyond the newest change.
            LogClosedError: The service stops.
        """
        assert self.queries is not None
        source = self.queries.get(target.query_id).source
        if self._stopped:
            raise LogClosedError("the service stops")
        log = self._logs[source]
        passing = in_passing(target, source, log.head)
        feed = QueryFeed(passing, log, self._wakes[source], self.queries, place_of(start, log))
        return OpenFeed(self._feeds, feed)

    def stop(self) -> None:
        """End all feeds now and refuse new ones, so that interfaces can finish. The service stays usable otherwise."""
        self._stopped = True
        for feed in self._feeds:
            feed.end(LogClosedError("the service stops"))

    async def run(self) -> None:
        """Wake feeds as their logs grow, until all logs are closed or this task is cancelled; then all feeds end."""
        async with asyncio.TaskGroup() as group:
            for wake in self._wakes.values():
                group.create_task(wake.run())

    async def _pause(self, subscription_id: SubscriptionId, *, paused: bool) -> Subscription:
        subscription = self.subscription(subscription_id)
        if subscription.paused == paused:
            return subscription
        await self._store.pause(subscription_id, paused=paused)
        subscription = self._changed(subscription_id, paused=paused)
        for feed in self._feeds.of(subscription_id):
            feed.pause(paused=paused)
        return subscription

    async def _set_snapshot(self, number: SubscriptionId, *, wanted: bool, sent: Offset | None = None) -> Subscription:
        await self._store.set_snapshot(number, wanted=wanted, offset=sent)
        return self._changed(number, snapshot=wanted, snapshot_offset=sent)

    def _snapshot(self, subscription: Subscription, shard: QueryShard) -> Snapshot:
        as_inserted = msgspec.structs.replace(subscription.filter, ops=(Op.INSERT,))
        wanted = self._filters.get(subscription.target, as_inserted)
        return Snapshot(shard.source, shard.log, subscription.target.tables[0], wanted, self._clock)

    def _changed(self, subscription_id: SubscriptionId, **changes: Any) -> Subscription:
        subscription = msgspec.structs.replace(self.subscription(subscription_id), **changes)
        self._subscriptions[subscription_id] = subscription
        return subscription

    async def _add(self, draft: SubscriptionDraft) -> Subscription:
        if len(self._subscriptions) >= self._options.subscriptions_max:
            raise InvalidRequestError(f"there are already {self._options.subscriptions_max} subscriptions: close some")
        subscription = await self._store.add(draft)
        self._subscriptions[subscription.id] = subscription
        return subscription

    def _validate(self, target: TableTarget, options: FilterOptions) -> None:
        """Compile a filter for the tables as they are now, to find what is wrong with it."""
        tables = frozenset(target.tables)
        for table in target.tables:
            latest = self._logs[table.source].latest_schema(table)
            assert latest is not None
            compile_filter(tables, options, latest[1], self._options.dialect)

    def _log(self, subscription: Subscription) -> LogView:
        log = self._logs.get(subscription.source)
        if log is None:
            raise UnknownTableError(subscription.source, subscription.target.tables[0].wire)
        return log
