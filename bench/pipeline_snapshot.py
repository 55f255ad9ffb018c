"""A table of an SQLite database into Parquet files: a pipeline against a loop that someone would write by hand.

The loop reads with the standard library's driver, 50 000 rows at a time, makes an Arrow table of them and writes it to
one Parquet file; it does not sync, and could not go on after a crash. The pipeline reads from a server in a process of
its own, and syncs each batch.

`BENCH_WHOLE=1` takes 5 million rows in place of 1 million.
"""

import json
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tailrace.client.bulk_rows import BulkRowsClient
from tailrace.clock import SystemClock
from tailrace.meta.pipeline import Definition
from tailrace.pipeline.copy import CopyOptions
from tailrace.pipeline.job import Job, SparkChoice, Watcher
from tailrace.pipeline.store import PipelineStore

ROWS = 5_000_000 if os.environ.get("BENCH_WHOLE") else 1_000_000
ROUNDS = 3
RATIO_MIN = 0.7
PAGE_ROWS = 50_000
START_S = 60.0


def prepare(path):
    database = sqlite3.connect(path)
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, item TEXT, price REAL, qty INTEGER, placed TEXT)")
    rows = ((i, f"item {i % 5000}", i / 7, i % 100, "2026-01-01 12:00:00") for i in range(ROWS))
    database.executemany("INSERT INTO orders VALUES (?, ?, ?, ?, ?)", rows)
    database.commit()
    database.close()


def by_hand(path, target):
    database = sqlite3.connect(path)
    cursor = database.execute("SELECT * FROM orders")
    names = [column[0] for column in cursor.description]
    writer = None
    while rows := cursor.fetchmany(PAGE_ROWS):
        table = pa.table(dict(zip(names, map(list, zip(*rows, strict=True)), strict=True)))
        writer = writer or pq.ParquetWriter(target, table.schema)
        writer.write_table(table)
    writer.close()
    database.close()


def by_pipeline(directory, server, number):
    store = PipelineStore.open(f"sqlite:///{directory / 'pipelines.db'}", SystemClock())
    name = f"round{number}"
    sink = f"parquet://{directory}/files"
    store.create(Definition(name=name, source="shop", tables=("orders",), sink=sink, server=server))
    job = Job(store, directory / "work", None, SparkChoice(), SystemClock(), CopyOptions())
    job.run(name, once=True, wait=False, watcher=Watcher(), stopped=lambda: False)
    copied = sum(one.rows_copied for one in store.progress(name))
    store.close()
    assert copied == ROWS, f"{copied} rows copied"


def main() -> int:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        database = directory / "shop.db"
        prepare(database)
        command = [sys.executable, "-m", "tailrace", "serve", "--json", "--logging-level", "error", "--http-port", "0"]
        command += ["--grpc-port", "0", "--data-dir", str(directory / "data"), "--source", f"shop=sqlite:///{database}"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE)
        try:
            server = json.loads(process.stdout.readline())["http"]
            client, deadline = BulkRowsClient(server), time.monotonic() + START_S
            while not client.info("shop").tables and time.monotonic() < deadline:
                time.sleep(0.05)
            best = {"pipeline": float("inf"), "hand": float("inf")}
            for number in range(ROUNDS):
                begin = time.perf_counter()
                by_hand(database, directory / "hand.parquet")
                best["hand"] = min(best["hand"], time.perf_counter() - begin)
                begin = time.perf_counter()
                by_pipeline(directory, server, number)
                best["pipeline"] = min(best["pipeline"], time.perf_counter() - begin)
        finally:
            process.terminate()
            process.wait()
    ratio = best["hand"] / best["pipeline"]
    detail = ", ".join(f"{side} {ROWS / seconds / 1e3:.0f} k rows/s" for side, seconds in best.items())
    good = ratio >= RATIO_MIN
    print(f"snapshot to Parquet / by hand: {ratio:.2f} (bar {RATIO_MIN:.2f}) {'PASS' if good else 'MISS'}  {detail}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
