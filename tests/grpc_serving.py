"""A gRPC server of ours inside the test's process, on its own thread, and bare clients for it."""

import asyncio
import socket
import threading
from contextlib import contextmanager

import uvloop
from hpack import Decoder, Encoder

from serving import wait_until
from tailrace.delivery.grpc.server import GrpcServer

DEADLINE_S = 60
LOOPS = {"uvloop": uvloop.new_event_loop, "asyncio": asyncio.SelectorEventLoop}


class Served:
    """A running `GrpcServer`; leave it by `stop`."""

    def __init__(self, services=(), *, loop="uvloop", **options):
        self.loop = LOOPS[loop]()
        self.problems = []
        self.loop.set_exception_handler(lambda loop, context: self.problems.append(context))
        self._thread = threading.Thread(target=self.loop.run_forever)
        self._thread.start()
        self.server = self.run(self._make(services, options))
        self.address = self.run(self.server.start())
        self.port = int(self.address.rpartition(":")[2])

    async def _make(self, services, options):
        return GrpcServer("127.0.0.1", 0, services, **options)

    def run(self, coroutine):
        """Run something on the server's thread."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(DEADLINE_S)

    def call(self, function, *arguments):
        """Call something on the server's thread."""

        async def call():
            return function(*arguments)

        return self.run(call())

    @property
    def calls(self):
        """How many calls are under way."""
        return self.call(lambda: len(self.server._calls()))

    @property
    def connections(self):
        """How many connections are open."""
        return self.call(lambda: len(self.server._connections))

    def stop(self):
        try:
            self.run(self.server.stop())
        finally:
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join(DEADLINE_S)
            self.loop.close()
        assert self.problems == []


@contextmanager
def served(*arguments, **options):
    """Serve for the length of a `with` block."""
    server = Served(*arguments, **options)
    try:
        yield server
    finally:
        server.stop()


PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
ACK = END_STREAM = 1
END_HEADERS = 4


def frame(kind, flags=0, stream=0, body=b""):
    return len(body).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + body


def setting(code, value):
    return code.to_bytes(2, "big") + value.to_bytes(4, "big")


class Bare:
    """A client that sends whatever it is told to, and reads frames."""

    def __init__(self, server, settings=b"", *, preface=True, receive_bytes=None):
        self.socket = socket.socket()
        self.socket.settimeout(DEADLINE_S)
        if receive_bytes:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        self.socket.connect(("127.0.0.1", server.port))
        self.encoder = Encoder()
        self.decoder = Decoder()
        self._rest = b""
        if preface:
            self.socket.sendall(PREFACE + frame(SETTINGS, body=settings))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send(self, *frames):
        self.socket.sendall(b"".join(frames))

    def headers(self, path, stream=1, flags=END_HEADERS, *, headers=None, **changed):
        """Return the frame that begins a call."""
        fields = {":method": "POST", ":scheme": "http", ":path": path, ":authority": "localhost"}
        fields |= {"content-type": "application/grpc", "te": "trailers"}
        fields |= {name.replace("__", ":").replace("_", "-"): value for name, value in changed.items()}
        listed = [(name, value) for name, value in fields.items() if value is not None]
        return frame(HEADERS, flags, stream, self.encoder.encode(listed + (headers or [])))

    def frames(self):
        """Yield kind, flags, stream and body of frames until the server closes."""
        while True:
            while len(self._rest) < 9 or len(self._rest) < 9 + int.from_bytes(self._rest[:3], "big"):
                try:
                    data = self.socket.recv(1 << 16)
                except ConnectionResetError:
                    data = b""
                if not data:
                    return
                self._rest += data
            size, kind, flags = int.from_bytes(self._rest[:3], "big"), self._rest[3], self._rest[4]
            stream, body = int.from_bytes(self._rest[5:9], "big"), self._rest[9 : 9 + size]
            self._rest = self._rest[9 + size :]
            yield kind, flags, stream, body

    def await_frame(self, kind, stream=0, flags=0):
        """Read on to a frame with these flags; return its body."""
        for one, marks, number, body in self.frames():
            if kind == one and number == stream and marks & flags == flags:
                return body
        raise AssertionError("the server closed")

    def await_headers(self, stream=1, flags=END_STREAM):
        """Read on to the headers that end a stream; return them."""
        found = None
        for kind, marks, number, body in self.frames():
            if kind == HEADERS:
                decoded = dict(self.decoder.decode(body))
                if number == stream and marks & flags == flags:
                    found = decoded
                    break
        assert found is not None, "the server closed"
        return found

    def await_close(self):
        """Read on to the end; return the frames before it."""
        return list(self.frames())


def wait_until_idle(server):
    wait_until(lambda: server.calls == 0, "no call under way")
