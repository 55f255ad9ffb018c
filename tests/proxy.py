"""A TCP proxy between a target and its server: it passes bytes on, delays them, loses answers, or cuts connections."""

import contextlib
import socket
import struct
import threading
import time

QUIET_S = 0.15
"""A server that has answered and says nothing for so long has finished what it was asked."""

_PIECE = 1 << 16


class Proxy:
    """Listens on a free port of the loopback interface and passes everything to the port of a server.

    Faults are set for connections that are there and those to come; `mend` ends them all.
    """

    def __init__(self, server_port):
        self.server_port = server_port
        self.delay_s = 0.0
        """How long each piece of an answer waits."""
        self.silent = False
        """Whether answers are swallowed until further notice; requests are passed on."""
        self._losing = 0
        self._cut_after = None
        self._lock = threading.Lock()
        self._links = set()
        self._threads = []
        self._closed = False
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._accepting = self._start(self._accept)

    def lose_answers(self, times=1):
        """Let the next requests reach the server, swallow its answers, and cut the connection when it is silent."""
        with self._lock:
            self._losing = times

    @property
    def losing(self):
        """Return how many connections are still to lose their answers."""
        return self._losing

    def cut_after(self, size_bytes):
        """Cut one connection when that many bytes more have been passed to the server, in the middle of a request."""
        with self._lock:
            self._cut_after = size_bytes

    @property
    def cutting(self):
        """Return whether a connection is still to be cut."""
        return self._cut_after is not None

    def cut(self):
        """Cut all connections."""
        with self._lock:
            links = list(self._links)
        for link in links:
            link.cut()

    def mend(self):
        """End all faults; connections that have lost bytes are cut."""
        with self._lock:
            self.delay_s, self.silent, self._losing, self._cut_after = 0.0, False, 0, None
            torn = [link for link in self._links if link.torn]
        for link in torn:
            link.cut()

    def close(self):
        self._closed = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._accepting.join(10)
        self.cut()
        for thread in self._threads:
            thread.join(10)

    def _start(self, run, *arguments):
        thread = threading.Thread(target=run, args=arguments, daemon=True)
        with self._lock:
            self._threads = [one for one in self._threads if one.is_alive()] + [thread]
            thread.start()
        return thread

    def _accept(self):
        while not self._closed:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(("127.0.0.1", self.server_port), timeout=5)
            except OSError:
                _reset(client)
                continue
            server.settimeout(None)
            for side in (client, server):
                side.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            link = _Link(client, server)
            with self._lock:
                self._links.add(link)
            self._start(self._requests, link)
            self._start(self._answers, link)

    def _requests(self, link):
        with link:
            while piece := link.client.recv(_PIECE):
                whole = self._allowed(len(piece))
                link.moved()
                link.server.sendall(piece[:whole])
                if whole < len(piece):
                    link.cut()
        self._gone(link)

    def _allowed(self, size_bytes):
        """Return how many of so many bytes may pass before the connection is cut."""
        with self._lock:
            if self._cut_after is None or size_bytes <= self._cut_after:
                if self._cut_after is not None:
                    self._cut_after -= size_bytes
                return size_bytes
            allowed, self._cut_after = self._cut_after, None
            return allowed

    def _answers(self, link):
        with link:
            while piece := link.server.recv(_PIECE):
                link.moved()
                if self.silent:
                    link.torn = True
                elif self._losing and not link.torn:
                    link.torn = True
                    self._start(self._cut_when_quiet, link)
                elif not link.torn:
                    if self.delay_s:
                        time.sleep(self.delay_s)
                    link.client.sendall(piece)
        self._gone(link)

    def _cut_when_quiet(self, link):
        while not link.quiet(QUIET_S):
            time.sleep(QUIET_S / 10)
        with self._lock:
            self._losing = max(0, self._losing - 1)
        link.cut()

    def _gone(self, link):
        link.cut()
        with self._lock:
            self._links.discard(link)


class _Link:
    """One connection: the socket of the client and that of the server."""

    def __init__(self, client, server):
        self.client, self.server = client, server
        self.torn = False
        self._moved_s = time.monotonic()

    def moved(self):
        self._moved_s = time.monotonic()

    def quiet(self, for_s):
        return time.monotonic() - self._moved_s >= for_s

    def cut(self):
        _reset(self.client)
        _reset(self.server)

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        return kind is not None and issubclass(kind, OSError | ValueError)


def _reset(side):
    """Close a connection at once, so that both who read and who write see it."""
    with contextlib.suppress(OSError):
        side.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    with contextlib.suppress(OSError):
        side.shutdown(socket.SHUT_RDWR)
    side.close()
