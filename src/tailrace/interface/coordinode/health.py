"""`coordinode.v1.health.HealthService`: whether the server serves, as CoordiNode's clients ask for it."""

from tailrace.delivery.grpc.call import Call, Method, Service
from tailrace.delivery.grpc.proto import coordinode_health_pb2 as proto
from tailrace.delivery.grpc.protobuf import decoded, encoded

__all__ = ["coordinode_health_service"]


def coordinode_health_service() -> Service:
    """Return the service. Who gets an answer gets a good one: a server that does not serve does not answer."""
    check = Method(unary=_check, capability=None, open_to_all=True)
    return Service("coordinode.v1.health.HealthService", {"Check": check}, proto.DESCRIPTOR.name)


async def _check(call: Call, message: bytes) -> bytes:
    decoded(proto.HealthCheckRequest, message)
    return encoded(proto.HealthCheckResponse(status=proto.SERVING_STATUS_SERVING))
