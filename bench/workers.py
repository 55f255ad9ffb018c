"""`serve --workers 2` against one process: a hundred subscribers that replay, and how heavy readers harm the others.

The changes are captured once from SQLite; both servers then read the same data directory, one after the other, a few
times each. The clients discard what they get without copying it (MSG_TRUNC), so that they leave the processor to the
server; that all of it is right is shown by another pass, which compares every byte of one stream of each kind.

What two processes can gain at all where all want the same is measured beside it: one and two processes that send the
same bytes over bare sockets to the same clients.
"""

import contextlib
import json
import os
import random
import re
import selectors
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.latency import (
    connect,
    latencies_ms,
    make_table,
    over_sse,
    percentile,
    process,
    processor_s,
    read,
    subscribe,
    writer,
)
from bench.sse_throughput import Peer

CHANGES = 400_000
CHANGES_DISTINCT = 25_000
"""Those who differ replay only the last changes: each of them costs filtering and encoding of its own."""

SUBSCRIBERS = 100
WORKERS = 2
ROUNDS = 2
HEAVY = 20
"""Subscribers that replay again and again while latencies are measured."""

RATE = 200
SECONDS = 6
WARM_UP_SECONDS = 1

RATIO_MIN = 1.6
LIMIT_SHARE_MIN = 0.8
"""What workers gain against what two processes with bare sockets gain."""

SAMPLE_BYTES = 4 << 20
P50_RATIO_MAX = 1.0
"""A live subscriber's p50 with workers against that without, beside heavy readers."""

_TAIL_BYTES = 1 << 16
_REST_S = 0.001
_PATIENCE_S = 180.0


def load(path: Path) -> None:
    """Write the rows that are replayed."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as database:
        rows = ((number, f"name {number % 977}", number % 1000, "a note of some length") for number in range(CHANGES))
        database.execute("BEGIN")
        database.executemany("INSERT INTO t VALUES (?, ?, ?, ?)", rows)
        database.execute("COMMIT")


def served(directory: Path, workers: int):
    command = ["-m", "tailrace", "serve", "--json", "--data-dir", directory / "data", "--workers", str(workers)]
    source = f"app=sqlite:///{directory / 'app.db'}"
    return process(*command, "--source", source, "--http-port", "0", "--grpc-port", "0")


def subscriptions(url: str) -> tuple[list[str], list[str]]:
    """Make the subscriptions; return the streams of a hundred who want the same, and of a hundred who differ."""
    first = {"from": "earliest"}
    same = [str(subscribe(url, **first)["sse_url"]) + "?from_offset=0"] * SUBSCRIBERS
    distinct = []
    for number in range(SUBSCRIBERS):
        columns = {"columns": ["id", "amount"]} if number % 2 else {}
        where = {"where": f"amount >= {number}"} if number % 4 < 2 else {"where": f"name <> 'name {number}'"}
        made = subscribe(url, **first, **columns, **where)["sse_url"]
        distinct.append(f"{made}?from_offset={CHANGES - CHANGES_DISTINCT}")
    random.Random(1).shuffle(distinct)  # who comes is not in the order of what they cost
    return same, distinct


# ---- what streams say


def whole(url: str, path: str) -> bytes:
    """Return the events of a stream up to the last change, without chunks and records between events."""
    body = bytearray()
    with connect(url, f"GET {path}") as connection:
        connection.sendall(b"\r\n")
        file = connection.makefile("rb")
        while file.readline() != b"\r\n":
            pass
        while b"\nid: %d\n" % CHANGES not in body[-_TAIL_BYTES:] or not body.endswith(b"\n\n"):
            size = int(file.readline(), 16)
            assert size, "the stream ended"
            body += file.read(size)
            file.read(2)
    return re.sub(rb"(?:id: \d+\n)?event: backpressure\n.*\n\n|:\n\n", b"", bytes(body))


def same_bytes(one: str, many: Sequence[str], known: dict[str, bytes]) -> dict[str, int]:
    """Compare some streams with what is known of them, or get to know them; return the size of each."""
    chosen = [many[0], many[1], many[2], many[-1]]
    for path in dict.fromkeys(chosen):
        body = whole(one, path)
        assert known.setdefault(path, body) == body, f"{path} says something else"
        assert len(re.findall(rb"^id: ", body, re.MULTILINE)) > CHANGES_DISTINCT // 2
    return {path: len(known[path]) for path in chosen}


# ---- replays


class Drinker:
    """A subscriber that discards what it gets; at the end it looks for the last change."""

    def __init__(self, url: str, path: str) -> None:
        self.connection = connect(url, f"GET {path}")
        self.connection.setblocking(False)
        self.count = 0
        self.tail = b""

    def begin(self) -> None:
        self.connection.sendall(b"\r\n")

    def drink(self, discard_bytes: int) -> bool:
        """Read what is there; return whether the last change has come. So much of it is not even looked at."""
        with contextlib.suppress(BlockingIOError):
            while True:
                left = discard_bytes - self.count
                if left > 0:
                    got = self.connection.recv_into(_NOWHERE, min(left, len(_NOWHERE)), socket.MSG_TRUNC)
                else:
                    data = self.connection.recv(1 << 20)
                    got, self.tail = len(data), (self.tail + data)[-64 << 10 :]
                assert got, "the stream ended"
                self.count += got
                if left <= 0 and b"id: %d\n" % CHANGES in self.tail:
                    return True
        return False


_NOWHERE = bytearray(16 << 20)
"""MSG_TRUNC takes its length, and leaves it as it is."""


def replay(url: str, paths: Sequence[str], sizes: dict[str, int]) -> tuple[float, int]:
    """Have all replay at once; return how long it took by the clock, and how many bytes came."""
    drinkers = {Drinker(url, path): sizes[path] for path in paths}
    took_s = drained_s(drinkers)
    return took_s, sum(drinker.count for drinker in drinkers)


def drained_s(drinkers: "dict[Drinker, int]") -> float:
    """Have all begin at once and read to their ends; return how long it took by the clock."""
    selector = selectors.DefaultSelector()
    for drinker in drinkers:
        selector.register(drinker.connection, selectors.EVENT_READ, drinker)
    begun = time.perf_counter()
    for drinker in drinkers:
        drinker.begin()
    left = len(drinkers)
    while left:
        time.sleep(_REST_S)  # more comes with each read then, and fewer reads take processor time from the server
        ready = selector.select(_PATIENCE_S)
        assert ready, "nothing comes"
        for key, _ in ready:
            if key.data.drink(drinkers[key.data]):
                selector.unregister(key.fileobj)
                left -= 1
    took_s = time.perf_counter() - begun
    for drinker in drinkers:
        drinker.connection.close()
    return took_s


def known_sizes(url: str, paths: Sequence[str]) -> dict[str, int]:
    """Return how many bytes of events each stream has, found by one replay of each beside the others."""
    sizes = {}
    for begin in range(0, len(paths), 10):
        for path in dict.fromkeys(paths[begin : begin + 10]):
            sizes[path] = len(whole(url, path))
    return sizes


# ---- the limit


class BareDrinker(Drinker):
    """A reader of bare sockets: it has all when it has as many bytes."""

    def drink(self, discard_bytes: int) -> bool:
        with contextlib.suppress(BlockingIOError):
            while self.count < discard_bytes:
                left = min(discard_bytes - self.count, len(_NOWHERE))
                self.count += self.connection.recv_into(_NOWHERE, left, socket.MSG_TRUNC)
        return self.count >= discard_bytes


def bare_s(sample: Path, processes: int, size_bytes: int) -> float:
    """Return how long some processes take to send this many bytes to each of all subscribers over bare sockets."""
    peers = [Peer("--bare", str(sample)) for _ in range(processes)]
    try:
        urls = [f"http://127.0.0.1:{peer.port}" for peer in peers]
        drinkers = [BareDrinker(urls[number % processes], "/") for number in range(SUBSCRIBERS)]
        return drained_s(dict.fromkeys(drinkers, size_bytes))
    finally:
        for peer in peers:
            peer.end()


def measure_limit(directory: Path, url: str, path: str, size_bytes: int) -> float:
    """Return how many times as fast two bare processes are as one."""
    sample = directory / "sample"
    sample.write_bytes(whole(url, path)[:SAMPLE_BYTES])
    best = {count: min(bare_s(sample, count, size_bytes) for _ in range(ROUNDS)) for count in (1, WORKERS)}
    shown = ", ".join(f"{count} in {took_s:.2f} s" for count, took_s in best.items())
    print(f"bare sockets with the same bytes, by processes: {shown}", flush=True)
    return best[1] / best[WORKERS]


# ---- latency beside heavy readers


@contextlib.contextmanager
def heavy(url: str, path: str, size_bytes: int) -> Iterator[None]:
    command = [sys.executable, "-m", "bench.workers", "--drink", url, path, str(size_bytes)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as running:
        try:
            assert running.stdout
            running.stdout.readline()
            yield
        finally:
            running.kill()


def drink_for_ever(url: str, path: str, size_bytes: int) -> None:
    """Replay again and again."""
    selector = selectors.DefaultSelector()
    for _ in range(HEAVY):
        drinker = Drinker(url, path)
        drinker.begin()
        selector.register(drinker.connection, selectors.EVENT_READ, drinker)
    print("ready", flush=True)
    while True:
        for key, _ in selector.select():
            if key.data.drink(size_bytes):
                selector.unregister(key.fileobj)
                key.data.connection.close()
                drinker = Drinker(url, path)
                drinker.begin()
                selector.register(drinker.connection, selectors.EVENT_READ, drinker)


def live(directory: Path, addresses: dict[str, str]) -> list[float]:
    """Return how long commits take to a live subscriber, the quickest first."""
    path, total, warm_up = directory / "app.db", RATE * (SECONDS + WARM_UP_SECONDS), RATE * WARM_UP_SECONDS
    with contextlib.closing(sqlite3.connect(path)) as database:
        first = database.execute("SELECT max(id) + 1 FROM t").fetchone()[0]
    times = directory / "times"
    with over_sse(addresses) as keys, writer(path, times, total, RATE) as writing:
        arrived = read(keys, first, total)
        assert writing.wait() == 0
    return latencies_ms(json.loads(times.read_text())[warm_up:], arrived[warm_up:])


# ---- the run


def processors(pid: int) -> float:
    """Return the processor time of a server and its workers."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return processor_s(pid) + sum(processor_s(int(child)) for child in children)


def measure_replays(
    directory: Path, streams: dict[str, list[str]], sizes: dict[str, int], limits: dict[str, float]
) -> list[bool]:
    best: dict[tuple[str, int], float] = {}
    known: dict[str, bytes] = {}
    for _ in range(ROUNDS):
        for workers in (0, WORKERS):
            with served(directory, workers) as (pid, addresses):
                for name, paths in streams.items():
                    if (name, workers) not in best:
                        same_bytes(addresses["http"], paths, known)
                    before_s, client_s = processors(pid), time.process_time()
                    took_s, size_bytes = replay(addresses["http"], paths, sizes)
                    used_s, client_s = processors(pid) - before_s, time.process_time() - client_s
                    best[name, workers] = min(took_s, best.get((name, workers), took_s))
                    print(
                        f"{name}, {workers} workers: {took_s:6.2f} s, {size_bytes / took_s / 1e6:7.0f} MB/s, "
                        f"processor time {used_s:6.2f} s, of the clients {client_s:5.2f} s",
                        flush=True,
                    )
    results = []
    for name in streams:
        ratio = best[name, 0] / best[name, WORKERS]
        good = ratio >= RATIO_MIN
        results.append(good)
        print(f"{name}: {WORKERS} workers are {ratio:.2f} times as fast  bar >= {RATIO_MIN}  {_word(good)}", flush=True)
        if name in limits:
            share = ratio / limits[name]
            results[-1] = good or share >= LIMIT_SHARE_MIN
            print(
                f"{name}: two bare processes are {limits[name]:.2f} times as fast as one; {share:.2f} of that  "
                f"bar >= {LIMIT_SHARE_MIN}  {_word(share >= LIMIT_SHARE_MIN)}",
                flush=True,
            )
    return results


def measure_latency(directory: Path, path: str, size_bytes: int) -> list[bool]:
    found: dict[int, list[float]] = {}
    for workers in (0, WORKERS):
        with served(directory, workers) as (_, addresses):
            alone = live(directory, addresses)
            with heavy(addresses["http"], path, size_bytes):
                found[workers] = live(directory, addresses)
        for name, ordered in (("alone", alone), (f"beside {HEAVY} replays", found[workers])):
            shown = "  ".join(f"p{100 * share:g} {percentile(ordered, share):7.2f}" for share in (0.5, 0.9, 0.99))
            print(f"commit to SSE, {workers} workers, {name}: {shown} ms", flush=True)
    ratio = percentile(found[WORKERS], 0.5) / percentile(found[0], 0.5)
    good = ratio <= P50_RATIO_MAX
    print(f"p50 beside replays: {ratio:.2f} of that of one process  bar <= {P50_RATIO_MAX}  {_word(good)}", flush=True)
    return [good]


def _word(good: bool) -> str:
    return "PASS" if good else "MISS"


def main(parts: Sequence[str]) -> int:
    results: list[bool] = []
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        make_table(directory / "app.db")
        with served(directory, 0) as (_, addresses):
            url = addresses["http"]
            same, distinct = subscriptions(url)
            load(directory / "app.db")
            sizes = known_sizes(url, [same[0], *distinct])
            limit = measure_limit(directory, url, same[0], sizes[same[0]]) if "replays" in parts else 0.0
        print(f"{CHANGES:,} changes, {SUBSCRIBERS} subscribers, {os.cpu_count()} processors", flush=True)
        if "replays" in parts:
            streams = {"who want the same": same, "with filters and columns of their own": distinct}
            results += measure_replays(directory, streams, sizes, {"who want the same": limit})
        if "latency" in parts:
            results += measure_latency(directory, same[0], sizes[same[0]])
    return 0 if all(results) else 1


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["--drink", url, path, size_bytes]:
            drink_for_ever(url, path, int(size_bytes))
        case parts:
            sys.exit(main(parts or ["replays", "latency"]))
