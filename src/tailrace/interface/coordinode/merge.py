"""Sending the commits of several shards to one client in the order of their timestamps.

A commit may be sent when no shard can bring an earlier one any more: one that has commits waiting here brings none
before the first of those, and one that has none tells up to which timestamp it is complete. So a shard in which nothing
happens holds nobody back.
"""

import asyncio
from collections import deque
from collections.abc import Sequence

from tailrace.delivery.grpc.call import GrpcCall
from tailrace.interface.coordinode.cursor import CommitCursor
from tailrace.interface.coordinode.event import progress_message
from tailrace.interface.coordinode.meter import Meter
from tailrace.interface.coordinode.options import ChangeStreamOptions
from tailrace.interface.coordinode.token import merged_token
from tailrace.model.number import Index

__all__ = ["send_merged"]

_ALL_SHARDS = 1 << 32
"""More than any shard's number: a place behind all commits of a timestamp."""


async def send_merged(
    call: GrpcCall, cursors: Sequence[CommitCursor], options: ChangeStreamOptions, meter: Meter
) -> None:
    """Send what the cursors read in one order, then what comes.

    Raises:
        CommitsLostError: The client is so slow that retention has overtaken it in a shard.
        LogClosedError: A log was closed.
    """
    loop = asyncio.get_running_loop()
    lanes = [_Lane(cursor) for cursor in cursors]
    sent_s = loop.time()
    sent_through = 0
    while True:
        for lane in lanes:
            await lane.fill()
        limit = min(lane.limit() for lane in lanes)
        data, last = _take(lanes, limit, options.write_bytes_max)
        if data:
            await call.write(data)
            meter.sent(data)
            sent_through, sent_s = last, loop.time()
            await asyncio.sleep(0)
            continue
        if any(lane.unread for lane in lanes):
            await asyncio.sleep(0)
            continue
        if (
            any(lane.owes_progress for lane in lanes)
            and limit > sent_through
            and loop.time() - sent_s > options.progress_s
        ):
            sent_through, sent_s = limit, loop.time()
            for lane in lanes:
                lane.tell()
            await call.write(progress_message(0, Index(0), merged_token(limit, _ALL_SHARDS)))
        await _grown(lanes, options)


class _Lane:
    """One shard on its way into the merged stream: its cursor, and the events that wait for those of others."""

    def __init__(self, cursor: CommitCursor) -> None:
        self.cursor = cursor
        self.events: deque[tuple[int, bytes]] = deque()
        self._complete = -1

    @property
    def owes_progress(self) -> bool:
        """Tell whether commits were left out."""
        return self.cursor.owes_progress

    @property
    def unread(self) -> bool:
        """Tell whether there are commits in the log behind those that were read, and none of these waits."""
        return not self.events and self.cursor.after < self.cursor.shard.log.head

    def limit(self) -> int:
        """Return the timestamp up to which this shard brings nothing that is not here."""
        if self.events:
            return self.events[-1][0]
        return self._complete

    def tell(self) -> None:
        """Take note that everything that was read counts as sent."""
        self.cursor.sent = self.cursor.read

    async def fill(self) -> None:
        """Read one window more where no events wait."""
        if self.events:
            return
        self._complete = -1
        complete = self.cursor.shard.log.hlc_complete  # what it is complete up to is shown already
        reading = await self.cursor.advance()
        if reading is None:
            self._complete = complete
        else:
            self.events.extend(reading.events())


def _take(lanes: Sequence[_Lane], limit: int, bytes_max: int) -> tuple[bytes, int]:
    """Take events in order, none behind the limit, and return them with the last one's timestamp."""
    pieces: list[bytes] = []
    size, last = 0, 0
    while size < bytes_max:
        ready = [lane for lane in lanes if lane.events and lane.events[0][0] <= limit]
        if not ready:
            break
        lane = min(ready, key=lambda lane: (lane.events[0][0], lane.cursor.shard.number))
        last, event = lane.events.popleft()
        pieces.append(event)
        size += len(event)
        if not lane.events:
            break  # it may bring more that comes before what the others have
    return b"".join(pieces), last


async def _grown(lanes: Sequence[_Lane], options: ChangeStreamOptions) -> None:
    """Wait until a shard grows; for a moment only, where events wait for a shard that is about to show one."""
    blocked = any(lane.events for lane in lanes)
    owes = any(lane.owes_progress for lane in lanes)
    wait_s = options.blocked_wait_s if blocked else options.progress_s if owes else options.wait_s_max
    waits = [
        asyncio.ensure_future(lane.cursor.shard.log.wait(lane.cursor.after, wait_s))
        for lane in lanes
        if not lane.events
    ]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
        results = await asyncio.gather(*waits, return_exceptions=True)
    for result in results:
        if isinstance(result, Exception):
            raise result
