"""JimDB's interface, put together: sources as their logs are opened, then the service."""

from collections.abc import Callable
from typing import Self

from tailrace.clock import Clock
from tailrace.delivery.grpc.call import Service
from tailrace.interface.core import Core
from tailrace.interface.jimdb.options import JimdbConfig, pull_options, range_options
from tailrace.interface.jimdb.pull import PullService
from tailrace.interface.jimdb.ranges import HOLDER, Ranges, range_floor
from tailrace.interface.jimdb.service import JimdbTools, jimdb_service
from tailrace.interface.jimdb.shard import RangeLog, RangeShard
from tailrace.interface.jimdb.subscribers import Subscribers
from tailrace.meta.range_store import KeptRanges, RangeStore
from tailrace.meta.store import MetaStore
from tailrace.model.number import Offset
from tailrace.source.base import QuerySource

__all__ = ["Jimdb"]


class Jimdb:
    """The interface of one server. Get one by `open`, `add` each source, then take the `services`."""

    def __init__(self, store: RangeStore, ranges: KeptRanges, settings: JimdbConfig, clock: Clock) -> None:
        self._store = store
        self._ranges = ranges
        self._settings = settings
        self._clock = clock
        self._shards: dict[str, RangeShard] = {}

    @classmethod
    async def open(cls, store: MetaStore, settings: JimdbConfig, clock: Clock) -> Self:
        """Return the interface with the ranges and pullers of the metadata database."""
        range_store = RangeStore(store)
        return cls(range_store, await range_store.load(), settings, clock)

    def floor(self, source: str) -> Offset | None:
        """Return the oldest change of a source that a puller still needs; None where there is none."""
        silent_s = range_options(self._settings).silent_s_max
        oldest_us = 0 if silent_s is None else self._clock.now_us() - round(silent_s * 1e6)
        return range_floor(self._ranges, source, oldest_us)

    def add(self, number: int, name: str, reads: QuerySource | None, log: RangeLog) -> None:
        """Serve a source whose log is open, and hold the log for its pullers."""
        log.hold(self.floor(name), holder=HOLDER)
        self._shards[name] = RangeShard(number, name, reads, log)

    def service(self, core: Core, http_url: Callable[[], str]) -> tuple[PullService, Service]:
        """Return what is pulled from, which is to be stopped before its server, and the service on it.

        `http_url` tells where the workers of pipelines find the server, unless the settings say it.
        """
        settings, options = self._settings, range_options(self._settings)
        ranges = Ranges(self._shards, self._store, self._ranges, options, core.clock, core.metrics)
        core.keep_running(ranges.run())
        bounds = pull_options(settings)
        pulls = PullService(ranges, core.scopes, options, bounds, capture_enabled=core.capture_enabled)

        def server_url() -> str:
            return settings.server_url or http_url()

        subscribers = Subscribers(core.store, pulls, core.scopes, server_url, settings.cluster_id)
        return pulls, jimdb_service(JimdbTools(pulls, subscribers, core.metrics, settings.cluster_id))
