"""Typed rows of the log in Spark against Spark's own Parquet of the same typed rows: whole, and with a condition.

`BENCH_WHOLE=1` takes 5 million changes in place of 1 million, for which the bars are: with fewer, what a query takes to
start counts for more. Each of ours and of Parquet's is measured one after the
other, several times; the first round warms the machine up and does not count. Ratios are by the clock and by processor
time: on a machine with other work only the latter means something.
"""

import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from bench.spark_source import CHANGES, ProcessorTime, Spent, drain, write
from bench.sse_throughput import Peer
from tailrace.log import DiskFiles
from tailrace.log.reader import LogReader
from tailrace.log.statistics import survey
from tailrace.pipeline.files_origin import FilesOrigin
from tailrace.pipeline.layout import arrow_schema_of, coalesced, rows_of
from tailrace.pipeline.source_options import Layout, parse_options
from tailrace.pipeline.spark import find_java, open_session

ROUNDS = 2
FILE_ROWS = 250_000
WHERE = "id < 10"
ROWS_RATIO_MIN = 0.6
WHERE_RATIO_MIN = 0.5


def survey_log(directory: Path) -> None:
    """Write the statistics of sealed segments, as a server does when it is idle."""
    files = DiskFiles(directory, make=False)
    segments = LogReader(files)._segments
    for segment in segments.entries[:-1]:
        for _ in survey(files, segments, segment):
            pass


def write_rows(log: Path, directory: Path) -> None:
    """Write the same typed rows as Parquet."""
    directory.mkdir(parents=True)
    options = parse_options({"log_dir": str(log), "source": "app", "tables": "orders"})
    origin = FilesOrigin(str(log), "app")
    window = origin.window(options.tables)
    schema = arrow_schema_of(options, window.schemas)
    rows: list[pa.RecordBatch] = []
    count = 0

    def flush() -> None:
        pq.write_table(pa.Table.from_batches(rows), directory / f"{count:05}.parquet", compression="zstd")

    for schemas, batch in coalesced(origin.batches(0, window.head, options.tables), Layout.TYPED):
        rows.append(rows_of(batch, schemas, Layout.TYPED, schema))
        if sum(map(len, rows)) >= FILE_ROWS:
            flush()
            rows, count = [], count + 1
    if rows:
        flush()


def spent(run: Callable[[], object]) -> Spent:
    processors, begin = ProcessorTime(), time.perf_counter()
    run()
    return Spent(time.perf_counter() - begin, processors.look())


def noop(frame: Any) -> None:
    frame.write.format("noop").mode("overwrite").save()


def compare(title: str, ours: Callable[[], Spent], parquet: Callable[[], Spent], bar: float) -> bool:
    """Measure both in turn; tell how ours compares."""
    pairs = [(ours(), parquet()) for _ in range(ROUNDS + 1)][1:]
    best = [Spent(*map(min, zip(*some, strict=True))) for some in zip(*pairs, strict=True)]
    clock, processor = (best[1][which] / best[0][which] for which in (0, 1))
    good = clock >= bar
    shown = f"{clock:.2f}; {best[0].time_s:.2f} against {best[1].time_s:.2f} s; by processor time {processor:.2f}"
    print(f"{title}: {shown} (bar {bar}) {'PASS' if good else 'MISS'}", flush=True)
    return good


def main() -> int:
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(Path("src").resolve()), os.environ.get("PYTHONPATH")]))
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        directory = Path(name)
        java = find_java(directory / "java")
        print(f"{CHANGES} changes, {java}, load {os.getloadavg()[0]:.1f}", flush=True)
        log, parquet = directory / "many" / "log", str(directory / "parquet")
        asyncio.run(write(log, CHANGES))
        survey_log(log)
        write_rows(log, Path(parquet))
        spark = open_session(java, master="local[2]", confs={"spark.log.level": "ERROR"})
        stack.callback(spark.stop)
        server = Peer("--serve", str(directory / "many"))
        stack.callback(server.end)
        options = {"source": "app", "tables": "orders"}
        files = {**options, "log_dir": str(log)}
        served = {**options, "server": f"http://127.0.0.1:{server.port}"}
        schema = spark.read.parquet(parquet).schema

        def batch(options: dict[str, str], where: str = "true") -> Callable[[], Spent]:
            return lambda: spent(lambda: noop(spark.read.format("tailrace").options(**options).load().where(where)))

        def native(where: str = "true") -> Callable[[], Spent]:
            return lambda: spent(lambda: noop(spark.read.parquet(parquet).where(where)))

        good = compare("log → typed rows / Parquet, batch", batch(files), native(), ROWS_RATIO_MIN)
        good &= compare(
            "… as a stream",
            lambda: drain(spark.readStream.format("tailrace").options(**files).load(), directory),
            lambda: drain(spark.readStream.schema(schema).parquet(parquet), directory),
            ROWS_RATIO_MIN,
        )
        compare("… batch from a server", batch(served), native(), ROWS_RATIO_MIN)
        good &= compare(f"where {WHERE}", batch(files, WHERE), native(WHERE), WHERE_RATIO_MIN)
        good &= compare(f"where {WHERE}, from a server", batch(served, WHERE), native(WHERE), WHERE_RATIO_MIN)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
