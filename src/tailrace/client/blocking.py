"""The blocking client: the async one, run in a thread of its own."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import Any, Self, Unpack

from tailrace.client.asynchronous import AsyncClient
from tailrace.client.calls import POLL_LIMIT
from tailrace.client.errors import ConnectionFailed
from tailrace.client.event import Event
from tailrace.client.request import SubscribeOptions
from tailrace.client.result import (
    Acknowledged,
    Capabilities,
    Closed,
    PauseState,
    Ping,
    Poll,
    Prepared,
    QueryResult,
    SubscriptionInfo,
    Version,
)
from tailrace.client.subscription import AsyncSubscription, OnControl
from tailrace.client.thread import LoopThread
from tailrace.client.transport import ClientOptions
from tailrace.model.subscription import Format

__all__ = ["BlockingEvent", "Client", "Subscription"]

BlockingEvent = Event[Acknowledged]
"""An event whose `ack` waits for the server's answer."""


class Client:
    """A client of one server, e.g. `Client("http://127.0.0.1:8080")`. Any thread may use it.

    Use it with `with`, or call `disconnect` in the end. Every method does what that of `AsyncClient` does.
    """

    def __init__(self, url: str, token: str | None = None, *, options: ClientOptions | None = None) -> None:
        self._thread = LoopThread()
        self._client = AsyncClient(url, token, options=options)

    @property
    def url(self) -> str:
        """Return the server's address."""
        return self._client.url

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.disconnect()

    def disconnect(self) -> None:
        """Close temporary subscriptions and all connections, and end the thread."""
        try:
            with suppress(ConnectionFailed):  # it was disconnected before
                self._thread.run(self._client.disconnect())
        finally:
            self._thread.close()

    def call(self, method: str, params: Mapping[str, Any] | None = None) -> Any:
        """Call any method by its name; return its result as JSON decodes."""
        return self._thread.run(self._client.call(method, params))

    def ping(self) -> Ping:
        """Ask whether the server lives."""
        return self._thread.run(self._client.ping())

    def version(self) -> Version:
        """Ask what the server is."""
        return self._thread.run(self._client.version())

    def capabilities(self) -> Capabilities:
        """Ask what the server can do."""
        return self._thread.run(self._client.capabilities())

    def subscribe(
        self, db: str | None = None, table: str | None = None, **options: Unpack[SubscribeOptions]
    ) -> "Subscription":
        """Subscribe to a table for as long as the handle or the client lives."""
        return self._handle(self._thread.run(self._client.subscribe(db, table, **options)))

    def subscribe_table(
        self, db: str | None = None, table: str | None = None, **options: Unpack[SubscribeOptions]
    ) -> "Subscription":
        """Make a durable subscription to a table."""
        return self._handle(self._thread.run(self._client.subscribe_table(db, table, **options)))

    def subscribe_query(
        self, query_id: str, args: Sequence[Any] = (), **options: Unpack[SubscribeOptions]
    ) -> "Subscription":
        """Make a durable subscription to a prepared query."""
        return self._handle(self._thread.run(self._client.subscribe_query(query_id, args, **options)))

    def subscription(
        self,
        sub_id: str,
        format: Format | None = None,  # noqa: A002 (the interface's word)
    ) -> "Subscription":
        """Return a handle of a subscription that exists, without asking the server."""
        return self._handle(self._client.subscription(sub_id, format))

    def poll(
        self,
        sub_id: str,
        from_offset: int = 0,
        *,
        limit: int = POLL_LIMIT,
        wait_ms: int = 0,
        format: Format | None = None,  # noqa: A002 (the interface's word)
    ) -> Poll[Acknowledged]:
        """Ask for the changes after an offset."""
        acknowledge = partial(self.ack, sub_id)
        return self._thread.run(self._client.poll_for(sub_id, from_offset, limit, wait_ms, format, acknowledge))

    def ack(self, sub_id: str, offset: int) -> Acknowledged:
        """Acknowledge all changes up to an offset."""
        return self._thread.run(self._client.ack(sub_id, offset))

    def pause(self, sub_id: str) -> PauseState:
        """Stop the delivery of changes."""
        return self._thread.run(self._client.pause(sub_id))

    def resume(self, sub_id: str) -> PauseState:
        """Resume delivery."""
        return self._thread.run(self._client.resume(sub_id))

    def close(self, sub_id: str) -> Closed:
        """Remove a subscription."""
        return self._thread.run(self._client.close(sub_id))

    def reset(self, sub_id: str, to: str | int | datetime = "latest") -> Acknowledged:
        """Move the cursor of a subscription forwards or backwards."""
        return self._thread.run(self._client.reset(sub_id, to))

    def list(self) -> tuple[SubscriptionInfo, ...]:
        """Ask for all subscriptions."""
        return self._thread.run(self._client.list())

    def prepare(self, query: str | Mapping[str, Any], *, name: str | None = None, db: str | None = None) -> Prepared:
        """Prepare a query."""
        return self._thread.run(self._client.prepare(query, name=name, db=db))

    def execute(self, query_id: str, args: Sequence[Any] = (), *, if_none_match: str | None = None) -> QueryResult:
        """Run a prepared query."""
        return self._thread.run(self._client.execute(query_id, args, if_none_match=if_none_match))

    def _handle(self, handle: AsyncSubscription) -> "Subscription":
        return Subscription(self, self._thread, handle)


class Subscription:
    """Handle of one subscription. Iterate over it for its events. See `AsyncSubscription`."""

    def __init__(self, client: Client, thread: LoopThread, handle: AsyncSubscription) -> None:
        self._client = client
        self._thread = thread
        self._handle = handle

    def __iter__(self) -> Iterator[BlockingEvent]:
        return self.events()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._thread.run(self._handle.release())

    @property
    def sub_id(self) -> str:
        """Return the name of the subscription."""
        return self._handle.sub_id

    @property
    def offset(self) -> int:
        """Return the offset behind which a subscription made here begins; 0 for one that existed."""
        return self._handle.offset

    @property
    def sse_url(self) -> str:
        """Return the path of the event stream."""
        return self._handle.sse_url

    def events(
        self, *, after: int | None = None, auto_ack: bool = False, on_control: OnControl | None = None
    ) -> Iterator[BlockingEvent]:
        """Yield the changes behind `after` or the acknowledged one, whichever is later. See `AsyncSubscription.events`.

        Leaving the loop ends the session, and the subscription if it is temporary.
        """
        core = self._handle.core(self.ack, after=after, auto_ack=auto_ack)
        try:
            while True:
                item = core.take()
                if isinstance(item, Event):
                    yield item
                elif item is not None:
                    if on_control is not None:
                        on_control(item)
                elif not self._thread.run(core.fill()):
                    return
        finally:
            with suppress(ConnectionFailed):  # the client was disconnected, and that closes all
                self._thread.run(core.aclose())
                self._thread.run(self._handle.release())

    def poll(self, from_offset: int = 0, *, limit: int = POLL_LIMIT, wait_ms: int = 0) -> Poll[Acknowledged]:
        """Ask once for changes."""
        return self._client.poll(
            self.sub_id, from_offset, limit=limit, wait_ms=wait_ms, format=self._handle.state.format
        )

    def ack(self, offset: int) -> Acknowledged:
        """Acknowledge all changes up to an offset."""
        return self._thread.run(self._handle.ack(offset))

    def pause(self) -> PauseState:
        """Stop the delivery of changes."""
        return self._thread.run(self._handle.pause())

    def resume(self) -> PauseState:
        """Resume delivery."""
        return self._thread.run(self._handle.resume())

    def close(self) -> Closed:
        """Remove the subscription. Feeds of this handle end without an error."""
        return self._thread.run(self._handle.close())
