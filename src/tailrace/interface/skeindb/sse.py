"""`GET /api/v1/cdc/sse/{sub_id}` and `GET /api/v1/cdc/sse?sub=…&sub=…`: feeds as server-sent events.

Written as plain ASGI: one write per turn goes straight to the connection, and a client that does not read holds back
its own feeds alone, through `await send`.
"""

import asyncio
from collections.abc import Sequence
from contextlib import ExitStack
from http import HTTPStatus

from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from tailrace.delivery.http.gate import principal_of
from tailrace.delivery.http.hand_over import StreamKind
from tailrace.delivery.http.protocol import PIECES
from tailrace.delivery.http.streaming import REFUSED, STREAMS_MAX, Ending, SessionTools, StreamTools, refusal_of
from tailrace.delivery.sender import Write
from tailrace.interface.skeindb.framing import Framing, SseFraming, SseManyFraming, parse_places
from tailrace.interface.skeindb.resume import begins_with_snapshot, seen_in, start_after
from tailrace.interface.skeindb.stream import Session, end_record
from tailrace.interface.skeindb.stream_options import stream_options
from tailrace.model.errors import InvalidRequestError
from tailrace.model.number import Offset
from tailrace.model.subscription import SubscriptionId, parse_sub_id
from tailrace.subscription.feed import Feed

__all__ = ["SseEndpoint", "SseManyEndpoint", "answer_feeds", "framing_of_many", "parse_streams"]

_HEADERS = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]


class SseEndpoint:
    """Streams one feed, until its client leaves, its subscription closes, its place is lost or the server stops."""

    def __init__(self, tools: StreamTools) -> None:
        self._tools = tools

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        request = Request(scope)
        service = self._tools.scopes.of(principal_of(scope))
        try:
            subscription = service.subscription(parse_sub_id(request.path_params["sub_id"])).record
            seen = seen_in(request.query_params.get("from_offset"), request.headers.get("last-event-id"))
            start = start_after(seen or Offset(0), subscription.cursor)
            snapshot = begins_with_snapshot(subscription, seen)
            with service.feed(subscription.id, start, snapshot=snapshot) as feed:
                if not await _hand_over(self._tools, request, StreamKind.SSE, [feed]):
                    await answer_feeds(self._tools, request, [feed], SseFraming(), receive, send)
        except REFUSED as error:
            await refusal_of(error)(scope, receive, send)


class SseManyEndpoint:
    """Streams several feeds over one connection, until its client leaves, all have ended or the server stops."""

    def __init__(self, tools: StreamTools) -> None:
        self._tools = tools

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        request = Request(scope)
        service = self._tools.scopes.of(principal_of(scope))
        try:
            streams = parse_streams(request.query_params.getlist("sub"), request.headers.get("last-event-id"))
            with ExitStack() as stack:
                feeds = []
                for subscription_id, seen in streams.items():
                    subscription = service.subscription(subscription_id).record
                    start = start_after(seen or Offset(0), subscription.cursor)
                    snapshot = begins_with_snapshot(subscription, seen)
                    feeds.append(stack.enter_context(service.feed(subscription_id, start, snapshot=snapshot)))
                if not await _hand_over(self._tools, request, StreamKind.SSE_MANY, feeds):
                    await answer_feeds(self._tools, request, feeds, framing_of_many(feeds), receive, send)
        except REFUSED as error:
            await refusal_of(error)(scope, receive, send)


def parse_streams(names: Sequence[str], last_event_id: str | None) -> dict[SubscriptionId, Offset | None]:
    """Return the subscriptions that a URL names as `sub_…` or `sub_…:offset`, each with the last offset seen, if any.

    A place that the client has seen (`Last-Event-ID`) wins over one in the URL, unlike on a stream of one subscription:
    a browser that reconnects sends the URL that it was given and the id that it has seen.

    Raises:
        InvalidRequestError: None or too many are named, one twice, or an offset is none.
        UnknownSubscriptionError: No subscription ever has such a name.
    """
    if not 1 <= len(names) <= STREAMS_MAX:
        raise InvalidRequestError(f"name 1 to {STREAMS_MAX} subscriptions, as ?sub=sub_…&sub=sub_…")
    seen = {} if last_event_id is None else parse_places(last_event_id)
    streams: dict[SubscriptionId, Offset | None] = {}
    for name in names:
        sub_id, colon, digits = name.partition(":")
        subscription_id = parse_sub_id(sub_id)
        if subscription_id in streams:
            raise InvalidRequestError(f"{sub_id} is named twice")
        given = seen_in(digits if colon else None, None)
        streams[subscription_id] = seen.get(subscription_id, given)
    return streams


def framing_of_many(feeds: Sequence[Feed]) -> SseManyFraming:
    """Return the framing of a connection that carries several feeds."""
    return SseManyFraming({feed.subscription.id: feed.after for feed in feeds if feed.snapshot is None})


async def _hand_over(tools: StreamTools, request: Request, kind: StreamKind, feeds: Sequence[Feed]) -> bool:
    """Have another process answer, where one does; return whether one did.

    Raises:
        InvalidRequestError: What is asked of the streams is not to be had.
    """
    if tools.hand_over is None or request.method != "GET":
        return False
    stream_options(request.query_params, [feed.subscription for feed in feeds])
    return await tools.hand_over.feeds(request.scope, kind, feeds)


async def answer_feeds(
    tools: SessionTools, request: Request, feeds: Sequence[Feed], framing: Framing, receive: Receive, send: Send
) -> None:
    """Send the feeds and return when all have ended, or the client has gone.

    Raises:
        InvalidRequestError: What is asked of the streams is not to be had.
    """
    options = stream_options(request.query_params, [feed.subscription for feed in feeds])

    async def send_copy(data: bytes) -> None:
        await send({"type": "http.response.body", "body": data, "more_body": True})

    write: Write = request.scope.get("extensions", {}).get(PIECES, send_copy)

    await send({"type": "http.response.start", "status": HTTPStatus.OK, "headers": _HEADERS})
    if request.method == "GET":
        session = Session(tools, framing, write, options)
        async with asyncio.TaskGroup() as group:
            serving = group.create_task(_serve(session, feeds, framing))
            watching = group.create_task(_cancel_when_gone(receive, serving))
            serving.add_done_callback(lambda _: watching.cancel())
    await send({"type": "http.response.body", "body": b""})


async def _serve(session: Session, feeds: Sequence[Feed], framing: Framing) -> None:
    if isinstance(framing, SseFraming):
        await session.serve(feeds[0])
        return
    async with asyncio.TaskGroup() as group:
        for feed in feeds:
            group.create_task(_serve_one_of_many(session, feed, framing))


async def _serve_one_of_many(session: Session, feed: Feed, framing: Framing) -> None:
    ending = await session.serve(feed)
    if ending is not Ending.STOPPED:
        await session.say(end_record(feed, framing, ending))


async def _cancel_when_gone(receive: Receive, serving: asyncio.Task[None]) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    serving.cancel()
