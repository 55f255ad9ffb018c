"""Running the HTTP application on a socket, with uvicorn."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

import uvicorn
from msgspec import Struct
from starlette.types import ASGIApp

from tailrace.delivery.http.protocol import BoundedProtocol
from tailrace.delivery.http.ws_protocol import FramesProtocol
from tailrace.model.errors import ListenError

__all__ = ["Address", "serve"]

_BACKLOG = 1024
"""Connections that may wait to be accepted."""

_CONNECTIONS_MAX = 20_000
"""Connections and requests at one time; whoever comes then is answered 503."""

_IDLE_S_MAX = 75
"""Longest time that a connection may stay open between two requests."""

_MESSAGE_BYTES_MAX = 64 << 10
"""Largest message that a client may send over a WebSocket; a larger one closes the connection with 1009."""

_PING_S = 20.0
"""How often a WebSocket's client is asked for a sign of life."""

_PONG_S_MAX = 40.0
"""Longest time that it may take to answer; then it counts as gone."""


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
) -> AsyncIterator[Address]:
    """Serve an application for the length of an `async with` block; port 0 takes a free one.

    The socket listens before the block begins; with `tls` it speaks that. At its end `on_stop` is called, which must
    make open streams end; what is still open after `stop_timeout_s` is cut.

    Raises:
        ListenError: The address cannot be listened on.
    """
    listener = _listen(host, port)
    bound_host, bound_port = listener.getsockname()[:2]
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
        backlog=_BACKLOG,
        limit_concurrency=_CONNECTIONS_MAX,
        timeout_keep_alive=_IDLE_S_MAX,
        timeout_graceful_shutdown=max(1, round(stop_timeout_s)),
    )
    config.load()
    config.ssl = tls  # it would make one of its own from files
    server = _Server(config)
    task = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        await server.listening.wait()
        yield Address(bound_host, bound_port, "http" if tls is None else "https")
    finally:
        # No new connections first: a browser that reconnects is refused and tries again, instead of being told "no".
        for listening in server.servers:
            listening.close()
        on_stop()
        server.should_exit = True
        await task


class _Server(uvicorn.Server):
    """A uvicorn that says when it listens and leaves signals to the program around it."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listening = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        try:
            await super().startup(sockets)
        finally:
            self.listening.set()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _listen(host: str, port: int) -> socket.socket:
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, socket.SOCK_STREAM)
    except OSError as error:
        raise ListenError(f"{host}:{port}", str(error.strerror)) from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise ListenError(f"{host}:{port}", str(error.strerror)) from error
    listener.setblocking(False)
    return listener
