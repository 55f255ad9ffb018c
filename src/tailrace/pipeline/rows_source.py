"""Rows of a table as a Spark source: each task reads an interval of keys from the server."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from tailrace.pipeline.rows import RANGE, RowsTask, interval_rows
from tailrace.pipeline.sink.base import TableChanges
from tailrace.pipeline.sink.spread import Tally
from tailrace.pipeline.spark_spread import SparkSpread, describe, tallied

__all__ = ["RowsSource", "rows_of_spark", "spread_rows"]


class RowsSource(DataSource):
    """Spark's name for the rows of one table."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "tailrace_rows"

    def schema(self) -> StructType:
        """Return the columns: those of changes, and the number of the range."""
        schema = _task(self.options).row_schema
        return from_arrow_schema(schema.append(pa.field(RANGE, pa.int64())), prefer_timestamp_ntz=True)

    def reader(self, schema: StructType) -> "RowsReader":
        """Return what reads the rows."""
        return RowsReader(_task(self.options), to_arrow_schema(schema, timezone="UTC"))


class RowsReader(DataSourceReader):
    """Reads each interval in a task of its own."""

    def __init__(self, task: RowsTask, schema: pa.Schema) -> None:
        self._task = task
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        """Return the ranges."""
        return [InputPartition(number) for number in self._task.intervals]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one range. Runs on an executor."""
        for rows in interval_rows(self._task, partition.value):
            yield from rows.cast(self._schema).to_batches()


def rows_frame(session: Any, task: RowsTask) -> Any:
    """Return the rows of all ranges as a DataFrame, which tasks of Spark read."""
    session.dataSource.register(RowsSource)
    shown = msgspec.structs.replace(task, token=None)
    reader = session.read.format(RowsSource.name()).option("task", msgspec.json.encode(shown).decode())
    return (reader if task.token is None else reader.option("token", task.token)).load()


def rows_of_spark(session: Any, task: RowsTask, title: str) -> pa.Table:
    """Return the rows of all ranges, read by tasks of Spark; `title` is what its pages show."""
    describe(session, title)
    return _exactly(rows_frame(session, task).toArrow(), task.row_schema)


def spread_rows(session: Any, task: RowsTask, title: str) -> SparkSpread:
    """Return the rows of all ranges as changes that tasks of Spark have; `title` is what its pages show."""
    return SparkSpread(rows_frame(session, task), partial(_changes, task=task), title)


def _changes(rows: pa.Table, task: RowsTask) -> Iterator[tuple[Tally, list[TableChanges]]]:
    yield tallied(rows, RANGE), [TableChanges(task.schema, _exactly(rows, task.row_schema).drop_columns([RANGE]))]


def _exactly(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return rows that Spark has handed on with the types that they had."""
    return rows.cast(schema.append(pa.field(RANGE, pa.int64())))


def _task(options: Any) -> RowsTask:
    task = msgspec.json.decode(options["task"], type=RowsTask)
    return msgspec.structs.replace(task, token=options.get("token"))  # Spark shows no option of this name to anybody
