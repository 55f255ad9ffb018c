"""Keys as typed literals, a column at once. Pure.

Nearly all keys are one whole number or one text: their literal is a fixed prefix, the bytes that the log keeps, and a
fixed end; see `tailrace.model.value` for the forms. The rest is marked, for the caller to convert one by one.
"""

from collections.abc import Sequence
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.model.table import Kind, TableSchema

__all__ = ["key_literals"]

_WHOLE_NUMBER = r"^\[-?[0-9]{1,18}\]$"
"""A key of one whole number that surely fits 64 bits with a sign."""

_TEXT = b'["'
"""How a key begins that is one text, if its table has one key column."""

_TWO = pa.scalar(2, pa.int32())

_TEXT_PREFIXES = {
    Kind.BYTES: b'{"t":"bytes","b64":',
    Kind.DEC: b'{"t":"dec","v":',
    Kind.DATE: b'{"t":"date","iso":',
    Kind.TIME: b'{"t":"time","iso":',
    Kind.DATETIME: b'{"t":"datetime","iso":',
    Kind.GEOMETRY: b'{"t":"geometry","b64":',
    **{
        kind: b'{"t":"%s","v":' % kind.encode()
        for kind in (Kind.UUID, Kind.INTERVAL, Kind.ENUM, Kind.BIT, Kind.NETWORK, Kind.RANGE, Kind.COMPOSITE)
    },
}
"""How the literal of a text begins, by the column's kind; a plain string in all others but `FOREIGN`."""


def key_literals(keys: Any, places: Any, schemas: Sequence[TableSchema]) -> tuple[Any, Any]:
    """Return a column of keys as arrays of literals, and a mask of those still to be converted, None for none.

    `places` says for each key which of `schemas` it is of.
    """
    is_number = pc.match_substring_regex(keys, _WHOLE_NUMBER)
    is_text = pc.starts_with(keys, _TEXT)
    simple = pc.or_(is_number, is_text)
    regular = [_is_regular(schema) for schema in schemas]
    if not all(regular):
        simple = pc.and_(simple, pa.array(regular).take(places))
    prefixes = pa.array([b"[" + prefix for schema in schemas for prefix in _key_prefixes(schema)], pa.binary())
    codes = pc.add(pc.multiply(places, _TWO), pc.cast(is_text, pa.int32()))
    literals = pc.binary_join_element_wise(
        prefixes.take(codes), pc.binary_slice(keys, 1, -1), pa.scalar(b"}]", pa.binary()), pa.scalar(b"", pa.binary())
    )
    return literals, None if pc.all(simple).as_py() else pc.invert(simple)


def _is_regular(schema: TableSchema) -> bool:
    columns = schema.key_columns
    return len(columns) == 1 and columns[0].kind is not Kind.JSON


def _key_prefixes(schema: TableSchema) -> tuple[bytes, bytes]:
    """Return how the literal of a whole number begins, and how that of a text."""
    column = schema.key_columns[0]
    kind = column.kind
    number = b'{"t":"u64","v":' if kind is Kind.U64 else b'{"t":"i64","v":'
    if kind is Kind.FOREIGN:
        return number, b'{"t":"foreign","type":%s,"v":' % msgspec.json.encode(column.declared)
    return number, _TEXT_PREFIXES.get(kind, b'{"t":"str","v":')
