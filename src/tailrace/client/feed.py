"""A feed: the events of one session over one subscription, each once, over as many connections as it takes."""

from collections import deque
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

import msgspec
from msgspec import Struct

from tailrace.client.errors import BadAnswer, ClientError, ConnectionFailed, FeedFailed, NotFound, ResnapshotRequired
from tailrace.client.event import Control, Event, decode_control, decode_event
from tailrace.client.result import Acknowledged
from tailrace.client.sse import SseEvent
from tailrace.client.stream import EventStream
from tailrace.model.subscription import Format

__all__ = ["OPS", "FeedCore", "FeedOptions"]

_T = TypeVar("_T")

OPS = frozenset({"insert", "update", "delete", "truncate", "read", "invalidate", "schema"})
"""Names of the events that tell of a change. All others are control events."""

_READ = "read"


class FeedOptions(Struct, Generic[_T], frozen=True):
    """What a feed must know of its subscription."""

    format: Format | None
    auto_ack: bool
    acknowledge: Callable[[int], _T]
    """Given to each event."""

    send_ack: Callable[[int], Awaitable[Acknowledged]]
    """What `auto_ack` calls."""

    closed: Callable[[], bool]
    """Tells whether the subscription was closed by its own handle."""


class _Lost(Struct, frozen=True):
    """Data of a resnapshot event."""

    sub_id: str
    earliest_offset: int
    latest_offset: int
    resnapshot_from_offset: int
    reason: str


class _Failure(Struct, frozen=True):
    """Data of an error event."""

    code: str
    message: str


_Item = Event[_T] | Control | ClientError
"""What waits in a feed. An error ends the feed when its turn comes."""


class FeedCore(Generic[_T]):
    """The one implementation behind the feeds of both clients.

    `take` and `fill` alternate, never at the same time: `take` gives what is there without waiting, `fill` gets more.
    An event counts as done when the next one is taken. With `auto_ack` what is done is acknowledged before `fill`
    waits, so a busy feed acknowledges a batch at a time.
    """

    def __init__(self, stream: EventStream, options: FeedOptions[_T]) -> None:
        self._stream = stream
        self._options = options
        self._waiting: deque[tuple[int | None, _Item[_T]]] = deque()
        self._delivered = 0
        self._taken: int | None = None
        self._done = 0
        self._acked = 0
        self._ended = False

    def take(self) -> Event[_T] | Control | None:
        """Return the next event; None when `fill` must get more.

        Raises:
            ResnapshotRequired: The next changes were removed by retention. The feed has ended.
            FeedFailed: The server ended the feed and said why. The feed has ended.
            BadAnswer: An event is malformed. The feed has ended.
        """
        if self._taken is not None:
            self._done, self._taken = max(self._done, self._taken), None
        if not self._waiting:
            return None
        place, item = self._waiting.popleft()
        if isinstance(item, ClientError):
            self._ended = True
            raise item
        self._taken = place
        return item

    async def fill(self) -> bool:
        """Wait for more events; False when there will be none: the subscription or the feed was closed here.

        Raises:
            ClientError: As `EventStream.next` does.
        """
        if self._options.auto_ack:
            await self._acknowledge()
        while not self._waiting:
            if self._ended or self._options.closed():
                return False
            try:
                events = await self._stream.next()
            except NotFound:
                if self._options.closed():
                    return False
                raise
            self._waiting.extend((_place(event), item) for event in events if (item := self._decode(event)) is not None)
        return True

    async def aclose(self) -> None:
        """End the feed. What was taken but for the last event is acknowledged, if that is the feed's task."""
        self._ended = True
        self._waiting.clear()
        await self._stream.aclose()
        if self._options.auto_ack and not self._options.closed():
            await self._acknowledge()

    def _decode(self, event: SseEvent) -> _Item[_T] | None:
        """Return what an event of the stream means; None for a change that was delivered before."""
        try:
            match event.name:
                case name if name in OPS:
                    return self._fresh(decode_event(event.data, self._options.format, self._options.acknowledge))
                case "resnapshot":
                    lost = msgspec.json.decode(event.data, type=_Lost)
                    return ResnapshotRequired(**msgspec.structs.asdict(lost))
                case "error":
                    failure = msgspec.json.decode(event.data, type=_Failure)
                    return FeedFailed(failure.code, failure.message)
                case name:
                    return decode_control(name, event.data)
        except BadAnswer as error:
            return error
        except ValueError as error:
            return BadAnswer(f"a {event.name} event is malformed: {error}")

    def _fresh(self, change: Event[_T]) -> Event[_T] | None:
        """Return a change if it is new. Rows of a snapshot all have the offset of the snapshot."""
        if change.op == _READ:
            return change
        if change.offset <= self._delivered:
            return None
        self._delivered = change.offset
        return change

    async def _acknowledge(self) -> None:
        """Tell the server what is done. When it is away or the subscription is gone, the stream will tell."""
        if self._done <= self._acked:
            return
        try:
            self._acked = (await self._options.send_ack(self._done)).acked_offset
        except (ConnectionFailed, NotFound):
            return


def _place(event: SseEvent) -> int | None:
    """Return the offset up to which everything was delivered with this event."""
    return int(event.id) if event.id.isascii() and event.id.isdigit() else None
