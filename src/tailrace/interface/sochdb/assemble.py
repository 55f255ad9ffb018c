"""SochDB's interface on the gRPC port, put together. Its WebSocket gateway is a route; see `interface.http`."""

from collections.abc import Sequence

from tailrace.access.key_value import KeyValues
from tailrace.delivery.grpc.call import Service
from tailrace.delivery.presenter import Presenter
from tailrace.interface.core import Core
from tailrace.interface.sochdb.kv import kv_service
from tailrace.interface.sochdb.service import GrpcOptions, SochdbTools, sochdb_service

__all__ = ["sochdb_services"]


def sochdb_services(core: Core, values: KeyValues) -> Sequence[Service]:
    """Return the services: changes as streams, keys and values."""
    options = GrpcOptions()
    presenter = Presenter(options.encoded_bytes_max, core.metrics.encoded_changes)
    return [sochdb_service(SochdbTools(core.scopes, presenter, core.metrics, options)), kv_service(values)]
