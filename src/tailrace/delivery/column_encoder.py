"""What all encoders of changes share: one by one or by columns, values by table, values that need converting. Pure.

A chunk is encoded column by column with Arrow; only values whose form really differs from what the log keeps are
converted one by one. A handful of changes is encoded row by row, which then costs less. Both ways give equal bytes.
Every wire has an encoder of its own, which says how an event looks; this says when which way is taken.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from tailrace.delivery.encoded import Encoded
from tailrace.delivery.join import Joined
from tailrace.model.chunk import ENVELOPE, Chunk
from tailrace.model.table import TableSchema
from tailrace.subscription.filter import Rows

__all__ = ["NOTHING", "Tables", "cells_of", "ddl_of", "encode_rows", "rows_of", "scalar"]

_VECTOR_BYTES_MAX = 256 << 20
"""Above this many bytes, rows are encoded one by one: an array with 32-bit places could overflow."""

NOTHING = pa.scalar(b"", pa.binary())
"""Stands between parts that Arrow joins."""


def encode_rows(
    chunk: Chunk,
    rows: Rows,
    few: Callable[[], list[bytes]],
    many: Callable[[], Joined | None] | None = None,
    rows_few: int = 0,
) -> Encoded:
    """Return the events of the given rows of a chunk.

    `few` makes them one by one; `many` makes them by columns, from `rows_few` rows on, or returns None where the chunk
    has something that it has no form for.
    """
    events = None
    if many is not None and len(rows) >= rows_few and chunk.held_bytes <= _VECTOR_BYTES_MAX:
        events = many()
    if events is None:
        return Encoded.of_list(few(), chunk.offsets(rows), chunk.last)
    return Encoded.of_joined(events, chunk.offsets(rows), chunk.last)


def rows_of(chunk: Chunk, rows: Rows, columns: Sequence[str]) -> Any:
    """Return the wanted columns of the wanted rows, as a record batch."""
    batch = chunk.batch.select(columns)
    return batch.slice(rows.start, len(rows)) if isinstance(rows, range) else batch.take(pa.array(rows, pa.int64()))


def cells_of(chunk: Chunk, rows: Rows, columns: Sequence[str]) -> Iterable[tuple[Any, ...]]:
    """Return the wanted cells of each wanted row, as Python values."""
    if len(chunk) <= _ROWS_SINGLE:
        cells = [chunk.cells(name) for name in columns]
        return [tuple(column[row] for column in cells) for row in rows]
    if len(rows) <= _ROWS_SINGLE:
        batch = chunk.batch
        arrays = [batch.column(_PLACES[name]) for name in columns]
        return [tuple(column[row].as_py() for column in arrays) for row in rows]
    return zip(*(column.to_pylist() for column in rows_of(chunk, rows, columns).columns), strict=True)


_ROWS_SINGLE = 8
"""Up to this many rows, taking single cells costs less than taking rows."""

_PLACES = {name: place for place, name in enumerate(ENVELOPE.names)}


class Tables(Struct, frozen=True):
    """The tables that rows of a chunk are of: `places` has, for each row, which of `schemas` it has."""

    schemas: Sequence[TableSchema]
    places: Any

    @classmethod
    def of(cls, batch: Any, chunk: Chunk) -> "Tables":
        """Find out what tables the rows of a batch are of."""
        column = batch.column("schema")
        present = pc.unique(column)
        schemas = [chunk.schemas[schema_id] for schema_id in present.to_pylist()]
        # Neighbours are mostly of one table: then there is nothing to look for.
        places = _zeros(len(batch)) if len(schemas) == 1 else pc.index_in(column, value_set=present)
        return cls(schemas, places)

    def each(self, values: Sequence[Any], type_: Any) -> Any:
        """Return a column with the value of each row's table."""
        return pa.array(values, type_).take(self.places)

    def converted(self, target: Any, column: Any, odd: Any, convert: Callable[[bytes, TableSchema], bytes]) -> Any:
        """Return `target` with the values under the mask `odd` made from `column` by `convert`; no mask for none."""
        if odd is None:
            return target
        values = zip(column.filter(odd).to_pylist(), self.places.filter(odd).to_pylist(), strict=True)
        replacements = [convert(value, self.schemas[place]) for value, place in values]
        return pc.replace_with_mask(target, odd, pa.array(replacements, pa.binary())) if replacements else target


def _zeros(count: int) -> Any:
    """Return a column of 32-bit zeros."""
    return pa.Array.from_buffers(pa.int32(), count, [None, pa.py_buffer(bytes(4 * count))])


@cache
def scalar(value: bytes) -> Any:
    """Return bytes that are the same in every event."""
    return pa.scalar(value, pa.binary())


class _Ddl(Struct):
    ddl: str = ""


_read_ddl = msgspec.json.Decoder(_Ddl).decode


def ddl_of(image: bytes | None) -> str:
    """Return the text of a schema change, of its image; empty where it has none."""
    return _read_ddl(image or b"{}").ddl
