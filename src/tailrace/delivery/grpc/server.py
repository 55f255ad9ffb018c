"""The gRPC port: listens, carries services, stops cleanly."""

import asyncio
import ssl
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any

from tailrace.delivery.grpc.call import GrpcCall, Method, Service, StatusCode, StatusError
from tailrace.delivery.grpc.dispatch import Dispatcher, Gate
from tailrace.delivery.grpc.health import Health
from tailrace.delivery.grpc.http2.connection import Connection
from tailrace.delivery.grpc.http2.options import TransportOptions
from tailrace.delivery.grpc.http2.stream import Held, Http2Stream
from tailrace.delivery.grpc.http2.turns import ReadTurns
from tailrace.delivery.grpc.reflection import reflection_services
from tailrace.delivery.listener import Listener, listen
from tailrace.delivery.site import Site
from tailrace.metrics import Metrics

__all__ = ["GrpcServer"]

_STOPPING = StatusError(StatusCode.UNAVAILABLE, "the server is stopping")


class GrpcServer:
    """A gRPC server on one address: some services, and those that tell of health and of what is served.

    `start` it once, `stop` it once. `tls` must offer the protocol `h2`. With a `site`, only its names and pages are
    served. When the server stops, `on_stop` is called first; it should make streams end.
    """

    def __init__(
        self,
        host: str,
        port: int,
        services: Sequence[Service] = (),
        gate: Gate | None = None,
        tls: ssl.SSLContext | None = None,
        *,
        site: Site | None = None,
        on_stop: Callable[[], None] | None = None,
        options: TransportOptions | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        self.options = options or TransportOptions()
        self.held = Held(self.options.held_bytes_max)
        self._host = host
        self._port = port
        self.health = Health(service.name for service in services)
        carried = [*services, self.health.service]
        self._dispatcher = Dispatcher([*carried, *reflection_services(carried)], gate, site)
        self._tls = tls
        self._on_stop = on_stop
        self._metrics = metrics
        self.turns: ReadTurns
        self._listener: Listener | None = None
        self._connections: set[Connection] = set()
        self._moved = asyncio.Event()

    async def start(self) -> str:
        """Listen, and return the address with the port really taken.

        Raises:
            ListenError: The port is taken, or the address is not of this machine.
        """
        self.turns = ReadTurns(self.options)
        listening = listen(self._host, self._port)
        port = listening.getsockname()[1]
        self._listener = Listener(
            listening,
            "grpc",
            lambda: Connection(self),
            opened=lambda: len(self._connections),
            opened_max=self.options.connections_max,
            handshake_s_max=self.options.handshake_s_max,
            tls=self._tls,
            metrics=self._metrics,
            crowded=lambda: self.turns.crowded,
        )
        return f"{_shown(self._host)}:{port}"

    async def stop(self) -> None:
        """Take no more calls, let those that run finish for a moment, end the rest, and close the port.

        Streams that do not end by themselves, end with UNAVAILABLE.
        """
        if self._listener is None:
            return
        self._listener.close()
        self.health.stop()
        if self._on_stop is not None:
            self._on_stop()
        for connection in list(self._connections):
            connection.leave()
        await self._until(lambda: not any(map(self._is_stream, self._calls())), self.options.streams_stop_s)
        self.end_calls(self._is_stream, _STOPPING)
        await self._until(lambda: not self._calls(), self.options.stop_s_max)
        self.end_calls(lambda call: True, _STOPPING)
        await self._until(lambda: all(connection.idle for connection in self._connections), self.options.close_s_max)
        await self._until(lambda: not self._connections, self.options.streams_stop_s)
        for connection in list(self._connections):
            connection.abort()
        await self._until(lambda: not self._connections, self.options.close_s_max)
        await self._listener.wait_closed()

    def end_calls(self, which: Callable[[GrpcCall], bool], error: StatusError) -> int:
        """End running calls with a status, whatever their handlers do; return how many."""
        ended = [call for call in self._calls() if which(call)]
        for call in ended:
            call.end(error)
        return len(ended)

    # What connections call.

    def find(self, path: str) -> Method | None:
        """Return the method at a path."""
        return self._dispatcher.find(path)

    def handle(self, stream: Http2Stream, method: Method) -> Coroutine[Any, Any, None]:
        """Handle a call to its end."""
        return self._dispatcher.handle(stream, method)

    def joined(self, connection: Connection) -> None:
        """Take note of a new connection."""
        self._connections.add(connection)

    def settled(self) -> None:
        """Take note that a call is over and its handler done."""
        self._moved.set()

    def left(self, connection: Connection) -> None:
        """Take note that a connection is gone."""
        self._connections.discard(connection)
        self._moved.set()

    def _calls(self) -> list[Http2Stream]:
        return [call for connection in self._connections for call in connection.calls]

    def _is_stream(self, call: GrpcCall) -> bool:
        method = self.find(call.path)
        return method is not None and method.unary is None

    async def _until(self, condition: Callable[[], bool], timeout_s: float) -> None:
        """Wait until a condition is true, or until the time is over."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while not condition():
                    self._moved.clear()
                    await self._moved.wait()


def _shown(host: str) -> str:
    return f"[{host}]" if ":" in host else host
