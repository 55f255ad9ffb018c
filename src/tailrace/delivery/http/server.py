"""Running the HTTP application on a socket, with uvicorn."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import uvicorn
from msgspec import Struct
from starlette.types import ASGIApp
from uvicorn.server import ServerState

from tailrace.delivery.http.detach import GONE
from tailrace.delivery.http.protocol import BoundedProtocol, ConnectionLimits
from tailrace.delivery.http.ws_protocol import FramesProtocol
from tailrace.delivery.listener import Listener, listen
from tailrace.metrics import Metrics

__all__ = ["Address", "Adopt", "Adopted", "adopting", "serve"]

_CONNECTIONS_MAX = 20_000
"""Connections at one time; whoever comes then is answered 503."""

_HANDSHAKE_S_MAX = 10.0
"""Longest time that a TLS handshake may take."""

_IDLE_S_MAX = 75
"""Longest time that a connection may stay open between two requests."""

_MESSAGE_BYTES_MAX = 64 << 10
"""Largest message that a client may send over a WebSocket; a larger one closes the connection with 1009."""

_PING_S = 20.0
"""How often a WebSocket's client is asked for a sign of life."""

_PONG_S_MAX = 40.0
"""Longest time that it may take to answer; then it counts as gone."""


_FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nretry-after: 1\r\nconnection: close\r\n"
    b"content-length: %d\r\n\r\n%s"
)
_FULL_BODY = (
    b'{"id":null,"ok":false,"error":{"code":"rate_limited","message":"as many connections are open as may be: '
    b'try again later"}}'
)


class Address(Struct, frozen=True):
    """Where a server listens, and how it is spoken to."""

    host: str
    port: int
    scheme: str = "http"

    @property
    def url(self) -> str:
        """Return the base URL for clients on this machine."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"


@asynccontextmanager
async def serve(
    app: ASGIApp,
    host: str,
    port: int,
    *,
    on_stop: Callable[[], None],
    stop_timeout_s: float,
    tls: ssl.SSLContext | None = None,
    ping_s: float = _PING_S,
    pong_s_max: float = _PONG_S_MAX,
    handshake_s_max: float = _HANDSHAKE_S_MAX,
    connections_max: int = _CONNECTIONS_MAX,
    limits: ConnectionLimits = ConnectionLimits(),  # noqa: B008 - it is frozen
    metrics: Metrics | None = None,
    name: str = "http",
    elsewhere: Callable[[], int] = lambda: 0,
) -> AsyncIterator[Address]:
    """Serve an application for the length of an `async with` block; port 0 takes a free one.

    The socket listens before the block begins; with `tls` it speaks that. At its end `on_stop` is called, which must
    make open streams end; what is still open after `stop_timeout_s` is cut. `elsewhere` returns how many connections of
    this port other processes have: they count with those that are open here.

    Raises:
        ListenError: The address cannot be listened on.
    """
    listening = listen(host, port)
    bound_host, bound_port = listening.getsockname()[:2]
    config = _config(app, ping_s, pong_s_max, stop_timeout_s)

    def open_port(server: _Server) -> Listener:
        state, app_state = server.server_state, server.lifespan.state
        return Listener(
            listening,
            name,
            lambda: BoundedProtocol(config=config, server_state=state, app_state=app_state, limits=limits),
            opened=lambda: len(state.connections) + elsewhere(),
            opened_max=connections_max,
            handshake_s_max=handshake_s_max,
            tls=tls,
            refusal=_FULL % (len(_FULL_BODY), _FULL_BODY),
            metrics=metrics,
        )

    server = _Server(config, open_port)
    task = asyncio.create_task(server.serve())
    try:
        await server.listening.wait()
        yield Address(bound_host, bound_port, "http" if tls is None else "https")
    finally:
        # No new connections first: a browser that reconnects is refused and tries again, instead of getting "no".
        for listener in server.servers:
            listener.close()
        on_stop()
        server.should_exit = True
        await task


class Adopted:
    """A connection that came from another process, from its arrival to its end."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._cut = False

    def joined(self, transport: asyncio.Transport) -> None:
        """Note that it is served."""
        self._transport = transport
        if self._cut:
            transport.abort()

    def cut(self) -> None:
        """Close it at once."""
        self._cut = True
        if self._transport is not None:
            self._transport.abort()

    def finish(self) -> None:
        """Close it as soon as what is on its way is sent."""
        if self._transport is None:
            self.cut()
        else:
            self._transport.get_protocol().shutdown()  # type: ignore[attr-defined]


Adopt = Callable[[socket.socket, bytes, dict[str, Any], Callable[[], None]], Adopted]
"""Serves a connection whose first request is given, with a state for its requests; calls back when it is closed."""


def adopting(app: ASGIApp) -> Adopt:
    """Return what has an application answer requests on connections that came from another process."""
    config, server_state = _config(app, _PING_S, _PONG_S_MAX, 1.0), ServerState()
    loop, tasks, limits = asyncio.get_running_loop(), set[asyncio.Task[None]](), ConnectionLimits()

    def adopt(connection: socket.socket, head: bytes, state: dict[str, Any], gone: Callable[[], None]) -> Adopted:
        adopted = Adopted()

        async def begin() -> None:
            try:
                transport, _ = await loop.connect_accepted_socket(
                    lambda: BoundedProtocol(
                        config=config,
                        server_state=server_state,
                        app_state={**state, GONE: gone},
                        limits=limits,
                        head=head,
                    ),
                    connection,
                )
            except OSError:  # the client has gone already
                connection.close()
                gone()
            else:
                adopted.joined(transport)

        connection.setblocking(False)
        task = loop.create_task(begin())
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        return adopted

    return adopt


def _config(app: ASGIApp, ping_s: float, pong_s_max: float, stop_timeout_s: float) -> uvicorn.Config:
    config = uvicorn.Config(
        app,
        http=BoundedProtocol,
        ws=FramesProtocol,
        ws_max_size=_MESSAGE_BYTES_MAX,
        ws_ping_interval=ping_s,
        ws_ping_timeout=pong_s_max,
        ws_per_message_deflate=False,
        lifespan="off",
        interface="asgi3",
        access_log=False,
        log_config=None,
        server_header=False,
        timeout_keep_alive=_IDLE_S_MAX,
        timeout_graceful_shutdown=max(1, round(stop_timeout_s)),
    )
    config.load()
    return config


class _Server(uvicorn.Server):
    """A uvicorn that listens by our own means, says when it does, and leaves signals to the program around it."""

    def __init__(self, config: uvicorn.Config, open_port: Callable[["_Server"], Listener]) -> None:
        super().__init__(config)
        self.listening = asyncio.Event()
        self._open_port = open_port

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        try:
            self.servers = [self._open_port(self)]  # type: ignore[list-item]
            self.started = True
        finally:
            self.listening.set()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
