"""The subscription service: the one door through which every interface subscribes, reads, acknowledges and closes."""

import asyncio
import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from tailrace.clock import Clock, SystemClock
from tailrace.meta.store import MetaStore
from tailrace.model.errors import (
    CaptureDisabledError,
    InvalidRequestError,
    LogClosedError,
    UnknownSubscriptionError,
)
from tailrace.model.op import Op
from tailrace.model.start import CursorStart, Latest, Start
from tailrace.model.subscription import (
    FilterOptions,
    Format,
    Include,
    PreparedQuery,
    QueryTarget,
    SourceTarget,
    SubscribeRequest,
    Subscription,
    SubscriptionDraft,
    SubscriptionId,
    TableTarget,
    Target,
)
from tailrace.model.table import TableSchema
from tailrace.sql.dialect import Dialects
from tailrace.subscription.acceptance import accept_query, accept_source, accept_tables
from tailrace.subscription.cel.library import load_library
from tailrace.subscription.feed import Feed
from tailrace.subscription.handle import HandleTools, SubscriptionHandle, log_of
from tailrace.subscription.lag import Lags
from tailrace.subscription.log_view import LogView
from tailrace.subscription.open_feeds import OpenFeed, OpenFeeds
from tailrace.subscription.place import find_place, place_of
from tailrace.subscription.query.feed import QueryFeed, in_passing
from tailrace.subscription.query.service import QueryService, QueryShard
from tailrace.subscription.restrict import Restriction
from tailrace.subscription.snapshot import Snapshot
from tailrace.subscription.source_filter import FilterCache
from tailrace.subscription.table import find_table
from tailrace.subscription.trouble import Trouble
from tailrace.subscription.wake import Wake

__all__ = ["ServiceOptions", "SubscriptionService"]

logger = logging.getLogger(__name__)

_NOW = Latest()

_FILTERS_KEPT = 1024
"""Compiled filters that wait for another feed, least recently used out first."""


class ServiceOptions(Struct, frozen=True):
    """Settings of the subscription service."""

    retention_changes: int | None = None
    """Scale of the pressure states: how many changes a subscription may fall behind; None for no such states.

    It is what retention keeps, or where nobody set that, `PRESSURE_CHANGES`; then the log keeps more.
    """

    shards: Mapping[str, int] = {}
    """Number of the shard that holds the log of each source; 0 for those not named."""

    dialects: Dialects = {}
    """SQL of each source, for predicates that come before its first table; of others, all dialects may be meant."""

    subscriptions_max: int = 1_000_000
    """Most subscriptions that may exist at one time."""

    capture_enabled: bool = True
    """Whether changes are captured at all; where they are not, there is nothing to subscribe to."""


class SubscriptionService:
    """Subscriptions of all sources. Get one by `open` and keep `run` running in a task beside it.

    Subscriptions are kept in memory and in the metadata database; whatever a method changed is durable when it returns.
    All methods may be called from any task of the service's event loop. What can be done with one subscription is in
    its handle.
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
        self._store = store
        self._options = options
        self._clock = clock or SystemClock()
        self._feeds = OpenFeeds()
        self._filters = FilterCache(_FILTERS_KEPT)
        self._wakes = {source: Wake(log, self._clock) for source, log in self._logs.items()}
        self._handles: dict[SubscriptionId, SubscriptionHandle] = {}
        self._tools = HandleTools(store, self._logs, self._feeds.of, options.retention_changes, self._forget)
        self._stopped = False

    @classmethod
    async def open(
        cls, logs: Mapping[str, LogView], store: MetaStore, options: ServiceOptions, queries: QueryService | None = None
    ) -> "SubscriptionService":
        """Return a service of the subscriptions in the metadata database, less those whose streams are over."""
        service = cls(logs, store, options, queries)
        await store.remove_transient()
        subscriptions = await store.subscriptions()
        if any(one.filter.cel is not None for one in subscriptions):
            await asyncio.to_thread(load_library)
        service._keep(subscriptions)
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
    def dialects(self) -> Dialects:
        """Return the SQL of each source that has some, by source name."""
        return self._options.dialects

    @property
    def retention_changes(self) -> int | None:
        """Return the scale of the pressure states in changes; None where there are none."""
        return self._options.retention_changes

    def shard(self, source: str) -> int:
        """Return the number of the shard that holds the log of a source."""
        return self._options.shards.get(source, 0)

    def subscriptions(self) -> list[Subscription]:
        """Return all subscriptions in order of their numbers."""
        return [handle.record for handle in self._handles.values()]

    def subscriptions_kept(self) -> int:
        """Return how many subscriptions there are."""
        return len(self._handles)

    def subscription(self, subscription_id: SubscriptionId) -> SubscriptionHandle:
        """Return the handle of a subscription.

        Raises:
            UnknownSubscriptionError: There is none of that number.
        """
        found = self._handles.get(subscription_id)
        if found is None:
            raise UnknownSubscriptionError(f"sub-{subscription_id}")
        return found

    def table(self, source: str, wire: str) -> TableSchema:
        """Return the newest schema of the table that has this name on the wires: `table` or `schema.table`.

        Raises:
            UnknownSourceError: No such source.
            UnknownTableError: It has no such table.
            CaptureDisabledError: Nothing is captured.
        """
        self._require_capture()
        return find_table(self._logs, source, wire)

    async def subscribe(self, request: SubscribeRequest, *, owner: str | None = None) -> Subscription:
        """Make a subscription.

        Raises:
            UnknownSourceError: There is no such source.
            UnknownTableError: A table is not captured.
            UnknownQueryError: There is no such query.
            InvalidRequestError: The tables are of several sources, the filter or arguments ask for what the target does
                not have, there are too many subscriptions, or a snapshot cannot be had or begins elsewhere than now.
            SourceAbilityError: A snapshot or a query of a source that can only be captured.
            SourceUnavailableError: The database of a query cannot be reached.
            BeyondHeadError: The start lies beyond the newest change.
            CaptureDisabledError: Nothing is captured.
        """
        self._require_capture()
        source, target = await self._accept(request.target, request.filter)
        if request.snapshot:
            self._require_snapshot(source, target, request.start)
        draft = SubscriptionDraft(
            source=source,
            target=target,
            filter=request.filter,
            include=request.include,
            format=request.format,
            cursor=await find_place(request.start, self._logs[source]),
            auto_ack=request.auto_ack,
            snapshot=request.snapshot,
            transient=request.transient,
            owner=owner,
        )
        if len(self._handles) >= self._options.subscriptions_max:
            raise InvalidRequestError(f"there are already {self._options.subscriptions_max} subscriptions: close some")
        made = await self._store.add(draft)
        self._handles[made.id] = SubscriptionHandle(self._tools, made)
        logger.info("subscription made", extra=_described(made))
        if isinstance(target, QueryTarget) and target.precise and self.queries is not None:
            await self.queries.begin_precise(made.id, target, made.cursor)
        return made

    async def restore(
        self, drafts: Mapping[SubscriptionId, SubscriptionDraft], prepared: Sequence[PreparedQuery] = ()
    ) -> None:
        """Keep subscriptions under the numbers that they had elsewhere, in place of those that have them here.

        `prepared` are queries that they are for and that may not be kept here yet. Either all is kept, or nothing.

        Raises:
            UnknownTableError: A table is not captured here.
            UnknownQueryError: A query is neither known nor given.
            InvalidRequestError: A filter or arguments do not fit, or there would be too many.
        """
        given = {entry.query_id: entry for entry in prepared}
        accepted = {number: await self._accept_draft(draft, given) for number, draft in drafts.items()}
        if self.queries is not None:
            self.queries.check_room(prepared)
        if len(self._handles.keys() | drafts.keys()) > self._options.subscriptions_max:
            raise InvalidRequestError(f"there would be more than {self._options.subscriptions_max} subscriptions")
        kept = await self._store.put_all(accepted, prepared)
        if self.queries is not None:
            self.queries.adopt(prepared)
        for number in drafts:
            self._forget(number)
        self._keep(kept)
        logger.info("subscriptions imported", extra={"count": len(kept)})

    def lag_max(self) -> int:
        """Return the largest lag of any subscription, in changes."""
        heads = {source: log.head for source, log in self._logs.items()}
        records = (handle.record for handle in self._handles.values())
        return max((heads.get(record.source, record.cursor) - record.cursor for record in records), default=0)

    # ---- feeds

    def feeds_open(self) -> int:
        """Return how many feeds are open now, those of waiting polls among them."""
        return len(self._feeds)

    def feeds(self) -> Iterator[Feed]:
        """Yield the feeds of subscriptions that are open now, of whatever interface."""
        return (feed for feed in self._feeds if feed.subscription.id)

    def feed(
        self,
        subscription_id: SubscriptionId,
        start: Start,
        *,
        snapshot: bool = False,
        restriction: Restriction | None = None,
    ) -> OpenFeed:
        """Give a feed of a subscription for the length of a `with` block. It never moves the cursor.

        With `snapshot`, which only subscriptions to tables have, the feed begins with that instead of at `start`.

        Raises:
            UnknownSubscriptionError: There is none of that number.
            UnknownTableError: The source of the subscription is not there any more.
            BeyondHeadError: The start lies beyond the newest change.
            LogClosedError: The service stops.
            CaptureDisabledError: Nothing is captured.
        """
        self._require_capture()
        subscription = self.subscription(subscription_id).record
        self._require_running()
        log = log_of(self._logs, subscription)
        after = place_of(start, log)
        wake = self._wakes[subscription.source]
        if isinstance(subscription.target, QueryTarget):
            assert self.queries is not None
            feed: Feed = QueryFeed(subscription, log, wake, self.queries, after, restriction)
        else:
            wanted = self._filters.get(subscription.target, subscription.filter)
            feed = Feed(subscription, log, wake, wanted, log.head if snapshot else after, restriction)
            if snapshot and self.queries is not None:
                feed.snapshot = self._snapshot(subscription, self.queries.shard(subscription.source), restriction)
        return OpenFeed(self._feeds, feed)

    def feed_of_source(
        self, target: SourceTarget, filter_options: FilterOptions, restriction: Restriction | None = None
    ) -> OpenFeed:
        """Give a feed of a source from now on without a subscription, for the length of a `with` block.

        Raises:
            UnknownSourceError: There is no such source.
            InvalidRequestError: The filter asks for what the tables do not have.
            LogClosedError: The service stops.
            CaptureDisabledError: Nothing is captured.
        """
        self._require_capture()
        accept_source(target, filter_options, self._logs, self._options.dialects)
        self._require_running()
        log = self._logs[target.source]
        passing = Subscription(
            id=SubscriptionId(0),
            source=target.source,
            target=target,
            filter=filter_options,
            include=Include(before=True, after=True),
            format=Format.OBJECTS_JSON,
            cursor=log.head,
            created_time_us=0,
        )
        wanted = self._filters.get(target, filter_options)
        return OpenFeed(self._feeds, Feed(passing, log, self._wakes[target.source], wanted, log.head, restriction))

    def feed_of_query(self, target: QueryTarget, start: Start, restriction: Restriction | None = None) -> OpenFeed:
        """Give a feed of a query without a subscription, for the length of a `with` block.

        Raises:
            UnknownQueryError: There is no such query.
            BeyondHeadError: The start lies beyond the newest change.
            LogClosedError: The service stops.
        """
        self._require_capture()
        assert self.queries is not None
        source = self.queries.get(target.query_id).source
        self._require_running()
        log = self._logs[source]
        passing = in_passing(target, source, log.head)
        feed = QueryFeed(passing, log, self._wakes[source], self.queries, place_of(start, log), restriction)
        return OpenFeed(self._feeds, feed)

    def stop(self) -> None:
        """End all feeds now and refuse new ones, so that interfaces can finish. The service stays usable otherwise."""
        self._stopped = True
        for feed in self._feeds:
            feed.end(LogClosedError("the service stops"))

    async def run(self) -> None:
        """Wake feeds as their logs grow, until all logs are closed or this task is cancelled; then all feeds end."""
        trouble = asyncio.create_task(
            Trouble(self._logs, self.subscriptions, self._options.retention_changes).run(), name="trouble"
        )
        try:
            async with asyncio.TaskGroup() as group:
                for wake in self._wakes.values():
                    group.create_task(wake.run())
        finally:
            trouble.cancel()
            await asyncio.gather(trouble, return_exceptions=True)

    def _keep(self, subscriptions: Sequence[Subscription]) -> None:
        """Know subscriptions that the metadata database has, all in order of their numbers."""
        self._handles |= {record.id: SubscriptionHandle(self._tools, record) for record in subscriptions}
        self._handles = dict(sorted(self._handles.items()))

    def _forget(self, subscription_id: SubscriptionId) -> None:
        """Forget a subscription that the metadata database no longer has, and end its feeds."""
        handle = self._handles.pop(subscription_id, None)
        if self.queries is not None:
            self.queries.verified.pop(subscription_id, None)
        if handle is not None:
            logger.info("subscription closed", extra={**_described(handle.record), "cursor": handle.record.cursor})
            handle.end()

    def _require_capture(self) -> None:
        if not self._options.capture_enabled:
            raise CaptureDisabledError

    def _require_running(self) -> None:
        if self._stopped:
            raise LogClosedError("the service stops")

    def _snapshot(self, subscription: Subscription, shard: QueryShard, restriction: Restriction | None) -> Snapshot:
        as_inserted = msgspec.structs.replace(subscription.filter, ops=(Op.INSERT,))
        wanted = self._filters.get(subscription.target, as_inserted)
        table = subscription.target.tables[0]
        return Snapshot(shard.source, shard.log, table, wanted, self._clock, restriction)

    async def _accept(
        self, target: Target, wanted: FilterOptions, given: PreparedQuery | None = None
    ) -> tuple[str, Target]:
        """Return the source of a target that exists here, and the target as it is here; `given` is its query."""
        if wanted.cel is not None:
            await asyncio.to_thread(load_library)
        match target:
            case TableTarget():
                return accept_tables(target, wanted, self._logs), target
            case SourceTarget():
                accept_source(target, wanted, self._logs, self._options.dialects)
                return target.source, target
            case QueryTarget():
                assert self.queries is not None
                prepared = given or self.queries.get(target.query_id)
                resolved = await self.queries.resolve(target, given)
                accept_query(resolved, wanted, self._logs)
                return prepared.source, resolved

    def _require_snapshot(self, source: str, target: Target, start: CursorStart) -> None:
        if start != _NOW or self.queries is None or not isinstance(target, TableTarget):
            raise InvalidRequestError("a snapshot is of the rows as they are now: leave out `from`")
        self.queries.shard(source)  # which says so of a source that can only be captured

    async def _accept_draft(self, draft: SubscriptionDraft, given: Mapping[str, PreparedQuery]) -> SubscriptionDraft:
        query = given.get(draft.target.query_id) if isinstance(draft.target, QueryTarget) else None
        source, target = await self._accept(draft.target, draft.filter, query)
        if draft.snapshot and self.queries is not None:
            self.queries.shard(source)
        return msgspec.structs.replace(draft, target=target)


def _described(subscription: Subscription) -> dict[str, Any]:
    """Return what diagnostics say of a subscription: no filter, which may hold values of rows."""
    target = subscription.target
    return {
        "subscription": subscription.id,
        "source": subscription.source,
        "target": target.query_id if isinstance(target, QueryTarget) else [table.wire for table in target.tables],
        **({"owner": subscription.owner} if subscription.owner else {}),
        **({"transient": True} if subscription.transient else {}),
    }
