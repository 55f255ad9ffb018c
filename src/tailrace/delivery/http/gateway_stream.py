"""The events of a WebSocket gateway's connection: the feeds of its subscribe requests, which take turns at writing."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from tailrace.delivery.collect import CollectLimits, collect
from tailrace.delivery.encoded import Piece
from tailrace.delivery.frame import frame_of
from tailrace.delivery.grpc.status import status_of
from tailrace.delivery.http.gateway_message import event_front
from tailrace.delivery.http.stream import StreamTools
from tailrace.delivery.present import View, Wire
from tailrace.model.errors import BehindHorizonError, MetadataError, TailraceError, UnknownSubscriptionError
from tailrace.model.subscription import Format, Include
from tailrace.subscription.feed import Feed

__all__ = ["GatewaySession", "message_of"]

logger = logging.getLogger(__name__)

_VIEW = View(Wire.GATEWAY, Format.PLAIN_JSON, Include(before=True, after=True))
_LOOK_S = 60.0
"""Longest time that a feed waits before it looks whether it has ended."""


class GatewaySession:
    """Writes to one connection: answers, and events of many feeds.

    Feeds take turns, one bounded piece each, in the order in which they asked; a piece is only made when its turn has
    come. So they share the connection fairly, and a client that does not read costs one piece, however many it has.
    """

    def __init__(self, tools: StreamTools, write: Callable[[bytes], Awaitable[None]]) -> None:
        self._tools = tools
        self._write = write
        self._turn = asyncio.Lock()

    async def say(self, text: bytes) -> None:
        """Send one message."""
        async with self._turn:
            await self._write(frame_of(text))

    async def serve(self, request_id: str, feed: Feed) -> TailraceError:
        """Send the events of a feed until it ends; return why it did."""
        front = event_front(request_id)
        metrics, wire = self._tools.metrics, Wire.GATEWAY.value
        changes, size = metrics.delivered_changes.labels(wire), metrics.delivered_bytes.labels(wire)
        options, turns = self._tools.options, self._tools.presenter.turns
        with metrics.feeds_open.labels(wire).track_inprogress(), turns.joined():
            try:
                while True:
                    if feed.caught_up:
                        await feed.next(_LOOK_S)
                    async with self._turn:
                        limits = CollectLimits(options.stream_changes_max, turns.piece_bytes(options.stream_bytes_max))
                        piece = await collect(feed, self._tools.presenter, _VIEW, limits, 0.0)
                        if piece.count:
                            frames = _frames(front, piece)
                            await self._write(frames)
                            changes.inc(piece.count)
                            size.inc(len(frames))
                    await self._acknowledge(feed)
                    await asyncio.sleep(0)  # a write that did not wait must not keep others from their turn
            except TailraceError as error:
                if isinstance(error, BehindHorizonError):
                    metrics.resnapshots.labels(wire).inc()
                return error

    async def _acknowledge(self, feed: Feed) -> None:
        """Move the cursor of the subscription to the feed's place, for whoever looks how far it is."""
        subscription_id = feed.subscription.id
        try:
            if feed.after > self._tools.service.subscription(subscription_id).cursor:
                await self._tools.service.acknowledge(subscription_id, feed.after)
        except (UnknownSubscriptionError, MetadataError) as error:
            logger.debug("automatic acknowledgement failed", extra={"reason": type(error).__name__})


def message_of(error: TailraceError) -> str:
    """Return what a client is told of an error, in seed A's words."""
    if isinstance(error, UnknownSubscriptionError):
        return "the subscription was cancelled"
    return status_of(error).message


def _frames(front: bytes, piece: Piece) -> bytes:
    """Return events, each in a frame of its own, with the id of their request."""
    return b"".join([frame_of(b"%s%s}" % (front, event)) for event in piece.data.split(b"\n")[:-1]])
