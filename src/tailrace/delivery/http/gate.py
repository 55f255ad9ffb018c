"""Who calls over HTTP: every request and every WebSocket passes this gate, probes aside."""

import math
from http import HTTPStatus

from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Receive, Scope, Send

from tailrace.access.credential import token_of
from tailrace.access.gate import Gate, OpenGate
from tailrace.access.principal import Principal
from tailrace.delivery.http.answer import json_answer
from tailrace.delivery.http.envelope import encode_error
from tailrace.delivery.problem import Problem, problem_of
from tailrace.model.errors import MetadataError, RateLimitError, UnauthenticatedError

__all__ = ["HttpGate", "principal_of"]

_OPEN_PATHS = frozenset({"/health", "/ready"})
"""Paths that need no credentials: probes have none."""

_PRINCIPAL = "tailrace.principal"
_MISSING = "Missing/invalid bearer token"
_MS_PER_S = 1000


class HttpGate:
    """Lets in who has credentials, and notes who that is in the scope of the request."""

    def __init__(self, app: ASGIApp, gate: Gate) -> None:
        self._app = app
        self._gate = gate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on what comes, or refuse it."""
        app = self._app
        if scope["type"] == "websocket" or (scope["type"] == "http" and scope["path"] not in _OPEN_PATHS):
            try:
                token = None if isinstance(self._gate, OpenGate) else _token(HTTPConnection(scope))
                scope[_PRINCIPAL] = await self._gate.admit(token)
            except (UnauthenticatedError, RateLimitError, MetadataError) as error:
                app = _refusal(error)
        await app(scope, receive, send)


def principal_of(scope: Scope) -> Principal:
    """Return who a request that has passed the gate is from."""
    principal = scope[_PRINCIPAL]
    assert isinstance(principal, Principal)
    return principal


def _token(request: HTTPConnection) -> str | None:
    headers = request.headers
    return token_of(headers.get("authorization"), headers.get("x-api-key"), request.query_params.get("access_token"))


def _refusal(error: UnauthenticatedError | RateLimitError | MetadataError) -> ASGIApp:
    """Return the answer to who may not enter. The connection is closed behind it."""
    problem, headers = problem_of(error), {"Connection": "close"}
    match error:
        case UnauthenticatedError():
            status = HTTPStatus.UNAUTHORIZED
            problem = Problem(problem.code, problem.message if error.expired else _MISSING)
            headers["WWW-Authenticate"] = "Bearer"
        case RateLimitError():
            status = HTTPStatus.TOO_MANY_REQUESTS
            headers["Retry-After"] = str(math.ceil(error.retry_after_ms / _MS_PER_S))
        case MetadataError():
            status = HTTPStatus.SERVICE_UNAVAILABLE
    return json_answer(status, encode_error(None, problem), headers)
