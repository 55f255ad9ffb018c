"""From a commit in SQLite to a message in a Redis stream, at 1 000 commits a second, without Spark.

Twice: by a sink inside `tailrace serve`, and by `tailrace sink run`, a process of its own. The writer is a process
too, and so is the reader. The time runs from the call of COMMIT to the moment when the reader has the message in hand.
The log waits for the disk on that way; the files of Redis are in memory where `/dev/shm` is there. What a synced write
and a bare XADD take, one after the other, is printed too, as the limit of that hour.
"""

import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import redis

from bench._target import running
from bench.latency import PATIENCE_S, latencies_ms, make_table, percentile, report, subscribe, writer

import brokers  # isort: skip (bench._target finds it)

WARM_UP = 1_000
MEASURED = 5_000
TOTAL = WARM_UP + MEASURED
P50_MAX_MS = 10.0
SYNCED = 500


def read(client: redis.Redis, stream: str) -> list[int]:
    """Return when each message was in hand."""
    arrived, last = [0] * TOTAL, b"0"
    count, end = 0, time.monotonic() + 60
    while count < TOTAL:
        assert time.monotonic() < end, f"only {count} messages came"
        for _, entries in client.xread({stream: last}, count=1000, block=1000) or ():
            now = time.monotonic_ns()
            for last, fields in entries:  # noqa: B007 (the last one is where the next read begins)
                arrived[json.loads(fields[b"key"])["id"]] = now
                count += 1
    return arrived


@contextlib.contextmanager
def process(*command: str):
    env = {**os.environ, "BROKER": brokers.PASSWORD}
    with subprocess.Popen(
        [sys.executable, "-m", "tailrace", *command], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=env
    ) as started:
        try:
            yield started
        finally:
            started.send_signal(signal.SIGTERM)
            started.wait()


def limit_ms(server: brokers.Broker) -> float:
    """Return what one synced write of a change to the disk and one bare XADD of a message take, the median."""
    took = []
    change = b"x" * 200
    with (
        tempfile.NamedTemporaryFile() as log,
        contextlib.closing(redis.Redis(port=server.port, password=brokers.PASSWORD)) as client,
    ):
        for _ in range(SYNCED):
            begun = time.monotonic_ns()
            os.write(log.fileno(), change)
            os.fdatasync(log.fileno())
            client.xadd("limit", {"value": change})
            took.append((time.monotonic_ns() - begun) / 1e6)
    return percentile(sorted(took), 0.5)


def measure(name: str, server: brokers.Broker, *, inside: bool) -> bool:
    with tempfile.TemporaryDirectory() as place:
        directory = Path(place)
        path, times, config = directory / "app.db", directory / "times", directory / "tailrace.toml"
        make_table(path)
        own = name.replace(" ", "-")  # a sink of another name: targets keep marks
        stream = f"direct.{own}"
        url = f"redis://:${{BROKER}}@127.0.0.1:{server.port}/0?stream={stream}"
        sink = f'[sinks.{own}]\nurl = "{url}"\nsource = "app"\ntables = ["t"]\nenvelope = "row"\n' if inside else ""
        config.write_text(f'[sources.app]\nurl = "sqlite:///{path}"\n{sink}')
        with contextlib.ExitStack() as stack:
            ports = ("--http-port", "0", "--grpc-port", "0", "--data-dir", str(directory / "data"))
            serving = stack.enter_context(process("serve", str(config), "--json", *ports))
            assert serving.stdout
            address = json.loads(serving.stdout.readline())["http"]
            subscribe(address)
            work = directory / ("data" if inside else "work")
            if not inside:
                told = ("--url", url, "--source", "app", "--table", "t", "--envelope", "row", "--server", address)
                stack.enter_context(process("sink", "run", own, *told, "--data-dir", str(work)))
            _wait_running(work)
            client = redis.Redis(port=server.port, password=brokers.PASSWORD)
            with writer(path, times, TOTAL) as writing:
                arrived = read(client, stream)
                assert writing.wait() == 0
            client.close()
        called = json.loads(times.read_text())
    latencies = latencies_ms(called[WARM_UP:], arrived[WARM_UP:])
    shown = "  ".join(f"p{100 * share:g} {percentile(latencies, share):.2f}" for share in (0.1, 0.9, 0.99))
    print(f"{name}: {shown} ms, {MEASURED / ((called[-1] - called[WARM_UP]) / 1e9):.0f} commits a second")
    p50, limit = percentile(latencies, 0.5), limit_ms(server)
    print(f"{name}: {p50 / limit:.1f}x a synced write and an XADD, which took {limit:.2f} ms")
    return report(f"commit to message, {name}, p50", p50, P50_MAX_MS)


def _wait_running(data_dir: Path) -> None:
    """Wait until the sink says that it runs."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        with contextlib.suppress(sqlite3.Error), contextlib.closing(sqlite3.connect(data_dir / "metadata.db")) as found:
            if any('"running"' in figures for (figures,) in found.execute("SELECT figures FROM tailrace_sink")):
                return
        time.sleep(0.1)
    raise AssertionError("the sink does not run")


def main() -> int:
    with running(brokers.Redis) as server:
        if server is None:
            return 0
        results = [measure("inside serve", server, inside=True), measure("sink run", server, inside=False)]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
