"""`sochdb.v1.SubscriptionService`: the changes of a source as streams of events, as SochDB has them."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from msgspec import Struct

from tailrace.delivery.grpc.call import GrpcCall, Method, Service
from tailrace.delivery.grpc.proto import sochdb_pb2 as proto
from tailrace.delivery.grpc.protobuf import decoded, encoded
from tailrace.delivery.presenter import Presenter
from tailrace.delivery.sender import Sender, Sending, SendLimits
from tailrace.delivery.view import Wire, view_of
from tailrace.interface.sochdb.event import SOCHDB, SOCHDB_KEY
from tailrace.interface.sochdb.request import (
    SUBSCRIPTION,
    asked_for,
    batch_of,
    check_resumed,
    delivery_of,
    filter_of,
    name_of,
    number_of,
    start_of,
    start_of_named,
    target_of,
    watched_of,
)
from tailrace.metrics import Metrics
from tailrace.model.errors import MetadataError, UnknownSourceError, UnknownSubscriptionError
from tailrace.model.start import After
from tailrace.model.subscription import Format, Include, SourceTarget, SubscribeRequest, Subscription, SubscriptionId
from tailrace.subscription.access import Scoped, Scopes
from tailrace.subscription.feed import Feed
from tailrace.subscription.handle import SubscriptionHandle
from tailrace.subscription.service import SubscriptionService

__all__ = ["GrpcOptions", "SochdbTools", "sochdb_service"]


class GrpcOptions(Struct, frozen=True):
    """Settings of the services on the gRPC port."""

    stream_changes_max: int = 1024
    """Most events in one write to a stream whose client does not say how many; then others have their turn."""

    stream_bytes_max: int = 256 << 10
    """Most bytes in one write to a stream; one event may be larger."""

    stream_wait_s: float = 60.0
    """Longest wait for changes; it is renewed at once."""

    encoded_bytes_max: int = 32 << 20
    """Most memory for encoded events that wait for another subscriber."""


logger = logging.getLogger(__name__)

_BOTH = Include(before=True, after=True)


class SochdbTools(Struct, frozen=True):
    """What all calls share, and the settings of the gRPC port."""

    scopes: Scopes
    presenter: Presenter
    metrics: Metrics
    options: GrpcOptions

    @property
    def service(self) -> SubscriptionService:
        """Return the service, for feeds that are open already."""
        return self.scopes.service


def sochdb_service(tools: SochdbTools) -> Service:
    """Return the service."""
    handlers = _Handlers(tools)
    return Service(
        "sochdb.v1.SubscriptionService",
        {
            "Subscribe": Method(stream=handlers.subscribe),
            "WatchKey": Method(stream=handlers.watch_key),
            "ListSubscriptions": Method(unary=handlers.list),
            "CancelSubscription": Method(unary=handlers.cancel),
        },
        proto.DESCRIPTOR.name,
    )


class _Handlers:
    """The methods. A stream of `Subscribe` is a subscription like any other; `_live` knows what was sent on it."""

    def __init__(self, tools: SochdbTools) -> None:
        self._tools = tools
        self._scopes = tools.scopes
        self._live: dict[SubscriptionId, list[_Events]] = {}

    async def subscribe(self, call: GrpcCall, message: bytes) -> None:
        """Stream the changes of a new subscription, or of the one that the metadata name, until it is closed.

        A new one is gone when its stream ends, unless it is to be kept.
        """
        request = decoded(proto.SubscribeRequest, message)
        service = self._scopes.of(call.principal)
        named = call.header(SUBSCRIPTION)
        if named is not None:
            subscription = _named(service, named, request)
            auto_ack = delivery_of(call, subscription).auto_ack
            start = start_of_named(request.start_sequence, subscription.cursor)
            with asked_for(request.start_sequence):
                opened = service.feed(subscription.id, start)
            with opened as feed:
                await self._stream(call, feed, request, auto_ack=auto_ack)
            return
        async with self._subscription(service, call, request) as subscription:
            with service.feed(subscription.id, After(subscription.cursor)) as feed:
                await self._stream(call, feed, request, auto_ack=subscription.auto_ack)

    async def watch_key(self, call: GrpcCall, message: bytes) -> None:
        """Stream the changes of one key from now on."""
        request = decoded(proto.WatchKeyRequest, message)
        service = self._scopes.of(call.principal)
        target, wanted = watched_of(service.source(request.namespace), request.table, request.key)
        with service.feed_of_source(target, wanted) as feed:
            call.begin()
            batch = self._tools.options.stream_changes_max
            await self._send(call, _Events(self._tools, feed, SOCHDB_KEY, batch, auto_ack=False))

    async def list(self, call: GrpcCall, message: bytes) -> bytes:
        """Answer the subscriptions that are being streamed now, over whatever interface."""
        request = decoded(proto.ListSubscriptionsRequest, message)
        service = self._scopes.of(call.principal)
        source = None
        if request.namespace:
            try:
                source = service.source(request.namespace)
            except UnknownSourceError:
                return encoded(proto.ListSubscriptionsResponse())
        found = (feed for feed in service.feeds() if source in (None, feed.subscription.source))
        feeds = {feed.subscription.id: feed for feed in found}
        answer = proto.ListSubscriptionsResponse(
            subscriptions=[self._info(feeds[number], request.namespace) for number in sorted(feeds)]
        )
        return encoded(answer)

    async def cancel(self, call: GrpcCall, message: bytes) -> bytes:
        """Close a subscription; its streams end well."""
        request = decoded(proto.CancelSubscriptionRequest, message)
        try:
            service = self._scopes.of(call.principal)
            await _find(service, request.subscription_id).close()
        except UnknownSubscriptionError:
            shown = request.subscription_id[:64]
            return encoded(proto.CancelSubscriptionResponse(error=f"Subscription '{shown}' not found"))
        return encoded(proto.CancelSubscriptionResponse(success=True))

    async def _stream(self, call: GrpcCall, feed: Feed, request: proto.SubscribeRequest, *, auto_ack: bool) -> None:
        """Send a feed until its subscription is closed."""
        number = feed.subscription.id
        batch = batch_of(request.batch_size, self._tools.options.stream_changes_max)
        sending = _Events(self._tools, feed, SOCHDB, batch, request.start_sequence, auto_ack=auto_ack)
        self._live.setdefault(number, []).append(sending)
        try:
            call.begin(((SUBSCRIPTION, name_of(number)),))
            await self._send(call, sending)
        finally:
            self._live[number].remove(sending)
            if not self._live[number]:
                del self._live[number]

    async def _send(self, call: GrpcCall, sending: Sending) -> None:
        """Write the events of a feed until its subscription is closed.

        Raises:
            BehindHorizonError: The feed's place was removed by retention.
            LogClosedError: The server stops.
            PredicateError: The filter failed on a change.
        """
        ending = await Sender(self._tools, call.write).send(sending)
        if not isinstance(ending, UnknownSubscriptionError):
            raise ending

    @asynccontextmanager
    async def _subscription(
        self, service: Scoped, call: GrpcCall, request: proto.SubscribeRequest
    ) -> AsyncIterator[Subscription]:
        """Make a subscription, and unless it is to be kept, close it in the end."""
        delivery = delivery_of(call)
        with asked_for(request.start_sequence):
            subscription = await service.subscribe(
                SubscribeRequest(
                    target_of(service.source(request.namespace), request.tables),
                    filter=filter_of(request.operations, request.where_predicate),
                    include=_BOTH,
                    format=Format.OBJECTS_JSON,
                    auto_ack=delivery.auto_ack,
                    transient=not delivery.keep,
                    start=start_of(request.start_sequence),
                )
            )
        try:
            yield subscription
        finally:
            if not delivery.keep:
                await self._forget(subscription.id)

    async def _forget(self, number: SubscriptionId) -> None:
        try:
            await self._scopes.service.subscription(number).close()  # whatever has become of the principal's rights
        except UnknownSubscriptionError:
            logger.debug("subscription was closed before its stream", extra={"subscription": number})
        except MetadataError as error:
            # It is marked as one that goes with its stream: the next start removes it.
            logger.warning("subscription outlives its stream", extra={"reason": type(error).__name__})

    def _info(self, feed: Feed, namespace: str) -> proto.SubscriptionInfo:
        subscription = self._scopes.service.subscription(feed.subscription.id).record
        sending = self._live.get(subscription.id, [None])[-1]
        target = subscription.target
        names = target.names if isinstance(target, SourceTarget) else [table.wire for table in target.tables]
        return proto.SubscriptionInfo(
            subscription_id=name_of(subscription.id),
            namespace=namespace or subscription.source,
            tables=names,
            start_sequence=0 if sending is None else sending.start_sequence,
            current_sequence=feed.after if sending is None else max(sending.start_sequence, sending.last),
            created_at_us=subscription.created_time_us,
        )


class _Events(Sending):
    """The events of one stream, and the sequence after which its client asked for them."""

    def __init__(
        self, tools: SochdbTools, feed: Feed, wire: Wire, batch_max: int, start_sequence: int = 0, *, auto_ack: bool
    ) -> None:
        limits = SendLimits(batch_max, tools.options.stream_bytes_max, tools.options.stream_wait_s)
        super().__init__(tools, feed, view_of(wire, feed.subscription), limits, auto_ack=auto_ack)
        self.start_sequence = start_sequence


def _named(service: Scoped, name: str, request: proto.SubscribeRequest) -> Subscription:
    """Return the subscription that metadata name, if the request wants no other."""
    subscription = _find(service, name).record
    if request.namespace and service.source(request.namespace) != subscription.source:
        raise UnknownSubscriptionError(name[:64])
    check_resumed(request, subscription)
    return subscription


def _find(service: Scoped, name: str) -> SubscriptionHandle:
    number = number_of(name)
    if number is None:
        raise UnknownSubscriptionError(name[:64])
    return service.subscription(number)
