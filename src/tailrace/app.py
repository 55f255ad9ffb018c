"""The composition root: the only place that builds concrete things and joins them."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from msgspec import Struct
from starlette.types import ASGIApp

from tailrace.access.access import Access, open_access
from tailrace.access.key_value import KeyValues
from tailrace.access.statement import Statements
from tailrace.capture import CaptureState, Pump
from tailrace.clock import Clock, SystemClock
from tailrace.config import Config, SourceConfig, data_directory
from tailrace.datadir import DataDirectory
from tailrace.delivery.auth import GrpcGate
from tailrace.delivery.grpc.call import Service
from tailrace.delivery.grpc.server import GrpcServer
from tailrace.delivery.http.options import HttpOptions
from tailrace.delivery.http.server import serve
from tailrace.delivery.site import Site, is_loopback
from tailrace.delivery.tls import tls_context
from tailrace.interface.coordinode.assemble import Coordinode
from tailrace.interface.core import Core
from tailrace.interface.http import create_app, create_gateway_app
from tailrace.interface.jimdb.assemble import Jimdb
from tailrace.interface.sochdb.assemble import sochdb_services
from tailrace.interface.sochdb.gateway import GatewayStores
from tailrace.log.files import DiskFiles
from tailrace.log.hybrid import HybridClock
from tailrace.log.log import Log
from tailrace.log.options import LogOptions
from tailrace.message.relays import Relays
from tailrace.meta.key_store import KeyStore
from tailrace.meta.store import MetaStore
from tailrace.metrics import Metrics
from tailrace.model.errors import ConfigError, InvalidPredicateError, ListenError
from tailrace.model.hlc import hlc_at
from tailrace.model.number import Offset
from tailrace.model.quantity import parse_duration_s, parse_size_bytes
from tailrace.reclaim import Reclaimer
from tailrace.sink_url import Secrets
from tailrace.source.base import QuerySource, Reader
from tailrace.source.kind import OpenedSource, SourceTools
from tailrace.sources import create_embedded, resolve, without_password
from tailrace.sql.dialect import Dialects, dialect_of
from tailrace.startup import shown_settings, versions
from tailrace.subscription.access import Scopes
from tailrace.subscription.pipelines import Pipelines
from tailrace.subscription.pressure import PRESSURE_CHANGES
from tailrace.subscription.query.options import QueryOptions
from tailrace.subscription.query.service import QueryService, QueryShard
from tailrace.subscription.restrict import check_rows
from tailrace.subscription.service import ServiceOptions, SubscriptionService

__all__ = [
    "Addresses",
    "Application",
    "Shard",
    "log_options",
    "pressure_changes",
    "query_options",
]

_T = TypeVar("_T")

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


class Shard:
    """One source with its log and the pump between them."""

    def __init__(self, opened: OpenedSource, log: Log) -> None:
        self.opened = opened
        self.source = opened.capture
        self.log = log
        self.state = CaptureState()
        self.pump = Pump(self.source, log, self.state)

    def waiting_for(self) -> Sequence[str]:
        """Return why capture does not move, in words; nothing when it does."""
        if self.state.problem:
            return [f"source {self.source.name}: {self.state.problem}"]
        return [] if self.state.open else [f"source {self.source.name} to open"]

    async def run(self) -> None:
        """Capture until cancelled."""
        await self.pump.open()
        await self.pump.run()


class Application:
    """A whole server, from sources to interfaces. Enter it once; then it listens, and `run` keeps it going.

    Leaving it ends the interfaces first, then capture, then the logs, each finishing what it has in hand.
    """

    def __init__(self, config: Config, clock: Clock | None = None) -> None:
        self._config = config
        self._clock = clock or SystemClock()
        self._stack = AsyncExitStack()
        self._shards: list[Shard] = []
        self._hybrid = HybridClock(hlc_at(self._clock.now_us()))  # above all that was given before
        self._gateway: str | None = None
        self._metrics = Metrics()
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
        resolved = {name: resolve(source.url, source.options) for name, source in sources.items()}
        url, older = directory.metadata_at(config.metadata_url)
        store = await MetaStore.open(url, self._clock, older)
        stack.push_async_callback(store.close)
        if config.capture.enabled:  # a locked database may come back while we listen, one that is not there will not
            for one in resolved.values():
                await asyncio.to_thread(one.check)
        logger.info("server starts", extra={**versions(), "settings": shown_settings(config)})
        shard_ids = await store.shards(list(sources))
        coordinode = await Coordinode.open(store, self._clock)
        jimdb = await Jimdb.open(store, config.jimdb, self._clock)
        tools = SourceTools(self._clock, self._metrics, config.query.runs_max, config.capture.enabled)
        for name, one in resolved.items():
            number = shard_ids[name]
            opened = one.open(name, Reader(f"{await store.server_id()}-{number}"), tools)
            floors = coordinode.floor(number), jimdb.floor(name)
            shard = await self._open_shard(opened, directory.shard(number), floors)
            shard.log.hold(floors[0])
            await coordinode.add(number, name, shard.log, shard.log.last_index, sources[name].edges)
            jimdb.add(number, name, opened.reads, shard.log)
            self._shards.append(shard)
        http, grpc = await self._listen(store, shard_ids, coordinode, jimdb)
        logger.info("server listens", extra={"http": http, "grpc": grpc, "data_dir": str(directory.path)})
        self.addresses = Addresses(
            http=http,
            grpc=grpc,
            data_dir=str(directory.path),
            sources={name: without_password(source.url) for name, source in sources.items()},
            gateway=self._gateway,
        )

    async def _open_shard(self, opened: OpenedSource, directory: Path, floors: Sequence[Offset | None]) -> Shard:
        """Open a log with all that is held of it, and have it closed with its source."""
        source = opened.capture
        options, lowest = log_options(self._config), min((one for one in floors if one is not None), default=None)
        log = await Log.open(
            DiskFiles(directory), options, self._clock, hybrid=self._hybrid, floor=lowest, source=source.name
        )
        window = {"horizon": log.horizon, "head": log.head, "position": log.position}
        logger.info("log opened", extra={"source": source.name, **window})
        self._stack.push_async_callback(log.close)
        for part in (source, opened.reads, opened.values, opened.statements):
            if part is not None:
                self._stack.push_async_callback(part.close)
        if opened.values is not None:
            self._keep_running(opened.values.run())
        return Shard(opened, log)

    @property
    def _reads(self) -> dict[str, QuerySource | None]:
        """Return the reading side of each source, None for one that has none."""
        return {shard.source.name: shard.opened.reads for shard in self._shards}

    def _stores(self) -> GatewayStores:
        """Return what clients may write to: keys and values, and where that is allowed, all tables."""
        opened = {shard.source.name: shard.opened for shard in self._shards}
        writable = not self._config.sources or self._config.gateway.sql_write
        runners = {name: one.statements for name, one in opened.items() if writable and one.statements is not None}
        values = KeyValues({name: one.values for name, one in opened.items()})
        return GatewayStores(values, Statements(self._reads, runners))

    async def _listen(
        self,
        store: MetaStore,
        shard_ids: Mapping[str, int],
        coordinode: Coordinode,
        jimdb: Jimdb,
    ) -> tuple[str, str]:
        """Open the subscription service and the interfaces on it; return their addresses."""
        self._keep_running(Reclaimer().run())
        metrics = self._metrics
        logs = {shard.source.name: shard.log for shard in self._shards}
        service_options = ServiceOptions(
            pressure_changes(self._config),
            shards=shard_ids,
            dialects=self._dialects(),
            capture_enabled=self._config.capture.enabled,
        )
        reads = self._reads.items()
        shards = {name: None if side is None else QueryShard(side, logs[name]) for name, side in reads}
        queries = await QueryService.open(shards, store, self._clock, query_options(self._config), metrics)
        service = await SubscriptionService.open(logs, store, service_options, queries)
        self._keep_running(service.run())
        http_options = HttpOptions()
        stores = self._stores()
        access = self._open_access(store)
        scopes = Scopes(service, access.keeper, access.limits, subscriptions_max=self._config.auth.subscriptions_max)
        core = Core(scopes, store, metrics, self._clock, self._config.capture.enabled, self._keep_running)
        streams = coordinode.services(core, self._config.coordinode)
        pulls, pulled = jimdb.service(core, lambda: self.addresses.http)
        services = [*sochdb_services(core, stores.values), *streams, pulled]
        grpc = await self._listen_grpc(services, access, pulls.stop)
        pipelines = Pipelines(store, scopes, self._clock)
        site = _site(self._config)
        gateway_port = self._config.gateway.port
        shared = gateway_port is None or 0 < gateway_port == self._config.http_port
        app = create_app(
            scopes,
            self._waiting_for,
            metrics,
            self._clock,
            http_options,
            stores if shared else None,
            access.gate,
            pipelines,
            site,
        )
        if not self._config.auth.enabled and not is_loopback(self._config.host):
            logger.warning(
                "no authentication on a public address: anyone who can reach the ports can do everything",
                extra={"host": self._config.host},
            )
        if gateway_port and not shared:
            gateway = create_gateway_app(scopes, metrics, self._clock, http_options, stores, access.gate, site)
            self._gateway = (await self._serve_http(gateway, gateway_port, service, metrics, "gateway")).replace(
                "http", "ws", 1
            )
        url = await self._serve_http(app, self._config.http_port, service, metrics, "http")
        relays = Relays(
            service, store.database, self._config.sinks, Secrets(self._config.secrets_file), self._clock, metrics
        )
        self._stack.push_async_callback(relays.stop)
        relays.start()
        return url, grpc

    async def _serve_http(
        self, app: ASGIApp, port: int, service: SubscriptionService, metrics: Metrics, name: str
    ) -> str:
        """Serve an application from now on until the whole ends; return its URL. Metrics know its port by the name."""
        server = serve(
            app,
            self._config.host,
            port,
            on_stop=service.stop,
            stop_timeout_s=HttpOptions().stop_timeout_s,
            tls=tls_context(self._config.tls, ["http/1.1"]),
            metrics=metrics,
            name=name,
        )
        with _port_of("--http-port" if port == self._config.http_port else "--ws-port"):
            return (await self._stack.enter_async_context(server)).url

    def _dialects(self) -> Dialects:
        return {shard.source.name: dialect_of(shard.opened.dialect) for shard in self._shards}

    def _open_access(self, store: MetaStore) -> Access:
        """Open what tells who calls, and have it end what is open on credentials that are no longer good."""
        auth = self._config.auth
        for name, principal in auth.principals.items():
            try:
                check_rows(principal.rows, self._dialects())
            except InvalidPredicateError as error:
                raise ConfigError(f"auth.principals.{name}: {error}") from error
        leeway_s = parse_duration_s(auth.jwt_leeway) or 0.0
        access = open_access(auth, KeyStore(store, self._clock), self._clock, leeway_s)
        self._keep_running(access.keeper.run())
        return access

    async def _listen_grpc(self, services: Sequence[Service], access: Access, on_stop: Callable[[], None]) -> str:
        """Open the gRPC port and return its address. It stops after HTTP, which has ended all feeds by then."""
        server = GrpcServer(
            self._config.host,
            self._config.grpc_port,
            services,
            GrpcGate(access) if self._config.auth.enabled else None,
            tls_context(self._config.tls, ["h2"]),
            site=_site(self._config),
            on_stop=on_stop,
            metrics=self._metrics,
        )
        self._stack.push_async_callback(server.stop)
        with _port_of("--grpc-port"):
            return await server.start()

    def _keep_running(self, work: Coroutine[Any, Any, None]) -> None:
        """Run something in a task until the server ends."""
        self._stack.push_async_callback(_end, asyncio.create_task(work))

    def _waiting_for(self) -> Sequence[str]:
        if not self._config.capture.enabled:
            return []
        return [reason for shard in self._shards for reason in shard.waiting_for()]


def log_options(config: Config) -> LogOptions:
    """Return the options of each log under a configuration."""
    ring_changes = parse_size_bytes(config.log.ring_changes)
    assert ring_changes is not None
    return LogOptions(
        ring_changes_max=ring_changes,
        compact=config.log.compact,
        retention_changes=None if config.retention.events is None else parse_size_bytes(config.retention.events),
        retention_bytes=parse_size_bytes(config.retention.bytes),
        retention_age_s=parse_duration_s(config.retention.age),
    )


def pressure_changes(config: Config) -> int | None:
    """Return how many changes a subscription may fall behind before it is under full pressure; None for any number."""
    return PRESSURE_CHANGES if config.retention.events is None else parse_size_bytes(config.retention.events)


def query_options(config: Config) -> QueryOptions:
    """Return the options of the query service under a configuration that was checked."""
    return QueryOptions(
        rows_max=config.query.rows_max,
        bytes_max=_limit(parse_size_bytes(config.query.bytes_max)),
        run_timeout_s=_limit(parse_duration_s(config.query.timeout)),
        barrier_timeout_s=_limit(parse_duration_s(config.query.log_timeout)),
        prepared_max=config.query.prepared_max,
        trackers_max=config.query.trackers_max,
        inline_rows_max=config.query.inline_rows_max,
        inline_bytes_max=_limit(parse_size_bytes(config.query.inline_bytes_max)),
        delta_rows_max=config.query.delta_rows_max,
        capture_enabled=config.capture.enabled,
    )


def _site(config: Config) -> Site:
    """Return which names and pages a server serves."""
    return Site(config.allowed_hosts, config.allowed_origins, listening=config.host, guarded=config.auth.enabled)


def _limit(value: _T | None) -> _T:
    assert value is not None
    return value


@contextmanager
def _port_of(flag: str) -> Iterator[None]:
    """Say of an address that cannot be listened on how another one is chosen."""
    try:
        yield
    except ListenError as error:
        remedy = f"choose another port with {flag} (0 takes a free one), or another address with --host"
        raise ListenError(error.address, error.reason, remedy) from error


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
