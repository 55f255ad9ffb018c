"""WebSockets: `GET /api/v1/cdc/ws/{sub_id}` is one feed, `GET /api/v1/cdc/ws` those that the client asks for.

Written as plain ASGI: the frames of one turn go out in one write, and a client that does not read holds back its own
feeds alone, through `await send`. What the client says on the same connection is answered one command after the other,
so a client that does not read its answers is not listened to either.
"""

import asyncio
from contextlib import ExitStack

import msgspec
from msgspec import Struct
from starlette.requests import HTTPConnection
from starlette.types import Receive, Scope, Send

from tailrace.delivery.http.gate import principal_of
from tailrace.delivery.http.hand_over import Answer, StreamKind
from tailrace.delivery.http.streaming import (
    REFUSED,
    STREAMS_MAX,
    Ending,
    SessionTools,
    StreamTools,
    close,
    refusal_of,
    writer_to,
)
from tailrace.delivery.problem import problem_of
from tailrace.interface.skeindb.command import Ack, Command, Pause, Resume, Subscribe, Unsubscribe, decode_command
from tailrace.interface.skeindb.framing import WsFraming, WsManyFraming
from tailrace.interface.skeindb.message import AckParams, PauseParams, SubscribeAnswer, UnsubscribeAnswer
from tailrace.interface.skeindb.methods import Methods
from tailrace.interface.skeindb.resume import begins_with_snapshot, seen_in, start_after
from tailrace.interface.skeindb.stream import Session, end_record
from tailrace.interface.skeindb.stream_options import StreamOptions, check_envelope, stream_options
from tailrace.model.errors import AccessError, InvalidRequestError, TailraceError
from tailrace.model.number import Offset
from tailrace.model.subscription import SubscriptionId, parse_sub_id, sub_id_of
from tailrace.subscription.access import Scoped
from tailrace.subscription.feed import Feed

__all__ = ["WsEndpoint", "WsManyEndpoint", "converse"]


class WsEndpoint:
    """Streams one feed, until its client leaves, its subscription closes, its place is lost or the server stops."""

    def __init__(self, tools: StreamTools, methods: Methods) -> None:
        self._tools = tools
        self._methods = methods

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        request = HTTPConnection(scope)
        service = self._tools.scopes.of(principal_of(scope))
        await receive()
        try:
            subscription = service.subscription(parse_sub_id(request.path_params["sub_id"])).record
            seen = seen_in(request.query_params.get("from_offset"), request.headers.get("last-event-id"))
            start = start_after(seen or Offset(0), subscription.cursor)
            snapshot = begins_with_snapshot(subscription, seen)
            options = stream_options(request.query_params, [subscription])
            with service.feed(subscription.id, start, snapshot=snapshot) as feed:
                answer = _Answering(self._methods.of(service), WsFraming(), subscription.id).answer
                away = self._tools.hand_over
                if away is None or not await away.feeds(scope, StreamKind.WS, [feed], answer):
                    await converse(self._tools, feed, options, answer, receive, send)
        except REFUSED as error:
            await refusal_of(error)(scope, receive, send)
        except OSError:
            return  # the client left


class WsManyEndpoint:
    """Streams the feeds that its client asks for, until the client leaves or the server stops."""

    def __init__(self, tools: StreamTools, methods: Methods) -> None:
        self._tools = tools
        self._methods = methods

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        await receive()
        try:
            asked = stream_options(HTTPConnection(scope).query_params)
            await send({"type": "websocket.accept"})
            service = self._tools.scopes.of(principal_of(scope))
            await _Connection(self._tools, service, self._methods, send, asked).run(receive)
        except InvalidRequestError as error:
            await refusal_of(error)(scope, receive, send)
        except OSError:
            return  # the client left


class _Answering:
    """Carries out the commands of one connection. `subscription_id` is the one it is about; None on one of many."""

    def __init__(
        self,
        methods: Methods,
        framing: WsFraming | WsManyFraming,
        subscription_id: SubscriptionId | None,
    ) -> None:
        self._methods = methods
        self._framing = framing
        self._subscription_id = subscription_id

    async def answer(self, text: str | None) -> bytes:
        """Carry out what a client says; return the answer as frames."""
        subscription_id = self._subscription_id
        try:
            self._methods.count()
            command = decode_command(text)
            subscription_id = self._named(command)
            event, result = await self.carry_out(command, subscription_id)
        except TailraceError as error:
            event, result = "error", problem_of(error)
        return self._framing.answer(subscription_id, event, msgspec.json.encode(result))

    def _named(self, command: Command) -> SubscriptionId:
        """Return the subscription that a command is for."""
        if command.sub_id is None:
            if self._subscription_id is None:
                raise InvalidRequestError("not a command: Object missing required field `sub_id`")
            return self._subscription_id
        named = parse_sub_id(command.sub_id)
        if self._subscription_id is not None and self._subscription_id != named:
            raise InvalidRequestError(f"this connection is for {sub_id_of(self._subscription_id)} alone")
        return named

    async def carry_out(self, command: Command, subscription_id: SubscriptionId) -> tuple[str, Struct]:
        """Carry out a command; return the name and the data of the answer."""
        sub_id = sub_id_of(subscription_id)
        match command:
            case Ack(offset=offset):
                return "ack", await self._methods.table["cdc.ack"].call(AckParams(sub_id, offset))
            case Pause():
                return "pause", await self._methods.table["cdc.pause"].call(PauseParams(sub_id))
            case Resume():
                return "resume", await self._methods.table["cdc.resume"].call(PauseParams(sub_id))
            case Subscribe() | Unsubscribe():
                raise InvalidRequestError("this connection is for one subscription: use /api/v1/cdc/ws for many")


class _Connection(_Answering):
    def __init__(self, tools: StreamTools, service: Scoped, methods: Methods, send: Send, asked: StreamOptions) -> None:
        framing = WsManyFraming()
        session = Session(tools, framing, writer_to(send), asked)
        super().__init__(methods.of(service), framing, None)
        self._service = service
        self._asked = asked
        self._many = session
        self._frames = framing
        self._send = send
        self._group = asyncio.TaskGroup()
        self._streams: dict[SubscriptionId, asyncio.Task[None]] = {}
        self._stopping = False

    async def run(self, receive: Receive) -> None:
        """Listen and stream until the client has gone, its credentials are no longer good, or the server stops."""
        async with self._group:
            self._listening = self._group.create_task(_listen(self._many, self.answer, receive))
            self._listening.add_done_callback(lambda _: [task.cancel() for task in self._streams.values()])
            with self._service.hold(self._expire, counted=False):
                await asyncio.wait([self._listening])

    async def carry_out(self, command: Command, subscription_id: SubscriptionId) -> tuple[str, Struct]:
        """Carry out a command; return the name and the data of the answer."""
        sub_id = sub_id_of(subscription_id)
        match command:
            case Subscribe(from_offset=from_offset):
                return "subscribe", SubscribeAnswer(sub_id, self._subscribe(subscription_id, from_offset))
            case Unsubscribe():
                await self._unsubscribe(subscription_id)
                return "unsubscribe", UnsubscribeAnswer(sub_id)
            case _:
                return await super().carry_out(command, subscription_id)

    def _subscribe(self, subscription_id: SubscriptionId, from_offset: int | None) -> Offset:
        """Begin a stream; return the offset after which it begins."""
        if subscription_id in self._streams:
            raise InvalidRequestError("this connection has that subscription already")
        if len(self._streams) >= STREAMS_MAX:
            raise InvalidRequestError(f"this connection has {STREAMS_MAX} subscriptions already: open another")
        seen = None if from_offset is None else Offset(from_offset)
        subscription = self._service.subscription(subscription_id).record
        check_envelope(self._asked.envelope, subscription)
        start = start_after(seen or Offset(0), subscription.cursor)
        stack = ExitStack()
        feed = stack.enter_context(
            self._service.feed(subscription_id, start, snapshot=begins_with_snapshot(subscription, seen))
        )
        task = self._group.create_task(self._stream(feed))
        self._streams[subscription_id] = task
        stack.callback(self._streams.pop, subscription_id)
        task.add_done_callback(lambda _: stack.close())
        return feed.after

    async def _unsubscribe(self, subscription_id: SubscriptionId) -> None:
        task = self._streams.get(subscription_id)
        if task is None:
            raise InvalidRequestError("this connection does not have that subscription")
        task.cancel()
        await asyncio.wait([task])

    def _expire(self, _reason: AccessError) -> None:
        self._group.create_task(self._close(Ending.UNAUTHORIZED))

    async def _stream(self, feed: Feed) -> None:
        try:
            ending = await self._many.serve(feed)
            if ending is Ending.STOPPED:
                await self._close(ending)
            else:
                await self._many.say(end_record(feed, self._frames, ending))
        except OSError:
            return  # the client left

    async def _close(self, ending: Ending) -> None:
        if self._stopping:
            return
        self._stopping = True
        try:
            await close(self._send, ending)
        except OSError:
            return  # the client left
        self._listening.cancel()


async def converse(
    tools: SessionTools, feed: Feed, options: StreamOptions, answer: Answer, receive: Receive, send: Send
) -> None:
    """Accept a connection; stream and listen until one of the two ends."""
    await send({"type": "websocket.accept"})
    session = Session(tools, WsFraming(), writer_to(send), options)
    async with asyncio.TaskGroup() as group:
        serving = group.create_task(_serve(session, feed, send))
        listening = group.create_task(_listen(session, answer, receive))
        serving.add_done_callback(lambda _: listening.cancel())
        listening.add_done_callback(lambda _: serving.cancel())


async def _listen(session: Session, answer: Answer, receive: Receive) -> None:
    """Answer what the client says, one after the other, until it has gone."""
    try:
        while (message := await receive())["type"] != "websocket.disconnect":
            await session.say(await answer(message.get("text")))
    except OSError:
        return  # the client left while it was answered


async def _serve(session: Session, feed: Feed, send: Send) -> None:
    try:
        await close(send, await session.serve(feed))
    except OSError:
        return  # the client left
