"""A stream: what one feed puts on a connection, whatever the connection is. Changes, and control records between them.

| record | when |
|---|---|
| `backpressure` | the subscription came into a state other than healthy; once for each such change |
| `heartbeat` | after some silence, or when a narrow filter has gone far without a match; only where asked for |
| `read` | a row of the snapshot, where the feed begins with one; no other record but `snapshot` comes between |
| `snapshot` | the rows have all been sent; changes after its offset follow |
| `resnapshot` | the feed's place was removed by retention; the stream ends |
| `error` | the subscription cannot go on; the stream ends |
"""

import asyncio
import logging
from enum import StrEnum

import msgspec
from msgspec import Struct, structs

from tailrace.delivery.collect import CollectLimits, collect
from tailrace.delivery.enveloped import enveloped_rows
from tailrace.delivery.http.framing import Framing
from tailrace.delivery.http.message import BackpressureEvent, ErrorEvent, ResnapshotEvent
from tailrace.delivery.http.options import HttpOptions
from tailrace.delivery.http.stream_options import USUAL, StreamOptions
from tailrace.delivery.present import view_of
from tailrace.delivery.presenter import Presenter
from tailrace.delivery.problem import problem_of
from tailrace.delivery.read_event import READ, read_events
from tailrace.delivery.resume import RESNAPSHOT_REASON
from tailrace.metrics import Metrics
from tailrace.model.errors import (
    AccessError,
    BehindHorizonError,
    LogClosedError,
    MetadataError,
    TailraceError,
    UnauthenticatedError,
    UnknownSubscriptionError,
)
from tailrace.model.number import Offset
from tailrace.model.subscription_name import sub_id_of
from tailrace.subscription.access import Scopes
from tailrace.subscription.feed import Feed
from tailrace.subscription.pressure import PressureState
from tailrace.subscription.service import SubscriptionService
from tailrace.subscription.snapshot import Snapshot

__all__ = ["Ending", "HeartbeatEvent", "Stream", "StreamTools", "end_record"]

logger = logging.getLogger(__name__)

_SCANNED_FAR = 1 << 16
"""So many changes without a match are worth a heartbeat, and an acknowledgement where that is automatic."""


_WRITE_BYTES_ENOUGH = 32 << 10
"""A write of so many bytes costs little more than the sending of its bytes."""

_ROWS_WAIT_S = 1.0
"""How often a stream that waits for the rows of its snapshot looks whether it has ended."""


class Ending(StrEnum):
    """Why a stream ended."""

    RESNAPSHOT = "resnapshot"
    """Its place was lost: its last record was a `resnapshot`."""

    CLOSED = "closed"
    """The subscription was closed."""

    STOPPED = "stopped"
    """The server stops."""

    FAILED = "error"
    """The subscription cannot go on: its last record was an `error`."""

    UNAUTHORIZED = "unauthorized"
    """The client's credentials are no longer good: its last record was an `error`."""

    FORBIDDEN = "forbidden"
    """What the client may see of a table cannot be told: its last record was an `error`."""


class EndEvent(Struct, frozen=True):
    """Data of the record that ends one of the streams of a connection; the others go on."""

    sub_id: str
    reason: str


class HeartbeatEvent(Struct, frozen=True):
    """Data of a heartbeat: how far the feed has looked, matches or not."""

    sub_id: str
    scanned: Offset


class SnapshotEvent(Struct, frozen=True):
    """Data of the record that ends a snapshot: how many rows it had, and the offset after which changes follow."""

    sub_id: str
    offset: Offset
    rows: int


class StreamTools(Struct, frozen=True):
    """What all streams of a server share. Who may open which feed is decided by `scopes`; see there."""

    scopes: Scopes
    presenter: Presenter
    metrics: Metrics
    options: HttpOptions

    @property
    def service(self) -> SubscriptionService:
        """Return the service, for feeds that are open already."""
        return self.scopes.service


class Stream:
    """The records of one feed. For one task: `wait`, then `take`, then after sending `sent`; until `ending` is set.

    It holds no bytes between two calls, so a stream whose connection is slow costs nothing but itself.
    """

    def __init__(self, tools: StreamTools, feed: Feed, framing: Framing, asked: StreamOptions = USUAL) -> None:
        self.ending: Ending | None = None
        self.feed = feed
        self._tools = tools
        self._framing = framing
        self._heartbeat = asked.heartbeat
        self._view = view_of(framing.wire, feed.subscription, asked.envelope)
        wire, metrics = framing.wire.value, tools.metrics
        self._changes, self._bytes = metrics.delivered_changes.labels(wire), metrics.delivered_bytes.labels(wire)
        self._state = PressureState.HEALTHY
        self._subscription = feed.subscription
        self._standing = (0, Offset(0), Offset(0))
        self._told = self._acknowledged = feed.after
        self._taken = 0
        self._fresh = True
        self._loop = asyncio.get_running_loop()
        self._silent_due_s = 0.0
        self._break_silence()

    async def wait(self) -> None:
        """Return when there may be something to send; at first at once, for the state may have to be told."""
        if self.feed.snapshot is not None and not self.feed.paused:
            await self._wait_for_rows(self.feed.snapshot)
        elif self._fresh:
            self._fresh = False
        elif self.feed.paused or self.feed.caught_up:
            try:
                silent_s = max(0.0, self._silent_due_s - self._loop.time())
                await self.feed.next(min(silent_s, self._tools.options.stream_state_s))
            except TailraceError as error:
                # The feed will say the same again to `take`, which has the words for it.
                logger.debug("feed ends", extra={"reason": type(error).__name__})

    async def take(self) -> bytes:
        """Return the next records, none when there are none. Sets `ending` with the last ones."""
        tools, feed = self._tools, self.feed
        records = b""
        try:
            if feed.snapshot is not None:
                return await self._take_rows(feed.snapshot)
            records = self._transition()
            bytes_max = tools.presenter.turns.piece_bytes(tools.options.stream_bytes_max)
            limits = CollectLimits(
                tools.options.stream_changes_max, bytes_max, min(bytes_max // 8, _WRITE_BYTES_ENOUGH)
            )
            piece = await collect(feed, tools.presenter, self._view, limits, 0.0)
        except TailraceError as error:
            return records + self._farewell(error)
        self._taken += piece.count
        records += self._framing.changes(feed.subscription.id, piece)
        if piece.count:
            self._told = feed.after
            self._changes.inc(piece.count)
            self._bytes.inc(len(records))
        records = records or self._sign_of_life()
        if records:
            self._break_silence()
        return records

    async def sent(self) -> None:
        """Acknowledge what was sent, where the subscription wants that."""
        through = self.feed.after
        if not self.feed.subscription.auto_ack or not (self._taken or through - self._acknowledged >= _SCANNED_FAR):
            return
        self._taken = 0
        self._acknowledged = through
        try:
            await self._tools.service.acknowledge(self.feed.subscription.id, through)
        except (UnknownSubscriptionError, MetadataError) as error:
            # Delivery is at least once: what is not acknowledged is sent again, and nothing is lost.
            logger.warning("automatic acknowledgement failed", extra={"reason": type(error).__name__})

    async def _wait_for_rows(self, snapshot: Snapshot) -> None:
        """Return when rows may be had; the rows of a large table take a while to be copied."""
        try:
            await snapshot.ready(min(self._tools.options.stream_keepalive_s, _ROWS_WAIT_S))
        except TailraceError as error:
            logger.debug("snapshot fails", extra={"reason": type(error).__name__})

    async def _take_rows(self, snapshot: Snapshot) -> bytes:
        """Return the next rows of the snapshot, and after the last one the record that says so."""
        feed, tools = self.feed, self._tools
        feed.check()
        if feed.paused:
            await feed.next(0.0)  # which tells whether the place was lost meanwhile
            return self._silent()
        if not await snapshot.ready(0.0):
            return self._silent()
        if not snapshot.count:
            await tools.service.snapshot_sent(feed.subscription.id, None)
        rows = await snapshot.next()
        if rows is None:
            return await self._end_rows(snapshot)
        wanted = feed.subscription
        if self._view.envelope:
            events = list(enveloped_rows(rows, structs.replace(self._view, columns=wanted.filter.columns)))
        else:
            events = read_events(rows, wanted.format, wanted.include, wanted.filter.columns)
        records = b"".join([self._framing.answer(wanted.id, READ, event) for event in events])
        self._changes.inc(len(events))
        self._bytes.inc(len(records))
        self._break_silence()
        return records

    async def _end_rows(self, snapshot: Snapshot) -> bytes:
        feed = self.feed
        feed.advance(snapshot.offset)
        await self._tools.service.snapshot_sent(feed.subscription.id, snapshot.offset)
        snapshot.close()
        feed.snapshot = None
        self._told, self._taken = feed.after, 1  # so that it is acknowledged where that is automatic
        return self._control("snapshot", SnapshotEvent(self._sub_id, feed.after, snapshot.count), feed.after)

    def _silent(self) -> bytes:
        if self._loop.time() < self._silent_due_s:
            return b""
        self._break_silence()
        return self._framing.silence

    def _break_silence(self) -> None:
        self._silent_due_s = self._loop.time() + self._tools.options.stream_keepalive_s

    def _sign_of_life(self) -> bytes:
        due = self._loop.time() >= self._silent_due_s
        if self._heartbeat and (due or self.feed.after - self._told >= _SCANNED_FAR):
            self._told = self.feed.after
            return self._control("heartbeat", HeartbeatEvent(self._sub_id, self._told), self._told)
        if due:
            self._break_silence()  # also where silence is not broken by bytes
            return self._framing.silence
        return b""

    def _transition(self) -> bytes:
        """Return a record when the subscription has come into another state that is not healthy."""
        service = self._tools.service
        subscription = service.subscription(self.feed.subscription.id)
        log = service.logs[subscription.source]
        standing = (id(subscription), log.head, log.horizon)  # a subscription that changes is another object
        if standing == self._standing:
            return b""
        self._subscription, self._standing = subscription, standing  # held, so that its id stays its own
        status = service.status(subscription.id)
        state = status.pressure.state
        if state is self._state:
            return b""
        self._state = state
        if state is PressureState.HEALTHY:
            return b""
        event = BackpressureEvent(
            sub_id=self._sub_id,
            state=str(state),
            lag=status.pressure.lag,
            remaining_until_resnapshot=status.pressure.remaining,
            paused=status.subscription.paused,
            earliest_offset=status.horizon,
            latest_offset=status.head,
        )
        return self._control("backpressure", event, self.feed.after)

    def _farewell(self, error: TailraceError) -> bytes:
        """Return the last words of a stream."""
        match error:
            case BehindHorizonError():
                self.ending = Ending.RESNAPSHOT
                self._tools.metrics.resnapshots.labels(self._framing.wire.value).inc()
                return self._resnapshot()
            case UnknownSubscriptionError():
                self.ending = Ending.CLOSED
                return b""
            case LogClosedError():
                self.ending = Ending.STOPPED
                return b""
            case AccessError():
                self.ending = Ending.UNAUTHORIZED if isinstance(error, UnauthenticatedError) else Ending.FORBIDDEN
                return self._error(error)
            case _:
                self.ending = Ending.FAILED
                logger.error("feed failed", extra={"subscription": self.feed.subscription.id}, exc_info=error)
                return self._error(error)

    def _error(self, error: TailraceError) -> bytes:
        problem = problem_of(error)
        return self._control("error", ErrorEvent(self._sub_id, problem.code, problem.message), self.feed.after)

    def _resnapshot(self) -> bytes:
        log = self._tools.service.logs[self.feed.subscription.source]
        before_horizon = Offset(log.horizon - 1)
        event = ResnapshotEvent(
            sub_id=self._sub_id,
            earliest_offset=log.horizon,
            latest_offset=log.head,
            resnapshot_from_offset=before_horizon,
            reason=RESNAPSHOT_REASON,
        )
        self.feed.advance(before_horizon)
        return self._control("resnapshot", event, before_horizon)

    def _control(self, event: str, data: Struct, offset: Offset) -> bytes:
        return _record(self.feed, self._framing, event, data, offset)

    @property
    def _sub_id(self) -> str:
        return sub_id_of(self.feed.subscription.id)


def end_record(feed: Feed, framing: Framing, ending: Ending) -> bytes:
    """Return the record that tells the end of a stream, for a connection that carries others."""
    return _record(feed, framing, "end", EndEvent(sub_id_of(feed.subscription.id), str(ending)), feed.after)


def _record(feed: Feed, framing: Framing, event: str, data: Struct, offset: Offset) -> bytes:
    """Return a control record. Inside a snapshot it has no id: whoever comes again with one has had all rows."""
    subscription_id, encoded = feed.subscription.id, msgspec.json.encode(data)
    if feed.snapshot is not None:
        return framing.answer(subscription_id, event, encoded)
    return framing.control(subscription_id, event, encoded, offset)
