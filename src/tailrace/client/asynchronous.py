"""The async client: the one implementation. `tailrace.client.blocking` runs it for those who do not await."""

from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self, Unpack

import httpx

from tailrace.client.calls import Calls
from tailrace.client.request import SubscribeOptions, format_of
from tailrace.client.result import Subscribed
from tailrace.client.subscription import AsyncSubscription, SubscriptionState
from tailrace.client.transport import ClientOptions, Transport
from tailrace.model.subscription import Format

__all__ = ["AsyncClient"]

_SSE_PATH = "/api/v1/cdc/sse/"


class AsyncClient(Calls):
    """A client of one server, e.g. `AsyncClient("http://127.0.0.1:8080")`. For tasks of one event loop.

    Use it with `async with`, or call `disconnect` in the end. `transport` is for TLS settings and proxies, see httpx.
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        options: ClientOptions | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        super().__init__(Transport(url, token, options or ClientOptions(), transport))
        self._temporary: set[AsyncSubscription] = set()

    @property
    def url(self) -> str:
        """Return the server's address."""
        return self._transport.url

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.disconnect()

    async def disconnect(self) -> None:
        """Close temporary subscriptions and all connections."""
        try:
            for handle in list(self._temporary):
                await handle.release()
        finally:
            await self._transport.aclose()

    async def subscribe(
        self, db: str | None = None, table: str | None = None, **options: Unpack[SubscribeOptions]
    ) -> AsyncSubscription:
        """Subscribe to a table for as long as the handle or the client lives; see `SubscribeOptions`.

        A server with one source needs no `db`: a single name is the table's, `subscribe("users")`.
        """
        subscribed = await self.create_for_table(db, table, options)
        return self._handle(subscribed, format_of(options), temporary=True)

    async def subscribe_table(
        self, db: str | None = None, table: str | None = None, **options: Unpack[SubscribeOptions]
    ) -> AsyncSubscription:
        """Make a durable subscription to a table: it stays until it is closed. Keep its `sub_id`."""
        subscribed = await self.create_for_table(db, table, options)
        return self._handle(subscribed, format_of(options), temporary=False)

    async def subscribe_query(
        self, query_id: str, args: Sequence[Any] = (), **options: Unpack[SubscribeOptions]
    ) -> AsyncSubscription:
        """Make a durable subscription to a prepared query: its events say that the result may have changed."""
        subscribed = await self.create_for_query(query_id, args, options)
        return self._handle(subscribed, format_of(options), temporary=False)

    def subscription(
        self,
        sub_id: str,
        format: Format | None = None,  # noqa: A002 (the interface's word)
    ) -> AsyncSubscription:
        """Return a handle of a subscription that exists, without asking the server.

        `format` is the one that it has; without it, it is detected from the events.
        """
        return self._handle(Subscribed(sub_id, 0, _SSE_PATH + sub_id), format, temporary=False)

    def _handle(self, subscribed: Subscribed, format_: Format | None, *, temporary: bool) -> AsyncSubscription:
        state = SubscriptionState(subscribed.sub_id, subscribed.offset, format_, subscribed.sse_url, temporary)
        handle = AsyncSubscription(self._transport, self, state, self._temporary.discard)
        if temporary:
            self._temporary.add(handle)
        return handle
