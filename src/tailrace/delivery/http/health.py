"""`GET /health`, `/ready` and `/metrics`: for those who run the server."""

from collections.abc import Awaitable, Callable, Sequence
from http import HTTPStatus

import msgspec
from msgspec import Struct
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tailrace import __version__
from tailrace.delivery.http.answer import json_answer
from tailrace.delivery.http.envelope import encode_error
from tailrace.delivery.http.gate import principal_of
from tailrace.delivery.problem import problem_of
from tailrace.metrics import Metrics
from tailrace.model.errors import PermissionDeniedError
from tailrace.subscription.access import Scopes

__all__ = ["HealthResult", "Look", "Readiness", "ReadyResult", "health_routes"]

Readiness = Callable[[], Sequence[str]]
"""Returns what the server still waits for, in words; nothing when it is ready."""

Look = Callable[[], Awaitable[None]]
"""Sets metrics that are not known all the time."""

_Endpoint = Callable[[Request], Awaitable[Response]]


class HealthResult(Struct, frozen=True):
    """Body of `/health`."""

    status: str
    version: str


class ReadyResult(Struct, frozen=True):
    """Body of `/ready`."""

    ready: bool
    waiting_for: Sequence[str]


def health_routes(
    readiness: Readiness, metrics: Metrics, scopes: Scopes, looks: Sequence[Look], *, with_reasons: bool
) -> Sequence[Route]:
    """Return the routes. What the server waits for is in them `with_reasons`: nobody is asked who they are there.

    `looks` are awaited before metrics are shown, for those that are not known all the time.
    """
    return [
        Route("/health", _health, methods=["GET"]),
        Route("/ready", _ready_endpoint(readiness, with_reasons=with_reasons), methods=["GET"]),
        Route("/metrics", _metrics_endpoint(metrics, scopes, looks), methods=["GET"]),
    ]


async def _health(_request: Request) -> Response:
    """Answer that the process lives."""
    return json_answer(HTTPStatus.OK, msgspec.json.encode(HealthResult("ok", __version__)))


_UNTOLD = "capture: the log of the server tells why"


def _ready_endpoint(readiness: Readiness, *, with_reasons: bool) -> _Endpoint:
    """Return an endpoint that answers 200 when the server is ready and 503 before, `with_reasons` or without."""

    async def ready(_request: Request) -> Response:
        waiting_for = readiness()
        if waiting_for and not with_reasons:
            waiting_for = [_UNTOLD]
        status = HTTPStatus.SERVICE_UNAVAILABLE if waiting_for else HTTPStatus.OK
        return json_answer(status, msgspec.json.encode(ReadyResult(not waiting_for, waiting_for)))

    return ready


def _metrics_endpoint(metrics: Metrics, scopes: Scopes, looks: Sequence[Look]) -> _Endpoint:
    """Return an endpoint that shows the metrics in Prometheus' text form, to those who may see them."""

    async def show(request: Request) -> Response:
        try:
            scopes.of(principal_of(request.scope)).measured()
        except PermissionDeniedError as error:
            return json_answer(HTTPStatus.FORBIDDEN, encode_error(None, problem_of(error)))
        for look in looks:
            await look()
        return Response(generate_latest(metrics.registry), media_type=CONTENT_TYPE_LATEST)

    return show
