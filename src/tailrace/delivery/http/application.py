"""An HTTP application: some routes, behind what every request passes through."""

from collections.abc import Sequence
from http import HTTPStatus

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, WebSocketRoute
from starlette.types import ASGIApp

from tailrace.access.gate import Gate
from tailrace.delivery.http.answer import problem_answer
from tailrace.delivery.http.gate import HttpGate, SiteGate
from tailrace.delivery.site import Site
from tailrace.metrics import Metrics

__all__ = ["guarded", "with_cors"]


def guarded(routes: Sequence[Route | WebSocketRoute], site: Site, metrics: Metrics, gate: Gate) -> ASGIApp:
    """Return the application of some routes, behind what every request passes through."""
    app = Starlette(
        routes=routes,
        middleware=[
            Middleware(SiteGate, site=site, metrics=metrics),
            Middleware(with_cors, origins=sorted(site.origins)),
            Middleware(HttpGate, gate=gate),
        ],
        exception_handlers={HTTPException: _refuse},
    )
    app.router.redirect_slashes = False  # a path that is not there is a 404
    return app


def with_cors(app: ASGIApp, origins: Sequence[str]) -> ASGIApp:
    """Return an application whose answers pages of these origins may read."""
    return CORSMiddleware(
        app,
        allow_origins=origins,
        allow_methods=["GET", "POST"],
        allow_headers=["*"],
        expose_headers=["ETag"],
        allow_private_network=True,  # those who may call at all, may from a page of the internet too
    )


async def _refuse(_request: Request, error: Exception) -> Response:
    """Answer a path or a verb that is not there."""
    assert isinstance(error, HTTPException)
    return problem_answer(HTTPStatus(error.status_code), str(error.detail).lower(), error.headers)
