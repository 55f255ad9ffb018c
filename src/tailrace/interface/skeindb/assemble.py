"""SkeinDB's interface, put together: its methods and its routes."""

from collections.abc import Sequence

from starlette.routing import Route, WebSocketRoute

from tailrace.access.principal import ANONYMOUS
from tailrace.clock import Clock
from tailrace.delivery.http.answer import want_upgrade
from tailrace.delivery.http.streaming import StreamTools
from tailrace.interface.skeindb.methods import Methods
from tailrace.interface.skeindb.query import QueryEndpoint, QueryEventsEndpoint
from tailrace.interface.skeindb.rpc import RpcEndpoint
from tailrace.interface.skeindb.sse import SseEndpoint, SseManyEndpoint
from tailrace.interface.skeindb.ws import WsEndpoint, WsManyEndpoint

__all__ = ["skeindb_methods", "skeindb_routes"]


def skeindb_methods(tools: StreamTools, clock: Clock) -> Methods:
    """Return the methods as anybody may call them where nobody is asked who they are."""
    return Methods(tools.scopes.of(ANONYMOUS), tools.presenter, tools.metrics, clock, tools.options)


def skeindb_routes(tools: StreamTools, methods: Methods, clock: Clock) -> Sequence[Route | WebSocketRoute]:
    """Return the routes: calls, streams, and prepared queries where there are any."""
    scopes, options = tools.scopes, tools.options
    routes: list[Route | WebSocketRoute] = [
        Route("/api/v1/rpc", RpcEndpoint(methods, scopes, tools.metrics, clock, options).answer, methods=["POST"]),
        Route("/api/v1/cdc/sse", SseManyEndpoint(tools), methods=["GET"]),
        Route("/api/v1/cdc/sse/{sub_id}", SseEndpoint(tools), methods=["GET"]),
        WebSocketRoute("/api/v1/cdc/ws", WsManyEndpoint(tools, methods)),
        WebSocketRoute("/api/v1/cdc/ws/{sub_id}", WsEndpoint(tools, methods)),
        Route("/api/v1/cdc/ws", want_upgrade, methods=["GET"]),
        Route("/api/v1/cdc/ws/{sub_id}", want_upgrade, methods=["GET"]),
    ]
    if scopes.service.queries is None:
        return routes
    return [
        *routes,
        Route("/api/v1/q/{query_id}", QueryEndpoint(scopes).answer, methods=["GET"]),
        Route("/api/v1/q/{query_id}/events", QueryEventsEndpoint(scopes, options), methods=["GET"]),
    ]
