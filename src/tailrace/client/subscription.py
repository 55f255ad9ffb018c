"""A subscription, and its feed, as the async client holds them."""

import logging
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Self, TypeVar

from msgspec import Struct

from tailrace.client.calls import POLL_LIMIT, Calls
from tailrace.client.errors import ClientError, ConnectionFailed, NotFound
from tailrace.client.event import Control, Event
from tailrace.client.feed import FeedCore, FeedOptions
from tailrace.client.result import Acknowledged, Closed, PauseState, Poll
from tailrace.client.stream import EventStream
from tailrace.client.transport import Transport
from tailrace.model.subscription import Format

__all__ = ["AsyncEvent", "AsyncFeed", "AsyncSubscription", "OnControl", "SubscriptionState"]

logger = logging.getLogger(__name__)

_T = TypeVar("_T")

_HEARTBEAT = "?heartbeat=1"
"""Asks for reports of how far the feed has looked, so that a narrow filter neither looks like lag nor looks twice."""

AsyncEvent = Event[Awaitable[Acknowledged]]
"""An event whose `ack` must be awaited."""

OnControl = Callable[[Control], None]
"""Called with each control event when its turn comes."""


class SubscriptionState(Struct, frozen=True):
    """What a handle knows of its subscription. A `temporary` one is closed with its handle."""

    sub_id: str
    offset: int
    format: Format | None
    sse_url: str
    temporary: bool


class AsyncSubscription:
    """Handle of one subscription. Iterate over it for its events; several feeds may run at one time.

    A temporary one, from `AsyncClient.subscribe`, is closed when its feed ends, at the end of an `async with` block, or
    with the client, whichever comes first. A durable one stays until `close`.
    """

    def __init__(
        self,
        transport: Transport,
        calls: Calls,
        state: SubscriptionState,
        on_close: Callable[["AsyncSubscription"], None],
    ) -> None:
        self.state = state
        self.closed = False
        """Whether this handle closed the subscription."""

        self._transport = transport
        self._calls = calls
        self._on_close = on_close

    def __aiter__(self) -> "AsyncFeed":
        return self.events()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.release()

    @property
    def sub_id(self) -> str:
        """Return the name of the subscription."""
        return self.state.sub_id

    @property
    def offset(self) -> int:
        """Return the offset behind which a subscription made here begins; 0 for one that existed."""
        return self.state.offset

    @property
    def sse_url(self) -> str:
        """Return the path of the event stream."""
        return self.state.sse_url

    def events(
        self, *, after: int | None = None, auto_ack: bool = False, on_control: OnControl | None = None
    ) -> "AsyncFeed":
        """Return a feed of the changes behind `after` or the acknowledged one, whichever is later.

        With `auto_ack` an event is acknowledged once the next one is asked for. Control events go to `on_control`.
        """
        return AsyncFeed(self, self.core(self.ack, after=after, auto_ack=auto_ack), on_control or _ignore)

    def core(self, acknowledge: Callable[[int], _T], *, after: int | None, auto_ack: bool) -> FeedCore[_T]:
        """Return what runs a feed. Each event is given `acknowledge`."""
        path = self.sse_url + _HEARTBEAT
        stream = EventStream(self._transport, path, "" if after is None else str(after))
        return FeedCore(
            stream, FeedOptions(self.state.format, auto_ack, acknowledge, self.ack, closed=lambda: self.closed)
        )

    async def poll(
        self, from_offset: int = 0, *, limit: int = POLL_LIMIT, wait_ms: int = 0
    ) -> Poll[Awaitable[Acknowledged]]:
        """Ask once for changes, see `AsyncClient.poll`."""
        return await self._calls.poll(self.sub_id, from_offset, limit=limit, wait_ms=wait_ms, format=self.state.format)

    async def ack(self, offset: int) -> Acknowledged:
        """Acknowledge all changes up to an offset."""
        return await self._calls.ack(self.sub_id, offset)

    async def pause(self) -> PauseState:
        """Stop the delivery of changes."""
        return await self._calls.pause(self.sub_id)

    async def resume(self) -> PauseState:
        """Resume delivery."""
        return await self._calls.resume(self.sub_id)

    async def close(self) -> Closed:
        """Remove the subscription. Feeds of this handle end without an error."""
        self.closed = True
        self._on_close(self)
        return await self._calls.close(self.sub_id)

    async def release(self) -> None:
        """Close the subscription if it is temporary and still open."""
        if self.closed or not self.state.temporary:
            return
        try:
            await self.close()
        except (ConnectionFailed, NotFound) as error:
            logger.info("subscription not closed", extra={"sub_id": self.sub_id, "error": type(error).__name__})


class AsyncFeed:
    """An iterator over the events of one session. For one task at a time.

    It survives a cancelled `anext`: the next one continues after the last event. Call `aclose` or use `async with` to
    leave early.
    """

    def __init__(
        self, subscription: AsyncSubscription, core: FeedCore[Awaitable[Acknowledged]], on_control: OnControl
    ) -> None:
        self._subscription = subscription
        self._core = core
        self._on_control = on_control

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> AsyncEvent:
        try:
            while True:
                item = self._core.take()
                if isinstance(item, Event):
                    return item
                if item is not None:
                    self._on_control(item)
                elif not await self._core.fill():
                    break
        except ClientError:
            await self.aclose()
            raise
        await self.aclose()
        raise StopAsyncIteration

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """End the session, and the subscription if it is temporary."""
        await self._core.aclose()
        await self._subscription.release()


def _ignore(_control: Control) -> None:
    """Take no notice."""
