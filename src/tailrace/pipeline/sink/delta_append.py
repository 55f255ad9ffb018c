"""Appending to Delta tables by tasks: each writes files of its own, and one commit names them all."""

from collections.abc import Iterator

import pyarrow as pa
from msgspec import Struct

from tailrace.model.table import TableSchema
from tailrace.pipeline.evolve import fitted
from tailrace.pipeline.sink.base import Mode, TableChanges
from tailrace.pipeline.sink.delta_file import DataFile, PartWriter
from tailrace.pipeline.sink.delta_lake import DeltaLake
from tailrace.pipeline.sink.progress import highest
from tailrace.pipeline.sink.shape import columns_of
from tailrace.pipeline.sink.storage import Storage

__all__ = ["AppendedFiles", "Appending", "Refitting"]


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

    lake: DeltaLake
    mode: Mode

    def __call__(self, changes: Iterator[TableChanges]) -> Iterator[AppendedFiles]:
        """Write one file for each version of each table."""
        written: dict[TableSchema, tuple[PartWriter, pa.Schema, int]] = {}
        for one in changes:
            files = self.lake.files(one.schema)
            with files.errors():
                columns = columns_of(one, self.mode)
                known = written.get(one.schema)
                writer, columns, seen = known or (PartWriter(files, columns), columns, 0)
                writer.write(fitted(one.changes, columns))
                written[one.schema] = writer, columns, max(seen, highest(one))
        for schema, (writer, columns, seen) in written.items():
            with self.lake.files(schema).errors():
                yield AppendedFiles(schema, columns.serialize().to_pybytes(), writer.close(), seen)


class Refitting(Struct, frozen=True):
    """Writes files again whose columns are of other types than those that the table has by now. Runs in a task."""

    files: Storage
    target: bytes

    def __call__(self, part: DataFile) -> Iterator[DataFile]:
        """Write one file again and remove it, as nobody has seen it."""
        import pyarrow.parquet as pq

        target = pa.ipc.read_schema(pa.py_buffer(self.target))
        with self.files.errors():
            writer = PartWriter(self.files, target)
            with self.files.fetched(part.path) as path:
                for batch in pq.ParquetFile(path).iter_batches():
                    writer.write(fitted(pa.table(batch), target))
            yield from writer.close()
            self.files.remove([part.path])
