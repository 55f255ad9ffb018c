"""The gates of the HTTP server: `SiteGate` checks host and origin first, `HttpGate` authenticates the caller."""

import math
from http import HTTPStatus

from starlette.datastructures import Headers
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Receive, Scope, Send

from tailrace.access.credential import token_of
from tailrace.access.gate import Gate, OpenGate
from tailrace.access.principal import Principal
from tailrace.delivery.http.answer import json_answer
from tailrace.delivery.http.envelope import encode_error
from tailrace.delivery.problem import Problem, problem_of
from tailrace.delivery.site import Site, only_one
from tailrace.metrics import Metrics
from tailrace.model.errors import (
    HostRefusedError,
    InvalidRequestError,
    MetadataError,
    OriginRefusedError,
    RateLimitError,
    TailraceError,
    UnauthenticatedError,
)

__all__ = ["HttpGate", "SiteGate", "principal_of"]

_OPEN_PATHS = frozenset({"/health", "/ready"})
"""Paths that need no credentials: probes have none."""

_PRINCIPAL = "tailrace.principal"
_MISSING = "Missing/invalid bearer token"
_MS_PER_S = 1000


class SiteGate:
    """Refuses requests that call the server by a foreign name, or come from a foreign page."""

    def __init__(self, app: ASGIApp, site: Site, metrics: Metrics) -> None:
        self._app = app
        self._site = site
        self._refused = {kind: metrics.site_refusals.labels(kind) for kind in ("host", "origin")}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on what comes, or refuse it."""
        app = self._app
        if scope["type"] in ("http", "websocket"):
            try:
                self._check(scope)
            except HostRefusedError as error:
                self._refused["host"].inc()
                app = _closing_answer(HTTPStatus.FORBIDDEN, error)
            except OriginRefusedError as error:
                self._refused["origin"].inc()
                app = _closing_answer(HTTPStatus.FORBIDDEN, error)
            except InvalidRequestError as error:
                app = _closing_answer(HTTPStatus.BAD_REQUEST, error)
        await app(scope, receive, send)

    def _check(self, scope: Scope) -> None:
        headers = Headers(scope=scope)
        authority = only_one(headers.getlist("host"), "Host")
        if authority is None and scope["http_version"] == "1.1":
            raise InvalidRequestError("the request has no header Host")
        self._site.check_host(authority, scope["server"][0] if scope.get("server") else None)
        origin = only_one(headers.getlist("origin"), "Origin")
        scheme = scope["scheme"].replace("ws", "http")
        self._site.check_origin(origin, authority, scheme, headers.get("sec-fetch-site"))


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


def _closing_answer(status: HTTPStatus, error: TailraceError) -> ASGIApp:
    """Return the answer to a request that is refused. The connection is closed after it."""
    return json_answer(status, encode_error(None, problem_of(error)), {"Connection": "close"})
