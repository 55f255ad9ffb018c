"""How well the server is, as gRPC clients ask for it: `grpc.health.v1.Health`."""

import asyncio
from collections.abc import Iterable

from tailrace.delivery.grpc.call import GrpcCall, Method, Service, StatusCode, StatusError, prefixed
from tailrace.delivery.grpc.proto.grpc_health_pb2 import (
    DESCRIPTOR,
    HealthCheckRequest,
    HealthCheckResponse,
    HealthListResponse,
)
from tailrace.delivery.grpc.protobuf import decoded, encoded

__all__ = ["HEALTH", "Health"]

HEALTH = "grpc.health.v1.Health"


class Health:
    """Tells who asks whether the server, and each of its services by name, serves. Open to all."""

    def __init__(self, names: Iterable[str]) -> None:
        self._serving = dict.fromkeys(["", *names], True)
        self._stopped = False
        self._changed = asyncio.Event()

    @property
    def service(self) -> Service:
        """The service to be served."""
        methods = {
            "Check": Method(unary=self._check, capability=None, open_to_all=True),
            "List": Method(unary=self._list, capability=None, open_to_all=True),
            "Watch": Method(stream=self._watch, capability=None, open_to_all=True),
        }
        return Service(HEALTH, methods, DESCRIPTOR.name)

    def set(self, name: str, *, serving: bool) -> None:
        """Say whether a service serves; the empty name is that of the server."""
        self._serving[name] = serving
        self._tell()

    def stop(self) -> None:
        """Say that nothing serves any more; those who watch are notified, and their streams end."""
        self._serving = dict.fromkeys(self._serving, False)
        self._stopped = True
        self._tell()

    def _tell(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def _check(self, call: GrpcCall, message: bytes) -> bytes:
        status = self._status(decoded(HealthCheckRequest, message).service)
        if status == HealthCheckResponse.SERVICE_UNKNOWN:
            raise StatusError(StatusCode.NOT_FOUND, "unknown service")
        return encoded(HealthCheckResponse(status=status))

    async def _list(self, call: GrpcCall, message: bytes) -> bytes:
        statuses = {name: HealthCheckResponse(status=self._status(name)) for name in self._serving}
        return encoded(HealthListResponse(statuses=statuses))

    async def _watch(self, call: GrpcCall, message: bytes) -> None:
        name = decoded(HealthCheckRequest, message).service
        sent_status = None
        while True:
            changed, status = self._changed, self._status(name)
            if status != sent_status:
                await call.write(prefixed(encoded(HealthCheckResponse(status=status))))
                sent_status = status
            if self._stopped:
                raise StatusError(StatusCode.UNAVAILABLE, "the server is stopping")
            await changed.wait()

    def _status(self, name: str) -> HealthCheckResponse.ServingStatus:
        if name not in self._serving:
            return HealthCheckResponse.SERVICE_UNKNOWN
        return HealthCheckResponse.SERVING if self._serving[name] else HealthCheckResponse.NOT_SERVING
