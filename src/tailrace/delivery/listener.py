"""Accepting the connections of a port, within bounds: how many there are, and how many descriptors they leave.

A connection costs a descriptor, and so do the segments of the log, the databases and the metadata. The kernel gives
out the lowest number that is free. So a connection whose own number lies below a ceiling leaves all numbers above it
to the rest of the process, without anybody counting: connections can use up their share, and never the reserve.
"""

import asyncio
import errno
import logging
import resource
import socket
import ssl
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from tailrace.metrics import Metrics
from tailrace.model.errors import ListenError

__all__ = ["Listener", "ceiling_of", "listen"]

logger = logging.getLogger(__name__)

_BACKLOG = 1024
"""Connections that may wait to be accepted."""

_RESERVE = 512
"""Descriptors that connections leave to the log, the sources and the metadata; a quarter where there are few."""

_ACCEPTED_A_TURN = 8
"""Connections that are accepted before others have their turn."""

_PAUSE_S = 0.5
"""How long nothing is accepted after the system had no descriptor or no memory for one more."""

_ACCEPTED_CROWDED = 2
"""Connections that are accepted at once where many wait for their turn."""

_CROWDED_S = 0.01
"""How long nothing more is accepted then."""

_QUIET_S = 60.0
"""Shortest time between two lines in the log about refused connections."""

_DRAIN_BYTES = 1 << 16
_EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens on an address; port 0 takes a free one.

    Raises:
        ListenError: The port is taken, or the address is not of this machine.
    """
    place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, socket.SOCK_STREAM)
    except OSError as error:
        raise ListenError(place, str(error.strerror)) from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise ListenError(place, str(error.strerror)) from error
    listener.setblocking(False)
    return listener


def ceiling_of(limit: int) -> int | None:
    """Return the descriptor from which on no connection is kept, under a limit of the process; None without one."""
    return None if limit == resource.RLIM_INFINITY else limit - min(_RESERVE, limit // 4)


class Listener:
    """Accepts connections and has a protocol made for each, until it is closed.

    `opened` counts the connections that are open. One that finds `opened_max` of them, or whose descriptor would be of
    the reserve, is sent `refusal` and closed. A TLS handshake may take `handshake_s_max`, and counts as open. While
    `crowded` is true, most wait in the queue of the kernel.
    """

    def __init__(
        self,
        listening: socket.socket,
        name: str,
        make: Callable[[], asyncio.Protocol],
        *,
        opened: Callable[[], int],
        opened_max: int,
        handshake_s_max: float,
        tls: ssl.SSLContext | None = None,
        refusal: bytes = b"",
        metrics: Metrics | None = None,
        crowded: Callable[[], bool] | None = None,
    ) -> None:
        self._listening = listening
        self._name = name
        self._make = make
        self._opened = opened
        self._opened_max = opened_max
        self._handshake_s_max = handshake_s_max if tls is not None else None
        self._tls = tls
        self._crowded = crowded
        self._refusal = refusal if tls is None else b""
        self._loop = asyncio.get_running_loop()
        self._ceiling = ceiling_of(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        self._beginning: set[asyncio.Task[None]] = set()
        self._closed = False
        self._refused = 0
        self._logged_s = -_QUIET_S
        self._count_refused = None if metrics is None else metrics.connections_refused.labels(name).inc
        if metrics is not None:
            metrics.connections_open.labels(name).set_function(self._count)
        self._loop.add_reader(listening, self._accept)

    def close(self) -> None:
        """Accept no more. Connections that are open stay so."""
        if self._closed:
            return
        self._closed = True
        self._loop.remove_reader(self._listening)
        self._listening.close()
        for task in self._beginning:
            task.cancel()

    async def wait_closed(self) -> None:
        """Wait until nothing of it runs any more."""
        await asyncio.gather(*self._beginning, return_exceptions=True)

    def _count(self) -> int:
        return self._opened() + len(self._beginning)

    def _accept(self) -> None:
        crowded = self._crowded is not None and self._crowded()
        if crowded:
            self._pause(_CROWDED_S)
        for _ in range(_ACCEPTED_CROWDED if crowded else _ACCEPTED_A_TURN):
            try:
                connection, _ = self._listening.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if error.errno in _EXHAUSTED:
                    self._note_refused()
                    self._pause(_PAUSE_S)
                    return
                continue  # the client has gone already
            connection.setblocking(False)
            if self._count() >= self._opened_max or (
                self._ceiling is not None and connection.fileno() >= self._ceiling
            ):
                self._refuse(connection)
            else:
                task = self._loop.create_task(self._begin(connection))
                self._beginning.add(task)
                task.add_done_callback(partial(self._begun, connection))

    async def _begin(self, connection: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(
                self._make, connection, ssl=self._tls, ssl_handshake_timeout=self._handshake_s_max
            )
        except (OSError, TimeoutError):  # no TLS, another version, no certificate, too slow, or gone
            connection.close()

    def _begun(self, connection: socket.socket, task: asyncio.Task[None]) -> None:
        self._beginning.discard(task)
        if task.cancelled():  # perhaps before it had begun
            connection.close()

    def _refuse(self, connection: socket.socket) -> None:
        """Say no. What has come is read first: closing a socket with unread bytes takes back what was sent."""
        self._note_refused()
        with connection, suppress(OSError):
            if self._refusal:
                with suppress(BlockingIOError):
                    connection.recv(_DRAIN_BYTES)
                connection.send(self._refusal)
                connection.shutdown(socket.SHUT_WR)

    def _pause(self, pause_s: float) -> None:
        """Leave connections in the queue of the kernel for a moment: trying at once would try for ever."""
        self._loop.remove_reader(self._listening)
        self._loop.call_later(pause_s, self._resume)

    def _resume(self) -> None:
        if not self._closed:
            self._loop.add_reader(self._listening, self._accept)

    def _note_refused(self) -> None:
        self._refused += 1
        if self._count_refused is not None:
            self._count_refused()
        now_s = time.monotonic()
        if now_s - self._logged_s >= _QUIET_S:
            self._logged_s = now_s
            logger.warning(
                "connections are refused: as many are open as may be",
                extra={"port": self._name, "open": self._count(), "most": self._opened_max, "refused": self._refused},
            )
