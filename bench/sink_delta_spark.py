"""The log into a Delta table through Spark: collected and merged by the driver, written by tasks, and peers.

`python -m bench.sink_delta_spark [CHANGES]`. Peers in the same session, over the same changes in Parquet files: Spark's
own Parquet sink for appended changes, and for mode `current` the usual recipe (Debezium-style JSON, `from_json`, the
last change of each key by a window, merge). The tables are compared in the end.
"""

import asyncio
import functools
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, write_deltalake

from bench.spark_source import COLUMNS, NOTES, TABLE, TIME_US
from tailrace.clock import SystemClock
from tailrace.log import DiskFiles, Log, LogOptions
from tailrace.model.commit import Draft
from tailrace.model.number import Position, SchemaId
from tailrace.model.op import Op
from tailrace.model.table import Kind
from tailrace.pipeline.batch_writer import changes_of_packed
from tailrace.pipeline.decode import changes_of_json
from tailrace.pipeline.layout import unpacked
from tailrace.pipeline.sink.base import Batch, Mode
from tailrace.pipeline.sink.spread import SpreadBatch
from tailrace.pipeline.sinks import sink_of
from tailrace.pipeline.spark import find_java, open_session
from tailrace.pipeline.spark_spread import SparkSpread

CHANGES = 1_000_000
BATCHES = 2
KEYS_SHARE = 4
"""One change in this many inserts a key; the others update keys at random."""

COMMIT_CHANGES = 100
ROUNDS = 2
RATE_MIN = 200_000
RECIPE_RATIO_MIN = 2.0
PARQUET_RATIO_MIN = 0.5


def image(key: int, number: int) -> bytes:
    note = NOTES[number % len(NOTES)]
    shown = key, key % 1000, number % 500, number % 7, note
    return b'{"id":%d,"customer":"customer-%06d","status":"paid","amount":%d.25,"qty":%d,"note":"%s"}' % shown


async def write(directory: Path, changes: int) -> None:
    """Write a log: first all keys are inserted, then they are updated."""
    chance = random.Random(7)
    keys = changes // KEYS_SHARE
    log = await Log.open(DiskFiles(directory), LogOptions(retention_bytes=None, retention_age_s=None), SystemClock())
    await log.put_schema(TABLE)
    drafts = []
    for first in range(0, changes, COMMIT_CHANGES):
        made = Draft(Position(str(first)), TIME_US + first)
        for number in range(first, first + COMMIT_CHANGES):
            key = number if number < keys else chance.randrange(keys)
            before = None if number < keys else image(key, number - 1)
            op = Op.INSERT if before is None else Op.UPDATE
            made.add(op, SchemaId(1), b"[%d]" % key, before=before, after=image(key, number))
        drafts.append(made)
        if len(drafts) == 100 or first + COMMIT_CHANGES >= changes:
            await log.append(drafts)
            drafts = []
    await log.close()


def merge_messages(spark, messages: Path, place: Path) -> None:
    """Merge a batch of Debezium-style messages in Parquet files into a Delta table, as people usually do."""
    row = ", ".join(f"{one.name} {KINDS[one.name]}" for one in COLUMNS)
    members = f"before struct<{row}>, after struct<{row}>, op string, source struct<lsn bigint>"
    parsed = spark.read.parquet(str(messages)).selectExpr(f"from_json(message, '{members}') AS m")
    parsed.selectExpr("m.source.lsn AS lsn", "m.after.*").createOrReplaceTempView("parsed")
    ranked = "SELECT *, row_number() OVER (PARTITION BY id ORDER BY lsn DESC) AS rank FROM parsed"
    rows = spark.sql(f"SELECT * FROM ({ranked}) WHERE rank = 1").drop("rank").toArrow()
    if not DeltaTable.is_deltatable(str(place)):
        write_deltalake(place, rows)
        return
    merge = DeltaTable(place).merge(rows, "t.id = s.id", source_alias="s", target_alias="t")
    merge.when_matched_update_all().when_not_matched_insert_all().execute()


class Course:
    """One run of everything over batches of one log."""

    def __init__(self, spark, directory: Path, changes: int) -> None:
        self.spark, self.directory, self.changes = spark, directory, changes
        size = changes // BATCHES
        self.intervals = [(number * size, (number + 1) * size) for number in range(BATCHES)]
        for number, (after, through) in enumerate(self.intervals):
            envelope = self.frame(after, through, "envelope")
            envelope.selectExpr(f"{MESSAGE} AS message").write.parquet(str(directory / f"messages{number}"))

    def frame(self, after, through, layout):
        options = {"log_dir": str(self.directory / "log"), "source": "app", "tables": "orders", "layout": layout}
        return self.spark.read.format("tailrace").options(**options, start=str(after), end=str(through)).load()

    def driver(self, mode, place):
        sink = self.sink(mode, place)
        for number, (after, through) in enumerate(self.intervals):
            rows = pa.concat_tables(unpacked(self.frame(after, through, LAYOUTS[mode]).toArrow()))
            tables = changes_of_json(rows, {("orders", 1): TABLE})
            sink.apply(Batch("bench", number, {"app": through}, tables))

    def tasks(self, mode, place):
        sink = self.sink(mode, place)
        decode = functools.partial(changes_of_packed, versions={("orders", 1): TABLE})
        for number, (after, through) in enumerate(self.intervals):
            changes = SparkSpread(self.frame(after, through, LAYOUTS[mode]), decode, "bench")
            sink.apply_spread(SpreadBatch("bench", number, "app", changes, through - after))

    def parquet(self, _mode, place):
        """Spark's own way to append: typed changes into Parquet files."""
        for after, through in self.intervals:
            self.frame(after, through, "typed").write.mode("append").parquet(str(place))

    def recipe(self, _mode, place):
        """Merge messages as people usually do."""
        for number in range(BATCHES):
            merge_messages(self.spark, self.directory / f"messages{number}", place)

    def sink(self, mode, place):
        sink = sink_of(f"delta://{place}", mode, pipeline="bench")
        sink.open([TABLE])
        return sink

    def timed(self, run, mode, place) -> float:
        shutil.rmtree(place, ignore_errors=True)
        begin = time.perf_counter()
        run(mode, place)
        return time.perf_counter() - begin


LAYOUTS = {Mode.CURRENT: "latest", Mode.APPEND: "packed"}
KINDS = {one.name: {Kind.I64: "bigint", Kind.F64: "double"}.get(one.kind, "string") for one in COLUMNS}
MESSAGE = """concat('{"before":', coalesce(_before, 'null'), ',"after":', coalesce(_after, 'null'), ',"op":"',
    substring(_change_type, 1, 1), '","source":{"connector":"sqlite","db":"app","table":"orders","lsn":', _offset,
    '},"ts_ms":', unix_millis(_commit_timestamp), '}')"""


def contents(place):
    table = DeltaTable(place).to_pyarrow_table().select([one.name for one in COLUMNS]).sort_by("id")
    return table.num_rows, pc.sum(table["amount"]).as_py(), table["id"].combine_chunks()


def report(title: str, ours: float, peer: float, bar: float) -> bool:
    ratio = ours / peer
    good = ratio >= bar
    detail = f"{ours / 1e3:.0f} k against {peer / 1e3:.0f} k changes/s"
    print(f"{title}: {ratio:.2f} (bar {bar}) {'PASS' if good else 'MISS'}  {detail}", flush=True)
    return good


def measure(course: Course, directory: Path) -> bool:
    runs = {
        "current by tasks": (course.tasks, Mode.CURRENT),
        "current by the driver": (course.driver, Mode.CURRENT),
        "recipe": (course.recipe, Mode.CURRENT),
        "append by tasks": (course.tasks, Mode.APPEND),
        "append by the driver": (course.driver, Mode.APPEND),
        "parquet": (course.parquet, Mode.APPEND),
    }
    best: dict[str, float] = {}
    for _ in range(ROUNDS):
        for name, (run, mode) in runs.items():
            seconds = course.timed(run, mode, directory / name.replace(" ", "-"))
            best[name] = min(best.get(name, seconds), seconds)
    tables = [contents(directory / name) for name in ("current-by-tasks", "current-by-the-driver", "recipe")]
    assert tables[0] == tables[1] == tables[2], "the tables differ"
    rates = {name: course.changes / seconds for name, seconds in best.items()}
    current = max(("current by tasks", "current by the driver"), key=lambda name: rates[name])
    good = report(f"Log → Delta current ({current}) / usual recipe", rates[current], rates["recipe"], RECIPE_RATIO_MIN)
    good &= report("Log → Delta current / 200 k changes/s", rates[current], RATE_MIN, 1.0)
    good &= report(
        "Delta append by tasks / Spark's Parquet", rates["append by tasks"], rates["parquet"], PARQUET_RATIO_MIN
    )
    for mode in ("current", "append"):
        ours, peer = rates[f"{mode} by tasks"], rates[f"{mode} by the driver"]
        print(
            f"Delta {mode} by tasks / by the driver, one machine: {ours / peer:.2f} (no bar) PASS  {ours / 1e3:.0f} k"
        )
    return good


def main() -> int:
    changes = int(sys.argv[1]) if len(sys.argv) > 1 else CHANGES
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        asyncio.run(write(directory / "log", changes))
        confs = {"spark.log.level": "ERROR", "spark.driver.memory": "3g", "spark.driver.host": "127.0.0.1"}
        spark = open_session(find_java(directory / "java"), confs=confs)
        try:
            return 0 if measure(Course(spark, directory, changes), directory) else 1
        finally:
            spark.stop()


if __name__ == "__main__":
    sys.exit(main())
