"""What all encoders of changes share: one by one or by columns, values by table, values that need converting. Pure.

A chunk is encoded column by column with Arrow; only values whose form really differs from what the log keeps are
converted one by one. A handful of changes is encoded row by row, which then costs less. Both ways give equal bytes.
Every wire has an encoder of its own, which says how an event looks; this says when which way is taken.
"""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from tailrace.delivery.encoded import Encoded
from tailrace.model.chunk import Chunk
from tailrace.model.table import TableSchema
from tailrace.subscription.filter import Rows

__all__ = ["NOTHING", "Tables", "ddl_of", "encode_rows", "rows_of", "scalar"]

_VECTOR_BYTES_MAX = 256 << 20
"""Above this many bytes, rows are encoded one by one: an array with 32-bit places could overflow."""

NOTHING = pa.scalar(b"", pa.binary())
"""Stands between parts that Arrow joins."""


def encode_rows(
    chunk: Chunk,
    rows: Rows,
    few: Callable[[], list[bytes]],
    many: Callable[[], Any | None] | None = None,
    rows_few: int = 0,
) -> Encoded:
    """Return the events of the given rows of a chunk.

    `few` makes them one by one; `many` makes an Arrow array of them, from `rows_few` rows on, or returns None where
    the chunk has something that it has no form for.
    """
    events = None
    if many is not None and len(rows) >= rows_few and chunk.size_bytes <= _VECTOR_BYTES_MAX:
        events = many()
    if events is None:
        return Encoded.of_list(few(), chunk.offsets(rows), chunk.last)
    return Encoded.of_array(events, chunk.offsets(rows), chunk.last)


def rows_of(chunk: Chunk, rows: Rows, columns: Sequence[str]) -> Any:
    """Return the wanted columns of the wanted rows, as a record batch."""
    batch = chunk.batch.select(columns)
    return batch.slice(rows.start, len(rows)) if isinstance(rows, range) else batch.take(pa.array(rows, pa.int64()))


class Tables(Struct, frozen=True):
    """The tables that rows of a chunk are of: `places` has, for each row, which of `schemas` it has."""

    schemas: Sequence[TableSchema]
    places: Any

    @classmethod
    def of(cls, batch: Any, chunk: Chunk) -> "Tables":
        """Find out what tables the rows of a batch are of."""
        present = pc.unique(batch.column("schema"))
        schemas = [chunk.schemas[schema_id] for schema_id in present.to_pylist()]
        return cls(schemas, pc.index_in(batch.column("schema"), value_set=present))

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
