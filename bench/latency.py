"""From a commit in SQLite to a subscriber, through `tailrace serve`, against a bare path in Python in the same run.

The writer, the server and the reader are three processes. The time runs from the call of COMMIT to the moment when the
reader has the event in hand. The bare path is what the language allows: a trigger, one thread that reads the change
table, encodes, writes and syncs a file and wakes the event loop once, and a loop that writes to the socket.
"""

import asyncio
import base64
import contextlib
import json
import os
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import NamedTuple

import httpx

RATE = 1_000
RATE_SLOW = 100
SECONDS = 6
WARM_UP_SECONDS = 1
OTHERS = 1_000
"""Other live subscriptions, each with a key of its own that never comes."""

PATIENCE_S = 20.0

P50_MAX_MS = 1.5
P99_MAX_MS = 8.0
LIMIT_MAX = 3.0
"""Our p50 against that of the bare path."""

PROCESSOR_MAX_US = 500.0
"""Of the server, for one commit: half of what it was when commits crossed six threads and tasks."""

_EVENT = re.compile(rb'"pk":\[(\d+)\]')
_CLOCK = os.sysconf("SC_CLK_TCK")


def make_table(path: Path) -> None:
    """Make the table that `write` writes to."""
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, name TEXT, amount REAL, note TEXT)")


def writer(path: Path, times: Path, total: int, rate: int = RATE) -> subprocess.Popen[bytes]:
    """Start the process that writes."""
    return subprocess.Popen([sys.executable, "-m", "bench.latency", "--write", path, times, str(total), str(rate)])


def write(path: str, times: str, total: int, rate: int) -> None:
    """Commit one row at a time, this many a second; leave the times at which each commit was called."""
    database = sqlite3.connect(path, isolation_level=None)
    database.execute("PRAGMA synchronous = NORMAL")
    first = database.execute("SELECT coalesce(max(id) + 1, 0) FROM t").fetchone()[0]
    begun = time.monotonic()
    called = []
    for number in range(total):
        left = begun + number / rate - time.monotonic()
        if left > 0:
            time.sleep(left)
        database.execute("BEGIN IMMEDIATE")
        database.execute(
            "INSERT INTO t VALUES (?, 'a name', 12.5, 'a note of some length that nobody reads')", (first + number,)
        )
        called.append(time.monotonic_ns())
        database.execute("COMMIT")
    database.close()
    Path(times).write_text(json.dumps(called))


@contextlib.contextmanager
def process(*command: str | Path):
    """Run a server; yield its id and the addresses that it prints."""
    with subprocess.Popen([sys.executable, *command], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as running:
        try:
            assert running.stdout
            yield running.pid, json.loads(running.stdout.readline())
        finally:
            running.send_signal(signal.SIGTERM)
            running.wait()


def served(directory: Path, database: Path):
    command = ["-m", "tailrace", "serve", "--json", "--data-dir", directory / "data"]
    return process(*command, "--source", f"app=sqlite:///{database}", "--http-port", "0", "--grpc-port", "0")


def subscribe(url: str, **params: object) -> dict[str, str]:
    """Subscribe to the table, as soon as the server knows it; return the answer."""
    params = {"db": "app", "table": "t", "format": "plain_json", "include": {"after": True}, **params}
    body = {"skeinql": "1.0", "id": 1, "method": "cdc.subscribe_table", "params": params}
    end = time.monotonic() + PATIENCE_S
    while True:
        answer = httpx.post(f"{url}/api/v1/rpc", json=body).json()
        if answer["ok"]:
            return answer["result"]
        assert time.monotonic() < end, answer
        time.sleep(0.05)


# ---- readers: each yields the keys that it has in hand


def connect(url: str, head: str) -> socket.socket:
    address = httpx.URL(url)
    connection = socket.create_connection((address.host, address.port), timeout=PATIENCE_S)
    connection.sendall(f"{head} HTTP/1.1\r\nHost: 127.0.0.1\r\n".encode())
    return connection


def keys_of(connection: socket.socket, end: bytes):
    rest = b""
    while data := connection.recv(1 << 16):
        whole, separator, rest = (rest + data).rpartition(end)
        yield [int(key) for key in _EVENT.findall(whole + separator)]


@contextlib.contextmanager
def over_sse(addresses):
    with connect(addresses["http"], f"GET {subscribe(addresses['http'])['sse_url']}") as connection:
        connection.sendall(b"\r\n")
        yield keys_of(connection, b"\n\n")


@contextlib.contextmanager
def over_ws(addresses):
    with connect(addresses["http"], f"GET {subscribe(addresses['http'])['ws_url']}") as connection:
        key = base64.b64encode(bytes(16)).decode()
        upgrade = f"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}"
        connection.sendall(f"{upgrade}\r\n\r\n".encode())
        yield keys_of(connection, b"}}")


@contextlib.contextmanager
def over_grpc(addresses):
    import grpc

    from tailrace.delivery.grpc.proto import sochdb_pb2 as messages

    subscribe(addresses["http"])  # when the server knows the table
    with grpc.insecure_channel(addresses["grpc"].removeprefix("grpc://")) as channel:
        call = channel.unary_stream(
            "/sochdb.v1.SubscriptionService/Subscribe",
            request_serializer=messages.SubscribeRequest.SerializeToString,
            response_deserializer=messages.SubscribeEvent.FromString,
        )
        events = call(messages.SubscribeRequest(tables=["t"]))
        events.initial_metadata()  # it is open
        yield (json.loads(event.key) for event in events)


@contextlib.contextmanager
def over_bare(addresses):
    with socket.create_connection(("127.0.0.1", addresses["port"]), timeout=PATIENCE_S) as connection:
        yield keys_of(connection, b"\n\n")


# ---- the bare path

_TRIGGER = """
CREATE TABLE bare_change (id INTEGER PRIMARY KEY, key, name, amount, note);
CREATE TRIGGER bare AFTER INSERT ON t BEGIN
  INSERT INTO bare_change(key, name, amount, note) VALUES (new.id, new.name, new.amount, new.note);
END
"""


async def run_bare(path: str, log: str) -> None:
    import uvloop  # noqa: F401  what the server runs on

    from tailrace.source.sqlite.watch import FileWatch

    database = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
    database.executescript(_TRIGGER)
    loop = asyncio.get_running_loop()
    clients: list[asyncio.StreamWriter] = []

    def publish(data: bytes) -> None:
        for client in clients:
            client.write(data)

    def capture() -> None:
        file = os.open(log, os.O_CREAT | os.O_WRONLY)
        watch, last = FileWatch(Path(path)), 0
        while True:
            rows = database.execute("SELECT * FROM bare_change WHERE id > ?", (last,)).fetchall()
            if not rows:
                watch.arm(wal_alone=True)
                rows = database.execute("SELECT * FROM bare_change WHERE id > ?", (last,)).fetchall()
            if not rows:
                # The bytes arrive before the commit can be seen.
                if watch.wait(0.25):
                    time.sleep(0.0001)
                continue
            last = rows[-1][0]
            data = b"".join(
                b'id: %d\nevent: insert\ndata: {"pk":[%d],"after":%s}\n\n' % (number, key, json.dumps(cells).encode())
                for number, key, *cells in rows
            )
            os.write(file, data)
            os.fdatasync(file)
            loop.call_soon_threadsafe(publish, data)

    server = await asyncio.start_server(lambda _reader, client: clients.append(client), "127.0.0.1", 0)
    threading.Thread(target=capture, daemon=True).start()
    print(json.dumps({"port": server.sockets[0].getsockname()[1]}), flush=True)
    await asyncio.Event().wait()


# ---- measuring


def read(keys, first: int, total: int) -> list[int]:
    """Return when each event was in hand."""
    arrived = [0] * total
    count = 0
    for found in keys:
        now = time.monotonic_ns()
        for key in found:
            arrived[key - first] = now
            count += 1
        if count == total:
            return arrived
    raise AssertionError(f"the stream ended after {count} events")


def latencies_ms(called: list[int], arrived: list[int]) -> list[float]:
    """Return how long each row took, the quickest first."""
    return sorted((there - then) / 1e6 for then, there in zip(called, arrived, strict=True))


def percentile(ordered: list[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def report(name: str, measured: float, bar: float, unit: str = "ms") -> bool:
    good = measured <= bar
    print(f"{name:48s} {measured:8.2f} {unit:2s}  bar <= {bar:.2f}  {'PASS' if good else 'MISS'}", flush=True)
    return good


class Measured(NamedTuple):
    """Latencies, the quickest first, and processor time of the server for one commit."""

    latencies_ms: list[float]
    processor_us: float

    def p(self, share: float) -> float:
        return percentile(self.latencies_ms, share)


def processor_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _CLOCK


def measure(name: str, directory: Path, path: Path, pid: int, keys, rate: int = RATE) -> Measured:
    """Write at a rate and read what comes."""
    total, warm_up = rate * (SECONDS + WARM_UP_SECONDS), rate * WARM_UP_SECONDS
    with contextlib.closing(sqlite3.connect(path)) as database:
        first = database.execute("SELECT coalesce(max(id) + 1, 0) FROM t").fetchone()[0]
    times = directory / "times"
    before_s = processor_s(pid)
    with writer(path, times, total, rate) as writing:
        arrived = read(keys, first, total)
        assert writing.wait() == 0
    took_s = processor_s(pid) - before_s
    latencies = latencies_ms(json.loads(times.read_text())[warm_up:], arrived[warm_up:])
    found = Measured(latencies, took_s / total * 1e6)
    shown = "  ".join(f"p{100 * share:g} {found.p(share):6.2f}" for share in (0.01, 0.5, 0.9, 0.99))
    print(f"{name:36s} {shown} ms  processor time a commit {found.processor_us:5.0f} µs", flush=True)
    return found


@contextlib.contextmanager
def others(url: str):
    """Have other live subscriptions, which want what never comes."""
    with contextlib.ExitStack() as stack:
        for number in range(OTHERS):
            answer = subscribe(url, pk=[{"t": "i64", "v": -1 - number}])
            connection = stack.enter_context(connect(url, f"GET {answer['sse_url']}"))
            connection.sendall(b"\r\n")
            assert connection.recv(1 << 16)
        yield


def main() -> int:
    results = []
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        path = directory / "bare.db"
        make_table(path)
        with (
            process("-m", "bench.latency", "--bare", path, directory / "bare.log") as (pid, addresses),
            over_bare(addresses) as keys,
        ):
            limit = measure("bare path, 1000 commits/s", directory, path, pid, keys)
        path = directory / "app.db"
        make_table(path)
        with served(directory, path) as (pid, addresses):
            for wire, over in {"SSE": over_sse, "WebSocket": over_ws, "gRPC": over_grpc}.items():
                with over(addresses) as keys:
                    found = measure(f"{wire}, {RATE} commits/s", directory, path, pid, keys)
                results += [
                    report(f"commit to subscriber, {wire}, p50", found.p(0.5), P50_MAX_MS),
                    report(f"commit to subscriber, {wire}, p99", found.p(0.99), P99_MAX_MS),
                ]
                if wire == "SSE":
                    results += [
                        report("... p50 against the bare path", found.p(0.5) / limit.p(0.5), LIMIT_MAX, "x"),
                        report("... processor time of the server a commit", found.processor_us, PROCESSOR_MAX_US, "µs"),
                    ]
                    print(f"... against the bare path {found.processor_us / limit.processor_us:.2f}x", flush=True)
            with over_sse(addresses) as keys:
                found = measure(f"SSE, {RATE_SLOW} commits/s", directory, path, pid, keys, RATE_SLOW)
            results += [
                report("commit to subscriber, slow writer, p50", found.p(0.5), P50_MAX_MS),
                report("commit to subscriber, slow writer, p99", found.p(0.99), P99_MAX_MS),
            ]
            with others(addresses["http"]), over_sse(addresses) as keys:
                found = measure(f"SSE, {RATE} commits/s, {OTHERS} others", directory, path, pid, keys)
            results.append(report("... with other subscriptions, p50", found.p(0.5), P50_MAX_MS))
    return 0 if all(results) else 1


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["--write", path, times, total, rate]:
            write(path, times, int(total), int(rate))
        case ["--bare", path, log]:
            import uvloop

            uvloop.run(run_bare(path, log))
        case _:
            sys.exit(main())
