"""The log read by Spark: against Spark's own stream over Parquet files of the same changes, and a source of tuples.

`BENCH_WHOLE=1` takes 5 million changes in place of 1 million. To start a query takes the same time however
much it reads, longer where it starts Python; with fewer changes that time, measured by queries over next to nothing, is
left out of the rates.
"""

import asyncio
import os
import random
import shutil
import sys
import tempfile
import time
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from bench.sse_throughput import Peer
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

WHOLE = bool(os.environ.get("BENCH_WHOLE"))
CHANGES = 5_000_000 if WHOLE else 1_000_000
CHANGES_FEW = 1000
COMMIT_CHANGES = 100
GROUP_COMMITS = 10
ROUNDS = 2
LOOK_S = 0.1
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


class Spent(NamedTuple):
    """What reading a stream to its end takes, by the clock and of all processors."""

    time_s: float
    processor_s: float


def drain(stream, directory: Path) -> Spent:
    """Read a stream to its end."""
    checkpoint = directory / "checkpoint"
    shutil.rmtree(checkpoint, ignore_errors=True)
    processors, begin = ProcessorTime(), time.perf_counter()
    query = (
        stream.writeStream.format("noop")
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    while not query.awaitTermination(LOOK_S):
        processors.look()
    return Spent(time.perf_counter() - begin, processors.look())


class ProcessorTime:
    """Processor time of this process and all that it started, from now on; little is lost of those that end."""

    def __init__(self) -> None:
        self._first: dict[int, int] = {}
        self._last: dict[int, int] = {}
        self.look()
        self._first = dict(self._last)

    def look(self) -> float:
        """Look at all processes; return the seconds since the beginning."""
        times, parents = {}, {}
        for path in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = path.read_text().rpartition(")")[2].split()
            except OSError:
                continue
            number = int(path.parent.name)
            parents[number], times[number] = int(fields[1]), int(fields[11]) + int(fields[12])
        ours = {os.getpid()}
        while more := {number for number, parent in parents.items() if parent in ours} - ours:
            ours |= more
        self._last |= {number: times[number] for number in ours}
        ticks = sum(last - self._first.get(number, 0) for number, last in self._last.items())
        return ticks / os.sysconf("SC_CLK_TCK")


def report(name: str, measured: str, bar: str, *, good: bool) -> bool:
    print(f"{name}: {measured} (bar {bar}) {'PASS' if good else 'MISS'}", flush=True)
    return good


class Rate(NamedTuple):
    """Changes a second, by the clock and by processor time."""

    by_clock: float
    by_processor: float


def rate_of(count: int, whole: list[Spent], starts: list[Spent]) -> Rate:
    """Return the best rate of all rounds but the first, which warms the machine up."""
    times, less = zip(*whole[1:], strict=True), zip(*starts[1:], strict=True)
    best = [count / (min(each) - (0.0 if WHOLE else min(start))) for each, start in zip(times, less, strict=True)]
    return Rate(*best)


def compare(title: str, rates: dict[str, Rate], ours: str, peer: str, bar: float) -> bool:
    one, other = rates[ours], rates[peer]
    ratio, processor = one.by_clock / other.by_clock, one.by_processor / other.by_processor
    shown = f"{ratio:.2f}; {one.by_clock / 1e6:.2f} against {other.by_clock / 1e6:.2f} M changes/s"
    return report(title, f"{shown}; by processor time {processor:.2f}", f"{bar}", good=ratio >= bar)


def streams_of(spark, directory: Path, changes: int, server: str) -> dict[str, Any]:
    """Return each stream to be measured, over a log of this many changes."""
    log = directory / "log"

    def ours(**options):
        return spark.readStream.format("tailrace").options(source="app", tables="orders", **options).load()

    files = {"log_dir": str(log)}
    raw, typed = ours(layout="envelope", **files), ours(**files)
    write_parquet(log, directory / "parquet", _arrow(raw.schema))
    parquet = spark.readStream.schema(raw.schema).parquet(str(directory / "parquet"))
    row = ", ".join(f"{name} {kind}" for name, kind in typed.dtypes if not name.startswith("_"))
    parsed = parquet.selectExpr("_offset", "_commit_version", f"from_json(_after, '{row}') AS row").select("*", "row.*")
    tuples = spark.readStream.format("tuples").option("log", str(log)).option("through", str(changes // TUPLES_SHARE))
    return {
        "raw": raw,
        "parquet": parquet,
        "server": ours(layout="envelope", server=server),
        "typed": typed,
        "from_json": parsed.drop("row"),
        "tuples": tuples.load(),
    }


def measure(spark, few: dict[str, Any], many: dict[str, Any], directory: Path) -> bool:
    starts: dict[str, list[Spent]] = {}
    whole: dict[str, list[Spent]] = {}
    for _ in range(ROUNDS + 1):
        for name, stream in many.items():
            starts.setdefault(name, []).append(drain(few[name], directory))
            whole.setdefault(name, []).append(drain(stream, directory))
    shown = {name: min(spent.time_s for spent in times) for name, times in starts.items()}
    print(f"starting a query: {shown['raw']:.2f} s, Parquet {shown['parquet']:.2f} s", flush=True)
    counts = {name: CHANGES // TUPLES_SHARE if name == "tuples" else CHANGES for name in many}
    rates = {name: rate_of(counts[name], whole[name], starts[name]) for name in many}
    title = "log → Spark, images as JSON text / Spark's own Parquet stream"
    good = compare(title, rates, "raw", "parquet", NATIVE_RATIO_MIN)
    compare("… from a server in place of files", rates, "server", "parquet", NATIVE_RATIO_MIN)
    title = "log → Spark, typed rows / the Parquet stream with from_json"
    good &= compare(title, rates, "typed", "from_json", TYPED_RATIO_MIN)
    return good & compare("log → Spark / a source of tuples", rates, "raw", "tuples", TUPLES_RATIO_MIN)


def _arrow(schema) -> pa.Schema:
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(schema, timezone="UTC")


def main() -> int:
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(Path("src").resolve()), os.environ.get("PYTHONPATH")]))
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        directory = Path(name)
        java = find_java(directory / "java")
        print(f"{CHANGES} changes, {java}, load {os.getloadavg()[0]:.1f}", flush=True)
        spark = open_session(java, master="local[2]", confs={"spark.log.level": "ERROR"})
        stack.callback(spark.stop)
        spark.dataSource.register(tuples_source())
        streams = []
        for part, changes in (("few", CHANGES_FEW), ("many", CHANGES)):
            asyncio.run(write(directory / part / "log", changes))
            server = Peer("--serve", str(directory / part))
            stack.callback(server.end)
            streams.append(streams_of(spark, directory / part, changes, f"http://127.0.0.1:{server.port}"))
        good = measure(spark, *streams, directory)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
