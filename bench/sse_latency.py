"""From a commit in SQLite to an SSE subscriber, at 1 000 commits a second, through `tailrace serve`.

The writer, the server and the reader are three processes. The time runs from the call of COMMIT to the moment when the
reader has the event in hand.
"""

import contextlib
import json
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import httpx

RATE = 1_000
WARM_UP = 1_000
MEASURED = 8_000
TOTAL = WARM_UP + MEASURED
PATIENCE_S = 20.0

P50_MAX_MS = 4.0
P99_MAX_MS = 20.0

_EVENT = re.compile(rb'"pk":\[(\d+)\]')


def make_table(path: Path) -> None:
    """Make the table that `write` writes to."""
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, name TEXT, amount REAL, note TEXT)")


def writer(path: Path, times: Path, total: int) -> subprocess.Popen[bytes]:
    """Start the process that writes."""
    return subprocess.Popen([sys.executable, "-m", "bench.sse_latency", "--write", path, times, str(total)])


def write(path: str, times: str, total: int) -> None:
    """Commit one row each millisecond; leave the times at which each commit was called."""
    database = sqlite3.connect(path, isolation_level=None)
    database.execute("PRAGMA synchronous = NORMAL")
    begun = time.monotonic()
    called = []
    for number in range(total):
        left = begun + number / RATE - time.monotonic()
        if left > 0:
            time.sleep(left)
        database.execute("BEGIN IMMEDIATE")
        database.execute(
            "INSERT INTO t VALUES (?, 'a name', 12.5, 'a note of some length that nobody reads')", (number,)
        )
        called.append(time.monotonic_ns())
        database.execute("COMMIT")
    database.close()
    Path(times).write_text(json.dumps(called))


@contextlib.contextmanager
def served(directory: Path, database: Path):
    command = [sys.executable, "-m", "tailrace", "serve", "--json", "--data-dir", str(directory / "data")]
    command += ["--source", f"app=sqlite:///{database}", "--http-port", "0", "--grpc-port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        try:
            assert process.stdout
            yield json.loads(process.stdout.readline())["http"]
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()


def subscribe(url: str) -> str:
    """Return the path of a stream of the table, as soon as the server knows it."""
    params = {"db": "app", "table": "t", "format": "plain_json", "include": {"after": True}}
    body = {"skeinql": "1.0", "id": 1, "method": "cdc.subscribe_table", "params": params}
    end = time.monotonic() + PATIENCE_S
    while True:
        answer = httpx.post(f"{url}/api/v1/rpc", json=body).json()
        if answer["ok"]:
            return answer["result"]["sse_url"]
        assert time.monotonic() < end, answer
        time.sleep(0.05)


def read(url: str, path: str) -> list[int]:
    """Return when each event was in hand."""
    address = httpx.URL(url)
    arrived = [0] * TOTAL
    count = 0
    rest = b""
    with socket.create_connection((address.host, address.port), timeout=PATIENCE_S) as connection:
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
        while count < TOTAL:
            data = connection.recv(1 << 16)
            now = time.monotonic_ns()
            assert data, f"the stream ended after {count} events"
            whole, separator, rest = (rest + data).rpartition(b"\n\n")
            for key in _EVENT.findall(whole + separator):
                arrived[int(key)] = now
                count += 1
    return arrived


def latencies_ms(called: list[int], arrived: list[int]) -> list[float]:
    """Return how long each row took, the quickest first."""
    return sorted((there - then) / 1e6 for then, there in zip(called, arrived, strict=True))


def percentile(ordered: list[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def report(name: str, measured: float, bar: float) -> bool:
    good = measured <= bar
    print(f"{name:40s} {measured:8.2f} ms  bar <= {bar:.2f}  {'PASS' if good else 'MISS'}", flush=True)
    return good


def main() -> int:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        path, times = directory / "app.db", directory / "times"
        make_table(path)
        with served(directory, path) as url:
            stream = subscribe(url)
            with writer(path, times, TOTAL) as writing:
                arrived = read(url, stream)
                assert writing.wait() == 0
        called = json.loads(times.read_text())
    latencies = latencies_ms(called[WARM_UP:], arrived[WARM_UP:])
    shares = (0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999)
    print("  ".join(f"p{100 * share:g} {percentile(latencies, share):.2f}" for share in shares), end="  ")
    print(f"max {latencies[-1]:.2f} ms of {len(latencies)} commits")
    took_s = (called[-1] - called[WARM_UP]) / 1e9
    print(f"the writer made {MEASURED / took_s:.0f} commits a second")
    results = [
        report("commit to subscriber, p50", percentile(latencies, 0.5), P50_MAX_MS),
        report("commit to subscriber, p99", percentile(latencies, 0.99), P99_MAX_MS),
    ]
    return 0 if all(results) else 1


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["--write", path, times, total]:
            write(path, times, int(total))
        case _:
            sys.exit(main())
