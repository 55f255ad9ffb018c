"""Replaying a log over SSE and WebSocket: one subscriber, and a hundred, against bare sockets with the same bytes.

The log is written first; then the server and the bare servers each run as a process of their own, and this process
reads from them in turn with plain sockets, in the same way: what it gets is counted before, in rounds of their own.
"""

import asyncio
import os
import selectors
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tailrace.cli.process import prepare_process
from tailrace.clock import SystemClock
from tailrace.delivery.http import HttpOptions, serve
from tailrace.interface.assemble import create_app
from tailrace.log import DiskFiles, Log, LogOptions
from tailrace.meta.store import MetaStore
from tailrace.metrics import Metrics
from tailrace.model.commit import Draft
from tailrace.model.op import Op
from tailrace.model.subscription import FilterOptions, Format, Include, SubscribeRequest, TableTarget, sub_id_of
from tailrace.model.table import Column, Kind, TableName, TableSchema
from tailrace.subscription.access import Scopes
from tailrace.subscription.service import ServiceOptions, SubscriptionService

CHANGES = 1_000_000
COMMIT_CHANGES = 100
GROUP_COMMITS = 40
SUBSCRIBERS = 100
WARM_UP_S = 1.0
WINDOW_S = 4.0
ROUNDS = 2
READ_BYTES = 1 << 20
SAMPLE_BYTES = 4 << 20

ONE_RATE_MIN = 500_000
MANY_RATE_MIN = 1_500_000
SHARE_MIN = 0.8
BARE_ONE_MIN = 0.35
BARE_MANY_MIN = 0.6
RSS_MAX_MB = 200

MARKS = {"sse": b"\ndata: {", "ws": b',"data":{"seq":'}
"""What each event has once, by wire."""

UPGRADE = (
    "Upgrade: websocket\r\nConnection: Upgrade\r\n"
    "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n"
)

SCHEMA = TableSchema(
    TableName("app", "orders"),
    1,
    (
        Column("id", Kind.I64),
        Column("customer", Kind.STR),
        Column("status", Kind.STR),
        Column("amount", Kind.DEC),
        Column("paid", Kind.BOOL),
        Column("note", Kind.STR),
    ),
    ("id",),
)


def image(number: int, status: bytes) -> bytes:
    return (
        b'{"id":%d,"customer":"customer-%06d","status":"%s","amount":"%d.%02d","paid":%s,'
        b'"note":"a note of some length that nobody reads, number %d"}'
        % (number, number % 9973, status, number % 977, number % 100, b"true" if number % 3 else b"false", number)
    )


def draft(first: int) -> Draft:
    """Return a commit of 60 % inserts, 30 % updates and 10 % deletes."""
    made = Draft(f"p{first}", 1_790_000_000_000_000 + first)
    for number in range(first, first + COMMIT_CHANGES):
        kind = number % 10
        op = Op.INSERT if kind < 6 else Op.UPDATE if kind < 9 else Op.DELETE
        made.add(
            op,
            1,
            b"[%d]" % number,
            before=None if op is Op.INSERT else image(number, b"open"),
            after=None if op is Op.DELETE else image(number, b"sent"),
        )
    return made


async def write_log(directory: Path) -> list[str]:
    """Write the log; return the names of two subscriptions to all of it: objects without images, plain with `after`."""
    log = await Log.open(DiskFiles(directory / "log"), LogOptions(), SystemClock())
    await log.put_schema(SCHEMA)
    store = await MetaStore.open(f"sqlite:///{directory}/meta.db", SystemClock())
    service = await SubscriptionService.open({"app": log}, store, ServiceOptions())
    views = [(Format.PLAIN_JSON, Include(after=True)), (Format.OBJECTS_JSON, Include())]
    made = [
        await service.subscribe(
            SubscribeRequest(
                TableTarget((SCHEMA.table,)),
                filter=FilterOptions((Op.INSERT, Op.UPDATE, Op.DELETE)),
                include=include,
                format=format_,
            )
        )
        for format_, include in views
    ]
    step = COMMIT_CHANGES * GROUP_COMMITS
    for first in range(0, CHANGES, step):
        await log.append([draft(start) for start in range(first, first + step, COMMIT_CHANGES)])
    await store.close()
    await log.close()
    return [sub_id_of(subscription.id) for subscription in made]


async def run_server(directory: Path) -> None:
    clock = SystemClock()
    log = await Log.open(DiskFiles(directory / "log"), LogOptions(), clock)
    store = await MetaStore.open(f"sqlite:///{directory}/meta.db", clock)
    service = await SubscriptionService.open({"app": log}, store, ServiceOptions())
    options = HttpOptions()
    app = create_app(Scopes(service), list, Metrics(), clock, options)
    async with asyncio.TaskGroup() as group:
        group.create_task(service.run())
        async with serve(app, "127.0.0.1", 0, on_stop=service.stop, stop_timeout_s=1) as address:
            print(address.port, flush=True)
            await asyncio.Event().wait()


async def run_bare(sample: Path) -> None:
    """Send the sample again and again, 128 KiB a write, to whoever connects."""
    data = sample.read_bytes()
    pieces = [data[begin : begin + (128 << 10)] for begin in range(0, len(data), 128 << 10)]

    async def send(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        try:
            while True:
                for piece in pieces:
                    writer.write(piece)
                    await writer.drain()
                    await asyncio.sleep(0)
        except ConnectionError:
            writer.close()

    server = await asyncio.start_server(send, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


class Peer:
    """A server in a process of its own."""

    def __init__(self, *arguments: str) -> None:
        begin = "from tailrace.cli.process import keep_small; keep_small()"  # as the command `serve` does
        run = "import runpy; runpy.run_module('bench.sse_throughput', run_name='__main__')"
        command = [sys.executable, "-c", f"{begin}; {run}", *arguments]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert self.process.stdout
        self.port = int(self.process.stdout.readline())

    def rss_peak_mb(self) -> float:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) / 1024

    def end(self) -> None:
        self.process.kill()
        self.process.wait()

    def connect(self, sub_id: str, wire: str = "sse") -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", self.port))
        more = UPGRADE if wire == "ws" else ""
        request = f"GET /api/v1/cdc/{wire}/{sub_id}?from_offset=0 HTTP/1.1\r\nHost: 127.0.0.1\r\n{more}\r\n"
        connection.sendall(request.encode())
        return connection


def replay(peer: Peer, sub_id: str, wire: str, sample: Path | None = None) -> int:
    """Read all changes with one subscriber, count them, and return how many bytes that were; keep some of them."""
    count = size_bytes = 0
    tail, kept, mark = b"", [], MARKS[wire]
    with peer.connect(sub_id, wire) as connection:
        while count < CHANGES:
            data = connection.recv(READ_BYTES)
            assert data, f"the stream ended after {count} changes"
            count += (tail + data).count(mark)
            tail = data[-(len(mark) - 1) :]
            size_bytes += len(data)
            if sample is not None and size_bytes < SAMPLE_BYTES:
                kept.append(data)
    assert count == CHANGES
    if sample is not None:
        sample.write_bytes(b"".join(kept))
    return size_bytes


def drink(peer: Peer, sub_id: str, size_bytes: int, wire: str = "sse") -> float:
    """Read this many bytes with one subscriber; return bytes a second."""
    connection = peer.connect(sub_id, wire)
    buffer = bytearray(READ_BYTES)
    left = size_bytes
    begin = time.perf_counter()
    while left > 0:
        left -= connection.recv_into(buffer)
    elapsed = time.perf_counter() - begin
    connection.close()
    return size_bytes / elapsed


def crowd(peer: Peer, sub_id: str, wire: str = "sse") -> list[float]:
    """Read with many subscribers for a while; return bytes a second of each."""
    selector = selectors.DefaultSelector()
    connections = [peer.connect(sub_id, wire) for _ in range(SUBSCRIBERS)]
    for place, connection in enumerate(connections):
        connection.setblocking(False)
        selector.register(connection, selectors.EVENT_READ, place)
    buffer = bytearray(READ_BYTES)
    # The first span empties what piled up while the others connected.
    for window_s in (WARM_UP_S, WINDOW_S):
        totals = [0] * SUBSCRIBERS
        begin = time.perf_counter()
        while (elapsed := time.perf_counter() - begin) < window_s:
            for key, _ in selector.select(0.1):
                totals[key.data] += key.fileobj.recv_into(buffer)
    for connection in connections:
        connection.close()
    selector.close()
    return [total / elapsed for total in totals]


def report(name: str, measured: float, bar: float, *, unit: str = "", at_most: bool = False) -> bool:
    good = measured <= bar if at_most else measured >= bar
    sign = "<=" if at_most else ">="
    print(f"{name:58s} {measured:14,.2f} {unit:10s} bar {sign} {bar:,.2f}  {'PASS' if good else 'MISS'}", flush=True)
    return good


def measure_one(server: Peer, bares: dict[str, Peer], sub_ids: list[str], sizes: dict[str, int]) -> bool:
    plain, objects = sub_ids
    objects_bytes = replay(server, objects, "sse")
    rate = max(drink(server, objects, objects_bytes) for _ in range(ROUNDS)) / objects_bytes * CHANGES
    good = report("one subscriber, objects_json", rate, ONE_RATE_MIN, unit="changes/s")
    for wire, size_bytes in sizes.items():
        rates: dict[str, list[float]] = {"ours": [], "bare": []}
        for _ in range(2 * ROUNDS):
            rates["ours"].append(drink(server, plain, size_bytes, wire) / size_bytes * CHANGES)
            rates["bare"].append(drink(bares[wire], plain, size_bytes) / size_bytes * CHANGES)
        ours, bare = max(rates["ours"]), max(rates["bare"])
        print(f"{wire}: one event is {size_bytes / CHANGES:.0f} bytes; bare sockets {bare:,.0f} changes a second")
        good &= report(f"one subscriber, {wire}, plain_json with after", ours, ONE_RATE_MIN, unit="changes/s")
        good &= report(f"one subscriber, {wire}, against bare sockets", ours / bare, BARE_ONE_MIN)
    return good & report("one subscriber, peak RSS", server.rss_peak_mb(), RSS_MAX_MB, unit="MB", at_most=True)


def measure_many(server: Peer, bares: dict[str, Peer], sub_id: str, sizes: dict[str, int]) -> bool:
    good = True
    for wire, size_bytes in sizes.items():
        ours: list[float] = []
        bare: list[float] = []
        for _ in range(ROUNDS):
            ours = max(ours, crowd(server, sub_id, wire), key=sum)
            bare = max(bare, crowd(bares[wire], sub_id), key=sum)
        total, bare_total = (sum(rates) / size_bytes * CHANGES for rates in (ours, bare))
        print(f"{wire}: bare sockets with {SUBSCRIBERS} {bare_total:,.0f} changes a second,", end=" ")
        print(f"least share {min(bare) / sum(bare) * SUBSCRIBERS:.2f}")
        good &= report(f"{SUBSCRIBERS} subscribers, {wire}, total", total, MANY_RATE_MIN, unit="changes/s")
        good &= report(f"{SUBSCRIBERS} subscribers, {wire}, against bare sockets", total / bare_total, BARE_MANY_MIN)
        share = min(ours) / sum(ours) * SUBSCRIBERS
        good &= report(f"{SUBSCRIBERS} subscribers, {wire}, least share of the mean", share, SHARE_MIN)
    rss = server.rss_peak_mb()
    return good & report(f"{SUBSCRIBERS} subscribers, peak RSS", rss, RSS_MAX_MB, unit="MB", at_most=True)


def measure(directory: Path, sub_ids: list[str]) -> bool:
    server = Peer("--serve", str(directory))
    bares: dict[str, Peer] = {}
    try:
        sizes = {wire: replay(server, sub_ids[0], wire, directory / wire) for wire in MARKS}
        for wire in MARKS:
            bares[wire] = Peer("--bare", str(directory / wire))
        good = measure_one(server, bares, sub_ids, sizes)
        return good & measure_many(server, bares, sub_ids[0], sizes)
    finally:
        for peer in (server, *bares.values()):
            peer.end()


def main() -> int:
    with tempfile.TemporaryDirectory() as directory:
        begin = time.perf_counter()
        (Path(directory) / "log").mkdir()
        sub_ids = asyncio.run(write_log(Path(directory)))
        print(f"wrote {CHANGES:,} changes in {time.perf_counter() - begin:.1f} s", flush=True)
        return 0 if measure(Path(directory), sub_ids) else 1


if __name__ == "__main__":
    import uvloop

    match sys.argv[1:]:
        case ["--serve", directory]:
            prepare_process()
            uvloop.run(run_server(Path(directory)))
        case ["--bare", sample]:
            uvloop.run(run_bare(Path(sample)))
        case _:
            os.environ.setdefault("PYTHONUNBUFFERED", "1")
            sys.exit(main())
