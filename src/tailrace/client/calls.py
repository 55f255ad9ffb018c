"""The calls that a server answers, typed."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

from msgspec import Raw, Struct

from tailrace.client.event import Backpressure, decode_event
from tailrace.client.request import SubscribeOptions, literals, start_param, subscribe_params, table_params
from tailrace.client.result import (
    Acknowledged,
    Capabilities,
    Closed,
    PauseState,
    Ping,
    Poll,
    Prepared,
    QueryResult,
    Subscribed,
    SubscriptionInfo,
    Version,
)
from tailrace.client.transport import Transport
from tailrace.model.subscription import Format

__all__ = ["POLL_LIMIT", "Calls"]

_T = TypeVar("_T")

POLL_LIMIT = 200
"""Most events of a poll that asks for no other number."""


class Calls:
    """The calls, each a coroutine. All raise `ConnectionFailed`, `Refused` and its kinds, and `BadAnswer`."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def call(self, method: str, params: Mapping[str, Any] | None = None) -> Any:
        """Call any method by its name; return its result as JSON decodes."""
        return await self._transport.call(method, params or {}, object)

    async def ping(self) -> Ping:
        """Ask whether the server lives."""
        return await self._transport.call("system.ping", {}, Ping)

    async def version(self) -> Version:
        """Ask what the server is."""
        return await self._transport.call("system.version", {}, Version)

    async def capabilities(self) -> Capabilities:
        """Ask what the server can do."""
        return await self._transport.call("system.capabilities", {}, Capabilities)

    async def create_for_table(self, db: str | None, table: str | None, options: SubscribeOptions) -> Subscribed:
        """Make a subscription for a table; a single name is the table's."""
        params = subscribe_params(table_params(db, table), options)
        return await self._transport.call("cdc.subscribe_table", params, Subscribed)

    async def create_for_query(self, query_id: str, args: Sequence[Any], options: SubscribeOptions) -> Subscribed:
        """Make a subscription for a prepared query."""
        params = subscribe_params({"query_id": query_id, "args": literals(args)}, options)
        return await self._transport.call("cdc.subscribe_query", params, Subscribed)

    async def poll(
        self,
        sub_id: str,
        from_offset: int = 0,
        *,
        limit: int = POLL_LIMIT,
        wait_ms: int = 0,
        format: Format | None = None,  # noqa: A002 (the interface's word)
    ) -> Poll[Awaitable[Acknowledged]]:
        """Ask for the changes after an offset, or after the acknowledged one, whichever is later.

        With `wait_ms` the server waits that long for a change. `format` is that of the subscription; without it, it is
        said by the events.
        """
        return await self.poll_for(sub_id, from_offset, limit, wait_ms, format, lambda offset: self.ack(sub_id, offset))

    async def poll_for(
        self,
        sub_id: str,
        from_offset: int,
        limit: int,
        wait_ms: int,
        format_: Format | None,
        acknowledge: Callable[[int], _T],
    ) -> Poll[_T]:
        """Poll, and give `acknowledge` to each event."""
        params = {"sub_id": sub_id, "from_offset": from_offset, "limit": limit}
        if wait_ms:
            params["wait_ms"] = wait_ms
        answer = await self._transport.call("cdc.poll", params, _PollAnswer, wait_s=wait_ms / 1000)
        return Poll(
            events=tuple([decode_event(bytes(raw), format_, acknowledge) for raw in answer.events]),
            next_offset=answer.next_offset,
            earliest_offset=answer.earliest_offset,
            latest_offset=answer.latest_offset,
            backpressure=answer.backpressure,
            resnapshot_required=answer.resnapshot_required,
            resnapshot_from_offset=answer.resnapshot_from_offset,
            resnapshot_reason=answer.resnapshot_reason,
        )

    async def ack(self, sub_id: str, offset: int) -> Acknowledged:
        """Acknowledge all changes up to an offset. An older acknowledgement changes nothing."""
        return await self._transport.call("cdc.ack", {"sub_id": sub_id, "offset": offset}, Acknowledged)

    async def pause(self, sub_id: str) -> PauseState:
        """Pause delivery. Retention is not paused."""
        return await self._transport.call("cdc.pause", {"sub_id": sub_id}, PauseState)

    async def resume(self, sub_id: str) -> PauseState:
        """Resume delivery."""
        return await self._transport.call("cdc.resume", {"sub_id": sub_id}, PauseState)

    async def close(self, sub_id: str) -> Closed:
        """Remove a subscription. Its feeds end."""
        return await self._transport.call("cdc.close", {"sub_id": sub_id}, Closed)

    async def reset(self, sub_id: str, to: str | int | datetime = "latest") -> Acknowledged:
        """Move the cursor of a subscription: `latest`, `earliest`, behind an offset, or at a time."""
        return await self._transport.call("cdc.reset", {"sub_id": sub_id, "to": start_param(to)}, Acknowledged)

    async def list(self) -> tuple[SubscriptionInfo, ...]:
        """Ask for all subscriptions."""
        return (await self._transport.call("cdc.list", {}, _Listing)).subscriptions

    async def prepare(
        self, query: str | Mapping[str, Any], *, name: str | None = None, db: str | None = None
    ) -> Prepared:
        """Prepare a query: SQL text, or the tree of the HTTP interface. One source alone needs no `db`."""
        fields = {"query": query, "name": name, "db": db}
        params = {member: value for member, value in fields.items() if value is not None}
        return await self._transport.call("query.prepare", params, Prepared)

    async def execute(
        self, query_id: str, args: Sequence[Any] = (), *, if_none_match: str | None = None
    ) -> QueryResult:
        """Run a prepared query; with an ETag, only if its result is another one by now."""
        params: dict[str, Any] = {"query_id": query_id, "args": literals(args)}
        if if_none_match is not None:
            params["if_none_match"] = if_none_match
        return await self._transport.call("query.execute_prepared", params, QueryResult)


class _PollAnswer(Struct, frozen=True, kw_only=True):
    events: tuple[Raw, ...]
    next_offset: int
    earliest_offset: int
    latest_offset: int
    backpressure: Backpressure
    resnapshot_required: bool = False
    resnapshot_from_offset: int | None = None
    resnapshot_reason: str | None = None


class _Listing(Struct, frozen=True):
    subscriptions: tuple[SubscriptionInfo, ...]
