"""Tables of a lake as sinks: each takes a batch in a commit of its own."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol
from urllib.parse import quote

import pyarrow as pa

from tailrace.model.errors import ConfigError
from tailrace.model.table import TableSchema
from tailrace.pipeline.sink.base import Batch, Progress, TableChanges
from tailrace.pipeline.sink.disk import disk_errors, replace_file, sync_since
from tailrace.pipeline.sink.progress import after, decode, encode, has, refuse_lost

__all__ = ["LakeSink", "LakeTables"]


class LakeTables(Protocol):
    """The tables of one format below one directory. Everything raises SinkError or OSError."""

    def place(self, schema: TableSchema) -> str:
        """Return where a table is, which is different for different tables."""

    def directory(self, schema: TableSchema) -> Path:
        """Return the directory below which the files of a table are."""

    def exists(self, schema: TableSchema) -> bool:
        """Tell whether a table is there."""

    def apply(self, one: TableChanges, number: int) -> None:
        """Commit the changes of one table and the number of their batch at once, unless the table has that batch."""

    def rows(self, schema: TableSchema) -> Iterator[pa.RecordBatch]:
        """Return the rows of a table that is there: the open versions of a history, what changes make together."""


class LakeSink:
    """One table in a lake for each table of the pipeline.

    A table takes a batch in one commit that also holds the batch's number, so no table takes a batch twice. Tables are
    not committed together: a reader may see one of them a batch ahead of another, and after a failure the batch goes
    to those that do not have it yet. How far all of them are stands in `_tailrace/PIPELINE.json` below the directory.
    """

    def __init__(self, directory: Path, tables: LakeTables, pipeline: str) -> None:
        self._directory = directory
        self._tables = tables
        self._marker = directory / "_tailrace" / f"{quote(pipeline, safe='')}.json"
        self._progress: Progress | None = None

    def open(self, schemas: Sequence[TableSchema]) -> None:
        """Check that the tables that were there still are; those that are not come with their first batch."""
        if len({self._tables.place(schema) for schema in schemas}) != len(schemas):
            raise ConfigError("several tables would go into one: put {table} into the sink's URL")
        with disk_errors(self._directory):
            self._directory.mkdir(parents=True, exist_ok=True)
            self._progress = decode(self._marker.read_bytes()) if self._marker.exists() else None
            there = [schema for schema in schemas if self._tables.exists(schema)]
        refuse_lost(self._progress, schemas, there)

    def progress(self) -> Progress | None:
        """Return how far all tables have come."""
        return self._progress

    def applied(self) -> int | None:
        """Return the number of the last batch that all tables have."""
        return None if self._progress is None else self._progress.number

    def apply(self, batch: Batch) -> None:
        """Commit the batch to one table after the other, then note that all have it."""
        if has(self._progress, batch):
            return
        with disk_errors(self._directory):
            for one in batch.tables:
                self._tables.apply(one, batch.number)
            progress = after(self._progress, batch)
            since_ns = self._marker.stat().st_mtime_ns if self._marker.exists() else 0
            for one in batch.tables:
                sync_since(self._tables.directory(one.schema), since_ns)
            replace_file(self._marker, encode(progress))
        self._progress = progress

    def rows(self, schema: TableSchema) -> Iterator[pa.RecordBatch]:
        """Return the rows of a table."""
        with disk_errors(self._directory):
            return self._tables.rows(schema) if self._tables.exists(schema) else iter(())

    def close(self) -> None:
        """Nothing is held open."""
