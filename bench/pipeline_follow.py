"""A pipeline that follows: how long a single change takes from its commit to the sink, and whether memory grows.

An SQLite database is the source and another one the sink, since a row that is there is seen at once; a server, a driver
and Spark do the rest as in every pipeline. Every second change is committed while the batch of another one is under
way: that is the worst case, which may take two triggers. Counted are those that begin after the commit; where none
does, the one that waited for it delivers it. Memory is compared after 50 and after 200 micro-batches: of the driver's
Python, of the Python that looks at the log for Spark's planner, and of Java, its live objects alone and in all.
"""

import json
import os
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from datetime import datetime
from pathlib import Path

from tailrace.client.bulk_rows import BulkRowsClient
from tailrace.clock import SystemClock
from tailrace.meta.pipeline import Definition
from tailrace.pipeline.job import Job, Watcher
from tailrace.pipeline.session import SparkChoice, SparkSessions
from tailrace.pipeline.store import PipelineStore

BATCHES = (50, 200)
WARM_UP = 20
TRIGGERS_MAX = 2
GROWTH_MAX = 1.10
BUSY_S = 0.05
LOOK_S = 0.002
STEPS = ("walCommit", "addBatch", "commitOffsets")
WAIT_S = 120.0


def execute(path, *statements):
    database = sqlite3.connect(path, timeout=WAIT_S)
    for statement in statements:
        database.execute(statement)
    database.commit()
    database.close()


def wait_until(condition, what):
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, f"{what} takes longer than {WAIT_S} s"
        time.sleep(LOOK_S)


class Follower:
    """A pipeline that runs in a thread, and its source and sink."""

    def __init__(self, directory, server):
        self.source, self.sink = directory / "shop.db", directory / "sink.db"
        self.sessions = SparkSessions(SparkChoice(master="local[2]"), directory / "work")
        self.spark = self.sessions.shared(Watcher())
        self.key = 0
        self.latencies: dict[bool, list[float]] = {False: [], True: []}
        self.spans: list[tuple[float, float]] = []
        self.triggers: dict[int, tuple[float, dict[str, int]]] = {}
        self._stop = threading.Event()
        self._store = PipelineStore.open(f"sqlite:///{directory / 'pipelines.db'}", SystemClock())
        sink = f"sqlite:///{self.sink}?table={{table}}"
        self._store.create(Definition(name="bench", source="shop", tables=("orders",), sink=sink, server=server))
        job = Job(self._store, directory / "work", None, SparkChoice(session=self.spark), SystemClock())
        arguments = {"once": False, "wait": False, "watcher": Watcher(), "stopped": self._stop.is_set}
        self._thread = threading.Thread(target=job.run, args=("bench",), kwargs=arguments)
        self._thread.start()

    def commit(self):
        self.key += 1
        execute(self.source, f"INSERT INTO orders VALUES ({self.key}, 'item', 1)")
        return self.key, time.time()

    def visible(self, key):
        reader = sqlite3.connect(f"file:{self.sink}?mode=ro", uri=True, timeout=WAIT_S)
        try:
            return reader.execute("SELECT 1 FROM orders WHERE id = ?", (key,)).fetchone() is not None
        except sqlite3.OperationalError:
            return False
        finally:
            reader.close()

    def deliver(self, *, busy=False):
        """Commit a change, wait until the sink shows it, and note what that took."""
        if busy:
            self.commit()
            time.sleep(BUSY_S)
        key, begin = self.commit()
        wait_until(lambda: self.visible(key), "a change")
        end = time.time()
        self.latencies[busy].append(end - begin)
        self.spans.append((begin, end))
        for query in self.spark.streams.active:
            for progress in query.recentProgress[-4:]:
                start = datetime.fromisoformat(progress.timestamp).timestamp()
                self.triggers[progress.batchId] = start, dict(progress.durationMs)

    def memory(self):
        """Return megabytes by what has them, after a collection."""
        java = self.spark._jvm.java.lang
        java.System.gc()
        runtime = java.Runtime.getRuntime()
        pid = java.ProcessHandle.current().pid()
        (reader,) = _children(pid, "python_streaming_source_runner")
        return {
            "driver's Python": _resident_mb(os.getpid()),
            "reader of the log": _resident_mb(reader),
            "Java's live objects": (runtime.totalMemory() - runtime.freeMemory()) / 1e6,
            "Java": _resident_mb(pid),
        }

    def stop(self):
        self._stop.set()
        self._thread.join()
        self.sessions.stop()
        self._store.close()


def _children(parent, module):
    for path in Path("/proc").glob("[0-9]*"):
        try:
            text, status = (path / "cmdline").read_bytes().decode(), (path / "stat").read_text()
        except OSError:
            continue
        if module in text and int(status.rpartition(")")[2].split()[1]) == parent:
            yield int(path.name)


def _resident_mb(pid):
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) / 1e3


def report(name, measured, bar, *, good):
    print(f"{name}: {measured} (bar {bar}) {'PASS' if good else 'MISS'}", flush=True)
    return good


def measure(follower):
    memory = {}
    wait_until(lambda: follower.spark.streams.active, "the query")
    for number in range(1, max(BATCHES) + 1):
        follower.deliver(busy=number > WARM_UP and number % 2 == 0)
        if number == WARM_UP:
            follower.latencies, follower.spans = {False: [], True: []}, []
        if number in BATCHES:
            memory[number] = follower.memory()
    for busy, name in ((False, "from rest"), (True, "while another batch runs")):
        times = sorted(follower.latencies[busy])
        print(f"commit → sink {name}: least {times[0] * 1e3:.0f} ms, median {statistics.median(times) * 1e3:.0f} ms")
    starts, durations = zip(*follower.triggers.values(), strict=True)
    steps = {step: statistics.median(each.get(step, 0) for each in durations) for step in STEPS}
    print("a micro-batch, medians: " + ", ".join(f"{step} {time_ms:.0f} ms" for step, time_ms in steps.items()))
    most = max(max(1, sum(begin < start < end for start in starts)) for begin, end in follower.spans)
    good = report("triggers that one change takes, at most", most, TRIGGERS_MAX, good=most <= TRIGGERS_MAX)
    first, last = (memory[number] for number in BATCHES)
    for name, size in last.items():
        ratio = size / first[name]
        shown = f"{ratio:.2f}; {first[name]:.0f} → {size:.0f} MB"
        good &= report(f"{name} after {BATCHES[1]} batches / {BATCHES[0]}", shown, GROWTH_MAX, good=ratio <= GROWTH_MAX)
    return good


def main() -> int:
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(Path("src").resolve()), os.environ.get("PYTHONPATH")]))
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        database = directory / "shop.db"
        table = "CREATE TABLE orders (id INTEGER PRIMARY KEY, item TEXT, qty INTEGER)"
        execute(database, "PRAGMA journal_mode = WAL", table)
        command = [sys.executable, "-m", "tailrace", "serve", "--json", "--logging-level", "error", "--http-port", "0"]
        command += ["--grpc-port", "0", "--data-dir", str(directory / "data"), "--source", f"shop=sqlite:///{database}"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE)
        try:
            server = json.loads(process.stdout.readline())["http"]
            client = BulkRowsClient(server)
            wait_until(lambda: client.info("shop").tables, "the server")
            follower = Follower(directory, server)
            try:
                good = measure(follower)
            finally:
                follower.stop()
        finally:
            process.terminate()
            process.wait()
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
