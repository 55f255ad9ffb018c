"""Runs in an environment of its own: Spark 3.5 with Iceberg, told what to do line by line. Knows nothing of ours.

A request is a line of JSON: `sql`, `exists`, `stage` (a view of an Arrow file) or `drop`. Rows go through Arrow files.
"""

import json
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import velox_spark
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema


def session(warehouse):
    jars = Path(velox_spark.__file__).parent / "jars"
    (jar,) = jars.glob("iceberg-spark-runtime-3.5_*.jar")
    confs = {
        "spark.jars": str(jar),
        "spark.driver.extraClassPath": str(jar),
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "hadoop",
        "spark.sql.catalog.lake.warehouse": f"file://{warehouse}/lake",
        "spark.sql.warehouse.dir": f"{warehouse}/plain",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "1",
        "spark.default.parallelism": "1",
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": f"-XX:TieredStopAtLevel=1 -Dderby.system.home={warehouse}/derby",
        # Iceberg's vectorised reader is left out: it wants access to memory that Java forbids.
        "spark.sql.iceberg.vectorization.enabled": "false",
        "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    }
    builder = SparkSession.builder.master("local[2]").appName("iceberg")
    for name, value in confs.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


class Worker:
    def __init__(self, directory):
        self.directory = Path(directory)
        self.spark = session(directory)
        self.spark.sparkContext.setLogLevel("OFF")
        self.staged = 0

    def sql(self, text):
        """Run a statement; its rows are in the file that is named."""
        frame = self.spark.sql(text)
        schema = to_arrow_schema(frame.schema)
        fields = [pa.field(f.name, pa.timestamp("us", "UTC") if _zoned(f.type) else f.type) for f in schema]
        rows = [row.asDict() for row in frame.collect()]
        arrays = [pa.array([_value(row[f.name]) for row in rows], f.type) for f in fields]
        path = self.directory / "answer.arrow"
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, pa.schema(fields)) as writer:
            writer.write_table(pa.table(arrays, schema=pa.schema(fields)))
        return str(path)

    def exists(self, table):
        return self.spark.catalog.tableExists(table)

    def stage(self, view, path):
        """Make a view of an Arrow file. This Spark reads Parquet, not Arrow."""
        self.staged += 1
        with pa.memory_map(path) as file:
            table = pa.ipc.open_file(file).read_all()
        parquet = self.directory / f"staged-{self.staged}.parquet"
        pq.write_table(table, parquet)
        self.spark.read.parquet(str(parquet)).createOrReplaceTempView(view)

    def drop(self, view):
        self.spark.catalog.dropTempView(view)


def _zoned(type_):
    return pa.types.is_timestamp(type_) and type_.tz is not None


def _value(value):
    return bytes(value) if isinstance(value, bytearray) else value


def main():
    answers = sys.stdout
    sys.stdout = sys.stderr
    worker = Worker(sys.argv[1])
    print("null", file=answers, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = {"answer": getattr(worker, request["call"])(*request["arguments"])}
        except Exception as error:
            answer = {"kind": type(error).__name__, "message": str(error)}
        print(json.dumps(answer), file=answers, flush=True)
    worker.spark.stop()


if __name__ == "__main__":
    main()
