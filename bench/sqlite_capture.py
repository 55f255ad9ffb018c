"""What capture costs the writer of an SQLite database, whether it keeps up, how quick it is, and what it costs idle.

The writer is Python's own `sqlite3` in this process; capture runs in another one, through the pump into a log on disk.
Inserts, updates and deletes (6 : 3 : 1) on a table of eight columns with one index, WAL, synchronous=NORMAL.
`TAILRACE_BENCH_MINUTE=1` lets the writer run for a full minute in the part that shows whether capture keeps up.
"""

import asyncio
import json
import os
import random
import sqlite3
import subprocess
import sys
import tempfile
import time
from contextlib import aclosing
from pathlib import Path

from tailrace.capture import CaptureState, Pump
from tailrace.clock import SystemClock
from tailrace.log import DiskFiles, Log, LogOptions
from tailrace.source.base import Reader
from tailrace.source.sqlite import SqliteOptions, SqliteSource, set_up, status
from tailrace.testing.registry import MemoryRegistry

ROUNDS = 5
ROUND_S = 0.6
SUSTAINED_S = 60.0 if os.environ.get("TAILRACE_BENCH_MINUTE") else 5.0
LATENCY_COMMITS = 400
LATENCY_PAUSE_S = 0.003
IDLE_S = 2.0

KEPT_MIN = {100: 0.70, 10: 0.70, 1: 0.55}
CATCH_UP_S_MAX = 1.0
IDLE_CPU_MAX = 0.02
LATENCY_P50_MS_MAX = 5.0
LATENCY_P99_MS_MAX = 10.0

TABLE = """CREATE TABLE orders(id INTEGER PRIMARY KEY, customer TEXT, status TEXT, amount REAL, quantity INTEGER,
    note TEXT, created TEXT, updated TEXT)"""
INSERT = "INSERT INTO orders VALUES(?, ?, 'new', ?, 3, 'a note of some length for the row', ?, ?)"
UPDATE = "UPDATE orders SET status = 'paid', updated = ? WHERE id = ?"
DELETE = "DELETE FROM orders WHERE id = ?"
NOW = "2026-11-15 12:00:00"


class Writer:
    def __init__(self, path: Path) -> None:
        self.database = sqlite3.connect(path, timeout=30, isolation_level=None)
        self.database.execute("PRAGMA journal_mode = wal").fetchall()
        self.database.execute("PRAGMA synchronous = normal")
        self.database.execute(TABLE)
        self.database.execute("CREATE INDEX orders_customer ON orders(customer)")
        self.random = random.Random(1)
        self.ids: list[int] = []
        self.next = 0

    def change(self) -> None:
        choice = self.random.random()
        if choice < 0.6 or not self.ids:
            self.next += 1
            self.ids.append(self.next)
            customer = f"customer {self.next * 7919 % 100_000}"
            self.database.execute(INSERT, (self.next, customer, 1.5 * self.next, NOW, NOW))
        elif choice < 0.9:
            self.database.execute(UPDATE, (NOW, self.random.choice(self.ids)))
        else:
            place = self.random.randrange(len(self.ids))
            self.ids[place], self.ids[-1] = self.ids[-1], self.ids[place]
            self.database.execute(DELETE, (self.ids.pop(),))

    def run(self, seconds: float, rows: int) -> tuple[int, float]:
        """Write transactions of this many rows; return how many rows in how many seconds."""
        count = 0
        begin = time.perf_counter()
        while (taken := time.perf_counter() - begin) < seconds:
            if rows > 1:
                self.database.execute("BEGIN IMMEDIATE")
            for _ in range(rows):
                self.change()
            if rows > 1:
                self.database.execute("COMMIT")
            count += rows
        return count, taken


class Capture:
    """Capture in a process of its own."""

    def __init__(self, path: Path, directory: Path) -> None:
        directory.mkdir()
        command = [sys.executable, "-m", "bench.sqlite_capture", "capture", str(path), str(directory)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.ask()

    def ask(self) -> dict[str, float]:
        """Return its state, as soon as it answers."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("state\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def close(self) -> None:
        self.process.communicate("")


async def capture(path: Path, directory: Path) -> None:
    """Pump until standard input ends; tell the head, the CPU time and the memory when asked."""
    log = await Log.open(DiskFiles(directory), LogOptions(), SystemClock())
    source = SqliteSource("app", path, Reader("bench"), SqliteOptions(), SystemClock())
    pump = Pump(source, log, CaptureState())
    await pump.open()
    task = asyncio.create_task(pump.run())
    commits = 0
    while await asyncio.to_thread(sys.stdin.readline):
        commits = log.last_index
        state = {"head": log.head, "commits": commits, "cpu_s": time.process_time()}
        print(json.dumps(state), flush=True)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await source.close()
    await log.close()


def kept(rows: int, modes: tuple[str, ...]) -> dict[str, float]:
    """Return the writer's best rate in each mode: plain, with the triggers alone, or captured."""
    best = dict.fromkeys(modes, 0.0)
    for _ in range(ROUNDS):
        for mode in modes:
            with tempfile.TemporaryDirectory() as name:
                path = Path(name) / "app.db"
                writer = Writer(path)
                running = Capture(path, Path(name) / "log") if mode == "captured" else None
                if mode == "triggers":
                    subprocess.run([sys.executable, "-m", "bench.sqlite_capture", "triggers", str(path)], check=True)
                count, taken = writer.run(ROUND_S, rows)
                best[mode] = max(best[mode], count / taken)
                if running is not None:
                    running.close()
                writer.database.close()
    return best


def sustained(rows: int) -> tuple[float, float, float, int]:
    """Return the writer's rate, how long capture needed after it, commits kept apart, and bytes left behind."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        writer = Writer(directory / "app.db")
        running = Capture(directory / "app.db", directory / "log")
        count, taken = writer.run(SUSTAINED_S, rows)
        begin = time.perf_counter()
        while (state := running.ask())["head"] < count and time.perf_counter() - begin < 30:
            time.sleep(0.001)
        behind = time.perf_counter() - begin
        assert state["head"] == count, f"{state['head']} of {count} changes arrived"
        running.close()
        writer.database.close()
        size = status(directory / "app.db").size_bytes
    return count / taken, behind, state["commits"] / (count / rows), size


def idle_cpu() -> float:
    """Return the share of a core that capture takes while nobody writes."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        writer = Writer(directory / "app.db")
        running = Capture(directory / "app.db", directory / "log")
        writer.run(0.1, 1)
        time.sleep(2.0)
        before = running.ask()["cpu_s"]
        time.sleep(IDLE_S)
        used = running.ask()["cpu_s"] - before
        running.close()
        writer.database.close()
    return used / IDLE_S


WRITER = """
import sqlite3, sys, time
database = sqlite3.connect(sys.argv[1], timeout=30, isolation_level=None)
database.execute("PRAGMA synchronous = normal")
for number in range(int(sys.argv[2])):
    time.sleep(float(sys.argv[3]))
    database.execute("INSERT INTO orders(id, note) VALUES(?, ?)", (number + 1, str(time.time())))
"""


async def latency() -> list[float]:
    """Return milliseconds from just before each commit to the draft."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "app.db"
        Writer(path).database.close()
        set_up(path)
        source = SqliteSource("app", path, Reader("bench"), SqliteOptions(), SystemClock())
        await source.open(MemoryRegistry())
        command = [sys.executable, "-c", WRITER, str(path), str(LATENCY_COMMITS), str(LATENCY_PAUSE_S)]
        process = await asyncio.create_subprocess_exec(*command)
        delays: list[float] = []
        async with aclosing(source.commits(None)) as commits:
            async for drafts in commits:
                now = time.time()
                for draft in drafts:
                    delays += [(now - float(json.loads(after)["note"])) * 1000 for after in draft.afters if after]
                await source.confirm(drafts[-1].position)
                if len(delays) >= LATENCY_COMMITS:
                    break
        await process.wait()
        await source.close()
    return sorted(delays)


def line(name: str, measured: str, bar: str, *, passed: bool) -> bool:
    print(f"{name:<58} {measured:>34}   bar {bar:<10} {'PASS' if passed else 'MISS'}", flush=True)
    return passed


def main() -> int:
    passed = True
    for rows, least in KEPT_MIN.items():
        best = kept(rows, ("plain", "triggers", "captured"))
        ratio = best["captured"] / best["plain"]
        text = f"{ratio:.2f} ({best['captured']:,.0f} of {best['plain']:,.0f} rows/s)"
        passed &= line(f"writer keeps, {rows} rows a transaction", text, f">= {least:.2f}", passed=ratio >= least)
        print(f"    with the triggers alone and nobody reading: {best['triggers'] / best['plain']:.2f}", flush=True)
    for rows in (100, 1):
        rate, behind, apart, size = sustained(rows)
        text = f"{behind:.2f} s after {SUSTAINED_S:.0f} s at {rate:,.0f}/s"
        name = f"capture keeps up, {rows} rows a transaction"
        passed &= line(name, text, f"<= {CATCH_UP_S_MAX:.1f} s", passed=behind <= CATCH_UP_S_MAX)
        name = f"transactions kept apart, {rows} rows a transaction"
        passed &= line(name, f"{apart:.2%}", "100 %", passed=apart == 1)
        print(f"    change table afterwards: {size / 1024:,.0f} KiB", flush=True)
    share = idle_cpu()
    passed &= line("idle, share of a core", f"{share:.2%}", f"<= {IDLE_CPU_MAX:.0%}", passed=share <= IDLE_CPU_MAX)
    delays = asyncio.run(latency())
    ranks = {rank: delays[min(int(len(delays) * rank / 100), len(delays) - 1)] for rank in (50, 90, 99, 100)}
    shown = ", ".join(f"p{rank} {delay:.2f}" for rank, delay in ranks.items())
    quick = ranks[50] <= LATENCY_P50_MS_MAX and ranks[99] <= LATENCY_P99_MS_MAX
    passed &= line("commit to draft, ms", shown, "p99 <= 10", passed=quick)
    return 0 if passed else 1


if __name__ == "__main__":
    if sys.argv[1:2] == ["capture"]:
        asyncio.run(capture(Path(sys.argv[2]), Path(sys.argv[3])))
    elif sys.argv[1:2] == ["triggers"]:
        set_up(Path(sys.argv[2]))
    else:
        sys.exit(main())
