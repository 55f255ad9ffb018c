"""The RPC methods: decode the params, call the subscription service, give a result."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import cache, partial
from typing import Any, ClassVar, get_type_hints

from msgspec import UNSET, Raw, Struct

from tailrace import __version__
from tailrace.clock import Clock
from tailrace.delivery.collect import CollectLimits, collect
from tailrace.delivery.encoded import Piece
from tailrace.delivery.http.envelope import VERSION
from tailrace.delivery.http.options import HttpOptions
from tailrace.delivery.http.place import OPS, start_of
from tailrace.delivery.presenter import Presenter
from tailrace.delivery.view import view_of
from tailrace.interface.skeindb.export import ExportDocument, export_of
from tailrace.interface.skeindb.message import (
    AckParams,
    AckResult,
    BackpressureResult,
    CapabilitiesResult,
    CloseParams,
    CloseResult,
    ImportResult,
    ListEntry,
    ListResult,
    NoParams,
    PauseParams,
    PauseResult,
    PingResult,
    PollParams,
    PollResult,
    ResetParams,
    Signature,
    StatsResult,
    SubscribeResult,
    SubscribeTableParams,
    VersionResult,
)
from tailrace.interface.skeindb.option import filter_options_of, include_of, options_of
from tailrace.interface.skeindb.present import ARRAY
from tailrace.interface.skeindb.query_methods import Call, QueryMethods
from tailrace.interface.skeindb.restore import restore
from tailrace.interface.skeindb.resume import RESNAPSHOT_REASON, start_after
from tailrace.interface.skeindb.stream_options import check_envelope
from tailrace.metrics import Metrics
from tailrace.model.errors import BehindHorizonError, InvalidRequestError, LogClosedError, UnknownSubscriptionError
from tailrace.model.number import Offset
from tailrace.model.subscription import (
    Format,
    QueryTarget,
    SubscribeRequest,
    Subscription,
    TableTarget,
    parse_sub_id,
    sub_id_of,
)
from tailrace.subscription.access import Scoped
from tailrace.subscription.feed import Feed
from tailrace.subscription.handle import SubscriptionHandle
from tailrace.subscription.stats import alerts_of, stats_of
from tailrace.subscription.status import SubscriptionStatus

__all__ = ["Methods", "RpcMethod", "signatures"]

_WIRE = ARRAY.name


class RpcMethod(Signature, frozen=True):
    """One RPC method: its types, and what answers it."""

    call: Callable[[Any], Awaitable[Struct]]


class Methods:
    """The RPC methods over one subscription service; `table` has them by name."""

    def __init__(
        self,
        service: Scoped,
        presenter: Presenter,
        metrics: Metrics,
        clock: Clock,
        options: HttpOptions,
    ) -> None:
        self._service = service
        self._presenter = presenter
        self._metrics = metrics
        self._clock = clock
        self._options = options
        self.table: dict[str, RpcMethod] = _bound(self.CALLS, self)
        if service.queries is not None:
            self.table |= _bound(QueryMethods.CALLS, QueryMethods(service, service.queries))

    def count(self) -> None:
        """Count a command that comes over a connection; see `Scoped.count`."""
        self._service.count()

    def of(self, service: Scoped) -> "Methods":
        """Return the methods as the principal of another service may use them."""
        if service is self._service:
            return self
        return Methods(service, self._presenter, self._metrics, self._clock, self._options)

    async def _ping(self, _params: NoParams) -> PingResult:
        return PingResult(pong=True, time_unix_ms=self._clock.now_us() // 1000)

    async def _version(self, _params: NoParams) -> VersionResult:
        return VersionResult(name="tailrace", version=__version__, skeinql=VERSION)

    async def _capabilities(self, _params: NoParams) -> CapabilitiesResult:
        return CapabilitiesResult(methods=list(self.table), formats=[*map(str, Format)], ops=list(OPS))

    async def _subscribe_table(self, params: SubscribeTableParams) -> SubscribeResult:
        source = self._service.database(params.db)
        schema = self._service.table(source, params.table)
        if params.shard is not None and params.shard != self._service.shard(source):
            raise InvalidRequestError(f"`shard`: {source} is in shard {self._service.shard(source)}")
        subscription = await self._service.subscribe(
            SubscribeRequest(
                TableTarget((schema.table,)),
                filter=filter_options_of(params),
                include=include_of(params),
                format=params.format or Format.OBJECTS_JSON,
                auto_ack=params.auto_ack,
                snapshot=params.snapshot,
                start=start_of(params.from_, "from"),
            )
        )
        sub_id = sub_id_of(subscription.id)
        return SubscribeResult(
            sub_id=sub_id,
            offset=subscription.cursor,
            sse_url=f"/api/v1/cdc/sse/{sub_id}",
            ws_url=f"/api/v1/cdc/ws/{sub_id}",
        )

    async def _poll(self, params: PollParams) -> PollResult:
        handle = self._find(params.sub_id)
        subscription = handle.record
        if subscription.snapshot:
            raise InvalidRequestError("this subscription begins with a snapshot: stream and acknowledge that first")
        start = start_after(Offset(params.from_offset), subscription.cursor)
        piece, lost = Piece(b"", 0, start.offset), False
        with self._service.feed(subscription.id, start) as feed:
            try:
                piece = await self._collect(feed, params)
            except BehindHorizonError:
                lost = True
                self._metrics.resnapshots.labels(_WIRE).inc()
        self._metrics.delivered_changes.labels(_WIRE).inc(piece.count)
        self._metrics.delivered_bytes.labels(_WIRE).inc(len(piece.data))
        status = handle.status()
        backpressure = _backpressure(status)
        if lost:
            before_horizon = Offset(status.horizon - 1)
            return PollResult(
                events=Raw(b"[]"),
                next_offset=before_horizon,
                earliest_offset=status.horizon,
                latest_offset=status.head,
                resnapshot_required=True,
                resnapshot_from_offset=before_horizon,
                resnapshot_reason=RESNAPSHOT_REASON,
                backpressure=backpressure,
            )
        return PollResult(
            events=Raw(b"[%s]" % piece.data[:-1]),
            next_offset=piece.through,
            earliest_offset=status.horizon,
            latest_offset=status.head,
            resnapshot_required=False,
            backpressure=backpressure,
        )

    async def _collect(self, feed: Feed, params: PollParams) -> Piece:
        """Return the next events; none when none came in the time that the subscriber wants to wait.

        A narrow filter over a long log takes several rounds, between which others have their turn.
        """
        loop = asyncio.get_running_loop()
        check_envelope(params.envelope, feed.subscription)
        view = view_of(ARRAY, feed.subscription, params.envelope)
        limits = CollectLimits(changes_max=params.limit, bytes_max=self._options.poll_bytes_max)
        begin_s = loop.time()
        while True:
            waited_s = loop.time() - begin_s
            try:
                piece = await collect(feed, self._presenter, view, limits, params.wait_ms / 1000 - waited_s)
            except LogClosedError:
                return Piece(b"", 0, feed.after)  # the server stops: the subscriber polls again later
            if piece.count or feed.caught_up or feed.paused or waited_s > self._options.poll_scan_s_max:
                return piece
            await asyncio.sleep(0)

    async def _ack(self, params: AckParams) -> AckResult:
        subscription = await self._find(params.sub_id).acknowledge(Offset(params.offset))
        return AckResult(sub_id=params.sub_id, acked_offset=subscription.cursor)

    async def _reset(self, params: ResetParams) -> AckResult:
        subscription = await self._find(params.sub_id).reset(start_of(params.to, "to"))
        return AckResult(sub_id=params.sub_id, acked_offset=subscription.cursor)

    async def _pause(self, params: PauseParams) -> PauseResult:
        handle = self._find(params.sub_id)
        return _pause_result(await handle.pause(), handle.status())

    async def _resume(self, params: PauseParams) -> PauseResult:
        handle = self._find(params.sub_id)
        return _pause_result(await handle.resume(), handle.status())

    async def _list(self, _params: NoParams) -> ListResult:
        return ListResult([self._entry(subscription) for subscription in self._service.subscriptions()])

    def _entry(self, subscription: Subscription) -> ListEntry:
        return ListEntry(
            sub_id=sub_id_of(subscription.id),
            db=subscription.source,
            table=",".join(table.wire for table in subscription.target.tables),
            query_id=subscription.target.query_id if isinstance(subscription.target, QueryTarget) else UNSET,
            acked_offset=subscription.cursor,
            paused=subscription.paused,
            format=subscription.format,
            backpressure=_backpressure(self._service.subscription(subscription.id).status()),
            options=options_of(subscription),
        )

    async def _stats(self, _params: NoParams) -> StatsResult:
        stats = stats_of(self._service.measured())
        return StatsResult(stats, alerts_of(stats))

    async def _export(self, _params: NoParams) -> ExportDocument:
        queries = self._service.queries
        return export_of(self._service.exported(), [] if queries is None else await queries.queries())

    async def _import(self, params: ExportDocument) -> ImportResult:
        return ImportResult(await restore(params, self._service))

    async def _close(self, params: CloseParams) -> CloseResult:
        await self._find(params.sub_id).close()
        return CloseResult(sub_id=params.sub_id, closed=True)

    def _find(self, sub_id: str) -> SubscriptionHandle:
        try:
            return self._service.subscription(parse_sub_id(sub_id))
        except UnknownSubscriptionError:
            raise UnknownSubscriptionError(sub_id) from None

    CALLS: ClassVar[Mapping[str, Call]] = {
        "cdc.ack": _ack,
        "cdc.close": _close,
        "cdc.export": _export,
        "cdc.import": _import,
        "cdc.list": _list,
        "cdc.pause": _pause,
        "cdc.poll": _poll,
        "cdc.reset": _reset,
        "cdc.resume": _resume,
        "cdc.subscribe_table": _subscribe_table,
        "stats.snapshot": _stats,
        "system.capabilities": _capabilities,
        "system.ping": _ping,
        "system.version": _version,
    }
    """What answers each method that needs no queries. Its annotations say what the method takes and gives."""


def signatures() -> dict[str, Signature]:
    """Return the types of all methods, by name: no server is needed to know them."""
    return {name: _signature(call) for name, call in {**Methods.CALLS, **QueryMethods.CALLS}.items()}


def _bound(calls: Mapping[str, Call], owner: object) -> dict[str, RpcMethod]:
    """Return methods whose calls are those of `owner`."""
    types = {name: _signature(call) for name, call in calls.items()}
    return {
        name: RpcMethod(types[name].params, types[name].result, partial(call, owner)) for name, call in calls.items()
    }


@cache  # each principal has methods of its own, made for each of its calls
def _signature(call: Call) -> Signature:
    hints = get_type_hints(call)
    result = hints.pop("return")
    (params,) = hints.values()
    return Signature(params, result)


def _pause_result(subscription: Subscription, status: SubscriptionStatus) -> PauseResult:
    return PauseResult(
        sub_id=sub_id_of(subscription.id),
        paused=subscription.paused,
        acked_offset=subscription.cursor,
        backpressure=_backpressure(status),
    )


def _backpressure(status: SubscriptionStatus) -> BackpressureResult:
    pressure = status.pressure
    return BackpressureResult(
        state=str(pressure.state),
        lag=pressure.lag,
        remaining_until_resnapshot=pressure.remaining,
        paused=status.subscription.paused,
    )
