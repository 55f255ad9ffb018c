"""Files of a Delta table, written beside it: nobody sees them until a commit names them."""

import math
import time
import uuid
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake.transaction import AddAction
from msgspec import Struct

from tailrace.pipeline.sink.storage import NewFile, Storage

__all__ = ["DataFile", "PartWriter", "add_action"]

_ROWS_MAX = 2_000_000
_BYTES_MAX = 128 << 20
"""Rows of one file, and about how large it is."""

_ROW_GROUP_ROWS = 131_072

_COLUMNS_MAX = 32
"""Columns that have statistics, as other writers have it."""

_TEXT_CHARACTERS_MAX = 64
_LAST_CHARACTER = "\U0010ffff"


class DataFile(Struct, frozen=True):
    """One file that was written. `path` is its name in the table's directory."""

    path: str
    size_bytes: int
    rows: int
    stats: str
    """What is known of its values, in the words of the Delta protocol."""


class PartWriter:
    """Writes rows of one table into new files. Durable when `close` returns."""

    def __init__(self, files: Storage, schema: pa.Schema) -> None:
        self._files = files
        self._schema = schema
        self._parts: list[DataFile] = []
        self._name = ""
        self._file: NewFile | None = None
        self._writer: pq.ParquetWriter | None = None
        self._rows = 0
        self._unordered: set[str] = set()

    def write(self, rows: pa.Table) -> None:
        """Write some rows, which have the columns of the schema."""
        while rows.num_rows:
            if self._writer is None:
                self._begin()
            assert self._writer is not None
            some = rows.slice(0, _ROWS_MAX - self._rows)
            self._writer.write_table(some, row_group_size=_ROW_GROUP_ROWS)
            self._unordered |= _not_a_number(some)
            self._rows += some.num_rows
            rows = rows.slice(some.num_rows)
            if self._rows == _ROWS_MAX or self._size() >= _BYTES_MAX:
                self._end()

    def close(self) -> list[DataFile]:
        """Return the files."""
        if self._writer is not None:
            self._end()
        return self._parts

    def _size(self) -> int:
        """Return how large the file is so far: row groups are written as they come."""
        assert self._file is not None
        return self._file.path.stat().st_size

    def _begin(self) -> None:
        self._name = f"part-{uuid.uuid4()}.snappy.parquet"
        self._file = self._files.create(self._name)
        self._writer = pq.ParquetWriter(self._file.path, self._schema, compression="snappy", store_schema=False)
        self._rows = 0
        self._unordered = set()

    def _end(self) -> None:
        assert self._writer is not None
        assert self._file is not None
        self._writer.close()
        self._writer = None
        stats = _stats(pq.read_metadata(self._file.path), self._schema, self._unordered)
        size_bytes = self._file.path.stat().st_size
        self._file.keep()
        self._parts.append(DataFile(self._name, size_bytes, self._rows, stats))


def add_action(part: DataFile) -> AddAction:
    """Return what adds a file to its table."""
    return AddAction(part.path, part.size_bytes, {}, time.time_ns() // 1_000_000, data_change=True, stats=part.stats)


def _not_a_number(rows: pa.Table) -> set[str]:
    """Return the names of the columns with a value that has no place in an order."""
    floats = [field.name for field in rows.schema if pa.types.is_floating(field.type)]
    return {name for name in floats if pc.any(pc.is_nan(rows[name])).as_py()}


def _stats(metadata: Any, schema: pa.Schema, unordered: set[str]) -> str:
    """Return the statistics of a file: its rows, and of each column the nulls, the least and the greatest value."""
    least, greatest, nulls = {}, {}, {}
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    for number, field in enumerate(list(schema)[:_COLUMNS_MAX]):
        found = [group.column(number).statistics for group in groups]
        # Of a list the file has statistics of its items.
        if (
            pa.types.is_binary(field.type)
            or pa.types.is_nested(field.type)
            or any(one is None or not one.has_null_count for one in found)
        ):
            continue
        nulls[field.name] = sum(one.null_count for one in found)
        filled = [one for one in found if one.has_min_max]
        if field.name in unordered or len(filled) < sum(one.num_values > 0 for one in found) or not filled:
            continue
        least[field.name] = _bound(min(one.min for one in filled), upwards=False)
        greatest[field.name] = _bound(max(one.max for one in filled), upwards=True)
    statistics = {
        "numRecords": metadata.num_rows,
        "minValues": {name: value for name, value in least.items() if value is not None},
        "maxValues": {name: value for name, value in greatest.items() if value is not None},
        "nullCount": nulls,
    }
    return msgspec.json.encode(statistics).decode()


def _bound(value: Any, *, upwards: bool) -> Any:
    """Return a bound as JSON has it, never tighter than the value; None where JSON cannot tell it."""
    match value:
        case bool() | int():
            return value
        case float():
            return value if math.isfinite(value) else None
        case str():
            return value if len(value) <= _TEXT_CHARACTERS_MAX else _text_bound(value, upwards=upwards)
        case Decimal():
            return msgspec.Raw(format(value, "f").encode())
        case datetime():
            return _time_bound(value, upwards=upwards)
        case date():
            return value.isoformat()
        case _:
            return None


def _text_bound(value: str, *, upwards: bool) -> str | None:
    """Return a bound of a long text by its beginning; upwards with the last of all characters behind it."""
    bound = value[:_TEXT_CHARACTERS_MAX] + (_LAST_CHARACTER if upwards else "")
    return None if upwards and bound < value else bound


def _time_bound(value: datetime, *, upwards: bool) -> str | None:
    """Return a time in milliseconds."""
    excess = timedelta(microseconds=value.microsecond % 1000)
    try:
        bound = value - excess + (timedelta(milliseconds=1) if upwards and excess else timedelta())
    except OverflowError:
        return None
    if bound.tzinfo is None:
        return bound.isoformat(" ", "milliseconds")
    return bound.astimezone(UTC).replace(tzinfo=None).isoformat("T", "milliseconds") + "Z"
