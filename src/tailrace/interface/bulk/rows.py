"""`/api/v1/bulk/{source}/ranges` and `/rows`: the rows of a table by intervals of keys, for readers that share it out.

`ranges` cuts an interval into runs of rows; `rows` gives a page of one as an Arrow IPC stream, at one offset.
"""

import asyncio
from http import HTTPStatus

import msgspec
import pyarrow as pa
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tailrace.clock import Clock
from tailrace.delivery.http.answer import json_answer
from tailrace.interface.bulk.log import number_of, refusal, sight_of
from tailrace.interface.bulk.message import PageHead, RangesResult
from tailrace.interface.bulk.stream import CONTENT_TYPE
from tailrace.metrics import Metrics
from tailrace.model.errors import InvalidRequestError, TailraceError
from tailrace.model.key_interval import KeyInterval
from tailrace.model.table import TableName
from tailrace.subscription.access import Scopes
from tailrace.subscription.query.service import QueryShard
from tailrace.subscription.table_page import Page, read_page

__all__ = ["PAGE_KEY", "bulk_rows_routes"]

PAGE_KEY = b"tailrace.page"
"""Key of the metadata of a page's schema that holds its `PageHead`, as JSON."""

_PATH = "/api/v1/bulk/{source}"
_WIRE = "bulk"
_ROWS_MAX = 100_000
"""Most rows in one page."""

_CUTS_MAX = 10_000
_PARTS = 8


def bulk_rows_routes(scopes: Scopes, metrics: Metrics, clock: Clock) -> list[Route]:
    """Return the routes; none where the rows of no source can be read."""
    if scopes.service.queries is None:
        return []
    answers = BulkRowsEndpoint(scopes, metrics, clock)
    return [
        Route(f"{_PATH}/ranges", answers.ranges, methods=["GET"]),
        Route(f"{_PATH}/rows", answers.rows, methods=["GET"]),
    ]


class BulkRowsEndpoint:
    """Answers for the rows of tables."""

    def __init__(self, scopes: Scopes, metrics: Metrics, clock: Clock) -> None:
        self._scopes = scopes
        self._metrics = metrics
        self._clock = clock

    async def ranges(self, request: Request) -> Response:
        """Cut an interval of keys into runs of `rows` rows, or a whole table into `parts`."""
        try:
            shard, table = self._shard_and_table(request)
            within = _interval(request)
            total: int | None = None
            if "rows" in request.query_params:
                rows = number_of(request, "rows", least=1)
            else:
                total = await shard.source.count(table)
                rows = max(1, -(-total // number_of(request, "parts", _PARTS, least=1)))
            count = min(_CUTS_MAX, number_of(request, "count", _CUTS_MAX, least=1))
            cuts = await shard.source.cut(table, within, rows=rows, count=count)
            last = await shard.source.last_key(table)
        except TailraceError as error:
            return refusal(error)
        result = RangesResult(cuts, last, msgspec.UNSET if total is None else total)
        return json_answer(HTTPStatus.OK, msgspec.json.encode(result))

    async def rows(self, request: Request) -> Response:
        """Give the first rows of an interval of keys."""
        try:
            shard, table = self._shard_and_table(request)
            rows_max = min(_ROWS_MAX, number_of(request, "rows", _ROWS_MAX, least=1))
            page = await read_page(shard.source, shard.log, table, _interval(request), rows_max)
        except TailraceError as error:
            return refusal(error)
        typed = request.query_params.get("typed") == "true"
        count, body = await asyncio.to_thread(_encoded, page, self._clock.now_us(), typed=typed)
        self._metrics.delivered_changes.labels(_WIRE).inc(count)
        self._metrics.delivered_bytes.labels(_WIRE).inc(len(body))
        return Response(body, media_type=CONTENT_TYPE)

    def _shard_and_table(self, request: Request) -> tuple[QueryShard, TableName]:
        """Return the source and the table that a request names.

        Raises:
            UnknownSourceError: There is no such source.
            PermissionDeniedError: The caller does not see all of the table.
            UnknownTableError: It has no such table.
            InvalidRequestError: No table is named.
        """
        sight = sight_of(self._scopes, request)
        name = request.query_params.get("table")
        if name is None:
            raise InvalidRequestError("`table` is missing")
        service = self._scopes.service
        assert service.queries is not None
        sight.require([name])
        return service.queries.shard(sight.source), service.table(sight.source, name).table


def _interval(request: Request) -> KeyInterval:
    return KeyInterval(request.query_params.get("after"), request.query_params.get("through"))


def _encoded(page: Page, time_us: int, *, typed: bool) -> tuple[int, bytes]:
    """Return how many rows a page has, and the page as an Arrow IPC stream."""
    batch, is_typed = page.batch(typed=typed)
    head = PageHead(page.offset, page.index, time_us, page.rows.schema, page.rows.last, page.rows.end, is_typed)
    batch = batch.replace_schema_metadata({PAGE_KEY: msgspec.json.encode(head)})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return batch.num_rows, sink.getvalue().to_pybytes()
