"""Changes as lines of JSON: in files, which are lossless as the manifest names the types, and on the console."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import pyarrow as pa

from tailrace.model.errors import SinkRefusedError, SinkUnavailableError
from tailrace.model.table import TableSchema
from tailrace.pipeline.json_column import json_column, typed_column
from tailrace.pipeline.sink.base import Batch, SinkProgress
from tailrace.pipeline.sink.progress import KeepsProgress

__all__ = ["ConsoleSink", "JsonLinesFormat", "json_rows"]

_ROWS_AT_ONCE_MAX = 50_000
_BYTES_AT_ONCE = 1 << 24

_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(dict[str, Any])


class JsonLinesFormat:
    """One object a line, all columns in each, their values as `tailrace.pipeline.json_column` has them."""

    suffix = "jsonl"

    def write(self, path: Path, changes: pa.Table) -> None:
        """Write all changes into a new file."""
        with path.open("wb") as file:
            for batch in changes.to_batches(max_chunksize=_ROWS_AT_ONCE_MAX):
                file.write(_ENCODER.encode_lines(json_rows(pa.table(batch))))

    def read(self, path: Path, schema: pa.Schema) -> pa.Table:
        """Read a file."""
        parts = list(_parts(path, schema))
        return pa.concat_tables(parts) if parts else schema.empty_table()


def json_rows(table: pa.Table) -> list[dict[str, Any]]:
    """Return rows as JSON can write them."""
    names = table.column_names
    return [
        dict(zip(names, row, strict=True)) for row in zip(*(json_column(table[name]) for name in names), strict=True)
    ]


def _parts(path: Path, schema: pa.Schema) -> Iterator[pa.Table]:
    """Read a file in parts."""
    with path.open("rb") as file:
        while lines := file.readlines(_BYTES_AT_ONCE):
            rows = [_DECODER.decode(line) for line in lines]
            yield pa.table(
                [typed_column([row[field.name] for row in rows], field.type) for field in schema], schema=schema
            )


_CONSOLE_ROWS_AT_ONCE_MAX = 10_000


class ConsoleSink(KeepsProgress):
    """One line of JSON a change, with `_table` in front. Mode `append` alone.

    Keeps nothing: a batch that is given again is shown again unless this very sink has shown it, a batch that fails may
    have been shown in part, and there is nothing to verify.
    """

    def __init__(self, output: BinaryIO) -> None:
        self._output = output

    def open(self, schemas: Sequence[TableSchema]) -> None:
        """There is nothing to make."""

    def apply(self, batch: Batch) -> None:
        """Show a batch."""
        if self._progress is not None and batch.number <= self._progress.number:
            return
        try:
            for one in batch.tables:
                wire = one.schema.table.wire
                for part in one.changes.to_batches(max_chunksize=_CONSOLE_ROWS_AT_ONCE_MAX):
                    lines = ({"_table": wire, **row} for row in json_rows(pa.table(part)))
                    self._output.write(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
            self._output.flush()
        except OSError:
            raise SinkUnavailableError("the console was closed") from None
        self._progress = SinkProgress(batch.number, dict(batch.offsets))

    def rows(self, schema: TableSchema) -> Iterator[pa.RecordBatch]:
        """There are none.

        Raises:
            SinkRefusedError: Always.
        """
        raise SinkRefusedError("a console stores nothing that can be verified")

    def close(self) -> None:
        """The console stays."""
