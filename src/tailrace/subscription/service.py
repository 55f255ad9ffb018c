"""The subscription service: the one door through which every interface subscribes, reads, acknowledges and closes."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from tailrace.clock import Clock, SystemClock
from tailrace.meta.store import MetaStore
from tailrace.model.errors import (
    BeyondHeadError,
    CaptureDisabledError,
    InvalidRequestError,
    UnknownSubscriptionError,
)
from tailrace.model.number import Offset
from tailrace.model.query import PreparedQuery
from tailrace.model.start import CursorStart, Latest, Start
from tailrace.model.subscription import (
    FilterOptions,
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
from tailrace.subscription.acceptance import accept_query, accept_source, accept_tables
from tailrace.subscription.cel import load_library
from tailrace.subscription.feed import Feed
from tailrace.subscription.lag import Lags
from tailrace.subscription.log_view import LogView
from tailrace.subscription.open_feeds import OpenFeed
from tailrace.subscription.opening import Opener, log_of
from tailrace.subscription.options import ServiceOptions
from tailrace.subscription.place import find_place
from tailrace.subscription.query.service import QueryService
from tailrace.subscription.registry import Registry
from tailrace.subscription.restrict import Restriction
from tailrace.subscription.status import SubscriptionStatus, status_of
from tailrace.subscription.table import find_table
from tailrace.subscription.trouble import Trouble

__all__ = ["ServiceOptions", "SubscriptionService", "SubscriptionStatus"]

_NOW = Latest()


class SubscriptionService:
    """Subscriptions of all sources. Get one by `open` and keep `run` running in a task beside it.

    Subscriptions are kept in memory and in the metadata database; whatever a method changed is durable when it returns.
    All methods may be called from any task of the service's event loop.
    """

    def __init__(
        self,
        logs: Mapping[str, LogView],
        registry: Registry,
        options: ServiceOptions,
        queries: QueryService | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.queries = queries
        self._logs = dict(logs)
        self._registry = registry
        self._options = options
        self._opener = Opener(self._logs, queries, clock or SystemClock())

    @classmethod
    async def open(
        cls, logs: Mapping[str, LogView], store: MetaStore, options: ServiceOptions, queries: QueryService | None = None
    ) -> "SubscriptionService":
        """Return a service that knows the subscriptions in the metadata database."""
        registry = await Registry.open(store, options.subscriptions_max)
        if any(one.filter.cel is not None for one in registry.all()):
            await asyncio.to_thread(load_library)
        return cls(logs, registry, options, queries)

    @property
    def logs(self) -> Mapping[str, LogView]:
        """Return the logs by source name."""
        return self._logs

    @property
    def lags(self) -> Mapping[str, Lags]:
        """Return how long changes take on their way, by source name."""
        return self._opener.lags

    @property
    def retention_changes(self) -> int | None:
        """Return the scale of the pressure states in changes; None where there are none."""
        return self._options.retention_changes

    def shard(self, source: str) -> int:
        """Return the number of the shard that holds the log of a source."""
        return self._options.shards.get(source, 0)

    def subscriptions(self) -> list[Subscription]:
        """Return all subscriptions in order of their numbers."""
        return self._registry.all()

    def subscription(self, subscription_id: SubscriptionId) -> Subscription:
        """Return a subscription as it is now.

        Raises:
            UnknownSubscriptionError: There is none of that number.
        """
        return self._registry.get(subscription_id)

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
        made = await self._registry.add(draft)
        if isinstance(target, QueryTarget) and target.precise and self.queries is not None:
            await self.queries.begin_precise(made.id, target, made.cursor)
        return made

    async def acknowledge(self, subscription_id: SubscriptionId, offset: Offset) -> Subscription:
        """Move the cursor to `offset`; one that is already further stays. Return the subscription as it is then.

        Where a snapshot comes first, the cursor stays until that was wholly sent and its offset is acknowledged.

        Raises:
            UnknownSubscriptionError: There is none of that number.
            BeyondHeadError: The log has no such change yet.
        """
        head = log_of(self._logs, self.subscription(subscription_id)).head
        if offset > head:
            raise BeyondHeadError(requested=offset, head=head)
        return await self._registry.advance(subscription_id, offset)

    async def snapshot_sent(self, subscription_id: SubscriptionId, offset: Offset | None) -> None:
        """Note where the snapshot belongs that was wholly sent; None when one is begun."""
        await self._registry.snapshot_sent(subscription_id, offset)

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
        cursor = await find_place(start, log_of(self._logs, self.subscription(subscription_id)))
        return await self._registry.reset(subscription_id, cursor)

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
        replaced = drafts.keys() & {subscription.id for subscription in self._registry.all()}
        await self._registry.restore(accepted, prepared)
        if self.queries is not None:
            self.queries.adopt(prepared)
        for number in replaced:
            self._opener.end(number, UnknownSubscriptionError(f"sub-{number}"))
            if self.queries is not None:
                self.queries.verified.pop(number, None)

    async def close(self, subscription_id: SubscriptionId) -> None:
        """Remove a subscription and end its feeds.

        Raises:
            UnknownSubscriptionError: There is none of that number.
        """
        await self._registry.remove(subscription_id)
        if self.queries is not None:
            self.queries.verified.pop(subscription_id, None)
        self._opener.end(subscription_id, UnknownSubscriptionError(f"sub-{subscription_id}"))

    def status(self, subscription_id: SubscriptionId) -> SubscriptionStatus:
        """Return where a subscription stands now.

        Raises:
            UnknownSubscriptionError: There is none of that number.
        """
        subscription = self.subscription(subscription_id)
        return status_of(subscription, log_of(self._logs, subscription), self._options.retention_changes)

    def lag_max(self) -> int:
        """Return the largest lag of any subscription, in changes."""
        return self._registry.lag_max({source: log.head for source, log in self._logs.items()})

    def feeds_open(self) -> int:
        """Return how many feeds are open now, those of waiting polls among them."""
        return self._opener.feeds_open()

    def feeds(self) -> Iterator[Feed]:
        """Yield the feeds of subscriptions that are open now, of whatever interface."""
        return self._opener.feeds()

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
            BeyondHeadError: The start lies beyond the newest change.
            LogClosedError: The service stops.
            CaptureDisabledError: Nothing is captured.
        """
        self._require_capture()
        subscription = self.subscription(subscription_id)
        return self._opener.open(subscription, start, snapshot=snapshot, restriction=restriction)

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
        return self._opener.open_source(target, filter_options, restriction)

    def feed_of_query(self, target: QueryTarget, start: Start, restriction: Restriction | None = None) -> OpenFeed:
        """Give a feed of a query without a subscription, for the length of a `with` block.

        Raises:
            UnknownQueryError: There is no such query.
            BeyondHeadError: The start lies beyond the newest change.
            LogClosedError: The service stops.
        """
        self._require_capture()
        return self._opener.open_query(target, start, restriction)

    def stop(self) -> None:
        """End all feeds now and refuse new ones, so that interfaces can finish. The service stays usable otherwise."""
        self._opener.stop()

    async def run(self) -> None:
        """Wake feeds as their logs grow, until all logs are closed or this task is cancelled; then all feeds end."""
        trouble = asyncio.create_task(
            Trouble(self._logs, self._registry.all, self._options.retention_changes).run(), name="trouble"
        )
        try:
            await self._opener.run()
        finally:
            trouble.cancel()
            await asyncio.gather(trouble, return_exceptions=True)

    async def _pause(self, subscription_id: SubscriptionId, *, paused: bool) -> Subscription:
        subscription = self.subscription(subscription_id)
        if subscription.paused == paused:
            return subscription
        subscription = await self._registry.pause(subscription_id, paused=paused)
        self._opener.pause(subscription_id, paused=paused)
        return subscription

    def _require_capture(self) -> None:
        if not self._options.capture_enabled:
            raise CaptureDisabledError

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
