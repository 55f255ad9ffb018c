"""SochDB's WebSocket gateway: `ping`, `sql`, `kv_get`, `kv_put`, `kv_delete`, `subscribe` and `unsubscribe`.

Requests of one connection are carried out one after the other, so a client that does not read its answers is not
listened to either. Frames that are not of text are passed over.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import ExitStack

from msgspec import Raw, Struct
from starlette.types import Receive, Scope, Send

from tailrace.access.key_value import KeyValues
from tailrace.access.principal import Capability, Principal
from tailrace.access.statement import Statements
from tailrace.clock import Clock
from tailrace.delivery.encoded import Piece
from tailrace.delivery.frame import frame_of
from tailrace.delivery.grpc.status import status_of
from tailrace.delivery.http.gate import principal_of
from tailrace.delivery.http.streaming import STREAMS_MAX, Ending, StreamTools, close, refusal_of, writer_to
from tailrace.delivery.sender import Sender, Sending, SendLimits, Write
from tailrace.delivery.view import View
from tailrace.interface.sochdb.gateway_event import GATEWAY
from tailrace.interface.sochdb.gateway_message import (
    GatewayRequest,
    GatewaySubscribe,
    GatewayUnsubscribe,
    KvGet,
    KvPut,
    RequestError,
    Sql,
    answer_of,
    decode_payload,
    decode_request,
    error_of,
    event_front,
    ops_of,
    parameters_of,
    rows_of,
)
from tailrace.interface.sochdb.request import asked_for, start_of, target_of
from tailrace.model.errors import (
    AccessError,
    LogClosedError,
    MetadataError,
    NotFoundError,
    TailraceError,
    UnknownSubscriptionError,
)
from tailrace.model.start import After
from tailrace.model.subscription import FilterOptions, Format, Include, SubscribeRequest, SubscriptionId
from tailrace.source.key_value import Entry
from tailrace.subscription.feed import Feed

__all__ = ["GatewayEndpoint", "GatewayEvents", "GatewaySession", "GatewayStores", "message_of"]

_VIEW = View(GATEWAY, Format.PLAIN_JSON, Include(before=True, after=True))


class GatewaySession(Sender):
    """Writes to one connection: answers, and events of many feeds; see `Sender`."""

    def __init__(self, tools: StreamTools, write: Write) -> None:
        super().__init__(tools, write)
        self._tools = tools
        self._limits = SendLimits(tools.options.stream_changes_max, tools.options.stream_bytes_max)

    async def answer(self, text: bytes) -> None:
        """Send one message."""
        await self.say(frame_of(text))

    async def serve(self, request_id: str, feed: Feed) -> TailraceError:
        """Send the events of a feed until it ends; return why it did."""
        return await self.send(GatewayEvents(self._tools, feed, self._limits, event_front(request_id)))


class GatewayEvents(Sending):
    """The events of one feed, each in a frame of its own, with the id of their request."""

    def __init__(self, tools: StreamTools, feed: Feed, limits: SendLimits, front: bytes) -> None:
        super().__init__(tools, feed, _VIEW, limits, auto_ack=feed.subscription.auto_ack)
        self._front = front

    def frame(self, piece: Piece) -> bytes:
        """Return events as frames."""
        return b"".join([frame_of(b"%s%s}" % (self._front, event)) for event in piece.data.split(b"\n")[:-1]])


def message_of(error: TailraceError) -> str:
    """Return an error message for a client, in SochDB's words."""
    if isinstance(error, UnknownSubscriptionError):
        return "the subscription was cancelled"
    return status_of(error).message


logger = logging.getLogger(__name__)

_BOTH = Include(before=True, after=True)
_NOTHING = Raw(b"null")
_US_PER_MS = 1000
_OTHERS = "/api/"
"""Paths of other interfaces: what they do not have is not there."""


class GatewayStores(Struct, frozen=True):
    """What the gateway reaches besides changes."""

    values: KeyValues
    statements: Statements


class GatewayEndpoint:
    """Serves connections, each until its client leaves or the server stops. Where it is `alone`, at any path."""

    def __init__(self, tools: StreamTools, stores: GatewayStores, clock: Clock, *, alone: bool = False) -> None:
        self.tools = tools
        self.stores = stores
        self.clock = clock
        self._alone = alone

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        await receive()
        if not self._alone and scope["path"].startswith(_OTHERS):
            await refusal_of(NotFoundError("not found"))(scope, receive, send)
            return
        try:
            await send({"type": "websocket.accept"})
            await _Connection(self, principal_of(scope), send).run(receive)
        except OSError:
            return  # the client left


class _Connection:
    """One connection: its requests, one after the other, and a task for each of its feeds."""

    def __init__(self, endpoint: GatewayEndpoint, principal: Principal, send: Send) -> None:
        self._clock = endpoint.clock
        self._values = endpoint.stores.values
        self._statements = endpoint.stores.statements
        self._service = endpoint.tools.scopes.of(principal)
        self._everybodys = endpoint.tools.service
        self._principal = principal
        self._send = send
        self._session = GatewaySession(endpoint.tools, writer_to(send))
        self._group = asyncio.TaskGroup()
        self._feeds: dict[str, _Live] = {}
        self._subscriptions: set[SubscriptionId] = set()
        self._stopping = False
        self._types: dict[str, Callable[[GatewayRequest], Awaitable[tuple[str, object]]]] = {
            "ping": self._ping,
            "sql": self._sql,
            "kv_get": self._kv_get,
            "kv_put": self._kv_put,
            "kv_delete": self._kv_delete,
            "subscribe": self._subscribe,
            "unsubscribe": self._unsubscribe,
        }

    async def run(self, receive: Receive) -> None:
        """Listen and send until the client has gone or the server stops."""
        try:
            async with self._group:
                self._listening = self._group.create_task(self._listen(receive))
                self._listening.add_done_callback(lambda _: [live.task.cancel() for live in self._feeds.values()])
                with self._service.hold(self._expire, counted=False):
                    await asyncio.wait([self._listening])
        finally:
            for subscription_id in list(self._subscriptions):
                await self._forget(subscription_id)

    async def _listen(self, receive: Receive) -> None:
        try:
            while (message := await receive())["type"] != "websocket.disconnect":
                text = message.get("text")
                if text is not None:
                    await self._answer(text)
        except OSError:
            return  # the client left while it was answered

    async def _answer(self, text: str) -> None:
        request_id = ""
        try:
            request = decode_request(text)
            request_id = request.id
            self._service.count()
            carry_out = self._types.get(request.type)
            if carry_out is None:
                raise RequestError(f"Unknown message type: {request.type}")
            answer = answer_of(request_id, *await carry_out(request))
        except TailraceError as error:
            answer = error_of(request_id, message_of(error))
        await self._session.answer(answer)

    async def _ping(self, _request: GatewayRequest) -> tuple[str, object]:
        return "pong", {"ts": self._clock.now_us() // _US_PER_MS}

    async def _sql(self, request: GatewayRequest) -> tuple[str, object]:
        payload = decode_payload(request.payload, Sql, "Invalid SQL payload")
        arguments = parameters_of(payload.params)
        result = await self._statements.execute(self._principal, payload.namespace, payload.query, arguments)
        return "result", {"columns": result.columns, "rows": rows_of(result.rows), "changes": result.changes}

    async def _kv_get(self, request: GatewayRequest) -> tuple[str, object]:
        payload = decode_payload(request.payload, KvGet)
        key = payload.encoding.to_bytes(payload.key)
        (value,) = await self._values.get(self._principal, payload.namespace, [key])
        return "result", {"found": False} if value is None else {
            "found": True,
            "value": payload.encoding.to_text(value),
        }

    async def _kv_put(self, request: GatewayRequest) -> tuple[str, object]:
        payload = decode_payload(request.payload, KvPut)
        entry = Entry(
            payload.encoding.to_bytes(payload.key), payload.encoding.to_bytes(payload.value), payload.ttl_seconds
        )
        await self._values.put(self._principal, payload.namespace, [entry])
        return "result", {"ok": True}

    async def _kv_delete(self, request: GatewayRequest) -> tuple[str, object]:
        payload = decode_payload(request.payload, KvGet)
        key = payload.encoding.to_bytes(payload.key)
        return "result", {"deleted": await self._values.delete(self._principal, payload.namespace, key)}

    async def _subscribe(self, request: GatewayRequest) -> tuple[str, object]:
        """Begin to send events. Nothing is awaited between the task's start and the answer, so that comes first."""
        payload = (
            GatewaySubscribe() if request.payload == _NOTHING else decode_payload(request.payload, GatewaySubscribe)
        )
        if request.id in self._feeds:
            raise RequestError(f"this connection has a subscribe with the id {request.id!r} already: unsubscribe it")
        if len(self._feeds) >= STREAMS_MAX:
            raise RequestError(f"this connection has {STREAMS_MAX} subscribes already: open another")
        self._principal.require(Capability.READ)
        source = self._service.source(payload.namespace)
        with asked_for(payload.start_sequence):
            subscription = await self._service.subscribe(
                SubscribeRequest(
                    target_of(source, payload.tables),
                    filter=FilterOptions(ops_of(payload.operations), where=payload.where),
                    include=_BOTH,
                    format=Format.PLAIN_JSON,
                    auto_ack=True,
                    transient=True,
                    start=start_of(payload.start_sequence),
                )
            )
        self._subscriptions.add(subscription.id)
        stack = ExitStack()
        try:
            feed = stack.enter_context(self._service.feed(subscription.id, After(subscription.cursor)))
        except TailraceError:
            await self._forget(subscription.id)
            raise
        task = self._group.create_task(self._serve(request.id, feed))
        task.add_done_callback(lambda _: stack.close())
        self._feeds[request.id] = _Live(task, subscription.id)
        return "result", {"subscribed": True}

    async def _unsubscribe(self, request: GatewayRequest) -> tuple[str, object]:
        payload = decode_payload(request.payload, GatewayUnsubscribe)
        live = self._feeds.pop(payload.id, None)
        if live is None:
            return "result", {"unsubscribed": False}
        live.task.cancel()
        await asyncio.wait([live.task])
        await self._forget(live.subscription_id)
        return "result", {"unsubscribed": True}

    async def _serve(self, request_id: str, feed: Feed) -> None:
        """Send the events of a feed, and at last why there are no more."""
        try:
            error = await self._session.serve(request_id, feed)
            if isinstance(error, LogClosedError):
                await self._close(Ending.STOPPED)
                return
            await self._forget(feed.subscription.id)
            self._feeds.pop(request_id, None)  # only now: should this task be cancelled, `run` forgets it
            await self._session.answer(error_of(request_id, message_of(error)))
        except OSError:
            return  # the client left

    def _expire(self, _reason: AccessError) -> None:
        self._group.create_task(self._close(Ending.UNAUTHORIZED))

    async def _close(self, ending: Ending) -> None:
        if self._stopping:
            return
        self._stopping = True
        try:
            await close(self._send, ending)
        except OSError:
            return  # the client left
        self._listening.cancel()

    async def _forget(self, subscription_id: SubscriptionId) -> None:
        """Close the subscription of a feed. One that is left over is removed at the next start of the server."""
        try:
            await self._everybodys.subscription(subscription_id).close()
        except (UnknownSubscriptionError, MetadataError) as error:
            logger.debug("subscription is not closed", extra={"reason": type(error).__name__})
        self._subscriptions.discard(subscription_id)


class _Live(Struct, frozen=True):
    """A feed that is being sent."""

    task: asyncio.Task[None]
    subscription_id: SubscriptionId
