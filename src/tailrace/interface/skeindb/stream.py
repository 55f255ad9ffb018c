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
from collections.abc import Mapping

import msgspec
from msgspec import Struct, structs

from tailrace.delivery.encoded import Piece
from tailrace.delivery.http.streaming import Ending, SessionTools, ending_of
from tailrace.delivery.problem import problem_of
from tailrace.delivery.sender import SCANNED_FAR, Sender, Sending, SendLimits, Write
from tailrace.delivery.view import view_of
from tailrace.interface.skeindb.enveloped import enveloped_rows
from tailrace.interface.skeindb.framing import Framing
from tailrace.interface.skeindb.message import (
    BackpressureEvent,
    EndEvent,
    ErrorEvent,
    HeartbeatEvent,
    ResnapshotEvent,
    SnapshotEvent,
)
from tailrace.interface.skeindb.present import FORMS
from tailrace.interface.skeindb.resume import RESNAPSHOT_REASON
from tailrace.interface.skeindb.stream_options import USUAL, StreamOptions
from tailrace.model.errors import (
    TailraceError,
)
from tailrace.model.number import Offset
from tailrace.model.subscription import Format, Include, Subscription, sub_id_of
from tailrace.subscription.columns import project
from tailrace.subscription.feed import Feed
from tailrace.subscription.log_view import LogView
from tailrace.subscription.pressure import PressureState
from tailrace.subscription.snapshot import ReadRows, Snapshot
from tailrace.subscription.status import SubscriptionStatus

__all__ = ["Session", "Stream", "end_record"]

READ = "read"
"""Op of an event that is a row of a snapshot."""


def read_events(rows: ReadRows, format_: Format, include: Include, columns: tuple[str, ...]) -> list[bytes]:
    """Return one JSON object for each row, members as in the event of a change."""
    key_form, image_form = FORMS[format_]
    table = rows.schema.table
    front = b'{"seq":%d,"db":%s,"table":%s,"op":"%s","pk":' % (
        rows.offset,
        msgspec.json.encode(table.source),
        msgspec.json.encode(table.wire),
        READ.encode(),
    )
    back = b',"commit_ts_ms":%d,"lsn":%d}' % (rows.time_us // 1000, rows.offset)
    events = []
    for key, image in zip(rows.keys, rows.images, strict=True):
        after = b""
        if include.after:
            after = b',"after":' + image_form(project(image, columns) if columns else image, rows.schema)
        events.append(b"".join([front, key_form(key, rows.schema), after, back]))
    return events


logger = logging.getLogger(__name__)

_ROWS_WAIT_S = 1.0
"""How often a stream that waits for the rows of its snapshot looks whether it has ended."""


class Stream(Sending):
    """The records of one feed: its events, and control records between them."""

    def __init__(self, tools: SessionTools, feed: Feed, framing: Framing, options: StreamOptions = USUAL) -> None:
        self._options = tools.options
        limits = SendLimits(tools.options.stream_changes_max, tools.options.stream_bytes_max)
        view = view_of(framing.wire, feed.subscription, options.envelope)
        super().__init__(tools, feed, view, limits, auto_ack=feed.subscription.auto_ack)
        self._framing = framing
        self._heartbeat = options.heartbeat
        self._state = PressureState.HEALTHY
        self._standing: SubscriptionStatus | None = None
        """Where the subscription stood when that was looked at last."""

        self._sent_through = feed.after
        self._fresh = True
        self._loop = asyncio.get_running_loop()
        self._silent_due_s = 0.0
        self._break_silence()

    async def wait(self) -> None:
        """Return when there may be something to send; at first at once, for the state may have to be sent."""
        if self.feed.snapshot is not None and not self.feed.paused:
            await self._wait_for_rows(self.feed.snapshot)
        elif self._fresh:
            self._fresh = False
        elif self.feed.paused or self.feed.caught_up:
            silent_s = max(0.0, self._silent_due_s - self._loop.time())
            await self._wait_for_changes(min(silent_s, self._options.stream_state_s))

    @property
    def has_more(self) -> bool:
        """Tell whether there may be more to send already: rows of a snapshot, or changes."""
        return self.feed.snapshot is not None or super().has_more

    async def take(self) -> bytes:
        """Return the next records, none when there are none. Sets `ending` with the last ones."""
        records = b""
        try:
            if self.feed.snapshot is not None:
                return await self._take_rows(self.feed.snapshot)
            records = self._transition()
            piece = await self._collect()
        except TailraceError as error:
            return records + self._end(error)
        records += self._framed(piece)
        if piece.count:
            self._sent_through = self.feed.after
        records = records or self._sign_of_life()
        if records:
            self._break_silence()
        return records

    def frame(self, piece: Piece) -> bytes:
        """Return events as records of the connection."""
        return self._framing.changes(self.feed.subscription.id, piece)

    def farewell(self, error: TailraceError) -> bytes:
        """Return the last record of a stream, where it has one."""
        match ending_of(error):
            case Ending.RESNAPSHOT:
                return self._resnapshot()
            case Ending.CLOSED | Ending.STOPPED:
                return b""
            case Ending.FAILED:
                logger.error("feed failed", extra={"subscription": self.feed.subscription.id}, exc_info=error)
        problem = problem_of(error)
        return self._control("error", ErrorEvent(self._sub_id, problem.code, problem.message), self.feed.after)

    async def _wait_for_rows(self, snapshot: Snapshot) -> None:
        """Return when rows may be had; the rows of a large table take a while to be copied."""
        try:
            await snapshot.ready(min(self._options.stream_keepalive_s, _ROWS_WAIT_S))
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
            await tools.service.subscription(feed.subscription.id).snapshot_sent(None)
        rows = await snapshot.next()
        if rows is None:
            return await self._end_rows(snapshot)
        wanted = feed.subscription
        if self._view.envelope:
            events = list(enveloped_rows(rows, structs.replace(self._view, columns=wanted.filter.columns)))
        else:
            events = read_events(rows, wanted.format, wanted.include, wanted.filter.columns)
        records = b"".join([self._framing.answer(wanted.id, READ, event) for event in events])
        self._taken = (len(events), len(records), self.last)
        self._break_silence()
        return records

    async def _end_rows(self, snapshot: Snapshot) -> bytes:
        feed = self.feed
        feed.advance(snapshot.offset)
        await self._tools.service.subscription(feed.subscription.id).snapshot_sent(snapshot.offset)
        snapshot.close()
        feed.snapshot = None
        self._sent_through, self._due = feed.after, True
        return self._control("snapshot", SnapshotEvent(self._sub_id, feed.after, snapshot.count), feed.after)

    def _silent(self) -> bytes:
        if self._loop.time() < self._silent_due_s:
            return b""
        self._break_silence()
        return self._framing.silence

    def _break_silence(self) -> None:
        self._silent_due_s = self._loop.time() + self._options.stream_keepalive_s

    def _sign_of_life(self) -> bytes:
        due = self._loop.time() >= self._silent_due_s
        if self._heartbeat and (due or self.feed.after - self._sent_through >= SCANNED_FAR):
            self._sent_through = self.feed.after
            return self._control("heartbeat", HeartbeatEvent(self._sub_id, self._sent_through), self._sent_through)
        if due:
            self._break_silence()  # also where silence is not broken by bytes
            return self._framing.silence
        return b""

    def _transition(self) -> bytes:
        """Return a record when the subscription has come into another state that is not healthy."""
        service = self._tools.service
        handle = service.subscription(self.feed.subscription.id)
        if self._standing is not None and _stands(self._standing, handle.record, service.logs):
            return b""
        status = self._standing = handle.status()
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


class Session(Sender):
    """Serves feeds over one connection, each in a task of its own; see `Sender`."""

    def __init__(self, tools: SessionTools, framing: Framing, write: Write, asked: StreamOptions = USUAL) -> None:
        super().__init__(tools, write)
        self._tools = tools
        self._framing = framing
        self._asked = asked

    async def serve(self, feed: Feed) -> Ending:
        """Write the records of a feed until it ends."""
        return ending_of(await self.send(Stream(self._tools, feed, self._framing, self._asked)))


def _stands(status: SubscriptionStatus, subscription: Subscription, logs: Mapping[str, LogView]) -> bool:
    """Return whether the state of pressure is known to be what it was."""
    if subscription is not status.subscription:  # one that changes is another object
        return False
    log = logs[subscription.source]
    steady = status.steady_head is None or log.head <= status.steady_head
    return steady and log.horizon <= max(status.horizon, subscription.cursor + 1)


def end_record(feed: Feed, framing: Framing, ending: Ending) -> bytes:
    """Return the record that tells the end of a stream, for a connection that carries others."""
    return _record(feed, framing, "end", EndEvent(sub_id_of(feed.subscription.id), str(ending)), feed.after)


def _record(feed: Feed, framing: Framing, event: str, data: Struct, offset: Offset) -> bytes:
    """Return a control record. Inside a snapshot it has no id: whoever comes again with one has had all rows."""
    subscription_id, encoded = feed.subscription.id, msgspec.json.encode(data)
    if feed.snapshot is not None:
        return framing.answer(subscription_id, event, encoded)
    return framing.control(subscription_id, event, encoded, offset)
