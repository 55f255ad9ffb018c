"""What it costs to run a client's query in a process that can be killed, against a thread of the server.

Both sides run the same function on the same database: one row by its key, 100 rows, and 10 000 rows. Also: how long a
process takes to start and to answer its first query, and its memory. A thread has no such cost, and no end either: the
query of `docs/decisions/query-processes.md` holds one for hours.
"""

import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import apsw

from tailrace.source.base import Reader
from tailrace.source.result import RunLimits
from tailrace.source.sqlite.client_query import open_reading, run_query
from tailrace.source.sqlite.query import SqliteQuerySource

ROWS = 10_000
LIMITS = RunLimits(rows_max=ROWS, bytes_max=64 << 20, timeout_s=60.0)
ROUNDS = 4
STARTS = 8
BAR = 0.2
"""A query by its key may take five times as long: a request over HTTP costs ten times more than either."""

CASES = (
    ("one row", "SELECT * FROM t WHERE id = ?1", (77,), 500),
    ("100 rows", "SELECT * FROM t LIMIT 100", (), 300),
    ("10000 rows", "SELECT * FROM t", (), 10),
)


def main() -> int:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "app.db"
        database = apsw.Connection(str(path))
        database.pragma("journal_mode", "wal")
        database.execute("CREATE TABLE t(id INTEGER PRIMARY KEY, name TEXT, price REAL)")
        with database:
            database.executemany("INSERT INTO t VALUES(?, ?, ?)", [(n, f"name {n}", n * 1.5) for n in range(ROWS)])
        return asyncio.run(measure(path))


async def measure(path: Path) -> int:
    loop = asyncio.get_running_loop()
    connection, threads = open_reading(path), ThreadPoolExecutor(1)
    queries = SqliteQuerySource(path, Reader("bench"))
    await queries.run("SELECT 1", (), LIMITS)
    worst = 0
    for name, sql, arguments, calls in CASES:

        def in_thread(sql: str = sql, arguments: tuple[int, ...] = arguments) -> Awaitable[object]:
            deadline_s = time.monotonic() + LIMITS.timeout_s
            return loop.run_in_executor(threads, run_query, connection, sql, arguments, LIMITS, deadline_s)

        def in_process(sql: str = sql, arguments: tuple[int, ...] = arguments) -> Awaitable[object]:
            return queries.run(sql, arguments, LIMITS)

        times: dict[str, list[float]] = {"thread": [], "process": []}
        for _ in range(ROUNDS):  # in turns: other work of the machine hits both
            times["thread"].append(await per_call(in_thread, calls))
            times["process"].append(await per_call(in_process, calls))
        best = {kind: min(rounds) for kind, rounds in times.items()}
        print(f"{name}: thread {best['thread'] * 1e6:.0f} µs, process {best['process'] * 1e6:.0f} µs")
        if name == "one row":
            ratio = best["thread"] / best["process"]
            print(f"query_process_over_thread {ratio:.2f} {BAR} {'PASS' if ratio >= BAR else 'MISS'}")
            worst |= int(ratio < BAR)
    (process, _) = queries._processes._idle[0]
    rollup = Path(f"/proc/{process.pid}/smaps_rollup").read_text().split()
    print(f"memory of a process: {rollup[rollup.index('Rss:') + 1]} kB, {rollup[rollup.index('Pss:') + 1]} kB its own")
    await queries.close()
    print(f"first answer of a new process: {await starts(path) * 1e3:.0f} ms")
    connection.close()
    threads.shutdown()
    return worst


async def per_call(call: Callable[[], Awaitable[object]], calls: int) -> float:
    times = []
    for _ in range(calls):
        begin = time.perf_counter()
        await call()
        times.append(time.perf_counter() - begin)
    return statistics.median(times)


async def starts(path: Path) -> float:
    times = []
    for _ in range(STARTS):
        queries = SqliteQuerySource(path, Reader("bench"))
        times.append(await per_call(lambda: queries.run("SELECT 1", (), LIMITS), 1))  # noqa: B023
        await queries.close()
    return min(times)


if __name__ == "__main__":
    sys.exit(main())
