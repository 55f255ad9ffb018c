"""The subscription service as one principal may use it: the door that every interface goes through.

Whose a subscription is:

* A principal uses the subscriptions that it made, and those that nobody owns, if it may see all of their tables.
* With `admin` it uses those of others too, as far as it reaches their tables.
* All others are not there for it: they are unknown, not forbidden.

What a feed shows is decided by the principal that opens it, when it opens it, whoever made the subscription.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType

from msgspec import structs

from tailrace.access.keeper import End, Keeper
from tailrace.access.limit import RateLimits
from tailrace.access.namespace import source_by_db, source_for
from tailrace.access.principal import ANONYMOUS, Capability, Principal
from tailrace.model.errors import PermissionDeniedError, QuotaError, UnknownSubscriptionError
from tailrace.model.start import Start
from tailrace.model.subscription import (
    FilterOptions,
    PreparedQuery,
    QueryTarget,
    SourceTarget,
    SubscribeRequest,
    Subscription,
    SubscriptionDraft,
    SubscriptionId,
    TableTarget,
)
from tailrace.model.table import TableSchema
from tailrace.subscription.access_query import ScopedQueries
from tailrace.subscription.feed import Feed
from tailrace.subscription.handle import SubscriptionHandle
from tailrace.subscription.log_view import LogView
from tailrace.subscription.open_feeds import OpenFeed
from tailrace.subscription.restrict import Restriction, Restrictions
from tailrace.subscription.service import SubscriptionService
from tailrace.subscription.table import readings

__all__ = ["Scoped", "Scopes"]


class Scopes:
    """Gives each principal its view of a service. For tasks of one event loop."""

    def __init__(
        self,
        service: SubscriptionService,
        keeper: Keeper | None = None,
        limits: RateLimits | None = None,
        *,
        subscriptions_max: int = 100_000,
    ) -> None:
        """Let each principal own at most `subscriptions_max` subscriptions. Without a keeper, all are anonymous."""
        self.service = service
        self.keeper = keeper
        self.limits = limits
        self.restrictions = Restrictions(service.dialects)
        self.subscriptions_max = subscriptions_max
        self._anonymous = Scoped(self, ANONYMOUS)

    def of(self, principal: Principal) -> "Scoped":
        """Return the service as a principal may use it."""
        return self._anonymous if principal is ANONYMOUS else Scoped(self, principal)


class Scoped:
    """The guard of a subscription service for one principal: each method checks a right and hands out what it is for.

    Every method raises `PermissionDeniedError` where the principal may not do it. Subscriptions that it may not use are
    unknown to it. A handle that was given out stays good: what a principal may do does not change while it is known,
    and a handle ends with its subscription.
    """

    def __init__(self, scopes: Scopes, principal: Principal) -> None:
        self.principal = principal
        self._scopes = scopes
        self._service = scopes.service
        queries = scopes.service.queries
        self.queries = None if queries is None else ScopedQueries(queries, principal, scopes.restrictions)

    @property
    def logs(self) -> Mapping[str, LogView]:
        """Return the logs of the sources that it reaches, by name."""
        logs = self._service.logs
        if self.principal.namespaces is None:
            return logs
        return {source: log for source, log in logs.items() if self.principal.reaches(source)}

    def source(self, namespace: str) -> str:
        """Return the source that a namespace of the SochDB interface names; see `source_for`."""
        return source_for(self.principal, namespace, self._service.logs)

    def database(self, db: str | None) -> str:
        """Return the source that `db` of the SkeinDB interface names; see `source_by_db`."""
        return source_by_db(self.principal, db, self._service.logs)

    def shard(self, source: str) -> int:
        """Return the number of the shard that holds the log of a source."""
        self.principal.require_namespace(source)
        return self._service.shard(source)

    def hold(self, end: End, *, counted: bool = True) -> AbstractContextManager[None]:
        """Have something end with the principal's credentials, for the length of a `with` block; see `Keeper.hold`."""
        if self.principal is ANONYMOUS or self._scopes.keeper is None:
            return nullcontext()
        return self._scopes.keeper.hold(self.principal, end, counted=counted)

    def count(self) -> None:
        """Count one more thing that it asks for on a connection that it has.

        Raises:
            RateLimitError: It asks too often.
        """
        if self._scopes.limits is not None:
            self._scopes.limits.take(self.principal.name)

    def restriction(self, source: str) -> Restriction | None:
        """Return what it may see of a source; None where that is everything."""
        self._require_read(source)
        return self._scopes.restrictions.get(self.principal, source)

    # ---- subscriptions

    def subscriptions(self) -> list[Subscription]:
        """Return the subscriptions that it may use, in order of their numbers."""
        self.principal.require(Capability.READ)
        return [subscription for subscription in self._service.subscriptions() if self._uses(subscription)]

    def subscription(self, subscription_id: SubscriptionId) -> SubscriptionHandle:
        """Return the handle of a subscription that it may use: all that can be done with one is there.

        Raises:
            UnknownSubscriptionError: There is none of that number that it may use.
        """
        self.principal.require(Capability.READ)
        handle = self._service.subscription(subscription_id)
        if not self._uses(handle.record):
            raise UnknownSubscriptionError(f"sub-{subscription_id}")
        return handle

    def table(self, source: str, wire: str) -> TableSchema:
        """Return the newest schema of the table that has this name on the wires."""
        self._require_read(source)
        named = list(readings(source, wire))
        if not any(map(self.principal.sees, named)):
            self.principal.require_table(named[0])
        schema = self._service.table(source, wire)
        self.principal.require_table(schema.table)
        return schema

    async def subscribe(self, request: SubscribeRequest) -> Subscription:
        """Make a subscription, which the principal then owns. Of all tables of a source it gets those that it sees."""
        match request.target:
            case TableTarget(tables=tables):
                for table in tables:
                    self._require_read(table.source)
                    self.principal.require_table(table)
            case SourceTarget():
                self._require_source(request.target)
            case QueryTarget():
                assert self.queries is not None
                request = structs.replace(request, target=await self.queries.resolve(request.target))
        self._require_room()
        return await self._service.subscribe(request, owner=self.principal.owner)

    async def restore(
        self, drafts: Mapping[SubscriptionId, SubscriptionDraft], prepared: Sequence[PreparedQuery] = ()
    ) -> None:
        """Keep subscriptions under the numbers that they had elsewhere; the principal then owns them.

        Numbers under which it has no subscription need `admin`, whether another principal has one or not: the answer
        must not show which numbers are in use.
        """
        self.principal.require(Capability.MANAGE_BACKUPS)
        known = {subscription.id: subscription for subscription in self._service.subscriptions()}
        if not self.principal.may(Capability.ADMIN):
            for subscription_id in drafts:
                if subscription_id not in known or not self._uses(known[subscription_id]):
                    raise PermissionDeniedError(
                        f"sub-{subscription_id} is not your subscription: importing it needs the capability admin"
                    )
        for draft in drafts.values():
            if isinstance(draft.target, SourceTarget):
                self._require_source(draft.target)
            for table in draft.target.tables if isinstance(draft.target, TableTarget) else ():
                self.principal.require_table(table)
            if isinstance(draft.target, QueryTarget):
                await self._require_query(draft.target.query_id, prepared)
        self._require_room(len(drafts.keys() - known.keys()))
        owner = self.principal.owner
        owned = {number: structs.replace(draft, owner=owner) for number, draft in drafts.items()}
        await self._service.restore(owned, prepared)

    def exported(self) -> list[Subscription]:
        """Return the subscriptions that it may use, for someone who keeps copies."""
        self.principal.require(Capability.MANAGE_BACKUPS)
        return self.subscriptions()

    def measured(self) -> SubscriptionService:
        """Return the whole service, for someone who looks at its figures: they are of all sources together."""
        self.principal.require(Capability.VIEW_METRICS)
        if not all(map(self.principal.reaches, self._service.logs)):
            raise PermissionDeniedError("Access denied to the figures of all sources: only some of them are yours")
        return self._service

    # ---- feeds

    def feeds(self) -> Iterator[Feed]:
        """Yield the open feeds of the subscriptions that it may use."""
        self.principal.require(Capability.READ)
        return (feed for feed in self._service.feeds() if self._uses(feed.subscription))

    def feed(
        self, subscription_id: SubscriptionId, start: Start, *, snapshot: bool = False
    ) -> AbstractContextManager[Feed]:
        """Give a feed of a subscription for the length of a `with` block; it ends with the principal's credentials."""
        subscription = self.subscription(subscription_id).record
        restriction = self.restriction(subscription.source)
        if restriction is not None and isinstance(subscription.target, QueryTarget):
            restriction.require_whole(subscription.target.tables)
        return self._held(self._service.feed(subscription.id, start, snapshot=snapshot, restriction=restriction))

    def feed_of_source(self, target: SourceTarget, filter_options: FilterOptions) -> AbstractContextManager[Feed]:
        """Give a feed of a source from now on, for the length of a `with` block."""
        self._require_source(target)
        return self._held(self._service.feed_of_source(target, filter_options, self.restriction(target.source)))

    def feed_of_query(self, target: QueryTarget, start: Start) -> AbstractContextManager[Feed]:
        """Give a feed of a query, for the length of a `with` block."""
        assert self.queries is not None
        restriction = self.restriction(self.queries.get(target.query_id).source)
        if restriction is not None:
            restriction.require_whole(target.tables)
        return self._held(self._service.feed_of_query(target, start, restriction))

    # ---- rights

    def _uses(self, subscription: Subscription) -> bool:
        principal, target = self.principal, subscription.target
        if not principal.reaches(subscription.source):
            return False
        if subscription.owner not in (None, principal.owner) and not principal.may(Capability.ADMIN):
            return False
        if isinstance(target, SourceTarget) and not target.names:
            return principal.tables is None or subscription.owner == principal.owner
        return all(map(principal.sees, target.tables))

    def _require_read(self, source: str) -> None:
        self.principal.require(Capability.READ)
        self.principal.require_namespace(source)

    def _require_source(self, target: SourceTarget) -> None:
        self._require_read(target.source)
        if target.names:
            for table in target.tables:
                self.principal.require_table(table)

    async def _require_query(self, query_id: str, prepared: Sequence[PreparedQuery]) -> None:
        """Refuse a query that it may not run; those that are not kept yet were looked at when they were drafted."""
        assert self.queries is not None
        if all(query.query_id != query_id for query in prepared):
            await self.queries.require(query_id)

    def _require_room(self, more: int = 1) -> None:
        """Refuse more subscriptions where the principal would have more than it may."""
        owner, allowed = self.principal.owner, self._scopes.subscriptions_max
        if owner is None or self._service.subscriptions_kept() + more <= allowed:
            return
        if sum(subscription.owner == owner for subscription in self._service.subscriptions()) + more > allowed:
            raise QuotaError(
                f"principal {self.principal.id} has {allowed} subscriptions, as many as it may: close some"
            )

    def _held(self, opened: OpenFeed) -> AbstractContextManager[Feed]:
        return opened if self.principal is ANONYMOUS else _HeldFeed(opened, self)


class _HeldFeed:
    """A feed that is open for the length of a `with` block, and ends with the credentials that opened it."""

    __slots__ = ("_hold", "_opened", "_scoped")

    def __init__(self, opened: OpenFeed, scoped: Scoped) -> None:
        self._opened = opened
        self._scoped = scoped
        self._hold: AbstractContextManager[None] = nullcontext()

    def __enter__(self) -> Feed:
        feed = self._opened.__enter__()
        try:
            self._hold = self._scoped.hold(feed.end)
            self._hold.__enter__()
        except BaseException as error:
            self._opened.__exit__(type(error), error, error.__traceback__)
            raise
        return feed

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._hold.__exit__(kind, error, traceback)
        self._opened.__exit__(kind, error, traceback)
