"""Changes as lines of JSON. Lossless: the manifest names the types of the columns."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from tailrace.pipeline.json_column import json_column, typed_column

__all__ = ["JsonLinesFormat", "json_rows"]

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
