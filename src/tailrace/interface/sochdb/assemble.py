"""SochDB's interface, put together: its services, and its WebSocket gateway with what that reaches."""

from collections.abc import Mapping, Sequence

from starlette.routing import Route, WebSocketRoute

from tailrace.access.key_value import KeyValues
from tailrace.access.statement import Statements
from tailrace.clock import Clock
from tailrace.delivery.grpc.call import Service
from tailrace.delivery.http.answer import want_upgrade
from tailrace.delivery.http.streaming import StreamTools
from tailrace.delivery.presenter import Presenter
from tailrace.interface.core import Core
from tailrace.interface.sochdb.gateway import GatewayEndpoint, GatewayStores
from tailrace.interface.sochdb.kv import kv_service
from tailrace.interface.sochdb.service import GrpcOptions, SochdbTools, sochdb_service
from tailrace.source.kind import OpenedSource
from tailrace.sql.dialect import dialect_of

__all__ = ["gateway_routes", "gateway_stores", "key_values", "sochdb_services"]


def sochdb_services(core: Core, values: KeyValues) -> Sequence[Service]:
    """Return the services: changes as streams, keys and values."""
    options = GrpcOptions()
    presenter = Presenter(options.encoded_bytes_max, core.metrics.encoded_changes)
    return [sochdb_service(SochdbTools(core.scopes, presenter, core.metrics, options)), kv_service(values)]


def gateway_routes(
    tools: StreamTools, stores: GatewayStores, clock: Clock, *, alone: bool = False
) -> Sequence[Route | WebSocketRoute]:
    """Return the routes of the WebSocket gateway: any path, and where it is `alone`, nothing else has one."""
    gateway = WebSocketRoute("/{path:path}", GatewayEndpoint(tools, stores, clock, alone=alone))
    return [gateway, Route("/{path:path}", want_upgrade, methods=["GET"])] if alone else [gateway]


def gateway_stores(sources: Mapping[str, OpenedSource], *, sql_write: bool) -> GatewayStores:
    """Return what clients may read and write besides changes: keys and values, and with `sql_write`, all tables."""
    runners = {name: one.statements for name, one in sources.items() if sql_write and one.statements is not None}
    readers = {name: one.reads for name, one in sources.items()}
    return GatewayStores(key_values(sources), Statements(readers, runners))


def key_values(sources: Mapping[str, OpenedSource]) -> KeyValues:
    """Return the keys and values of all sources."""
    dialects = {name: dialect_of(one.dialect) for name, one in sources.items()}
    return KeyValues({name: one.values for name, one in sources.items()}, dialects)
