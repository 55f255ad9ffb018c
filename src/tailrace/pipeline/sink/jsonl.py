"""Changes as lines of JSON: in files, which are lossless as the manifest names the types, and on the console."""

import base64
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.model.errors import SinkRefusedError, SinkUnavailableError
from tailrace.model.table import TableSchema
from tailrace.pipeline.sink.base import Batch, SinkProgress
from tailrace.pipeline.sink.progress import KeepsProgress

__all__ = ["ConsoleSink", "JsonLinesFormat", "json_rows", "typed_column"]

_ROWS_AT_ONCE_MAX = 50_000
_BYTES_AT_ONCE = 1 << 24
_WORDS = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}

_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(dict[str, Any])


class JsonLinesFormat:
    """One object a line, all columns in each.

    Numbers stay numbers, but decimals are text, so that nobody rounds them; bytes are base64; dates and times are ISO
    8601; what is not a finite number is the text `NaN`, `Infinity` or `-Infinity`.
    """

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
    return [dict(zip(names, row, strict=True)) for row in zip(*(_plain(table[name]) for name in names), strict=True)]


def typed_column(values: list[Any], type_: pa.DataType) -> Any:
    """Return a column of what `json_rows` made of one."""
    if pa.types.is_binary(type_):
        return pa.array([None if value is None else base64.b64decode(value) for value in values], type_)
    if pa.types.is_float64(type_):
        return pa.array([float(value) if isinstance(value, str) else value for value in values], type_)
    if pa.types.is_int64(type_) or pa.types.is_boolean(type_) or pa.types.is_string(type_):
        return pa.array(values, type_)
    return pa.array(values, pa.string()).cast(type_)


def _plain(column: pa.ChunkedArray) -> Any:
    """Return the values of a column as numbers, text and booleans."""
    type_ = column.type
    if pa.types.is_binary(type_):
        return [None if value is None else base64.b64encode(value).decode() for value in column.to_pylist()]
    if pa.types.is_float64(type_):
        values = column.to_pylist()
        if pc.all(pc.is_finite(column)).as_py() is not False:
            return values
        return [value if value is None or math.isfinite(value) else _WORDS[str(value)] for value in values]
    if pa.types.is_timestamp(type_):
        shape = "%Y-%m-%dT%H:%M:%SZ" if type_.tz else "%Y-%m-%dT%H:%M:%S"
        return pc.strftime(column, format=shape).to_pylist()
    if pa.types.is_int64(type_) or pa.types.is_boolean(type_) or pa.types.is_string(type_):
        return column.to_pylist()
    return column.cast(pa.string()).to_pylist()


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
