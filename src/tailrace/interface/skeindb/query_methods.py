"""The RPC methods for queries: decode the params, call the query service, give a result."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, ClassVar
from urllib.parse import quote

import msgspec
from msgspec import Struct

from tailrace.delivery.http.place import start_of
from tailrace.interface.skeindb.message import NoParams, SubscribeResult
from tailrace.interface.skeindb.option import filter_options_of, include_of
from tailrace.interface.skeindb.query_message import (
    ExecuteParams,
    ExecuteResult,
    PrepareParams,
    PrepareResult,
    QueryEntry,
    QueryListResult,
    SubscribeQueryParams,
    WatchParams,
    WatchResult,
    arguments_of,
    literals_of,
    result_of,
)
from tailrace.model.subscription import Format, QueryTarget, SubscribeRequest, sub_id_of
from tailrace.subscription.access import Scoped
from tailrace.subscription.access_query import ScopedQueries

__all__ = ["Call", "QueryMethods"]

Call = Callable[[Any, Any], Awaitable[Struct]]
"""What answers a method: a function of an object and the params."""


class QueryMethods:
    """The methods `query.*` and `cdc.subscribe_query`."""

    def __init__(self, service: Scoped, queries: ScopedQueries) -> None:
        self._service = service
        self._queries = queries

    async def prepare(self, params: PrepareParams) -> PrepareResult:
        """Answer `query.prepare`."""
        prepared = await self._queries.prepare(params.query, name=params.name, source=params.db)
        return PrepareResult(prepared.query_id, prepared.text)

    async def entries(self, _params: NoParams) -> QueryListResult:
        """Answer `query.list`."""
        return QueryListResult(
            [
                QueryEntry(entry.query_id, entry.text, entry.name, entry.source, entry.created_time_us // 1000)
                for entry in await self._queries.queries()
            ]
        )

    async def execute(self, params: ExecuteParams) -> ExecuteResult:
        """Answer `query.execute_prepared`."""
        executed = await self._queries.execute(params.query_id, arguments_of(params.args), params.if_none_match)
        return result_of(executed, params.result_format)

    async def watch(self, params: WatchParams) -> WatchResult:
        """Answer `query.subscribe`."""
        await self._queries.tracker(params.query_id, arguments_of(params.args))
        url = f"/api/v1/q/{params.query_id}/events"
        if params.args:
            url += f"?args={quote(msgspec.json.encode(params.args), safe='')}"
        return WatchResult(params.query_id, url)

    async def subscribe(self, params: SubscribeQueryParams) -> SubscribeResult:
        """Answer `cdc.subscribe_query`."""
        subscription = await self._service.subscribe(
            SubscribeRequest(
                QueryTarget(params.query_id, literals_of(params.args), params.deliver, precise=params.precise),
                filter=filter_options_of(params),
                include=include_of(params),
                format=params.format or Format.OBJECTS_JSON,
                auto_ack=params.auto_ack,
                start=start_of(params.from_, "from"),
            )
        )
        sub_id = sub_id_of(subscription.id)
        return SubscribeResult(
            sub_id=sub_id,
            offset=subscription.cursor,
            sse_url=f"/api/v1/cdc/sse/{sub_id}",
            ws_url=f"/api/v1/cdc/ws/{sub_id}",
        )

    CALLS: ClassVar[Mapping[str, Call]] = {
        "cdc.subscribe_query": subscribe,
        "query.execute_prepared": execute,
        "query.list": entries,
        "query.prepare": prepare,
        "query.subscribe": watch,
    }
    """What answers each method. Its annotations say what the method takes and gives."""
