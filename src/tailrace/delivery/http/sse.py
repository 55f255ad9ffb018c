"""`GET /api/v1/cdc/sse/{sub_id}`: a feed as server-sent events.

Written as plain ASGI: one write per turn goes straight to the connection, and a client that does not read holds back
its own feed alone, through `await send`.
"""

import asyncio
import logging
from http import HTTPStatus

import msgspec
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import Message, Receive, Scope, Send

from tailrace.delivery.collect import CollectLimits, collect
from tailrace.delivery.http.message import ResnapshotEvent
from tailrace.delivery.http.options import HttpOptions
from tailrace.delivery.name import parse_sub_id, sub_id_of
from tailrace.delivery.present import View, Wire
from tailrace.delivery.presenter import Presenter
from tailrace.delivery.resume import RESNAPSHOT_REASON, start_of_stream
from tailrace.metrics import Metrics
from tailrace.model.errors import (
    BehindHorizonError,
    InvalidRequestError,
    LogClosedError,
    NotFoundError,
    TailraceError,
    UnknownSubscriptionError,
)
from tailrace.model.number import Offset
from tailrace.subscription.feed import Feed
from tailrace.subscription.service import SubscriptionService

__all__ = ["SseEndpoint"]

logger = logging.getLogger(__name__)

_WIRE = Wire.SSE.value
_COMMENT = b":\n\n"
_HEADERS = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]


class SseEndpoint:
    """Streams feeds, each until its client leaves, its subscription closes, its place is lost or the server stops."""

    def __init__(
        self, service: SubscriptionService, presenter: Presenter, metrics: Metrics, options: HttpOptions
    ) -> None:
        self._service = service
        self._presenter = presenter
        self._metrics = metrics
        self._limits = CollectLimits(changes_max=options.stream_changes_max, bytes_max=options.stream_bytes_max)
        self._keepalive_s = options.stream_keepalive_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        request = Request(scope)
        try:
            subscription = self._service.subscription(parse_sub_id(request.path_params["sub_id"]))
            start = start_of_stream(
                request.query_params.get("from_offset"), request.headers.get("last-event-id"), subscription.cursor
            )
            with self._service.feed(subscription.id, start) as feed:
                await send({"type": "http.response.start", "status": HTTPStatus.OK, "headers": _HEADERS})
                if request.method == "GET":
                    await self._stream(feed, receive, send)
                await send({"type": "http.response.body", "body": b""})
        except NotFoundError:
            await PlainTextResponse("unknown sub_id", HTTPStatus.NOT_FOUND)(scope, receive, send)
        except InvalidRequestError as error:
            await PlainTextResponse(str(error), HTTPStatus.BAD_REQUEST)(scope, receive, send)
        except LogClosedError:
            await PlainTextResponse("the server stops", HTTPStatus.SERVICE_UNAVAILABLE)(scope, receive, send)

    async def _stream(self, feed: Feed, receive: Receive, send: Send) -> None:
        async with asyncio.TaskGroup() as group:
            writer = group.create_task(self._write(feed, send))
            watcher = group.create_task(_cancel_when_gone(receive, writer))
            writer.add_done_callback(lambda _: watcher.cancel())

    async def _write(self, feed: Feed, send: Send) -> None:
        """Write until the feed ends, one bounded piece a turn."""
        loop = asyncio.get_running_loop()
        view = View(Wire.SSE, feed.subscription.format, feed.subscription.include)
        changes, size_bytes = (
            self._metrics.delivered_changes.labels(_WIRE),
            self._metrics.delivered_bytes.labels(_WIRE),
        )
        with self._metrics.feeds_open.labels(_WIRE).track_inprogress():
            keepalive_due_s = loop.time() + self._keepalive_s
            while True:
                timeout_s = max(0.0, keepalive_due_s - loop.time())
                try:
                    piece = await collect(feed, self._presenter, view, self._limits, timeout_s)
                except TailraceError as error:
                    await send(_body(self._farewell(feed, error)))
                    return
                if piece.count or loop.time() >= keepalive_due_s:
                    await send(_body(piece.data or _COMMENT))
                    keepalive_due_s = loop.time() + self._keepalive_s
                changes.inc(piece.count)
                size_bytes.inc(len(piece.data))
                await asyncio.sleep(0)  # a send that did not wait must not keep others from their turn

    def _farewell(self, feed: Feed, error: TailraceError) -> bytes:
        """Return the last words of a stream."""
        match error:
            case BehindHorizonError():
                self._metrics.resnapshots.labels(_WIRE).inc()
                return self._resnapshot(feed)
            case UnknownSubscriptionError() | LogClosedError():
                return b""
            case _:
                logger.error("feed failed", extra={"subscription": feed.subscription.id}, exc_info=error)
                return b""

    def _resnapshot(self, feed: Feed) -> bytes:
        log = self._service.logs[feed.subscription.source]
        before_horizon = Offset(log.horizon - 1)
        event = ResnapshotEvent(
            sub_id=sub_id_of(feed.subscription.id),
            earliest_offset=log.horizon,
            latest_offset=log.head,
            resnapshot_from_offset=before_horizon,
            reason=RESNAPSHOT_REASON,
        )
        return b"id: %d\nevent: resnapshot\ndata: %s\n\n" % (before_horizon, msgspec.json.encode(event))


def _body(data: bytes) -> Message:
    return {"type": "http.response.body", "body": data, "more_body": True}


async def _cancel_when_gone(receive: Receive, writer: asyncio.Task[None]) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    writer.cancel()
