"""Appending to Delta tables by tasks: each writes files of its own, and one commit names them all."""

import re
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from msgspec import Struct

from tailrace.model.table import TableSchema
from tailrace.pipeline.evolve import fitted
from tailrace.pipeline.sink.base import Mode, TableChanges
from tailrace.pipeline.sink.delta_file import DataFile, PartWriter
from tailrace.pipeline.sink.disk import disk_errors
from tailrace.pipeline.sink.progress import highest
from tailrace.pipeline.sink.shape import columns_of
from tailrace.sink_url import spelled

__all__ = ["AppendedFiles", "Appending", "Refitting", "delta_place"]

_ODD = re.compile(r"[%/\\*\[\]\x00-\x1f]")


class AppendedFiles(Struct, frozen=True):
    """The files that a task wrote of one version of one table."""

    schema: TableSchema
    columns: bytes
    """Their columns, as an Arrow IPC schema message."""

    parts: list[DataFile]
    highest: int


class Appending(Struct, frozen=True):
    """Writes changes as rows to be appended. Runs in a task.

    Files have the columns of the changes that they hold. Those that lack a column of their table are good files of it.
    """

    template: str
    mode: Mode

    def __call__(self, changes: Iterator[TableChanges]) -> Iterator[AppendedFiles]:
        """Write one file for each version of each table."""
        written: dict[TableSchema, tuple[PartWriter, pa.Schema, int]] = {}
        for one in changes:
            place = delta_place(self.template, one.schema)
            with disk_errors(place):
                columns = columns_of(one, self.mode)
                known = written.get(one.schema)
                writer, columns, seen = known or (PartWriter(place, columns), columns, 0)
                writer.write(fitted(one.changes, columns))
                written[one.schema] = writer, columns, max(seen, highest(one))
        for schema, (writer, columns, seen) in written.items():
            with disk_errors(delta_place(self.template, schema)):
                yield AppendedFiles(schema, columns.serialize().to_pybytes(), writer.close(), seen)


class Refitting(Struct, frozen=True):
    """Writes files again whose columns are of other types than those that the table has by now. Runs in a task."""

    directory: str
    target: bytes

    def __call__(self, part: DataFile) -> Iterator[DataFile]:
        """Write one file again and remove it, as nobody has seen it."""
        import pyarrow.parquet as pq

        directory = Path(self.directory)
        target = pa.ipc.read_schema(pa.py_buffer(self.target))
        with disk_errors(directory):
            writer = PartWriter(directory, target)
            for batch in pq.ParquetFile(directory / part.path).iter_batches():
                writer.write(fitted(pa.table(batch), target))
            yield from writer.close()
            (directory / part.path).unlink()


def delta_place(template: str, schema: TableSchema) -> Path:
    """Return the directory of a table. Characters that delta-rs takes for something else are written as their codes."""
    return Path(spelled(template, schema.table, lambda name: _ODD.sub(lambda found: f"_{ord(found[0]):02X}", name)))
