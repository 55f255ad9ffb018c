"""The composition root: the only place that builds concrete things and joins them."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, Self

from msgspec import Struct, structs

from tailrace.access.access import open_access
from tailrace.clock import Clock, SystemClock
from tailrace.config import Config, SourceConfig, data_directory
from tailrace.datadir import DataDirectory
from tailrace.delivery.ports import Ports
from tailrace.delivery.site import Site
from tailrace.interface.assemble import Interfaces
from tailrace.interface.core import Core
from tailrace.log.hybrid import HybridClock
from tailrace.log.options import log_options
from tailrace.message.relays import Relays
from tailrace.meta.key_store import KeyStore
from tailrace.meta.store import MetaStore
from tailrace.metrics import Metrics
from tailrace.model.number import hlc_at
from tailrace.reclaim import Reclaimer
from tailrace.shard import Shard
from tailrace.sink_url import Secrets
from tailrace.source.kind import SourceTools
from tailrace.source.reader import Reader
from tailrace.sources import create_embedded, resolve, without_password
from tailrace.startup import shown_settings, versions
from tailrace.subscription.access import Scopes
from tailrace.subscription.assemble import ServedSource, open_scopes
from tailrace.subscription.pressure import pressure_changes
from tailrace.subscription.query.options import query_options
from tailrace.subscription.service import SubscriptionService
from tailrace.worker.fleet import Fleet
from tailrace.worker.message import FollowedSource

__all__ = ["Addresses", "Application"]

logger = logging.getLogger(__name__)


class Addresses(Struct, frozen=True):
    """Where an application listens and what it serves. URLs carry no passwords."""

    http: str
    grpc: str
    data_dir: str
    sources: dict[str, str]
    gateway: str | None = None
    """Where the WebSocket gateway is, if it has a port of its own."""

    def as_dict(self) -> dict[str, Any]:
        """Return the addresses for a line of JSON."""
        gateway = {"gateway": self.gateway} if self.gateway else {}
        return {"data_dir": self.data_dir, "http": self.http, "grpc": self.grpc, **gateway, "sources": self.sources}


class Application:
    """A whole server, from sources to interfaces. Enter it once; then it listens, and `run` keeps it going.

    Leaving it ends the interfaces first, then capture, then the logs, each finishing what it has in hand.
    """

    def __init__(self, config: Config, clock: Clock | None = None) -> None:
        self._config = config
        self._clock = clock or SystemClock()
        self._stack = AsyncExitStack()
        self._shards: list[Shard] = []
        self._metrics = Metrics()
        self._fleet: Fleet | None = None
        self.addresses = Addresses("", "", "", {})

    async def __aenter__(self) -> Self:
        try:
            await self._start()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    async def run(self, stop: asyncio.Event) -> None:
        """Capture and serve until `stop` is set.

        Raises:
            SourceStateError: A source cannot be captured without an operator's help.
        """
        stopped = asyncio.create_task(stop.wait())
        captured = self._shards if self._config.capture.enabled else []
        captures = [asyncio.create_task(shard.run()) for shard in captured]
        try:
            done, _ = await asyncio.wait([stopped, *captures], return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in (stopped, *captures):
                task.cancel()
            await asyncio.gather(stopped, *captures, return_exceptions=True)

    async def _start(self) -> None:
        config, stack = self._config, self._stack
        directory = stack.enter_context(DataDirectory(data_directory(config)))
        sources = config.sources
        if not sources:
            sources = {"default": SourceConfig(await asyncio.to_thread(create_embedded, directory.embedded))}
        url, older = directory.metadata_at(config.metadata_url)
        store = await MetaStore.open(url, self._clock, older)
        stack.push_async_callback(store.close)
        interfaces = await self._open_shards(sources, directory, store)
        shown = {name: without_password(source.url) for name, source in sources.items()}
        self.addresses = await self._listen(store, interfaces, Addresses("", "", str(directory.path), shown))
        listening = {"http": self.addresses.http, "grpc": self.addresses.grpc, "data_dir": self.addresses.data_dir}
        logger.info("server listens", extra=listening)

    async def _open_shards(
        self, sources: Mapping[str, SourceConfig], directory: DataDirectory, store: MetaStore
    ) -> Interfaces:
        """Open each source with its log, and have them closed; return the interfaces, which hold what they need."""
        config, clock = self._config, self._clock
        resolved = {name: resolve(source.url, source.options) for name, source in sources.items()}
        if config.capture.enabled:  # a locked database may come back while we listen, one that is not there will not
            for one in resolved.values():
                await asyncio.to_thread(one.check)
        logger.info("server starts", extra={**versions(), "settings": shown_settings(config)})
        if config.workers:  # which load what they need while the logs are opened
            self._fleet = Fleet(config.workers, self._metrics, config.logging.level, config.logging.format)
            self._stack.push_async_callback(self._fleet.stop)
            await self._fleet.begin()
        numbers = await store.shards(list(sources))
        interfaces = await Interfaces.open(store, clock, config.coordinode, config.jimdb)
        tools = SourceTools(clock, self._metrics, config.query.runs_max, config.capture.enabled)
        options = log_options(config.log, config.retention)
        hybrid = HybridClock(hlc_at(clock.now_us()))  # above all that was given before
        for name, one in resolved.items():
            number = numbers[name]
            opened = one.open(name, Reader(f"{await store.server_id()}-{number}"), tools)
            floor = interfaces.floor(number, name)
            shard = await Shard.open(number, opened, directory.shard(number), options, clock, hybrid, floor)
            self._stack.push_async_callback(shard.close)
            if opened.values is not None:
                self._keep_running(opened.values.run())
            await interfaces.add(number, name, opened, shard.log, sources[name].edges)
            self._shards.append(shard)
        return interfaces

    async def _listen(self, store: MetaStore, interfaces: Interfaces, addresses: Addresses) -> Addresses:
        """Open the subscription service and the interfaces on it; return where they are."""
        config, metrics, clock = self._config, self._metrics, self._clock
        self._keep_running(Reclaimer().run())
        access = open_access(config.auth, KeyStore(store, clock), clock)
        query = query_options(config.query, capture_enabled=config.capture.enabled)
        pressure = pressure_changes(config.retention.events)
        served = {
            shard.name: ServedSource(shard.number, shard.log, shard.opened.reads, shard.opened.dialect)
            for shard in self._shards
        }
        scopes = await open_scopes(served, store, access, config.auth, query, pressure, clock, metrics)
        self._keep_running(scopes.service.run())
        self._keep_running(access.keeper.run())
        core = Core(scopes, store, metrics, clock, config.capture.enabled, self._keep_running)
        guarded = config.auth.enabled
        site = Site(config.allowed_hosts, config.allowed_origins, listening=config.host, guarded=guarded)
        ports = Ports(self._stack, config.host, site, config.tls, metrics, guarded=guarded)
        # Stopped in the other order: HTTP has ended all feeds when gRPC stops, and sinks are the first to go.
        services, stop = interfaces.on_grpc(core, lambda: self.addresses.http)
        grpc = await ports.open_grpc(services, config.grpc_port, access if guarded else None, stop)
        own_port = config.gateway.port
        apart = own_port is not None and not 0 < own_port == config.http_port
        writable = not config.sources or config.gateway.sql_write
        app, gateway_app = interfaces.on_http(
            core,
            access.gate,
            site,
            self._waiting_for,
            sql_write=writable,
            gateway_apart=apart,
            hand_over=self._fleet,
        )
        elsewhere = await self._set_up_fleet(scopes.service)
        gateway = None
        if own_port and apart:
            url = await ports.open_http(gateway_app, own_port, "--ws-port", "gateway", scopes.service.stop)
            gateway = url.replace("http", "ws", 1)
        stop_feeds = scopes.service.stop
        http = await ports.open_http(app, config.http_port, "--http-port", "http", stop_feeds, elsewhere)
        self._start_sinks(scopes, store)
        return structs.replace(addresses, http=http, grpc=grpc, gateway=gateway)

    async def _set_up_fleet(self, service: SubscriptionService) -> Callable[[], int]:
        """Have the workers follow the logs; return what counts their connections."""
        fleet, config = self._fleet, self._config
        if fleet is None:
            return lambda: 0
        if config.tls.cert:
            logger.warning("workers serve no TLS connections: the main process serves all streams")
        sources = {shard.name: FollowedSource(shard.directory, shard.opened.dialect) for shard in self._shards}
        logs = {shard.name: shard.log for shard in self._shards}
        ring_changes = log_options(config.log, config.retention).ring_changes_max
        await fleet.set_up(sources, logs, service, config.allowed_origins, ring_changes)
        return lambda: fleet.connections

    def _start_sinks(self, scopes: Scopes, store: MetaStore) -> None:
        secrets = Secrets(self._config.secrets_file)
        relays = Relays(scopes.service, store.database, self._config.sinks, secrets, self._clock, self._metrics)
        self._stack.push_async_callback(relays.stop)
        relays.start()

    def _keep_running(self, work: Coroutine[Any, Any, None]) -> None:
        """Run something in a task until the server ends."""
        self._stack.push_async_callback(_end, asyncio.create_task(work))

    def _waiting_for(self) -> Sequence[str]:
        if not self._config.capture.enabled:
            return []
        return [reason for shard in self._shards for reason in shard.waiting_for()]


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
