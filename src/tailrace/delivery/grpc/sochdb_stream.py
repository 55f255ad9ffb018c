"""One stream of events of seed A: takes what a feed has and writes it to a call, as long as both go on."""

import asyncio
import logging
from typing import Protocol

from tailrace.delivery.collect import CollectLimits, collect
from tailrace.delivery.encoded import Piece
from tailrace.delivery.grpc.call import Call
from tailrace.delivery.grpc.options import GrpcOptions
from tailrace.delivery.present import View, Wire
from tailrace.delivery.presenter import Presenter
from tailrace.metrics import Metrics
from tailrace.model.errors import BehindHorizonError, MetadataError, UnknownSubscriptionError
from tailrace.model.number import Offset
from tailrace.subscription.access import Scopes
from tailrace.subscription.feed import Feed
from tailrace.subscription.service import SubscriptionService

__all__ = ["Sending", "StreamTools", "send"]

logger = logging.getLogger(__name__)

_SCANNED_FAR = 1 << 16
"""So many changes without a match are worth an acknowledgement, where that is automatic."""


class StreamTools(Protocol):
    """What streams need of the server."""

    @property
    def scopes(self) -> Scopes:
        """Return where subscriptions are acknowledged."""

    @property
    def presenter(self) -> Presenter:
        """Return what encodes."""

    @property
    def metrics(self) -> Metrics:
        """Return what counts."""

    @property
    def options(self) -> GrpcOptions:
        """Return the settings."""


class Sending:
    """How far a stream is."""

    __slots__ = ("acknowledged", "auto_ack", "batch_max", "sent", "start_sequence", "wire")

    def __init__(self, wire: Wire, batch_max: int, start_sequence: int = 0, *, auto_ack: bool = False) -> None:
        self.wire = wire
        self.batch_max = batch_max
        self.start_sequence = start_sequence
        self.auto_ack = auto_ack
        self.sent = Offset(0)
        """Offset of the last event that was written."""

        self.acknowledged = Offset(0)


async def send(tools: StreamTools, call: Call, feed: Feed, sending: Sending) -> None:
    """Write the events of a feed until its subscription is closed.

    Raises:
        BehindHorizonError: The feed's place was removed by retention.
        LogClosedError: The server stops.
        PredicateError: The filter failed on a change.
    """
    options, metrics, wire = tools.options, tools.metrics, sending.wire.value
    view = View(sending.wire, feed.subscription.format, feed.subscription.include)
    turns = tools.presenter.turns
    changes, size_bytes = metrics.delivered_changes.labels(wire), metrics.delivered_bytes.labels(wire)
    sending.acknowledged = feed.after
    with metrics.feeds_open.labels(wire).track_inprogress(), turns.joined():
        while True:
            limits = CollectLimits(sending.batch_max, turns.piece_bytes(options.stream_bytes_max))
            try:
                piece = await collect(feed, tools.presenter, view, limits, options.stream_wait_s)
            except UnknownSubscriptionError:
                return
            except BehindHorizonError:
                metrics.resnapshots.labels(wire).inc()
                raise
            if piece.count:
                await call.write(piece.data)
                sending.sent = piece.last
                changes.inc(piece.count)
                size_bytes.inc(len(piece.data))
            else:
                await asyncio.sleep(0)  # a narrow filter over a long log must not keep others from their turn
            await _acknowledge(tools.scopes.service, feed, sending, piece)


async def _acknowledge(service: SubscriptionService, feed: Feed, sending: Sending, piece: Piece) -> None:
    """Acknowledge what was written, where the stream does that by itself."""
    subscription = feed.subscription
    far = piece.through - sending.acknowledged >= _SCANNED_FAR
    if not (sending.auto_ack and (piece.count or far)):
        return
    sending.acknowledged = piece.through
    try:
        await service.acknowledge(subscription.id, piece.through)
    except (UnknownSubscriptionError, MetadataError) as error:
        # Delivery is at least once: what is not acknowledged is sent again, and nothing is lost.
        logger.warning("automatic acknowledgement failed", extra={"reason": type(error).__name__})
