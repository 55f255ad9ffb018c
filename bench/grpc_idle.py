"""A unary gRPC call while hundreds of streams are open and silent, against the same call with none.

The server runs as a process of its own. The streams are spread over a few connections; the call is made by grpcio's
client on a connection of its own, and by a bare one on a connection that holds idle streams too.
"""

import asyncio
import socket
import subprocess
import sys
import time

import grpc
from hpack import Encoder

STREAMS = 500
CONNECTIONS = 10
CALLS = 600
ROUNDS = 5
P99_RATIO_MAX = 5.0
DEADLINE_S = 20.0

PSEUDO_HEADERS = [(":method", "POST"), (":scheme", "http"), (":authority", "bench")]
HEADERS = [("content-type", "application/grpc"), ("te", "trailers")]
EMPTY = b"\x00\x00\x00\x00\x00"


async def run_server() -> None:
    from tailrace.delivery.grpc.call import Method, Service
    from tailrace.delivery.grpc.server import GrpcServer

    async def echo(call, message):
        return message

    async def idle(call, message):
        call.begin()
        await asyncio.Event().wait()

    methods = {"Echo": Method(unary=echo), "Idle": Method(stream=idle)}
    server = GrpcServer("127.0.0.1", 0, [Service("bench.Bench", methods)])
    print((await server.start()).rpartition(":")[2], flush=True)
    await asyncio.Event().wait()


class Connection:
    """A bare client."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, b""))
        self._encoder = Encoder()
        self._stream = -1
        self._rest = b""

    def call(self, method: str) -> int:
        """Begin a call; return its stream."""
        self._stream += 2
        headers = self._encoder.encode([*PSEUDO_HEADERS, (":path", f"/bench.Bench/{method}"), *HEADERS])
        self.socket.sendall(frame(1, 4, self._stream, headers) + frame(0, 1, self._stream, EMPTY))
        return self._stream

    def echo(self, message: bytes) -> None:
        """Make a call that is answered at once."""
        self.wait(self.call("Echo"), end=True)

    def wait(self, stream: int, *, end: bool) -> None:
        """Read until a stream has begun, or ended."""
        while True:
            for kind, flags, number in self._frames():
                if number == stream and kind == 1 and (flags & 1 or not end):
                    return

    def _frames(self):
        data = self.socket.recv(1 << 16)
        assert data, "the server closed"
        self._rest += data
        while len(self._rest) >= 9 and len(self._rest) >= 9 + int.from_bytes(self._rest[:3], "big"):
            size, kind, flags = int.from_bytes(self._rest[:3], "big"), self._rest[3], self._rest[4]
            number = int.from_bytes(self._rest[5:9], "big")
            self._rest = self._rest[9 + size :]
            yield kind, flags, number


def frame(kind: int, flags: int, stream: int, body: bytes) -> bytes:
    return len(body).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + body


def p99_ms(echo) -> float:
    """Return the time that 99 of 100 calls stay below."""
    took = []
    for _ in range(CALLS):
        begin_s = time.perf_counter()
        echo(b"")
        took.append(time.perf_counter() - begin_s)
    return sorted(took)[CALLS * 99 // 100] * 1e3


def idle_connections(port: int) -> list[Connection]:
    connections = [Connection(port) for _ in range(CONNECTIONS)]
    for connection in connections:
        for _ in range(STREAMS // CONNECTIONS):
            connection.wait(connection.call("Idle"), end=False)
    return connections


def measure(port: int) -> dict[str, tuple[float, float]]:
    """Return the best of the rounds for each client: with none, with many."""
    rounds = [measure_once(port) for _ in range(ROUNDS)]
    return {name: (min(one[name][0] for one in rounds), min(one[name][1] for one in rounds)) for name in rounds[0]}


def measure_once(port: int) -> dict[str, tuple[float, float]]:
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        echo = channel.unary_unary("/bench.Bench/Echo")
        echo(b"", timeout=DEADLINE_S)
        alone = Connection(port)
        none = (p99_ms(echo), p99_ms(alone.echo))
        alone.socket.close()
        idle = idle_connections(port)
        many = (p99_ms(echo), p99_ms(idle[0].echo))
        for connection in idle:
            connection.socket.close()
    return {"grpcio's client": (none[0], many[0]), "beside idle streams": (none[1], many[1])}


def main() -> int:
    command = [sys.executable, "-m", "bench.grpc_idle", "--serve"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as server:
        try:
            assert server.stdout
            best = measure(int(server.stdout.readline()))
        finally:
            server.kill()
    good = True
    for name, (none_ms, many_ms) in best.items():
        ratio = many_ms / none_ms
        good = good and ratio <= P99_RATIO_MAX
        print(f"{name}: p99 {none_ms:.2f} ms with no stream open, {many_ms:.2f} ms with {STREAMS}")
        verdict = "PASS" if ratio <= P99_RATIO_MAX else "MISS"
        print(f"unary p99 with {STREAMS} idle streams, {name:24s} {ratio:8.2f}  bar <= {P99_RATIO_MAX:.2f}  {verdict}")
    return 0 if good else 1


if __name__ == "__main__":
    import uvloop

    match sys.argv[1:]:
        case ["--serve"]:
            uvloop.run(run_server())
        case _:
            sys.exit(main())
