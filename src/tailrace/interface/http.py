"""The HTTP application: routes, and what every request passes through."""

import math
from collections.abc import Sequence
from functools import partial
from http import HTTPStatus

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, WebSocketRoute
from starlette.types import ASGIApp

from tailrace.access.gate import Gate, OpenGate
from tailrace.access.principal import ANONYMOUS
from tailrace.clock import Clock
from tailrace.delivery.http.answer import problem_answer, want_upgrade
from tailrace.delivery.http.gate import HttpGate
from tailrace.delivery.http.health import Readiness, health, metrics_endpoint, ready_endpoint
from tailrace.delivery.http.options import HttpOptions
from tailrace.delivery.http.site import SiteGate
from tailrace.delivery.http.streaming import StreamTools
from tailrace.delivery.presenter import Presenter
from tailrace.delivery.site import Site
from tailrace.interface.bulk.assemble import bulk_routes
from tailrace.interface.openapi.document import OPENAPI_PATH, OpenApiEndpoint
from tailrace.interface.pipelines import look_at, pipeline_routes
from tailrace.interface.skeindb.assemble import skeindb_routes
from tailrace.interface.skeindb.methods import Methods
from tailrace.interface.sochdb.gateway import GatewayEndpoint, GatewayStores
from tailrace.metrics import Metrics
from tailrace.subscription.access import Scopes
from tailrace.subscription.pipelines import Pipelines
from tailrace.subscription.service import SubscriptionService
from tailrace.subscription.stats import StatsView

__all__ = ["create_app", "create_gateway_app"]


def create_app(
    scopes: Scopes,
    readiness: Readiness,
    metrics: Metrics,
    clock: Clock,
    options: HttpOptions,
    stores: GatewayStores | None = None,
    gate: Gate = OpenGate(),  # noqa: B008 - it holds nothing
    pipelines: Pipelines | None = None,
    site: Site | None = None,
) -> ASGIApp:
    """Return the application. It holds nothing that must be closed: ending the service's feeds ends its streams.

    `stores` are for the WebSocket gateway, which is not there without them. `gate` says who calls. `pipelines` are
    shown where they are given. `site` says which names and pages are served.
    """
    service, site = scopes.service, site or Site(guarded=not isinstance(gate, OpenGate))
    presenter = Presenter(options.encoded_bytes_max, metrics.encoded_changes)
    methods = Methods(scopes.of(ANONYMOUS), presenter, metrics, clock, options)
    tools = StreamTools(scopes, presenter, metrics, options)
    _observe(service, metrics, StatsView(service, clock))
    look = None if pipelines is None else partial(look_at, pipelines, metrics.pipelines)
    routes: list[Route | WebSocketRoute] = [
        *skeindb_routes(tools, methods, clock),
        *bulk_routes(scopes, metrics, options, clock),
        *([] if pipelines is None else pipeline_routes(pipelines)),
        Route("/health", health, methods=["GET"]),
        # Nobody is asked who they are there: where others are hidden, so are the names of sources.
        Route("/ready", ready_endpoint(readiness, told=isinstance(gate, OpenGate)), methods=["GET"]),
        Route("/metrics", metrics_endpoint(metrics, scopes, look), methods=["GET"]),
    ]
    gateway = [] if stores is None else [WebSocketRoute("/{path:path}", GatewayEndpoint(tools, stores, clock))]
    document = OpenApiEndpoint(methods.table, [OPENAPI_PATH, *(route.path for route in routes)])
    return _guarded([*routes, Route(OPENAPI_PATH, document.answer, methods=["GET"]), *gateway], site, metrics, gate)


def create_gateway_app(
    scopes: Scopes,
    metrics: Metrics,
    clock: Clock,
    options: HttpOptions,
    stores: GatewayStores,
    gate: Gate,
    site: Site,
) -> ASGIApp:
    """Return the application of a port that has the WebSocket gateway alone, at any path."""
    tools = StreamTools(scopes, Presenter(options.encoded_bytes_max, metrics.encoded_changes), metrics, options)
    routes: list[Route | WebSocketRoute] = [
        WebSocketRoute("/{path:path}", GatewayEndpoint(tools, stores, clock, alone=True)),
        Route("/{path:path}", want_upgrade, methods=["GET"]),
    ]
    return _guarded(routes, site, metrics, gate)


def _guarded(routes: Sequence[Route | WebSocketRoute], site: Site, metrics: Metrics, gate: Gate) -> ASGIApp:
    """Return the application of some routes, behind what every request passes through."""
    app = Starlette(
        routes=routes,
        middleware=[
            Middleware(SiteGate, site=site, metrics=metrics),
            Middleware(
                CORSMiddleware,
                allow_origins=sorted(site.origins),
                allow_methods=["GET", "POST"],
                allow_headers=["*"],
                expose_headers=["ETag"],
                allow_private_network=True,  # those who may call at all, may from a page of the internet too
            ),
            Middleware(HttpGate, gate=gate),
        ],
        exception_handlers={HTTPException: _refuse},
    )
    app.router.redirect_slashes = False  # a path that is not there is a 404
    return app


async def _refuse(_request: Request, error: Exception) -> Response:
    """Answer a path or a verb that is not there."""
    assert isinstance(error, HTTPException)
    return problem_answer(HTTPStatus(error.status_code), str(error.detail).lower(), error.headers)


def _observe(service: SubscriptionService, metrics: Metrics, view: StatsView) -> None:
    """Have the gauges ask the service when someone looks at them."""
    metrics.lag_sum.set_function(lambda: view.stats.total_lag)
    metrics.remaining_min.set_function(lambda: _number(view.stats.min_remaining_until_resnapshot))
    for state, member in _STATES.items():
        metrics.states.labels(state).set_function(partial(lambda member: getattr(view.stats, member), member))
    for source, lags in service.lags.items():
        metrics.capture_lag.labels(source).set_function(partial(getattr, lags, "capture_s"))
        metrics.delivery_lag.labels(source).set_function(partial(getattr, lags, "delivery_s"))
        metrics.end_to_end_lag.labels(source).set_function(partial(getattr, lags, "end_to_end_s"))
    metrics.subscriptions.set_function(lambda: len(service.subscriptions()))
    metrics.lag_max.set_function(service.lag_max)
    for source, log in service.logs.items():
        metrics.log_head.labels(source).set_function(partial(getattr, log, "head"))
        metrics.log_horizon.labels(source).set_function(partial(getattr, log, "horizon"))


_STATES = {
    "paused": "paused_subscriptions",
    "pressured": "pressured_subscriptions",
    "throttle": "throttle_recommended_subscriptions",
    "resnapshot_required": "resnapshot_subscriptions",
}
"""States of subscriptions in the metrics, and where the figures have their numbers."""


def _number(count: int | None) -> float:
    return math.nan if count is None else count
