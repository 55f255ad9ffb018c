"""The names and pages that HTTP requests and WebSockets come by: checked before anything else looks at them."""

from http import HTTPStatus

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from tailrace.delivery.http.answer import json_answer
from tailrace.delivery.http.envelope import encode_error
from tailrace.delivery.problem import problem_of
from tailrace.delivery.site import Site, only_one
from tailrace.metrics import Metrics
from tailrace.model.errors import HostRefusedError, InvalidRequestError, OriginRefusedError, TailraceError

__all__ = ["SiteGate"]


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
                app = _refusal(HTTPStatus.FORBIDDEN, error)
            except OriginRefusedError as error:
                self._refused["origin"].inc()
                app = _refusal(HTTPStatus.FORBIDDEN, error)
            except InvalidRequestError as error:
                app = _refusal(HTTPStatus.BAD_REQUEST, error)
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


def _refusal(status: HTTPStatus, error: TailraceError) -> ASGIApp:
    """Return the answer. The connection is closed behind it."""
    return json_answer(status, encode_error(None, problem_of(error)), {"Connection": "close"})
