"""`/api/v1/bulk/{source}`: the log in bulk, for readers that divide it among themselves.

What there is, where it can be cut, and the changes of an interval as an Arrow IPC stream. Written as plain ASGI where
it streams: each batch goes straight to the connection, and a client that does not read holds back nobody else.
"""

import asyncio
import logging
from contextlib import ExitStack, aclosing
from http import HTTPStatus
from typing import Any

import msgspec
import pyarrow as pa
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from tailrace.delivery.http.answer import json_answer
from tailrace.delivery.http.envelope import encode_error
from tailrace.delivery.http.gate import principal_of
from tailrace.delivery.http.hand_over import HandOver, Interval
from tailrace.delivery.http.options import HttpOptions
from tailrace.delivery.http.place import OPS, start_of
from tailrace.delivery.problem import problem_of
from tailrace.interface.bulk.message import (
    BulkResult,
    BulkSubscribeParams,
    BulkSubscribeResult,
    CutsResult,
    stream_schema,
    tables_of,
)
from tailrace.interface.bulk.stream import CONTENT_TYPE, END, BulkEncoder, Compression
from tailrace.metrics import Metrics
from tailrace.model.errors import (
    BehindHorizonError,
    InvalidRequestError,
    LogClosedError,
    MetadataError,
    SourceUnavailableError,
    TailraceError,
)
from tailrace.model.number import Offset, SchemaId
from tailrace.model.op import Op
from tailrace.model.start import After, CursorStart
from tailrace.model.subscription import FilterOptions, Format, Include, SourceTarget, SubscribeRequest, sub_id_of
from tailrace.model.table import TableSchema
from tailrace.model.wanted import Conditions
from tailrace.subscription.access import Scopes
from tailrace.subscription.access_bulk import BulkSight, bulk_sight
from tailrace.subscription.bulk import BULK_SCHEMA, bulk_runs, check_window, find_cuts, find_start
from tailrace.subscription.log_view import LogView

__all__ = ["answer_interval", "log_routes", "number_of", "refusal", "sight_of"]

logger = logging.getLogger(__name__)

_WIRE = "bulk"
_CUTS_MAX = 10_000
"""Most cuts in one answer."""

_CHANGES = 250_000
"""Changes between two cuts where the request does not say."""

_NOTHING = pa.RecordBatch.from_pylist([], BULK_SCHEMA)

_QUIET_CHANGES_MAX = 200_000
"""Most changes that are looked through before an empty batch tells the client that something happens."""

_WAIT_MS = 1000
_WAIT_MS_MAX = 10_000
"""How long a request waits for changes where it does not say, and at most."""

_NUMBER_MAX = 2**63 - 1
_PATH = "/api/v1/bulk/{source}"

_STATUS = {
    "invalid_request": HTTPStatus.BAD_REQUEST,
    "not_found": HTTPStatus.NOT_FOUND,
    "forbidden": HTTPStatus.FORBIDDEN,
    "rate_limited": HTTPStatus.TOO_MANY_REQUESTS,
    "conflict": HTTPStatus.CONFLICT,
}


def log_routes(
    scopes: Scopes, metrics: Metrics, options: HttpOptions, hand_over: HandOver | None = None
) -> list[Route]:
    """Return the routes of the bulk interface."""
    answers = BulkEndpoint(scopes, options)
    return [
        Route(_PATH, answers.describe, methods=["GET"]),
        Route(f"{_PATH}/cuts", answers.cuts, methods=["GET"]),
        Route(f"{_PATH}/subscriptions", answers.subscribe, methods=["POST"]),
        Route(f"{_PATH}/changes", BulkChangesEndpoint(scopes, metrics, hand_over), methods=["GET"]),
    ]


class BulkEndpoint:
    """Answers what is not a stream."""

    def __init__(self, scopes: Scopes, options: HttpOptions) -> None:
        self._scopes = scopes
        self._options = options

    async def describe(self, request: Request) -> Response:
        """Tell what there is to read, if wanted as soon as there is more, and which offset a place is."""
        try:
            sight = sight_of(self._scopes, request)
            if "beyond" in request.query_params:
                wait_ms = number_of(request, "wait_ms", _WAIT_MS)
                await sight.log.wait(Offset(number_of(request, "beyond")), min(wait_ms, _WAIT_MS_MAX) / 1000)
            log, place = sight.log, request.query_params.get("from")
            after = msgspec.UNSET if place is None else await find_start(_start(place), log)
            wanted = sight.schemas(request.query_params.getlist("tables"))  # at last: what the head has, they have
        except TailraceError as error:
            return refusal(error)
        tables = tables_of(_chosen(log, wanted))
        return _json(BulkResult(sight.source, log.head, log.horizon, log.last_index, tables, after))

    async def cuts(self, request: Request) -> Response:
        """Tell where what follows an offset can be cut so that no commit is divided."""
        try:
            log = sight_of(self._scopes, request).log
            cuts = await find_cuts(
                log,
                Offset(number_of(request, "after")),
                Offset(number_of(request, "through", log.head)),
                changes_max=number_of(request, "changes", _CHANGES, least=1),
                bytes_max=number_of(request, "bytes", least=1) if "bytes" in request.query_params else None,
                count_max=min(_CUTS_MAX, number_of(request, "count", _CUTS_MAX, least=1)),
            )
        except TailraceError as error:
            return refusal(error)
        return _json(CutsResult(log.head, log.horizon, cuts))

    async def subscribe(self, request: Request) -> Response:
        """Make a durable subscription, whose cursor shows how far its reader is."""
        try:
            sight = sight_of(self._scopes, request)
            params = await self._params(request)
            sight.require(params.tables)
            target = SourceTarget(sight.source, tuple(params.tables))
            start = start_of(params.from_, "from")
            subscription = await self._scopes.of(principal_of(request.scope)).subscribe(
                SubscribeRequest(
                    target,
                    filter=FilterOptions(tuple(OPS.values())),
                    include=Include(before=True, after=True),
                    format=Format.OBJECTS_JSON,
                    start=After(await find_start(start, sight.log)),
                )
            )
        except TailraceError as error:
            return refusal(error)
        return _json(BulkSubscribeResult(sub_id_of(subscription.id), subscription.cursor), HTTPStatus.CREATED)

    async def _params(self, request: Request) -> BulkSubscribeParams:
        body = bytearray()
        try:
            async with asyncio.timeout(self._options.body_timeout_s):
                async for part in request.stream():
                    body += part
                    if len(body) > self._options.body_bytes_max:
                        raise InvalidRequestError(f"the body exceeds {self._options.body_bytes_max} bytes")
        except TimeoutError:
            raise InvalidRequestError("the body did not arrive in time") from None
        try:
            return msgspec.json.decode(bytes(body) or b"{}", type=BulkSubscribeParams)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise InvalidRequestError(f"the body: {error}") from error


class BulkChangesEndpoint:
    """Streams the changes of an interval. A stream that breaks off was not whole: its client asks for the rest."""

    def __init__(self, scopes: Scopes, metrics: Metrics, hand_over: HandOver | None = None) -> None:
        self._scopes = scopes
        self._metrics = metrics
        self._hand_over = hand_over

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request. It ends with the credentials that it came with."""
        credentials: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        with ExitStack() as stack:
            await self._serve(scope, receive, send, credentials, stack)

    async def _serve(
        self, scope: Scope, receive: Receive, send: Send, credentials: asyncio.Future[None], stack: ExitStack
    ) -> None:
        request = Request(scope)
        try:
            stack.enter_context(self._scopes.of(principal_of(scope)).hold(lambda _: _end(credentials)))
            sight = sight_of(self._scopes, request)
            log, tables = sight.log, request.query_params.getlist("tables")
            schemas = sight.schemas(tables)
            after, wait_ms = Offset(number_of(request, "after")), number_of(request, "wait_ms", 0)
            if wait_ms and after == log.head and "through" not in request.query_params:
                await log.wait(after, min(wait_ms, _WAIT_MS_MAX) / 1000)
                schemas = sight.schemas(tables)  # what came may be of a new version
            through = Offset(number_of(request, "through", log.head))
            check_window(log, after, through)
            conditions = _conditions(request)
            interval = Interval(sight.source, after, through, schemas, _compression(request), conditions)
        except TailraceError as error:
            await refusal(error)(scope, receive, send)
            return
        away = self._hand_over
        if away is None or request.method != "GET" or not await away.interval(scope, interval, credentials):
            await answer_interval(self._metrics, log, interval, credentials, scope, receive, send)


async def answer_interval(
    metrics: Metrics,
    log: LogView,
    interval: Interval,
    credentials: asyncio.Future[None],
    scope: Scope,
    receive: Receive,
    send: Send,
) -> None:
    """Send the changes of an interval that the log has, until they are sent, the client leaves or `credentials` end."""
    headers = [(b"content-type", CONTENT_TYPE.encode()), (b"tailrace-through", b"%d" % interval.through)]
    await send({"type": "http.response.start", "status": HTTPStatus.OK, "headers": headers})
    if scope["method"] == "HEAD":
        await send({"type": "http.response.body", "body": b""})
        return
    async with asyncio.TaskGroup() as group:
        serving = group.create_task(_stream(metrics, log, interval, send))
        watching = group.create_task(_cancel_when_gone(receive, serving))
        serving.add_done_callback(lambda _: watching.cancel())
        credentials.add_done_callback(lambda _: serving.cancel())


async def _stream(metrics: Metrics, log: LogView, interval: Interval, send: Send) -> None:
    changes = metrics.delivered_changes.labels(_WIRE)
    size = metrics.delivered_bytes.labels(_WIRE)
    after, schemas = interval.after, interval.schemas
    encoder = BulkEncoder(stream_schema(_chosen(log, schemas)), Compression(interval.compression))
    await send({"type": "http.response.body", "body": encoder.head, "more_body": True})
    sent_through = after
    try:
        running = bulk_runs(log, after, interval.through, schemas, encoder.encode_run, interval.conditions)
        async with aclosing(running) as runs:
            async for place, run in runs:
                if not run and place - sent_through < _QUIET_CHANGES_MAX:
                    continue
                for count, message in run or [(0, encoder.encode(_NOTHING))]:
                    changes.inc(count)
                    size.inc(len(message))
                    await send({"type": "http.response.body", "body": message, "more_body": True})
                sent_through = place
    except TailraceError as error:
        # The status is sent. Without an end the client sees that something is missing, and asks again.
        logger.warning("bulk stream broken off", extra={"problem": str(error)})
        return
    await send({"type": "http.response.body", "body": END})


def _end(credentials: asyncio.Future[None]) -> None:
    credentials.cancel()


async def _cancel_when_gone(receive: Receive, serving: asyncio.Task[None]) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    serving.cancel()


def sight_of(scopes: Scopes, request: Request) -> BulkSight:
    """Return what the caller may read of the source that a request names.

    Raises:
        UnknownSourceError: There is no such source.
        PermissionDeniedError: The caller sees nothing of it.
    """
    principal = principal_of(request.scope)
    return bulk_sight(scopes, principal, scopes.of(principal).database(request.path_params["source"]))


def _chosen(log: LogView, wanted: frozenset[SchemaId] | None) -> dict[SchemaId, TableSchema]:
    return {number: schema for number, schema in log.schemas().items() if wanted is None or number in wanted}


def _start(place: str) -> CursorStart:
    return After(Offset(_parsed("from", place))) if place.isascii() and place.isdigit() else start_of(place, "from")


def number_of(request: Request, name: str, default: int | None = None, least: int = 0) -> int:
    """Return a number that a request names.

    Raises:
        InvalidRequestError: It is none, too small, or missing without a default.
    """
    text = request.query_params.get(name)
    if text is None:
        if default is None:
            raise InvalidRequestError(f"`{name}` is missing")
        return default
    return _parsed(name, text, least)


def _conditions(request: Request) -> Conditions | None:
    """Return what changes have to meet; None where the request says nothing of that.

    Raises:
        InvalidRequestError: It says it in another way than described, or bounds a key without its name.
    """
    params = request.query_params
    ops = {op.word: op for op in Op}
    given: dict[str, Any] = {}
    if "ops" in params:
        words = params.getlist("ops")
        if unknown := [word for word in words if word not in ops]:
            raise InvalidRequestError(f"`ops` are of {', '.join(ops)}, not {unknown[0][:64]!r}")
        given["ops"] = frozenset(ops[word] for word in words)
    given |= {
        name: _parsed(name, params[name], -_NUMBER_MAX - 1)
        for name in ("key_min", "key_max", "time_us_min", "time_us_max")
        if name in params
    }
    if "key" in params:
        given["key"] = params["key"]
    elif "key_min" in given or "key_max" in given:
        raise InvalidRequestError("`key_min` and `key_max` bound the column that `key` names, and it is missing")
    return Conditions(**given) if given else None


def _parsed(name: str, text: str, least: int = 0) -> int:
    digits = text.removeprefix("-") if least < 0 else text
    fits = digits.isascii() and digits.isdigit() and len(digits) <= len(str(_NUMBER_MAX))
    if fits and least <= int(text) <= _NUMBER_MAX:
        return int(text)
    raise InvalidRequestError(f"`{name}` is a number from {least}, not {text[:64]!r}")


def _compression(request: Request) -> Compression:
    text = request.query_params.get("compression", str(Compression.NONE))
    try:
        return Compression(text)
    except ValueError:
        raise InvalidRequestError(f"`compression` is one of {', '.join(Compression)}") from None


def _json(result: msgspec.Struct, status: HTTPStatus = HTTPStatus.OK) -> Response:
    return json_answer(status, msgspec.json.encode(result))


def refusal(error: TailraceError) -> Response:
    """Return the answer that tells of an error."""
    problem = problem_of(error)
    match error:
        case BehindHorizonError():
            status = HTTPStatus.GONE
        case LogClosedError() | SourceUnavailableError() | MetadataError():
            status = HTTPStatus.SERVICE_UNAVAILABLE
        case _:
            status = _STATUS.get(problem.code, HTTPStatus.INTERNAL_SERVER_ERROR)
    return json_answer(status, encode_error(None, problem))
