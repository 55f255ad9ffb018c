"""The loop that every stream of changes runs on every wire: wait, collect, write, count, acknowledge, let others.

A `Sending` is one feed on its way to a client; a `Sender` is one connection and the feeds that it carries. The plain
`Sending` writes the events of a feed and nothing else (SochDB's gRPC streams and WebSocket gateway); the streams over
SSE and WebSocket put records between them and add to it, see `tailrace.interface.skeindb.stream`.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

from msgspec import Struct

from tailrace.delivery.collect import CollectLimits, collect
from tailrace.delivery.encoded import Piece
from tailrace.delivery.presenter import Presenter
from tailrace.delivery.view import View
from tailrace.metrics import Metrics
from tailrace.model.errors import BehindHorizonError, MetadataError, TailraceError, UnknownSubscriptionError
from tailrace.model.number import Offset
from tailrace.model.subscription import Subscription, SubscriptionId
from tailrace.subscription.feed import Feed
from tailrace.subscription.log_view import LogView
from tailrace.subscription.status import SubscriptionStatus
from tailrace.subscription.window import WIDE_CHANGES_MAX

__all__ = ["SCANNED_FAR", "SendLimits", "Sender", "SenderTools", "Sending", "SentService", "SentSubscription", "Write"]

logger = logging.getLogger(__name__)

Write = Callable[[bytes], Awaitable[None]]
"""Sends bytes over a connection; returns when the connection can take more."""

SCANNED_FAR = 1 << 16
"""This many changes without a match are worth an acknowledgement where that is automatic, and a heartbeat."""

_WRITE_BYTES_ENOUGH = 32 << 10
"""A write of this many bytes costs little more than the sending of its bytes."""


class SentSubscription(Protocol):
    """What streams need of the handle of a subscription; see `SubscriptionHandle`."""

    @property
    def record(self) -> Subscription:
        """Return the subscription as it is now; one that changes is another object."""
        ...

    def status(self) -> SubscriptionStatus:
        """Return where it stands now."""
        ...

    async def acknowledge(self, offset: Offset) -> Subscription:
        """Move the cursor to `offset`; return the subscription as it is then."""
        ...

    async def snapshot_sent(self, offset: Offset | None) -> None:
        """Note where the snapshot belongs that was wholly sent; None when one is begun."""
        ...


class SentService(Protocol):
    """What streams need of the subscription service, for feeds that are open already."""

    @property
    def logs(self) -> Mapping[str, LogView]:
        """Return the logs by source name."""
        ...

    def subscription(self, subscription_id: SubscriptionId) -> SentSubscription:
        """Return the handle of a subscription."""
        ...


class SenderTools(Protocol):
    """What all streams of a server share. Who may open which feed was decided before."""

    @property
    def service(self) -> SentService:
        """Return the service, for feeds that are open already."""
        ...

    @property
    def presenter(self) -> Presenter:
        """Return what encodes changes."""
        ...

    @property
    def metrics(self) -> Metrics:
        """Return what counts."""
        ...


class SendLimits(Struct, frozen=True):
    """Bounds of a stream."""

    changes_max: int
    """Most events in one write."""

    bytes_max: int
    """Most bytes in one write while there are few streams; one event may be larger."""

    wait_s: float = 60.0
    """Longest wait for changes before the stream looks whether it has ended."""


class Sending:
    """One feed on its way to a client. For one task: `wait`, `take`, and `sent` after writing; until `ending` is set.

    It holds no bytes between two calls, so a stream whose connection is slow costs nothing but itself.
    """

    def __init__(self, tools: SenderTools, feed: Feed, view: View, limits: SendLimits, *, auto_ack: bool) -> None:
        self.feed = feed
        self.ending: TailraceError | None = None
        """Why the feed has ended, once it has."""

        self.last = Offset(0)
        """Offset of the last event that was written."""

        if feed.is_plain and view.wire.by_columns(view):
            feed.window_changes_max = WIDE_CHANGES_MAX
        self._tools = tools
        self._view = view
        self._limits = limits
        self._auto_ack = auto_ack
        metrics, wire = tools.metrics, view.wire.name
        self.feeds_open = metrics.feeds_open.labels(wire)
        self._changes, self._bytes = metrics.delivered_changes.labels(wire), metrics.delivered_bytes.labels(wire)
        self._acknowledged = feed.after
        self._due = False
        self._taken = (0, 0, Offset(0))

    async def wait(self) -> None:
        """Return when there may be something to send."""
        if self.feed.paused or self.feed.caught_up:
            await self._wait_for_changes(self._limits.wait_s)

    @property
    def has_more(self) -> bool:
        """Tell whether there may be more to send already, so that `wait` returns at once."""
        return not self.feed.caught_up

    async def take(self) -> bytes:
        """Return what is to be written next; nothing when there is nothing. Sets `ending` with the last bytes."""
        try:
            return self._framed(await self._collect())
        except TailraceError as error:
            return self._end(error)

    async def sent(self) -> None:
        """Count what was written, and acknowledge it where that is automatic.

        There is one policy: events that were written are acknowledged at once; a filter that finds no match has its
        cursor moved when it has gone far, so that a narrow one neither writes metadata all the time nor falls behind
        the log's retention.
        """
        count, size_bytes, last = self._taken
        if count:
            self._changes.inc(count)
            self._bytes.inc(size_bytes)
            self.last = last
            self._taken = (0, 0, last)
        through = self.feed.after
        if not self._auto_ack or not (self._due or through - self._acknowledged >= SCANNED_FAR):
            return
        self._due = False
        # Noted before the call and kept when it fails: a metadata database that is away is asked again with the next
        # write, not in a loop.
        self._acknowledged = through
        try:
            await self._tools.service.subscription(self.feed.subscription.id).acknowledge(through)
        except (UnknownSubscriptionError, MetadataError) as error:
            # Delivery is at least once: what is not acknowledged is sent again, and nothing is lost.
            logger.warning("automatic acknowledgement failed", extra={"reason": type(error).__name__})

    def frame(self, piece: Piece) -> bytes:
        """Return a piece that has events as the connection carries it."""
        return piece.data

    def farewell(self, _error: TailraceError) -> bytes:
        """Return the last bytes of a stream whose feed has ended."""
        return b""

    async def _wait_for_changes(self, timeout_s: float) -> None:
        try:
            await self.feed.ready(timeout_s)
        except TailraceError as error:
            # The feed raises the same again in `take`, which ends the stream.
            logger.debug("feed ends", extra={"reason": type(error).__name__})

    async def _collect(self) -> Piece:
        presenter, limits = self._tools.presenter, self._limits
        # Asked for each piece: how many streams share the memory changes all the time.
        bytes_max = presenter.turns.piece_bytes(limits.bytes_max)
        # What is enough for one write is not joined with more of the next chunk: that would copy it.
        within = CollectLimits(limits.changes_max, bytes_max, min(bytes_max // 8, _WRITE_BYTES_ENOUGH), ahead=True)
        return await collect(self.feed, presenter, self._view, within, 0.0)

    def _framed(self, piece: Piece) -> bytes:
        if not piece.count:
            return b""
        data = self.frame(piece)
        self._due = True
        self._taken = (piece.count, len(data), piece.last)
        return data

    def _end(self, error: TailraceError) -> bytes:
        self.ending = error
        if isinstance(error, BehindHorizonError):
            self._tools.metrics.resnapshots.labels(self._view.wire.name).inc()
        return self.farewell(error)


class Sender:
    """Sends feeds over one connection, each in a task of its own.

    They take turns, one bounded piece each, in the order in which they asked; and a piece is only made when its turn
    has come. So streams share a connection fairly, and a client that does not read costs one piece, however many
    streams it has.
    """

    def __init__(self, tools: SenderTools, write: Write) -> None:
        self._turns = tools.presenter.turns
        self._write = write
        self._turn = asyncio.Lock()

    async def send(self, sending: Sending) -> TailraceError:
        """Write what a feed has until it ends; return why it did."""
        with sending.feeds_open.track_inprogress(), self._turns.joined():
            while True:
                await sending.wait()
                # The piece is made inside the lock: made outside, each of many streams on a slow connection would hold
                # a finished piece while it waits.
                async with self._turn:
                    data = await sending.take()
                    if data:
                        await self._write(data)
                # No `sent` after the farewell: there is nothing to acknowledge, and the subscription may not exist any
                # more.
                if sending.ending is not None:
                    return sending.ending
                await sending.sent()
                # A write that did not wait must not keep others from their turn. A feed that has nothing more waits in
                # the next round anyway, which saves a turn of the loop for each single change.
                if sending.has_more:
                    await asyncio.sleep(0)

    async def say(self, data: bytes) -> None:
        """Write something between the pieces of feeds."""
        async with self._turn:
            await self._write(data)
