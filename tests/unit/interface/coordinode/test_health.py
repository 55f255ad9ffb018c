"""`coordinode.v1.health.HealthService`."""

from tailrace.delivery.grpc.proto import coordinode_health_pb2 as proto
from tailrace.interface.coordinode.assemble import coordinode_health_service
from tailrace.testing.call import MemoryCall


async def test_whoever_asks_is_told_that_the_server_serves():
    method = coordinode_health_service().methods["Check"]
    assert method.open_to_all
    answer = await method.unary(MemoryCall(), proto.HealthCheckRequest().SerializeToString())
    assert proto.HealthCheckResponse.FromString(answer).status == 1
