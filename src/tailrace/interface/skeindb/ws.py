"""`GET /api/v1/cdc/ws/{sub_id}`: a feed as WebSocket frames, and what the client says on the same connection.

Written as plain ASGI: the frames of one turn go out in one write, and a client that does not read holds back its own
feed alone, through `await send`. Commands are answered one after the other, so a client that does not read its answers
is not listened to either.
"""

import asyncio

from starlette.requests import HTTPConnection
from starlette.types import Receive, Scope, Send

from tailrace.delivery.http.gate import principal_of
from tailrace.delivery.http.streaming import REFUSED, StreamTools, close, refusal_of, writer_to
from tailrace.interface.skeindb.answering import Answering
from tailrace.interface.skeindb.framing import WsFraming
from tailrace.interface.skeindb.methods import Methods
from tailrace.interface.skeindb.resume import begins_with_snapshot, seen_in, start_after
from tailrace.interface.skeindb.session import Session
from tailrace.interface.skeindb.stream_options import stream_options
from tailrace.model.number import Offset
from tailrace.model.subscription_name import parse_sub_id
from tailrace.subscription.feed import Feed

__all__ = ["WsEndpoint"]


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
            subscription = service.subscription(parse_sub_id(request.path_params["sub_id"]))
            seen = seen_in(request.query_params.get("from_offset"), request.headers.get("last-event-id"))
            start = start_after(seen or Offset(0), subscription.cursor)
            snapshot = begins_with_snapshot(subscription, seen)
            options = stream_options(request.query_params, [subscription])
            with service.feed(subscription.id, start, snapshot=snapshot) as feed:
                await send({"type": "websocket.accept"})
                framing = WsFraming()
                session = Session(self._tools, framing, writer_to(send), options)
                answering = Answering(self._methods.of(service), session, framing, subscription.id)
                await _converse(session, feed, answering, receive, send)
        except REFUSED as error:
            await refusal_of(error)(scope, receive, send)
        except OSError:
            return  # the client left


async def _converse(session: Session, feed: Feed, answering: Answering, receive: Receive, send: Send) -> None:
    """Stream and listen until one of the two ends."""
    async with asyncio.TaskGroup() as group:
        serving = group.create_task(_serve(session, feed, send))
        listening = group.create_task(answering.listen(receive))
        serving.add_done_callback(lambda _: listening.cancel())
        listening.add_done_callback(lambda _: serving.cancel())


async def _serve(session: Session, feed: Feed, send: Send) -> None:
    try:
        await close(send, await session.serve(feed))
    except OSError:
        return  # the client left
