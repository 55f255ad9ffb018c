"""The ports of a server: HTTP and gRPC on one host, with the same TLS, names and pages."""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager

from starlette.types import ASGIApp

from tailrace.access.access import AccessControl
from tailrace.delivery.grpc.call import Service
from tailrace.delivery.grpc.dispatch import GrpcGate
from tailrace.delivery.grpc.server import GrpcServer
from tailrace.delivery.http.options import HttpOptions
from tailrace.delivery.http.server import serve
from tailrace.delivery.site import Site, is_loopback
from tailrace.delivery.tls import TlsConfig, tls_context
from tailrace.metrics import Metrics
from tailrace.model.errors import ListenError

__all__ = ["Ports"]

logger = logging.getLogger(__name__)


class Ports:
    """Opens ports, which are closed with a stack, the last one first."""

    def __init__(
        self, stack: AsyncExitStack, host: str, site: Site, tls: TlsConfig, metrics: Metrics, *, guarded: bool
    ) -> None:
        """Open ports of a host. Diagnostics say where nothing guards them, and not only this machine reaches them."""
        self._stack = stack
        self._host = host
        self._site = site
        self._tls = tls
        self._metrics = metrics
        if not guarded and not is_loopback(host):
            logger.warning(
                "no authentication on a public address: anyone who can reach the ports can do everything",
                extra={"host": host},
            )

    async def open_http(
        self,
        app: ASGIApp,
        port: int,
        flag: str,
        name: str,
        on_stop: Callable[[], None],
        elsewhere: Callable[[], int] = lambda: 0,
    ) -> str:
        """Serve an application from now on; return its URL. Metrics know the port by the name.

        `elsewhere` returns how many connections of the port other processes have.

        Raises:
            ListenError: The port is taken, or the address is not of this machine. `flag` sets another port.
        """
        server = serve(
            app,
            self._host,
            port,
            on_stop=on_stop,
            stop_timeout_s=HttpOptions().stop_timeout_s,
            tls=tls_context(self._tls, ["http/1.1"]),
            metrics=self._metrics,
            name=name,
            elsewhere=elsewhere,
        )
        with _port_of(flag):
            return (await self._stack.enter_async_context(server)).url

    async def open_grpc(
        self, services: Sequence[Service], port: int, access: AccessControl | None, on_stop: Callable[[], None]
    ) -> str:
        """Serve services from now on, to everybody without `access`; return the address.

        Raises:
            ListenError: The port is taken, or the address is not of this machine.
        """
        server = GrpcServer(
            self._host,
            port,
            services,
            None if access is None else GrpcGate(access),
            tls_context(self._tls, ["h2"]),
            site=self._site,
            on_stop=on_stop,
            metrics=self._metrics,
        )
        self._stack.push_async_callback(server.stop)
        with _port_of("--grpc-port"):
            return await server.start()


@contextmanager
def _port_of(flag: str) -> Iterator[None]:
    """Say of an address that cannot be listened on how another one is chosen."""
    try:
        yield
    except ListenError as error:
        remedy = f"choose another port with {flag} (0 takes a free one), or another address with --host"
        raise ListenError(error.address, error.reason, remedy) from error
