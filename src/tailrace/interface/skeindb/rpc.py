"""`POST /api/v1/rpc`: the envelope around the methods."""

import asyncio
import logging
from collections.abc import Mapping
from http import HTTPStatus

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from tailrace.clock import Clock
from tailrace.delivery.http.answer import json_answer, problem_answer
from tailrace.delivery.http.envelope import (
    NOT_SUPPORTED,
    UNSUPPORTED_VERSION,
    VERSION,
    EnvelopeError,
    RpcRequest,
    decode_params,
    decode_request,
    encode_error,
    encode_result,
)
from tailrace.delivery.http.gate import principal_of
from tailrace.delivery.http.options import HttpOptions
from tailrace.delivery.problem import Problem, problem_of
from tailrace.interface.skeindb.methods import Methods, RpcMethod
from tailrace.metrics import Metrics
from tailrace.model.errors import TailraceError
from tailrace.subscription.access import Scopes

__all__ = ["RpcEndpoint"]

logger = logging.getLogger(__name__)

_CONTENT_TYPE = "application/json"


class RpcEndpoint:
    """Answers RPC requests. A call that fails is answered too: nothing a client sends gives a 5xx."""

    def __init__(self, methods: Methods, scopes: Scopes, metrics: Metrics, clock: Clock, options: HttpOptions) -> None:
        self._methods = methods
        self._scopes = scopes
        self._metrics = metrics
        self._clock = clock
        self._options = options

    async def answer(self, request: Request) -> Response:
        """Answer one HTTP request."""
        content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if content_type != _CONTENT_TYPE:
            return problem_answer(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"send the header Content-Type: {_CONTENT_TYPE}")
        try:
            async with asyncio.timeout(self._options.body_timeout_s):
                body = await self._body(request)
        except TimeoutError:
            return problem_answer(HTTPStatus.REQUEST_TIMEOUT, "the body did not arrive in time: send it at once")
        except ClientDisconnect:
            return Response(status_code=HTTPStatus.BAD_REQUEST)
        if body is None:
            message = f"the body is larger than {self._options.body_bytes_max} bytes: send less"
            return problem_answer(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, message)
        try:
            call = decode_request(body)
        except EnvelopeError as error:
            return problem_answer(error.status, str(error))
        methods = self._methods.of(self._scopes.of(principal_of(request.scope)))
        answer = await self._answer(call, methods.table)
        if call.id is None:
            return Response(status_code=HTTPStatus.NO_CONTENT)
        return json_answer(HTTPStatus.OK, answer)

    async def _body(self, request: Request) -> bytes | None:
        """Return the body; None when it is too large."""
        parts: list[bytes] = []
        size_bytes = 0
        async for part in request.stream():
            size_bytes += len(part)
            if size_bytes > self._options.body_bytes_max:
                return None
            parts.append(part)
        return b"".join(parts)

    async def _answer(self, call: RpcRequest, methods: Mapping[str, RpcMethod]) -> bytes:
        begin_s = self._clock.monotonic_s()
        name = call.method if call.method in methods else "unknown"
        try:
            answer, code = await self._dispatch(call, methods), "ok"
        except _Refused as refused:
            answer, code = encode_error(call.id, refused.problem), refused.problem.code
        self._metrics.rpc_calls.labels(name, code).inc()
        self._metrics.rpc_latency.labels(name).observe(self._clock.monotonic_s() - begin_s)
        return answer

    async def _dispatch(self, call: RpcRequest, methods: Mapping[str, RpcMethod]) -> bytes:
        if call.skeinql != VERSION:
            message = f"skeinql version {call.skeinql!r} is not supported: use {VERSION!r}"
            raise _Refused(Problem(UNSUPPORTED_VERSION, message))
        method = methods.get(call.method)
        if method is None:
            message = f"method {call.method!r} is not supported: see system.capabilities"
            raise _Refused(Problem(NOT_SUPPORTED, message))
        try:
            return encode_result(call.id, await method.call(decode_params(call, method.params)))
        except TailraceError as error:
            raise _Refused(problem_of(error)) from error
        except Exception as error:
            logger.exception("rpc call failed by a bug", extra={"method": call.method})
            raise _Refused(Problem("internal", "internal error: see the server's log")) from error


class _Refused(Exception):  # noqa: N818 - not an error of ours but an answer
    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem
