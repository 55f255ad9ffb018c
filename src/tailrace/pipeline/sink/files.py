"""Sinks of files: a directory for each batch, which is there wholly or not at all."""

import errno
import shutil
import uuid
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
from tailrace.pipeline.sink.disk import disk_errors, sync_directory, sync_tree
from tailrace.pipeline.sink.progress import KeepsProgress, after, has
from tailrace.pipeline.sink.replay import replayed

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
    """What a batch directory holds."""

    pipeline: str
    progress: SinkProgress
    tables: tuple[TableFiles, ...]
    format: int = 1


class FilesSink(KeepsProgress):
    """Changes as files, for keeping and for reading in bulk. Mode `append` alone.

    `DIR/pipeline=P/batch=N/table=T/part-00000.SUFFIX` and `DIR/pipeline=P/batch=N/_manifest.json`. A batch is written
    beside, synced, and renamed into place: all its tables appear at once, and a batch that is there is not written
    again. Whatever begins with an underscore is not data, as Spark and others hold it.
    """

    def __init__(self, directory: Path, pipeline: str, format_: FileFormat) -> None:
        self._directory = directory
        self._home = directory / f"pipeline={quote(pipeline, safe='')}"
        self._pipeline = pipeline
        self._format = format_
        self._tidied = False

    def open(self, schemas: Sequence[TableSchema]) -> None:
        """Make the directory."""
        with disk_errors(self._directory):
            self._home.mkdir(parents=True, exist_ok=True)
            self._look()

    def apply(self, batch: Batch) -> None:
        """Write the directory of a batch."""
        if has(self._progress, batch):
            return
        progress = after(self._progress, batch)
        name = f"batch={batch.number:020}"
        beside = self._home / f"_{name}.{uuid.uuid4().hex}.tmp"
        with disk_errors(self._directory):
            self._tidy()
            beside.mkdir(parents=True)
            try:
                tables = tuple(self._write(beside, one.schema, one.changes) for one in batch.tables)
                manifest = Manifest(self._pipeline, progress, tables)
                (beside / "_manifest.json").write_bytes(msgspec.json.encode(manifest))
                sync_tree(beside)
                self._put(beside, self._home / name)
            finally:
                shutil.rmtree(beside, ignore_errors=True)
        self._progress = progress

    def rows(self, schema: TableSchema) -> Iterator[pa.RecordBatch]:
        """Return the rows that all changes together make, folded."""
        with disk_errors(self._directory):
            return replayed(self._changes(schema), schema)

    def close(self) -> None:
        """Nothing is held open."""

    def _tidy(self) -> None:
        """Remove what an interrupted batch left, before the first of ours: who only reads removes nothing."""
        if not self._tidied:
            for path in self._home.glob("_*.tmp"):
                shutil.rmtree(path)
            self._tidied = True

    def _put(self, beside: Path, place: Path) -> None:
        """Put a whole batch in its place.

        Raises:
            SinkUnavailableError: Someone else's is there.
        """
        try:
            beside.rename(place)
        except OSError as error:
            if error.errno not in {errno.ENOTEMPTY, errno.EEXIST}:
                raise
            self._look()
            raise SinkUnavailableError(f"another writer has written {place.name}") from None
        sync_directory(self._home)

    def _look(self) -> None:
        """Find how far the sink has come."""
        batches = self._batches()
        self._progress = self._manifest(batches[-1]).progress if batches else None

    def _write(self, beside: Path, schema: TableSchema, changes: pa.Table) -> TableFiles:
        """Write the changes of one table."""
        folder = beside / f"table={quote(schema.table.wire, safe='')}"
        folder.mkdir()
        path = folder / f"part-00000.{self._format.suffix}"
        self._format.write(path, changes)
        files = (str(path.relative_to(beside)),)
        arrow_schema = changes.schema.serialize().to_pybytes()
        return TableFiles(schema.table.source, schema.table.wire, schema.version, changes.num_rows, files, arrow_schema)

    def _changes(self, schema: TableSchema) -> Iterator[pa.Table]:
        """Return the changes of a table, batch by batch."""
        for folder in self._batches():
            for table in self._manifest(folder).tables:
                if (table.source, table.table) == (schema.table.source, schema.table.wire):
                    arrow_schema = pa.ipc.read_schema(pa.py_buffer(table.arrow_schema))
                    for name in table.files:
                        yield self._format.read(folder / name, arrow_schema)

    def _batches(self) -> list[Path]:
        """Return the directories of the batches, oldest first."""
        return sorted(self._home.glob("batch=*"))

    def _manifest(self, folder: Path) -> Manifest:
        """Read the manifest of a batch."""
        try:
            return msgspec.json.decode((folder / "_manifest.json").read_bytes(), type=Manifest)
        except msgspec.MsgspecError:
            raise SinkRefusedError(
                f"{folder / '_manifest.json'} is damaged: restore it, or name another directory"
            ) from None


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
