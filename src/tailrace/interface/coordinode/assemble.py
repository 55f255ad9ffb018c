"""CoordiNode's interface, put together: shards as their logs are opened, then the services."""

from collections.abc import Mapping, Sequence

from tailrace.clock import Clock
from tailrace.delivery.grpc.call import GrpcCall, Method, Service
from tailrace.delivery.grpc.proto import coordinode_health_pb2 as proto
from tailrace.delivery.grpc.protobuf import decoded, encoded
from tailrace.interface.coordinode.consumers import Consumers, floor_of
from tailrace.interface.coordinode.meter import Meter
from tailrace.interface.coordinode.options import ChangeStreamConfig, EdgeTable, consumer_options, stream_options
from tailrace.interface.coordinode.service import ChangeStreamTools, change_stream_service
from tailrace.interface.coordinode.shard import CommitLog, StreamShard, Terms
from tailrace.interface.core import Core
from tailrace.meta.consumer_store import Consumer, ConsumerStore, TermStore
from tailrace.meta.store import MetaStore
from tailrace.model.number import Index, Offset

__all__ = ["Coordinode", "coordinode_health_service"]


def coordinode_health_service() -> Service:
    """Return the service. Who gets an answer gets a good one: a server that does not serve does not answer."""
    check = Method(unary=_check, capability=None, open_to_all=True)
    return Service("coordinode.v1.health.HealthService", {"Check": check}, proto.DESCRIPTOR.name)


async def _check(call: GrpcCall, message: bytes) -> bytes:
    decoded(proto.HealthCheckRequest, message)
    return encoded(proto.HealthCheckResponse(status=proto.SERVING_STATUS_SERVING))


class Coordinode:
    """The interface of one server. Get one by `open`, `add` each shard, then take the `services`."""

    def __init__(self, store: MetaStore, consumer_store: ConsumerStore, consumers: Sequence[Consumer]) -> None:
        self._store = store
        self._consumer_store = consumer_store
        self._consumers = consumers
        self._shards: dict[int, StreamShard] = {}

    @classmethod
    async def open(cls, store: MetaStore, clock: Clock) -> "Coordinode":
        """Return the interface with the consumers of the metadata database."""
        consumer_store = ConsumerStore(store, clock)
        return cls(store, consumer_store, await consumer_store.consumers())

    def floor(self, shard: int) -> Offset | None:
        """Return the oldest change of a shard that a consumer still needs; None where there is none."""
        return floor_of(self._consumers, shard)

    async def add(
        self, number: int, source: str, log: CommitLog, last_index: Index, edges: Mapping[str, EdgeTable]
    ) -> None:
        """Serve a shard whose log is open, and hold the log for its consumers; this run is a term of its own."""
        log.hold(self.floor(number))
        terms = Terms(await TermStore(self._store).begin(number, Index(last_index + 1)))
        self._shards[number] = StreamShard(number, source, log, terms, edges)

    def services(self, core: Core, settings: ChangeStreamConfig) -> Sequence[Service]:
        """Return the services, and hold their consumers to their bounds."""
        bounds = consumer_options(settings)
        consumers = Consumers(self._shards, self._consumer_store, self._consumers, bounds, core.clock, core.metrics)
        core.keep_running(consumers.run())
        options = stream_options(settings, capture_enabled=core.capture_enabled)
        tools = ChangeStreamTools(self._shards, consumers, core.scopes.restrictions, Meter(core.metrics), options)
        return [change_stream_service(tools), coordinode_health_service()]
