"""All interfaces of a server, put together: sources as their logs are opened, then what the ports serve."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Protocol, Self

from starlette.routing import Route, WebSocketRoute
from starlette.types import ASGIApp

from tailrace.access.gate import Gate, OpenGate
from tailrace.clock import Clock
from tailrace.delivery.grpc.call import Service
from tailrace.delivery.http.application import guarded
from tailrace.delivery.http.hand_over import HandOver
from tailrace.delivery.http.health import Look, Readiness, health_routes
from tailrace.delivery.http.options import HttpOptions
from tailrace.delivery.http.streaming import StreamTools
from tailrace.delivery.presenter import Presenter
from tailrace.delivery.site import Site
from tailrace.interface.bulk.assemble import bulk_routes
from tailrace.interface.coordinode.assemble import Coordinode
from tailrace.interface.coordinode.options import ChangeStreamConfig, EdgeTable
from tailrace.interface.coordinode.shard import CommitLog
from tailrace.interface.core import Core
from tailrace.interface.jimdb.assemble import Jimdb
from tailrace.interface.jimdb.options import JimdbConfig
from tailrace.interface.jimdb.shard import RangeLog
from tailrace.interface.openapi.document import OPENAPI_PATH, OpenApiEndpoint
from tailrace.interface.pipelines import look_at, pipeline_routes
from tailrace.interface.skeindb.assemble import skeindb_methods, skeindb_routes
from tailrace.interface.sochdb.assemble import gateway_routes, gateway_stores, key_values, sochdb_services
from tailrace.interface.sochdb.gateway import GatewayStores
from tailrace.meta.store import MetaStore
from tailrace.metrics import Metrics
from tailrace.model.number import Index, Offset
from tailrace.source.kind import OpenedSource
from tailrace.subscription.access import Scopes
from tailrace.subscription.pipelines import Pipelines
from tailrace.subscription.stats import observe

__all__ = ["InterfaceLog", "Interfaces", "create_app", "create_gateway_app"]


class InterfaceLog(CommitLog, RangeLog, Protocol):
    """What the interfaces together need of a log, besides what subscriptions need."""

    @property
    def last_index(self) -> Index:
        """Return the number of the newest commit."""


class Interfaces:
    """The interfaces of one server. Get them by `open`, `add` each source, then take what each port serves."""

    def __init__(self, coordinode: Coordinode, jimdb: Jimdb, change_streams: ChangeStreamConfig) -> None:
        self._coordinode = coordinode
        self._jimdb = jimdb
        self._change_streams = change_streams
        self._sources: dict[str, OpenedSource] = {}

    @classmethod
    async def open(cls, store: MetaStore, clock: Clock, coordinode: ChangeStreamConfig, jimdb: JimdbConfig) -> Self:
        """Return the interfaces with what the metadata database knows of their consumers."""
        return cls(await Coordinode.open(store, clock), await Jimdb.open(store, jimdb, clock), coordinode)

    def floor(self, number: int, source: str) -> Offset | None:
        """Return the oldest change of a source that someone still needs; None where there is none."""
        floors = self._coordinode.floor(number), self._jimdb.floor(source)
        return min((floor for floor in floors if floor is not None), default=None)

    async def add(
        self, number: int, name: str, opened: OpenedSource, log: InterfaceLog, edges: Mapping[str, EdgeTable]
    ) -> None:
        """Serve a source whose log is open. `number` is that of its shard."""
        await self._coordinode.add(number, name, log, log.last_index, edges)
        self._jimdb.add(number, name, opened.reads, log)
        self._sources[name] = opened

    def on_grpc(self, core: Core, http_url: Callable[[], str]) -> tuple[Sequence[Service], Callable[[], None]]:
        """Return the services of the gRPC port, and what ends their waiting calls when it stops.

        `http_url` tells where the workers of pipelines find the server, once that is known.
        """
        streams = self._coordinode.services(core, self._change_streams)
        pulls, pulled = self._jimdb.service(core, http_url)
        return [*sochdb_services(core, key_values(self._sources)), *streams, pulled], pulls.stop

    def on_http(
        self,
        core: Core,
        gate: Gate,
        site: Site,
        readiness: Readiness,
        *,
        sql_write: bool,
        gateway_apart: bool,
        hand_over: HandOver | None = None,
    ) -> tuple[ASGIApp, ASGIApp]:
        """Return the application of the HTTP port, and that of a port which has the WebSocket gateway alone.

        The first has the gateway too, unless that is to be apart.
        """
        options, stores = HttpOptions(), gateway_stores(self._sources, sql_write=sql_write)
        pipelines = Pipelines(core.store, core.scopes, core.clock)
        shared = None if gateway_apart else stores
        app = create_app(
            core.scopes, readiness, core.metrics, core.clock, options, shared, gate, pipelines, site, hand_over
        )
        return app, create_gateway_app(core.scopes, core.metrics, core.clock, options, stores, gate, site)


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
    hand_over: HandOver | None = None,
) -> ASGIApp:
    """Return the application. It holds nothing that must be closed: ending the service's feeds ends its streams.

    `stores` are for the WebSocket gateway, which is not there without them. `gate` says who calls. `pipelines` are
    shown where they are given. `site` says which names and pages are served. `hand_over` has other processes serve
    streams.
    """
    site = site or Site(guarded=not isinstance(gate, OpenGate))
    presenter = Presenter(options.encoded_bytes_max, metrics.encoded_changes)
    tools = StreamTools(scopes, presenter, metrics, options, hand_over)
    methods = skeindb_methods(tools, clock)
    observe(scopes.service, metrics, clock)
    looks: list[Look] = [] if pipelines is None else [partial(look_at, pipelines, metrics.pipelines)]
    looks += [] if hand_over is None else [hand_over.measure]
    routes: list[Route | WebSocketRoute] = [
        *skeindb_routes(tools, methods, clock),
        *bulk_routes(scopes, metrics, options, clock, hand_over),
        *([] if pipelines is None else pipeline_routes(pipelines)),
        # Where others are hidden, so are the names of sources.
        *health_routes(readiness, metrics, scopes, looks, with_reasons=isinstance(gate, OpenGate)),
    ]
    gateway = [] if stores is None else gateway_routes(tools, stores, clock)
    document = OpenApiEndpoint(methods.table, [OPENAPI_PATH, *(route.path for route in routes)])
    return guarded([*routes, Route(OPENAPI_PATH, document.answer, methods=["GET"]), *gateway], site, metrics, gate)


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
    return guarded(gateway_routes(tools, stores, clock, alone=True), site, metrics, gate)
