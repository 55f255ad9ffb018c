"""The RPC methods for queries: decode the params, call the query service, give a result."""

from urllib.parse import quote

import msgspec

from tailrace.delivery.http.message import NoParams, SubscribeResult
from tailrace.delivery.http.option import filter_options_of, include_of, start_of
from tailrace.delivery.http.query_message import (
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
from tailrace.delivery.name import sub_id_of
from tailrace.model.errors import InvalidRequestError
from tailrace.model.subscription import FilterOptions, Format, QueryTarget
from tailrace.model.table import Column, TableName, TableSchema
from tailrace.model.value import from_literal
from tailrace.subscription.access import Scoped
from tailrace.subscription.access_query import ScopedQueries
from tailrace.subscription.filter import compile_filter
from tailrace.subscription.key_filter import KeyBounds

__all__ = ["QueryMethods"]


class QueryMethods:
    """The methods `query.*` and `cdc.subscribe_query`."""

    def __init__(self, service: Scoped, queries: ScopedQueries) -> None:
        self._service = service
        self._queries = queries

    async def prepare(self, params: PrepareParams) -> PrepareResult:
        """Answer `query.prepare`."""
        prepared = await self._queries.prepare(params.query, name=params.name, source=params.db)
        return PrepareResult(prepared.query_id, prepared.text)

    async def list(self, _params: NoParams) -> QueryListResult:
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
        options = filter_options_of(params)
        _check_keys(options)
        target = await self._queries.resolve(QueryTarget(params.query_id, literals_of(params.args), params.deliver))
        self._check_predicates(target, options)
        subscription = await self._service.subscribe_query(
            target,
            filter_options=options,
            include=include_of(params),
            format_=params.format or Format.OBJECTS_JSON,
            auto_ack=params.auto_ack,
            start=start_of(params.from_, "from"),
        )
        sub_id = sub_id_of(subscription.id)
        return SubscribeResult(
            sub_id=sub_id,
            offset=subscription.cursor,
            sse_url=f"/api/v1/cdc/sse/{sub_id}",
            ws_url=f"/api/v1/cdc/ws/{sub_id}",
        )

    def _check_predicates(self, target: QueryTarget, options: FilterOptions) -> None:
        """Refuse predicates that fit none of the query's tables; where one does not fit, no change of it passes."""
        if options.where is None and options.cel is None:
            return
        problem: InvalidRequestError | None = None
        wanted = FilterOptions(options.ops, where=options.where, cel=options.cel)
        for table in target.tables:
            schema = self._service.table(table.source, table.wire)
            try:
                compile_filter(frozenset(target.tables), wanted, schema, "sqlite")
            except InvalidRequestError as error:
                problem = problem or error
            else:
                return
        raise problem or InvalidRequestError("the query reads no table that a predicate could be about")


_KEY_WIDTH_MAX = 64
_ANY_TABLE = TableSchema(
    TableName("", "any"),
    1,
    tuple(Column(f"k{number}") for number in range(_KEY_WIDTH_MAX)),
    tuple(f"k{number}" for number in range(_KEY_WIDTH_MAX)),
)
"""Stands for the tables of a query, of which each has a key of its own."""


def _check_keys(options: FilterOptions) -> None:
    """Refuse keys and bounds that are wrong whatever the table."""
    for literal in options.key:
        from_literal(literal)
    if options.bounds is not None:
        KeyBounds(options.bounds, _ANY_TABLE)
