"""Delivering encoded changes over WebSocket and over SSE, against each other and against bare sockets.

The log is short enough to be in the ring, and its events stay encoded: what is measured is delivery, and the bare
server sends the very same bytes. Both servers are processes of their own; this process reads from them with plain
sockets. What counts is the processor time that a server takes for the bytes: it says nearly the same on a machine that
does other work meanwhile; the rates by the clock are printed beside it. Then a thousand subscribers with the same
filter and format read the same changes, and the server's own metric tells how often each was encoded.
"""

import asyncio
import re
import selectors
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from msgspec import Struct

from bench.sse_throughput import COMMIT_CHANGES, GROUP_COMMITS, READ_BYTES, SCHEMA, draft, run_bare
from tailrace.cli.process import prepare_process
from tailrace.clock import SystemClock
from tailrace.delivery.http import HttpOptions, serve
from tailrace.interface.assemble import create_app
from tailrace.log import DiskFiles, Log, LogOptions
from tailrace.meta.store import MetaStore
from tailrace.metrics import Metrics
from tailrace.model.op import Op
from tailrace.model.subscription import FilterOptions, Format, Include, SubscribeRequest, TableTarget
from tailrace.subscription.access import Scopes
from tailrace.subscription.service import ServiceOptions, SubscriptionService

SUB_ID = "sub_0000000000000001"
CHANGES = 10 * COMMIT_CHANGES * GROUP_COMMITS
SPAN_S = 35.0
"""How long rounds are repeated."""

SUBSCRIBERS = (1, 100)

LISTENERS = 1_000
LISTENED = COMMIT_CHANGES * GROUP_COMMITS
"""How many changes each of the thousand reads: those of the last frame of the log."""

ALIKE_MIN = 0.8
BARE_SHARE_MIN = 0.5
ENCODES_MAX = 1.0

MARKS = {"sse": b"\ndata: {", "ws": b',"data":{"seq":'}
"""What each event has once, by wire."""

UPGRADE = "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"


async def run_server(directory: Path) -> None:
    """Write the log and serve it."""
    clock = SystemClock()
    log = await Log.open(DiskFiles(directory), LogOptions(), clock)
    await log.put_schema(SCHEMA)
    store = await MetaStore.open("sqlite://", clock)
    service = await SubscriptionService.open({"app": log}, store, ServiceOptions())
    app = create_app(Scopes(service), list, Metrics(), clock, HttpOptions(encoded_bytes_max=64 << 20))
    async with asyncio.TaskGroup() as group:
        group.create_task(service.run())
        await service.subscribe(
            SubscribeRequest(
                TableTarget((SCHEMA.table,)),
                filter=FilterOptions((Op.INSERT, Op.UPDATE, Op.DELETE)),
                include=Include(after=True),
                format=Format.PLAIN_JSON,
            )
        )
        for first in range(0, CHANGES, LISTENED):
            await log.append([draft(start) for start in range(first, first + LISTENED, COMMIT_CHANGES)])
        async with serve(app, "127.0.0.1", 0, on_stop=service.stop, stop_timeout_s=1) as address:
            print(address.port, flush=True)
            await asyncio.Event().wait()


class Peer:
    """A server in a process of its own."""

    def __init__(self, *arguments: str) -> None:
        command = [sys.executable, "-m", "bench.ws_throughput", *arguments]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert self.process.stdout
        self.port = int(self.process.stdout.readline())

    def processor_s(self) -> float:
        """Return how long it has run on a processor, by the clock that Linux keeps for each process."""
        return time.clock_gettime((~self.process.pid << 3) | 2)

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


def connect(peer: Peer, wire: str, offset: int = 0) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", peer.port))
    more = f"{UPGRADE}Sec-WebSocket-Version: 13\r\n" if wire == "ws" else ""
    path = f"/api/v1/cdc/{wire}/{SUB_ID}?from_offset={offset}"
    connection.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{more}\r\n".encode())
    return connection


def replay(peer: Peer, wire: str) -> bytes:
    """Return all that one subscriber gets."""
    parts, count, tail, mark = [], 0, b"", MARKS[wire]
    with connect(peer, wire) as connection:
        while count < CHANGES:
            data = connection.recv(READ_BYTES)
            assert data, f"the stream ended after {count} changes"
            count += (tail + data).count(mark)
            tail = data[-(len(mark) - 1) :]
            parts.append(data)
    assert count == CHANGES
    return b"".join(parts)


class Took(Struct, frozen=True):
    """What a delivery took: by the clock, and of the server's processor."""

    clock_s: float
    processor_s: float


def deliver(peer: Peer, wire: str, subscribers: int, size_bytes: int) -> Took:
    """Have each of some subscribers connect and read this many bytes."""
    selector = selectors.DefaultSelector()
    buffer = bytearray(READ_BYTES)
    left = [size_bytes] * subscribers
    begin = Took(time.perf_counter(), peer.processor_s())
    for place in range(subscribers):
        connection = connect(peer, wire)
        connection.setblocking(False)
        selector.register(connection, selectors.EVENT_READ, place)
    while selector.get_map():
        for key, _ in selector.select(10):
            got = key.fileobj.recv_into(buffer)
            assert got, "the connection was closed"
            left[key.data] -= got
            if left[key.data] <= 0:
                selector.unregister(key.fileobj)
                key.fileobj.close()
    return Took(time.perf_counter() - begin.clock_s, peer.processor_s() - begin.processor_s)


def encodes(peer: Peer) -> float:
    """Have a thousand subscribers read the same changes; return how often each was encoded."""
    before = encoded_changes(peer)
    selector = selectors.DefaultSelector()
    mark = MARKS["ws"]
    left, tails = [LISTENED] * LISTENERS, [b""] * LISTENERS
    for place in range(LISTENERS):
        connection = connect(peer, "ws", CHANGES - LISTENED)
        connection.setblocking(False)
        selector.register(connection, selectors.EVENT_READ, place)
    while selector.get_map():
        for key, _ in selector.select(10):
            data = tails[key.data] + key.fileobj.recv(READ_BYTES)
            left[key.data] -= data.count(mark)
            tails[key.data] = data[-(len(mark) - 1) :]
            if left[key.data] <= 0:
                selector.unregister(key.fileobj)
                key.fileobj.close()
    assert left == [0] * LISTENERS
    return (encoded_changes(peer) - before) / LISTENED


def encoded_changes(peer: Peer) -> float:
    with urllib.request.urlopen(f"http://127.0.0.1:{peer.port}/metrics") as answer:
        return float(re.search(rb"^tailrace_encoded_changes_total (\S+)", answer.read(), re.MULTILINE)[1])


def report(name: str, measured: float, bar: float, *, at_most: bool = False) -> bool:
    good = measured <= bar if at_most else measured >= bar
    sign = "<=" if at_most else ">="
    print(f"{name:62s} {measured:8.2f}  bar {sign} {bar:.2f}  {'PASS' if good else 'MISS'}", flush=True)
    return good


def middle_ratio(ones: list[Took], others: list[Took]) -> float:
    """Return the median of the ratios of each round, whose two sides met the same disturbance."""
    return statistics.median(one.processor_s / other.processor_s for one, other in zip(ones, others, strict=True))


def measure(directory: Path) -> bool:
    ours: dict[tuple[str, int], list[Took]] = {(wire, count): [] for count in SUBSCRIBERS for wire in MARKS}
    bare: dict[tuple[str, int], list[Took]] = {key: [] for key in ours}
    server = Peer("--serve", str(directory / "log"))
    peers = [server]
    try:
        times = encodes(server)
        sizes, bares = {}, {}
        for wire in MARKS:
            sample = replay(server, wire)
            sizes[wire] = len(sample)
            (directory / wire).write_bytes(sample)
            bares[wire] = Peer("--bare", str(directory / wire))
            peers.append(bares[wire])
        end = time.perf_counter() + SPAN_S
        while time.perf_counter() < end:
            for wire, count in list(ours):
                ours[wire, count].append(deliver(server, wire, count, sizes[wire]))
                bare[wire, count].append(deliver(bares[wire], "sse", count, sizes[wire]))
    finally:
        for peer in peers:
            peer.end()
    results = []
    for count in SUBSCRIBERS:
        who = f"{count} subscriber{'s' * (count > 1)}"
        for wire in MARKS:
            took, bare_took = ours[wire, count], bare[wire, count]
            rates = [count * CHANGES / min(one.clock_s for one in tooks) for tooks in (took, bare_took)]
            print(f"{who}, {wire}: {rates[0]:,.0f} changes/s by the clock, bare {rates[1]:,.0f};", end=" ")
            print(f"{sizes[wire] / CHANGES:.0f} bytes each")
            share = middle_ratio(bare_took, took)
            results.append(report(f"{who}, {wire} against bare sockets", share, BARE_SHARE_MIN))
        ratio = middle_ratio(*(ours[wire, count] for wire in MARKS))
        results.append(report(f"{who}, the dearer wire against the other", min(ratio, 1 / ratio), ALIKE_MIN))
    results.append(report(f"{LISTENERS} subscribers, encodings of each change", times, ENCODES_MAX, at_most=True))
    return all(results)


def main() -> int:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        (directory / "log").mkdir()
        return 0 if measure(directory) else 1


if __name__ == "__main__":
    import uvloop

    match sys.argv[1:]:
        case ["--serve", directory]:
            prepare_process()
            uvloop.run(run_server(Path(directory)))
        case ["--bare", sample]:
            uvloop.run(run_bare(Path(sample)))
        case _:
            sys.exit(main())
