"""The log read by Spark: against Spark's own stream over Parquet files of the same changes, and a source of tuples.

`python -m bench.spark_source [CHANGES]`. To start a query takes the same time however much it reads, longer where it
starts Python; with fewer than 5000000 changes that time, measured by queries over next to nothing, is left out.
"""

import asyncio
import os
import random
import shutil
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tailrace.clock import SystemClock
from tailrace.log import DiskFiles, Log, LogOptions
from tailrace.model.commit import Draft
from tailrace.model.number import Offset, Position, SchemaId
from tailrace.model.op import Op
from tailrace.model.table import Column, Kind, TableName, TableSchema
from tailrace.pipeline.files_origin import FilesOrigin
from tailrace.pipeline.layout import coalesced, rows_of
from tailrace.pipeline.source_options import Layout
from tailrace.pipeline.spark import find_java, open_session

CHANGES = 1_000_000
CHANGES_WHOLE = 5_000_000
CHANGES_FEW = 1000
COMMIT_CHANGES = 100
GROUP_COMMITS = 10
ROUNDS = 2
TUPLES_SHARE = 4
"""Tuples are so slow that a part of the changes is measured."""

NATIVE_RATIO_MIN = 0.5
TYPED_RATIO_MIN = 1.0
TUPLES_RATIO_MIN = 5.0

COLUMNS = (
    Column("id", Kind.I64),
    Column("customer", Kind.STR),
    Column("status", Kind.STR),
    Column("amount", Kind.F64),
    Column("qty", Kind.I64),
    Column("note", Kind.STR),
)
TABLE = TableSchema(TableName("app", "orders"), 1, COLUMNS, ("id",))
TIME_US = 1_700_000_000_000_000
NOTES = [random.Random(number).randbytes(30).hex().encode() for number in range(9973)]


def draft(first: int, count: int) -> Draft:
    made = Draft(Position(str(first)), TIME_US + first)
    for number in range(first, first + count):
        image = b'{"id":%d,"customer":"customer-%06d","status":"paid","amount":%d.25,"qty":%d,"note":"%s"}' % (
            number,
            number % 1000,
            number % 500,
            number % 7,
            NOTES[number % len(NOTES)],
        )
        made.add(Op.INSERT, SchemaId(1), b"[%d]" % number, after=image)
    return made


async def write(directory: Path, changes: int) -> None:
    options = LogOptions(retention_bytes=None, retention_age_s=None)
    log = await Log.open(DiskFiles(directory), options, SystemClock())
    await log.put_schema(TABLE)
    step = COMMIT_CHANGES * GROUP_COMMITS
    for first in range(0, changes, step):
        await log.append([draft(first + number * COMMIT_CHANGES, COMMIT_CHANGES) for number in range(GROUP_COMMITS)])
    await log.close()


def write_parquet(log: Path, directory: Path, schema: pa.Schema) -> None:
    """Write the same rows as Spark's own source reads them, in files of the size that one task of ours reads."""
    directory.mkdir(parents=True)
    origin = FilesOrigin(str(log), "app")
    window = origin.window(())
    rows: list[pa.RecordBatch] = []
    count = 0
    for schemas, batch in coalesced(origin.batches(0, window.head, ("orders",)), Layout.ENVELOPE):
        rows.append(rows_of(batch, schemas, Layout.ENVELOPE, schema))
        if sum(map(len, rows)) >= 250_000:
            pq.write_table(pa.Table.from_batches(rows), directory / f"{count:05}.parquet", compression="zstd")
            rows, count = [], count + 1
    if rows:
        pq.write_table(pa.Table.from_batches(rows), directory / f"{count:05}.parquet", compression="zstd")


def tuples_source():
    """Return a source that gives the same rows as tuples, as a Python source is usually written."""
    from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

    class TupleReader(DataSourceStreamReader):
        def __init__(self, log: str, through: int) -> None:
            self.log, self.through = log, through

        def initialOffset(self):  # noqa: N802
            return {"offset": 0}

        def latestOffset(self):  # noqa: N802
            return {"offset": self.through}

        def partitions(self, start, end):
            half = (start["offset"] + end["offset"]) // 2
            cuts = [start["offset"], half, end["offset"]]
            return [InputPartition(pair) for pair in pairwise(cuts) if pair[0] < pair[1]]

        def read(self, partition):
            from tailrace.log.reader import LogReader

            reader = LogReader(DiskFiles(Path(self.log), make=False))
            place, last = partition.value
            while place < last:
                chunk = reader.load(Offset(place))
                for change in chunk.changes():
                    if place < change.offset <= last:
                        row = change.offset, change.index, change.op.word, change.schema.table.name
                        yield (*row, change.key.decode(), change.after.decode())
                place = min(chunk.last, last)

    class TupleSource(DataSource):
        @classmethod
        def name(cls):
            return "tuples"

        def schema(self):
            return (
                "_offset bigint, _commit_version bigint, _change_type string, _table string, _key string, _after string"
            )

        def streamReader(self, schema):  # noqa: N802
            return TupleReader(self.options["log"], int(self.options["through"]))

    return TupleSource


def drain(stream, directory: Path) -> float:
    """Return the seconds that a stream needs to its end."""
    checkpoint = directory / "checkpoint"
    shutil.rmtree(checkpoint, ignore_errors=True)
    begin = time.perf_counter()
    query = (
        stream.writeStream.format("noop")
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return time.perf_counter() - begin


def report(name: str, measured: str, bar: str, *, good: bool) -> bool:
    print(f"{name}: {measured} (bar {bar}) {'PASS' if good else 'MISS'}", flush=True)
    return good


def compare(title: str, rates: dict[str, float], ours: str, peer: str, bar: float) -> bool:
    ratio = rates[ours] / rates[peer]
    shown = f"{ratio:.2f}; {rates[ours] / 1e6:.2f} against {rates[peer] / 1e6:.2f} M changes/s"
    return report(title, shown, f"{bar}", good=ratio >= bar)


def streams_of(spark, directory: Path, changes: int) -> dict[str, Any]:
    """Return each stream to be measured, over a log of so many changes."""
    log = directory / "log"
    asyncio.run(write(log, changes))

    def ours(**options):
        reader = spark.readStream.format("tailrace").option("log_dir", str(log)).option("source", "app")
        return reader.option("tables", "orders").options(**options).load()

    raw, typed = ours(layout="envelope"), ours()
    write_parquet(log, directory / "parquet", _arrow(raw.schema))
    parquet = spark.readStream.schema(raw.schema).parquet(str(directory / "parquet"))
    row = ", ".join(f"{name} {kind}" for name, kind in typed.dtypes if not name.startswith("_"))
    parsed = parquet.selectExpr("_offset", "_commit_version", f"from_json(_after, '{row}') AS row").select("*", "row.*")
    tuples = spark.readStream.format("tuples").option("log", str(log)).option("through", str(changes // TUPLES_SHARE))
    return {"raw": raw, "parquet": parquet, "typed": typed, "from_json": parsed.drop("row"), "tuples": tuples.load()}


def measure(spark, directory: Path, changes: int) -> bool:
    spark.dataSource.register(tuples_source())
    few = streams_of(spark, directory / "few", CHANGES_FEW)
    many = streams_of(spark, directory / "many", changes)
    starts: dict[str, list[float]] = {}
    whole: dict[str, list[float]] = {}
    for _ in range(ROUNDS + 1):  # the first round warms the machine up
        for name, stream in many.items():
            starts.setdefault(name, []).append(drain(few[name], directory))
            whole.setdefault(name, []).append(drain(stream, directory))
    left_out = {name: min(times[1:]) if changes < CHANGES_WHOLE else 0.0 for name, times in starts.items()}
    print(f"starting a query: {min(starts['raw']):.2f} s, Parquet {min(starts['parquet']):.2f} s", flush=True)
    rates = {name: changes / (min(times[1:]) - left_out[name]) for name, times in whole.items()}
    rates["tuples"] /= TUPLES_SHARE
    title = "log → Spark, images as JSON text / Spark's own Parquet stream"
    good = compare(title, rates, "raw", "parquet", NATIVE_RATIO_MIN)
    title = "log → Spark, typed rows / the Parquet stream with from_json"
    good &= compare(title, rates, "typed", "from_json", TYPED_RATIO_MIN)
    return good & compare("log → Spark / a source of tuples", rates, "raw", "tuples", TUPLES_RATIO_MIN)


def _arrow(schema) -> pa.Schema:
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(schema, timezone="UTC")


def main() -> int:
    changes = int(sys.argv[1]) if len(sys.argv) > 1 else CHANGES
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(Path("src").resolve()), os.environ.get("PYTHONPATH")]))
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        java = find_java(directory / "java")
        print(f"{changes} changes, {java}", flush=True)
        spark = open_session(java, master="local[2]", confs={"spark.log.level": "ERROR"})
        try:
            good = measure(spark, directory, changes)
        finally:
            spark.stop()
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
