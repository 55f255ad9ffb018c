"""A pipeline as processes that can be killed: a server, a writer that never rests, workers and all that they start."""

import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

from databases import free_port
from serving import Server, run, wait_until
from tailrace.client.bulk import BulkClient
from tailrace.clock import SystemClock
from tailrace.pipeline.store import PipelineStore

START_S = 240.0
"""Spark takes long to start on a busy machine."""

TABLES = ("orders", "lines")

TABLES_SQL = """
CREATE TABLE orders (id INTEGER PRIMARY KEY, item TEXT, qty INTEGER, paid DECIMAL(12,2));
CREATE TABLE lines (a INTEGER, b TEXT, amount REAL, note TEXT, PRIMARY KEY (a, b)) WITHOUT ROWID;
"""

WRITER = """
import random, sqlite3, sys, time
path, seed, alters = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "alters"
database = sqlite3.connect(path, timeout=60, isolation_level=None)
chance = random.Random(seed)
(last,) = database.execute("SELECT max(id) FROM orders").fetchone()
print("ready", flush=True)
while True:
    database.execute("BEGIN IMMEDIATE")
    for _ in range(chance.choice((1, 1, 2, 3, 12))):
        some, kind = chance.randint(1, last), chance.random()
        if kind < 0.15:
            last += 1
            database.execute("INSERT INTO orders (id, item, qty, paid) VALUES (?, ?, ?, ?)",
                             (last, f"item {last}", chance.randint(1, 9), f"{last}.25"))
        elif kind < 0.45:
            database.execute("UPDATE orders SET qty = qty + 1 WHERE id = ?", (some,))
        elif kind < 0.57:
            database.execute("DELETE FROM orders WHERE id = ?", (some,))
        elif kind < 0.65:
            database.execute("UPDATE OR IGNORE orders SET id = ? WHERE id = ?", (chance.randint(1, last), some))
        elif kind < 0.85:
            database.execute("INSERT OR REPLACE INTO lines (a, b, amount) VALUES (?, ?, ?)",
                             (some, chance.choice("xyz"), chance.random()))
        elif kind < 0.95:
            database.execute("UPDATE lines SET note = ? WHERE a = ?", ("n" * chance.randint(0, 90), some))
        else:
            database.execute("DELETE FROM lines WHERE a = ?", (some,))
    if alters and chance.random() < 0.004:
        names = [row[1] for row in database.execute("PRAGMA table_info(orders)")]
        if len(names) < 9:
            database.execute(f"ALTER TABLE orders ADD COLUMN c{len(names)} TEXT")
    database.execute("ROLLBACK" if chance.random() < 0.05 else "COMMIT")
    time.sleep(0.02)
"""


class Place:
    """An SQLite database, its server, and one pipeline of both tables. Leave it by `close`."""

    def __init__(self, directory: Path, sink: str, mode: str, *, rows: int = 2000) -> None:
        self.directory = directory
        self.path = directory / "shop.db"
        database = sqlite3.connect(self.path)
        database.execute("PRAGMA journal_mode = WAL")
        database.executescript(TABLES_SQL)
        filled = "WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < ?) INSERT INTO "
        database.execute(f"{filled} orders SELECT i, 'item ' || i, i % 9, i || '.50' FROM n", (rows,))
        database.execute(f"{filled} lines SELECT i, 'x', i / 3.0, NULL FROM n", (rows,))
        database.commit()
        database.close()
        self.port = free_port()
        self.serve()
        tables = [part for table in TABLES for part in ("--table", table)]
        wait_until(lambda: self.server.subscribe("lines", "shop"), "the tables known")
        self.pipeline(
            "create", "--source", "shop", *tables, "--server", self.server.url, "--sink", sink, "--mode", mode
        )
        self.metadata = directory / "work" / "metadata.db"
        url = f"sqlite:///{self.metadata}"
        self.store = PipelineStore.open(url, SystemClock())

    def close(self) -> None:
        self.store.close()
        self.server.kill()

    def serve(self) -> None:
        """Start the server, at the same address each time."""
        arguments = ["--source", f"shop=sqlite:///{self.path}", "--http-port", str(self.port)]
        self.server = Server(self.directory / "data", *arguments, "--logging-level", "error").wait_ready()

    def pipeline(self, verb, *options):
        """Run a command to its end; return what it printed last."""
        ran = run("pipeline", verb, "p", *options, "--json", "--data-dir", self.directory / "work", timeout=START_S)
        assert ran.returncode == 0, f"{ran.stdout[-1000:]} {ran.stderr[-4000:]}"
        return json.loads(ran.stdout.splitlines()[-1])

    @contextlib.contextmanager
    def writer(self, seed: int, *, alters: bool = False):
        """Have the database written all the time, inside a `with` block."""
        command = [sys.executable, "-c", WRITER, str(self.path), str(seed), "alters" if alters else "plain"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE)
        try:
            assert process.stdout.readline() == b"ready\n"
            yield process
        finally:
            process.kill()
            process.wait()
            process.stdout.close()

    @contextlib.contextmanager
    def worker(self, *options):
        """Have a worker that follows; it is killed when the block ends, with everything that it started."""
        worker = Worker(self.directory, *options)
        try:
            yield worker
        finally:
            worker.kill()

    def free(self) -> None:
        """Let the lease of a dead worker end, so that a test need not wait for it."""
        with self.store.database.engine.begin() as connection:
            connection.exec_driver_sql("UPDATE tailrace_pipeline SET lease_end_us = 0")

    def copied(self) -> int:
        return sum(one.rows_copied for one in self.store.progress("p"))

    def offset(self) -> int:
        """Return how far the log has been followed; 0 before a change was."""
        ranges = self.store.progress("p")
        return min((one.last_log_index for one in ranges if one.last_log_index > one.init_version), default=0)

    def goes_on(self, worker: "Worker", what: str) -> None:
        """Wait until more changes are in the sink, or the worker has ended."""
        before = self.offset()
        wait_until(lambda: self.offset() > before or not worker.alive, what, START_S)

    def changes(self, table: str) -> list[tuple[int, int]]:
        """Return offset and op of all changes of a table that follow the snapshot, as the log has them."""
        client = BulkClient(self.server.url)
        try:
            init = self.store.progress("p")[0].init_version
            head = client.info("shop").head
            return [
                pair
                for _, batch in client.batches("shop", init, head, [table])
                for pair in zip(batch.column("offset").to_pylist(), batch.column("op").to_pylist(), strict=True)
            ]
        finally:
            client.close()


class Worker:
    """A running `tailrace pipeline run`, in a process group of its own."""

    def __init__(self, directory: Path, *options: str) -> None:
        command = [sys.executable, "-m", "tailrace", "pipeline", "run", "p", "--json", "--master", "local[2]"]
        command += ["--page-rows", "60", "--ranges", "4", *options, "--data-dir", str(directory / "work")]
        self.output = directory / f"worker-{len(list(directory.glob('worker-*')))}"
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True)

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def lines(self) -> list[dict]:
        """Return what it has told."""
        text = self.output.read_text()
        return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines() if line.startswith("{")]

    def family(self) -> list[int]:
        """Return the processes that it has started, and they, and so on."""
        parents = {}
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
        found = [self.process.pid]
        for pid in found:
            found += [child for child, parent in parents.items() if parent == pid]
        return found[1:]

    def python(self) -> list[int]:
        """Return the processes in which Spark runs Python."""
        commands = {pid: _command(pid) for pid in self.family()}
        return [pid for pid, command in commands.items() if "pyspark" in command and "java" not in command]

    def signal(self, number: int) -> None:
        """Signal the driver and all that belongs to it."""
        for pid in [self.process.pid, *self.family()]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def kill(self) -> None:
        """Kill the driver first, then what it has left behind."""
        family = self.family()
        self.process.kill()
        for pid in family:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""
