"""Streaming the same messages, encoded beforehand, over gRPC: our server against those of grpcio.

Three servers run as processes of their own: grpc.aio, grpcio with threads, and ours, which packs as many messages into
a frame as go in. This process reads from each in turn, with grpcio's client and with plain sockets that count what the
frames carry.
"""

import asyncio
import selectors
import socket
import subprocess
import sys
import time

import grpc
from hpack import Encoder

SERVERS = ("aio", "threads", "ours")
MESSAGE = bytes(range(97, 117)) * 6
"""120 bytes: about what an event of SochDB without images has."""

PACKED = 1024
"""Messages that ours takes in one write: as many as a feed gives at once."""

CLIENTS = 100
ROUNDS = 4
WARM_UP_S = 0.2
WINDOW_S = 0.6
MANY_WINDOW_S = 1.5
READ_BYTES = 256 << 10
FRAME_BYTES = 1 << 20
WINDOW_BYTES = (1 << 31) - 1
REOPEN_BYTES = 256 << 20
"""How much a client that counts takes before it opens its windows again."""

GRPCIO_CLIENT_MIN = 1.0
RAW_CLIENT_MIN = 20.0
MANY_MIN = 1.0
SHARE_MIN = 0.8

PATH = "/bench.Bench/Stream"
PREFIXED_BYTES = len(MESSAGE) + 5


async def run_aio() -> None:
    async def stream(request, context):
        while True:
            yield MESSAGE

    handler = grpc.method_handlers_generic_handler(
        "bench.Bench", {"Stream": grpc.unary_stream_rpc_method_handler(stream)}
    )
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((handler,))
    print(server.add_insecure_port("127.0.0.1:0"), flush=True)
    await server.start()
    await server.wait_for_termination()


def run_threads() -> None:
    from concurrent.futures import ThreadPoolExecutor

    def stream(request, context):
        while True:
            yield MESSAGE

    handler = grpc.method_handlers_generic_handler(
        "bench.Bench", {"Stream": grpc.unary_stream_rpc_method_handler(stream)}
    )
    server = grpc.server(ThreadPoolExecutor(4))
    server.add_generic_rpc_handlers((handler,))
    print(server.add_insecure_port("127.0.0.1:0"), flush=True)
    server.start()
    server.wait_for_termination()


async def run_ours() -> None:
    from tailrace.delivery.grpc.call import Method, Service, prefixed
    from tailrace.delivery.grpc.server import GrpcServer

    packed = prefixed(MESSAGE) * PACKED

    async def stream(call, request):
        while True:
            await call.write(packed)

    server = GrpcServer("127.0.0.1", 0, [Service("bench.Bench", {"Stream": Method(stream=stream)})])
    print((await server.start()).rpartition(":")[2], flush=True)
    await asyncio.Event().wait()


class Server:
    """A server in a process of its own."""

    def __init__(self, name: str) -> None:
        self.process = subprocess.Popen([sys.executable, "-m", "bench.grpc_stream", name], stdout=subprocess.PIPE)
        assert self.process.stdout
        self.port = int(self.process.stdout.readline())

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


def to_grpcio(server: Server) -> float:
    """Return the messages a second that grpcio's client takes."""
    with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        call = channel.unary_stream(PATH)(b"")
        for span_s in (WARM_UP_S, WINDOW_S):
            begin_s = time.perf_counter()
            for count, _ in enumerate(call, 1):  # noqa: B007
                if time.perf_counter() - begin_s > span_s:
                    break
        rate = count / (time.perf_counter() - begin_s)
        call.cancel()
    return rate


class Raw:
    """A client that counts what the data frames of one call carry."""

    def __init__(self, server: Server) -> None:
        self.socket = socket.create_connection(("127.0.0.1", server.port), timeout=10)
        settings = b"".join(
            code.to_bytes(2, "big") + value.to_bytes(4, "big") for code, value in ((4, WINDOW_BYTES), (5, FRAME_BYTES))
        )
        headers = Encoder().encode(
            [
                (":method", "POST"),
                (":scheme", "http"),
                (":path", PATH),
                (":authority", "bench"),
                ("content-type", "application/grpc"),
                ("te", "trailers"),
            ]
        )
        self.socket.sendall(
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
            + frame(4, 0, 0, settings)
            + frame(8, 0, 0, (WINDOW_BYTES - 65_535).to_bytes(4, "big"))
            + frame(1, 4, 1, headers)
            + frame(0, 1, 1, b"\x00\x00\x00\x00\x00")
        )
        self.carried = 0
        self._reopened = 0
        self._skip = 0
        self._rest = b""
        self._data = False
        self._buffer = bytearray(READ_BYTES)

    def read(self) -> None:
        got = self.socket.recv_into(self._buffer)
        assert got, "the server closed"
        view = memoryview(self._buffer)[:got]
        place = 0
        while place < got:
            if self._skip:
                step = min(self._skip, got - place)
                self.carried += step if self._data else 0
                self._skip -= step
                place += step
                continue
            taken = bytes(view[place : place + 9 - len(self._rest)])
            self._rest += taken
            place += len(taken)
            if len(self._rest) == 9:
                self._skip, self._data = int.from_bytes(self._rest[:3], "big"), self._rest[3] == 0
                assert self._rest[3] not in (3, 7), "the call was broken off"
                self._rest = b""
        if self.carried - self._reopened >= REOPEN_BYTES:
            self._reopened += REOPEN_BYTES
            opened = REOPEN_BYTES.to_bytes(4, "big")
            self.socket.sendall(frame(8, 0, 0, opened) + frame(8, 0, 1, opened))


def frame(kind: int, flags: int, stream: int, body: bytes) -> bytes:
    return len(body).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + body


def to_raw(server: Server, clients: int, window_s: float) -> tuple[float, float]:
    """Have clients count; return the messages a second of all, and the share of the least among them."""
    selector = selectors.DefaultSelector()
    raws = [Raw(server) for _ in range(clients)]
    for raw in raws:
        selector.register(raw.socket, selectors.EVENT_READ, raw)

    def read_for(span_s: float) -> float:
        begin_s = now_s = time.perf_counter()
        while now_s - begin_s < span_s:
            for key, _ in selector.select(10):
                key.data.read()
            now_s = time.perf_counter()
        return now_s - begin_s

    read_for(WARM_UP_S)
    while not all(raw.carried for raw in raws):
        read_for(WARM_UP_S)
    before = [raw.carried for raw in raws]
    took_s = read_for(window_s)
    counts = [raw.carried - begun for raw, begun in zip(raws, before, strict=True)]
    for raw in raws:
        raw.socket.close()
    return sum(counts) / PREFIXED_BYTES / took_s, min(counts) * clients / sum(counts)


def report(name: str, measured: float, bar: float) -> bool:
    good = measured >= bar
    print(f"{name:56s} {measured:8.2f}  bar >= {bar:.2f}  {'PASS' if good else 'MISS'}", flush=True)
    return good


def main() -> int:
    grpcio_rates = dict.fromkeys(SERVERS, 0.0)
    raw_rates = dict.fromkeys(SERVERS, 0.0)
    one = many = share = 0.0
    servers = {name: Server(name) for name in SERVERS}
    try:
        for _ in range(ROUNDS):
            for name, server in servers.items():
                grpcio_rates[name] = max(grpcio_rates[name], to_grpcio(server))
                raw_rates[name] = max(raw_rates[name], to_raw(server, 1, WINDOW_S)[0])
            one = max(one, to_raw(servers["ours"], 1, MANY_WINDOW_S)[0])
            rate, least = to_raw(servers["ours"], CLIENTS, MANY_WINDOW_S)
            many, share = max(many, rate), max(share, least)
    finally:
        for server in servers.values():
            server.end()
    for who, rates in (("grpcio's client", grpcio_rates), ("a client that counts", raw_rates)):
        print(f"to {who}: " + ", ".join(f"{name} {rate:,.0f}" for name, rate in rates.items()) + " messages/s")
    print(f"to {CLIENTS} clients that count: {many:,.0f} messages/s; to one beside them: {one:,.0f}")
    peers = {"grpcio": grpcio_rates, "raw": raw_rates}
    best = {client: max(rates["aio"], rates["threads"]) for client, rates in peers.items()}
    results = [
        report(
            "to grpcio's client, against the best of its servers",
            grpcio_rates["ours"] / best["grpcio"],
            GRPCIO_CLIENT_MIN,
        ),
        report("to a client that counts, against the best of grpcio", raw_rates["ours"] / best["raw"], RAW_CLIENT_MIN),
        report(f"{CLIENTS} clients together, against one", many / one, MANY_MIN),
        report(f"{CLIENTS} clients, the least share of an equal one", share, SHARE_MIN),
    ]
    return 0 if all(results) else 1


if __name__ == "__main__":
    import uvloop

    match sys.argv[1:]:
        case ["aio"]:
            asyncio.run(run_aio())
        case ["threads"]:
            run_threads()
        case ["ours"]:
            uvloop.run(run_ours())
        case _:
            sys.exit(main())
