"""`GET /api/v1/cdc/ws`: many feeds over one WebSocket. The client says which with `subscribe` and `unsubscribe`."""

import asyncio
from contextlib import ExitStack

from msgspec import Struct
from starlette.requests import HTTPConnection
from starlette.types import Receive, Scope, Send

from tailrace.delivery.http.gate import principal_of
from tailrace.delivery.http.streaming import STREAMS_MAX, Ending, StreamTools, close, refusal_of, writer_to
from tailrace.interface.skeindb.answering import Answering
from tailrace.interface.skeindb.command import Command, Subscribe, Unsubscribe
from tailrace.interface.skeindb.framing import WsManyFraming
from tailrace.interface.skeindb.methods import Methods
from tailrace.interface.skeindb.resume import begins_with_snapshot, start_after
from tailrace.interface.skeindb.session import Session
from tailrace.interface.skeindb.stream import end_record
from tailrace.interface.skeindb.stream_options import StreamOptions, check_envelope, stream_options
from tailrace.model.errors import AccessError, InvalidRequestError
from tailrace.model.number import Offset
from tailrace.model.subscription import SubscriptionId
from tailrace.model.subscription_name import sub_id_of
from tailrace.subscription.access import Scoped
from tailrace.subscription.feed import Feed

__all__ = ["WsManyEndpoint"]


class SubscribeAnswer(Struct, frozen=True):
    """Data of the answer to `subscribe`: changes after `offset` follow."""

    sub_id: str
    offset: Offset


class UnsubscribeAnswer(Struct, frozen=True):
    """Data of the answer to `unsubscribe`: no record of the subscription follows."""

    sub_id: str


class WsManyEndpoint:
    """Streams the feeds that its client asks for, until the client leaves or the server stops."""

    def __init__(self, tools: StreamTools, methods: Methods) -> None:
        self._tools = tools
        self._methods = methods

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        await receive()
        try:
            options = stream_options(HTTPConnection(scope).query_params)
            await send({"type": "websocket.accept"})
            service = self._tools.scopes.of(principal_of(scope))
            await _Connection(self._tools, service, self._methods, send, options).run(receive)
        except InvalidRequestError as error:
            await refusal_of(error)(scope, receive, send)
        except OSError:
            return  # the client left


class _Connection(Answering):
    def __init__(
        self, tools: StreamTools, service: Scoped, methods: Methods, send: Send, options: StreamOptions
    ) -> None:
        framing = WsManyFraming()
        session = Session(tools, framing, writer_to(send), options)
        super().__init__(methods.of(service), session, framing, None)
        self._service = service
        self._options = options
        self._many = session
        self._frames = framing
        self._send = send
        self._group = asyncio.TaskGroup()
        self._streams: dict[SubscriptionId, asyncio.Task[None]] = {}
        self._stopping = False

    async def run(self, receive: Receive) -> None:
        """Listen and stream until the client has gone, its credentials are no longer good, or the server stops."""
        async with self._group:
            self._listening = self._group.create_task(self.listen(receive))
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
        subscription = self._service.subscription(subscription_id)
        check_envelope(self._options.envelope, subscription)
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
