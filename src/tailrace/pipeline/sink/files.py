"""Sinks of files: a group of files for each batch, which is there wholly or not at all."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol
from urllib.parse import quote

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import Struct

from tailrace.model.errors import SinkRefusedError, SinkUnavailableError
from tailrace.model.table import TableSchema
from tailrace.pipeline.sink.base import Batch, SinkProgress
from tailrace.pipeline.sink.progress import KeepsProgress, after, has
from tailrace.pipeline.sink.replay import replayed
from tailrace.pipeline.sink.storage import MANIFEST, Group, Storage

__all__ = ["FileFormat", "FilesSink", "Manifest", "ParquetFormat"]


class FileFormat(Protocol):
    """One way to write changes into a file."""

    suffix: str

    def write(self, path: Path, changes: pa.Table) -> None:
        """Write all changes into a new file."""

    def read(self, path: Path, schema: pa.Schema) -> pa.Table:
        """Read what `write` wrote; `schema` is that of the changes."""


class TableFiles(Struct, frozen=True):
    """Files of one table in one batch."""

    source: str
    table: str
    schema_version: int
    changes: int
    files: tuple[str, ...]
    arrow_schema: bytes
    """The columns and their types, as an Arrow IPC schema message."""


class Manifest(Struct, frozen=True):
    """What the files of a batch hold."""

    pipeline: str
    progress: SinkProgress
    tables: tuple[TableFiles, ...]
    format: int = 1


class FilesSink(KeepsProgress):
    """Changes as files, for keeping and for reading in bulk. Mode `append` alone.

    `PLACE/pipeline=P/batch=N/table=T/part-00000.SUFFIX` and `PLACE/pipeline=P/batch=N/_manifest.json`. All tables of a
    batch appear at once (see `Storage.group`), and a batch that is there is not written again. Whatever begins with an
    underscore is not data, as Spark and others hold it. In object storage names of files go on behind `00000`, and
    only those that a manifest names belong to a batch.
    """

    def __init__(self, storage: Storage, pipeline: str, format_: FileFormat) -> None:
        self._storage = storage
        self._home = f"pipeline={quote(pipeline, safe='')}"
        self._pipeline = pipeline
        self._format = format_
        self._tidied = False

    def open(self, schemas: Sequence[TableSchema]) -> None:
        """Make the place."""
        with self._storage.errors():
            self._storage.below(self._home).open()
            self._look()

    def apply(self, batch: Batch) -> None:
        """Write the files of a batch."""
        if has(self._progress, batch):
            return
        progress = after(self._progress, batch)
        name = f"batch={batch.number:020}"
        with self._storage.errors():
            self._tidy()
            with self._storage.group(self._home, name) as group:
                tables = tuple(self._write(group, one.schema, one.changes) for one in batch.tables)
                whole = group.commit(_encoded(Manifest(self._pipeline, progress, tables)))
            if not whole:
                self._look()
                raise SinkUnavailableError(f"another writer has written {name}")
        self._progress = progress

    def rows(self, schema: TableSchema) -> Iterator[pa.RecordBatch]:
        """Return the rows that all changes together make, folded."""
        with self._storage.errors():
            return replayed(self._changes(schema), schema)

    def close(self) -> None:
        """Nothing is held open."""

    def _tidy(self) -> None:
        """Remove what an interrupted batch left, before the first of ours: who only reads removes nothing."""
        if not self._tidied:
            self._storage.tidy(self._home, _encoded(Manifest(self._pipeline, SinkProgress(0, {}), ())))
            self._tidied = True

    def _look(self) -> None:
        """Find how far the sink has come."""
        batches = self._batches()
        self._progress = self._manifest(batches[-1]).progress if batches else None

    def _write(self, group: Group, schema: TableSchema, changes: pa.Table) -> TableFiles:
        """Write the changes of one table."""
        name, path = group.add(f"table={quote(schema.table.wire, safe='')}/part-00000", self._format.suffix)
        self._format.write(path, changes)
        arrow_schema = changes.schema.serialize().to_pybytes()
        one = schema.table
        return TableFiles(one.source, one.wire, schema.version, changes.num_rows, (name,), arrow_schema)

    def _changes(self, schema: TableSchema) -> Iterator[pa.Table]:
        """Return the changes of a table, batch by batch."""
        for batch in self._batches():
            for table in self._manifest(batch).tables:
                if (table.source, table.table) == (schema.table.source, schema.table.wire):
                    arrow_schema = pa.ipc.read_schema(pa.py_buffer(table.arrow_schema))
                    for name in table.files:
                        with self._storage.fetched(f"{self._home}/{batch}/{name}") as path:
                            yield self._format.read(path, arrow_schema)

    def _batches(self) -> list[str]:
        """Return the names of the batches, oldest first."""
        return [name for name in self._storage.groups(self._home) if name.startswith("batch=")]

    def _manifest(self, batch: str) -> Manifest:
        """Read the manifest of a batch."""
        name = f"{self._home}/{batch}/{MANIFEST}"
        held = self._storage.read(name)
        try:
            return msgspec.json.decode(b"" if held is None else held.data, type=Manifest)
        except msgspec.MsgspecError:
            raise SinkRefusedError(f"{name} of the sink is damaged: restore it, or name another place") from None


def _encoded(manifest: Manifest) -> bytes:
    return msgspec.json.encode(manifest)


_ROWS_IN_GROUP_MAX = 1 << 18


class ParquetFormat:
    """Parquet, compressed with zstd."""

    suffix = "parquet"

    def write(self, path: Path, changes: pa.Table) -> None:
        """Write all changes into a new file."""
        pq.write_table(changes, path, compression="zstd", row_group_size=_ROWS_IN_GROUP_MAX)

    def read(self, path: Path, schema: pa.Schema) -> pa.Table:
        """Read a file."""
        return pq.read_table(path, schema=schema, partitioning=None)
