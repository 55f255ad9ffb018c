"""`GET /api/v1/q/{query_id}`, results of prepared queries with ETags, and `GET /api/v1/q/{query_id}/events`."""

import asyncio
from http import HTTPStatus

import msgspec
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import Receive, Scope, Send

from tailrace.delivery.http.answer import json_answer
from tailrace.delivery.http.envelope import encode_error
from tailrace.delivery.http.gate import principal_of
from tailrace.delivery.http.options import HttpOptions
from tailrace.delivery.problem import problem_of
from tailrace.interface.skeindb.query_message import ChangedEvent, arguments_of, literals_of, result_of
from tailrace.interface.skeindb.resume import start_of_stream
from tailrace.model.errors import (
    AccessError,
    BehindHorizonError,
    InvalidRequestError,
    LogClosedError,
    NotFoundError,
    SourceError,
    TailraceError,
    UnknownQueryError,
)
from tailrace.model.number import Offset
from tailrace.model.start import After
from tailrace.model.subscription import Format, QueryTarget
from tailrace.model.value import Json
from tailrace.subscription.access import Scopes
from tailrace.subscription.feed import Feed
from tailrace.subscription.feed_batch import FeedBatch

__all__ = ["QueryEndpoint", "QueryEventsEndpoint"]

_CACHE_HEADERS = {"Cache-Control": "private, max-age=0", "Vary": "Accept, Authorization"}
_STREAM_HEADERS = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]
_COMMENT = b":\n\n"

_STATUS = {
    "invalid_request": HTTPStatus.BAD_REQUEST,
    "not_found": HTTPStatus.NOT_FOUND,
    "conflict": HTTPStatus.CONFLICT,
    "timeout": HTTPStatus.GATEWAY_TIMEOUT,
    "forbidden": HTTPStatus.FORBIDDEN,
    "rate_limited": HTTPStatus.TOO_MANY_REQUESTS,
}


class QueryEndpoint:
    """Answers with the result of a query, or with 304 when the client has it."""

    def __init__(self, scopes: Scopes) -> None:
        self._scopes = scopes

    async def answer(self, request: Request) -> Response:
        """Answer one request."""
        query_id = request.path_params["query_id"]
        queries = self._scopes.of(principal_of(request.scope)).queries
        assert queries is not None
        try:
            arguments = arguments_of(_args(request))
            format_ = _format(request)
            executed = await queries.execute(query_id, arguments, request.headers.get("if-none-match"))
        except TailraceError as error:
            return _refusal(error)
        headers = {"ETag": executed.etag, **_CACHE_HEADERS}
        if executed.result is None:
            return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
        return json_answer(HTTPStatus.OK, msgspec.json.encode(result_of(executed, format_)), headers)


class QueryEventsEndpoint:
    """Streams an unnamed server-sent event whenever the result of a query may have changed, until the client leaves."""

    def __init__(self, scopes: Scopes, options: HttpOptions) -> None:
        self._scopes = scopes
        self._options = options

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        request = Request(scope)
        query_id = request.path_params["query_id"]
        service = self._scopes.of(principal_of(scope))
        assert service.queries is not None
        try:
            target = QueryTarget(query_id, literals_of(_args(request)))
            target = await service.queries.resolve(target)
            start = _start(request, service.logs[service.queries.get(target.query_id).source].head)
            with service.feed_of_query(target, start) as feed:
                await self._serve(request, feed, receive, send)
        except TailraceError as error:
            await _refusal(error)(scope, receive, send)

    async def _serve(self, request: Request, feed: Feed, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": HTTPStatus.OK, "headers": _STREAM_HEADERS})
        if request.method == "GET":
            async with asyncio.TaskGroup() as group:
                serving = group.create_task(self._stream(feed, send))
                watching = group.create_task(_cancel_when_gone(receive, serving))
                serving.add_done_callback(lambda _: watching.cancel())
        await send({"type": "http.response.body", "body": b""})

    async def _stream(self, feed: Feed, send: Send) -> None:
        target = feed.subscription.target
        assert isinstance(target, QueryTarget)
        await send({"type": "http.response.body", "body": _COMMENT, "more_body": True})
        while True:
            try:
                batch = await feed.next(self._options.stream_keepalive_s)
            except BehindHorizonError as error:
                # Whatever was removed may have touched the result: so it is said of all tables, and all is well again.
                feed.advance(Offset(error.horizon - 1))
                records = b"".join(_record(feed.after, target.query_id, f"{t.source}.{t.wire}") for t in target.tables)
            except AccessError as error:
                await send({"type": "http.response.body", "body": _last_record(error), "more_body": True})
                return
            except TailraceError:
                return  # the server stops, or the database is gone: the client comes again
            else:
                records = _COMMENT if batch is None else _records(batch, target.query_id)
                if batch is not None:
                    feed.advance(batch.chunk.last)
                    if records:
                        feed.delivered(batch)
            if records:
                await send({"type": "http.response.body", "body": records, "more_body": True})
            await asyncio.sleep(0)


def _start(request: Request, head: Offset) -> After:
    """Return where the stream begins: behind what the client has seen, else at the head."""
    seen = request.query_params.get("from_offset"), request.headers.get("last-event-id")
    return After(head) if seen == (None, None) else start_of_stream(*seen, Offset(0))


def _records(batch: FeedBatch, query_id: str) -> bytes:
    """Return one record for each table of a batch that has changes for the query, at the last of them."""
    chunk = batch.chunk
    schemas = chunk.batch.column("schema")
    newest: dict[str, Offset] = {}
    for row in batch.rows():
        offset = Offset(chunk.first + row)
        if offset > batch.after:
            newest[chunk.schemas[schemas[row].as_py()].table.wire] = offset
    ordered = sorted(newest.items(), key=lambda item: item[1])
    return b"".join(_record(offset, query_id, f"{batch.source}.{table}") for table, offset in ordered)


def _record(offset: Offset, query_id: str, table: str) -> bytes:
    return b"id: %d\ndata: %s\n\n" % (offset, msgspec.json.encode(ChangedEvent(query_id, table)))


def _last_record(error: AccessError) -> bytes:
    return b"event: error\ndata: %s\n\n" % msgspec.json.encode(problem_of(error))


async def _cancel_when_gone(receive: Receive, serving: asyncio.Task[None]) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    serving.cancel()


def _args(request: Request) -> list[Json]:
    text = request.query_params.get("args")
    if text is None:
        return []
    try:
        return msgspec.json.decode(text, type=list)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise InvalidRequestError(f"`args` is a JSON list: {error}") from error


def _format(request: Request) -> Format:
    text = request.query_params.get("result_format", str(Format.PLAIN_JSON))
    try:
        return Format(text)
    except ValueError:
        raise InvalidRequestError(f"`result_format` is one of {', '.join(Format)}") from None


def _refusal(error: TailraceError) -> Response:
    match error:
        case UnknownQueryError():
            return PlainTextResponse("unknown query_id", HTTPStatus.NOT_FOUND)
        case LogClosedError() | SourceError():
            status = HTTPStatus.SERVICE_UNAVAILABLE
        case NotFoundError():
            status = HTTPStatus.NOT_FOUND
        case _:
            status = _STATUS.get(problem_of(error).code, HTTPStatus.INTERNAL_SERVER_ERROR)
    return json_answer(status, encode_error(None, problem_of(error)))
