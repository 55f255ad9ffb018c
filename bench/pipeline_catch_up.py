"""A pipeline that was stopped catches up: updates that it missed into a Delta table, as `pipeline run --once` does it.

The whole way counts: the server, Spark's stream with its checkpoint, decoding, merging, syncing. The peer has it
easier: the same changes lie in Parquet files as Debezium-style messages, in batches of the same size, and are parsed,
deduplicated by a window and merged in the same session, with no checkpoint. The tables are compared in the end. Each
side runs once over a first part, which is not counted: starting Python and compiling is not what is measured.

`BENCH_WHOLE=1` takes 5 million changes in place of 1 million.
"""

import os
import random
import shutil
import sqlite3
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

from bench.sink_delta_spark import MESSAGE, RATE_MIN, RECIPE_RATIO_MIN, contents, merge_messages, report
from tailrace.client.bulk_rows import BulkRowsClient
from tailrace.clock import SystemClock
from tailrace.meta.pipeline import Definition
from tailrace.pipeline.job import Job, SparkChoice, Watcher
from tailrace.pipeline.spark import find_java, open_session
from tailrace.pipeline.store import PipelineStore

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from serving import Server

CHANGES = 5_000_000 if os.environ.get("BENCH_WHOLE") else 1_000_000
BATCH_CHANGES = 500_000
FIRST_CHANGES = 500_000
COMMIT_CHANGES = 5_000
KEYS = CHANGES // 4


class Shop:
    """A database, a server on it, and a pipeline of its table."""

    def __init__(self, directory: Path, spark) -> None:
        self.directory, self.spark = directory, spark
        self.chance = random.Random(7)
        self.database = sqlite3.connect(directory / "shop.db", isolation_level=None)
        self.database.execute("PRAGMA journal_mode = WAL")
        columns = "id INTEGER PRIMARY KEY, customer TEXT, status TEXT, amount REAL, qty INTEGER, note TEXT"
        self.database.execute(f"CREATE TABLE orders ({columns})")
        rows = ((key, f"customer-{key % 1000:06}", "new", 1.25, key % 7, f"{key:032x}") for key in range(KEYS))
        self.commit("INSERT INTO orders VALUES (?, ?, ?, ?, ?, ?)", rows)
        self.server = Server(directory / "data", "--source", f"app=sqlite:///{directory / 'shop.db'}").wait_ready()
        self.server.subscribe("orders", "app")
        self.client = BulkRowsClient(self.server.url)
        self.store = PipelineStore.open(f"sqlite:///{directory / 'pipelines.db'}", SystemClock())
        sink = f"delta://{directory / 'ours'}"
        self.store.create(Definition(name="p", source="app", tables=("orders",), sink=sink, server=self.server.url))

    def commit(self, statement, rows):
        self.database.execute("BEGIN")
        self.database.executemany(statement, rows)
        self.database.execute("COMMIT")

    def update(self, changes):
        """Update keys at random; return the offsets of these changes when the log has them."""
        after = self.client.committed("app", "orders")
        for first in range(after, after + changes, COMMIT_CHANGES):
            rows = [(float(first), one, self.chance.randrange(KEYS)) for one in range(COMMIT_CHANGES)]
            self.commit("UPDATE orders SET status = 'paid', amount = ?, qty = ? WHERE id = ?", rows)
        through = self.client.committed("app", "orders")
        assert through - after == changes
        return after, through

    def messages(self, after, through):
        """Put changes into files as messages, a directory for each batch."""
        options = {"server": self.server.url, "source": "app", "tables": "orders", "layout": "envelope"}
        found = []
        for first in range(after, through, BATCH_CHANGES):
            last = min(first + BATCH_CHANGES, through)
            frame = self.spark.read.format("tailrace").options(**options, start=str(first), end=str(last)).load()
            found.append(self.directory / f"messages{first}")
            frame.selectExpr(f"{MESSAGE} AS message").write.parquet(str(found[-1]))
        return found

    def run(self):
        choice = SparkChoice(session=self.spark)
        job = Job(self.store, self.directory / "work", None, choice, SystemClock())
        job.run("p", once=True, wait=False, watcher=Watcher(), stopped=lambda: False)

    def recipe(self, messages):
        for one in messages:
            merge_messages(self.spark, one, self.directory / "recipe")

    def close(self):
        self.store.close()
        self.client.close()
        self.server.stop()
        self.database.close()


def timed(run) -> float:
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin


def measure(shop: Shop, directory: Path) -> bool:
    shop.run()
    shutil.copytree(directory / "ours", directory / "recipe")
    for changes in (FIRST_CHANGES, CHANGES):
        messages = shop.messages(*shop.update(changes))
        rates = {"ours": changes / timed(shop.run), "recipe": changes / timed(partial(shop.recipe, messages))}
    assert contents(directory / "ours") == contents(directory / "recipe"), "the tables differ"
    good = report("Pipeline → Delta current, catching up / usual recipe", *rates.values(), RECIPE_RATIO_MIN)
    return good & report("Pipeline → Delta current, catching up / 200 k changes/s", rates["ours"], RATE_MIN, 1.0)


def main() -> int:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        confs = {"spark.log.level": "ERROR", "spark.driver.memory": "3g", "spark.driver.host": "127.0.0.1"}
        spark = open_session(find_java(directory / "java"), confs=confs)
        shop = Shop(directory, spark)
        try:
            return 0 if measure(shop, directory) else 1
        finally:
            shop.close()
            spark.stop()


if __name__ == "__main__":
    sys.exit(main())
