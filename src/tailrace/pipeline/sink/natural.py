"""Typed columns back as changes with images in their natural JSON form, for sinks of messages. Pure.

Columns are converted as a whole where that can be done; each row is then written at once.
"""

import base64
import math
from collections.abc import Iterator
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.model.chunk import Change
from tailrace.model.image import NO_KEY
from tailrace.model.table import ANY_COLUMN, Column, Kind, TableSchema
from tailrace.model.value import to_literal
from tailrace.pipeline.declared import kind_of
from tailrace.pipeline.image_rows import ChangeColumns, joined_changes
from tailrace.pipeline.json_column import cut_lists, flat
from tailrace.pipeline.sink.base import TableChanges
from tailrace.pipeline.sink.row import key_names
from tailrace.pipeline.typed import hidden_key
from tailrace.pipeline.unchanged import lacking

__all__ = ["changes_of_columns"]

_ENCODE = msgspec.json.Encoder().encode
_DECODE = msgspec.json.Decoder().decode


def changes_of_columns(one: TableChanges) -> Iterator[Change]:
    """Yield the changes of a table with typed columns, in order."""
    table, schema = one.changes, one.schema
    cells = {column.name: _natural(table[column.name], column) for column in schema.columns}
    names = list(cells)
    rows_cells = [dict(zip(names, row, strict=True)) for row in zip(*cells.values(), strict=True)]
    for name, mask in lacking(table).items():
        for row in mask.nonzero()[0].tolist():
            del rows_cells[row][name]
    images = [_ENCODE(row) for row in rows_cells]
    key_cells = _key_cells(table, schema, cells)
    keys = [_ENCODE(key) for key in zip(*key_cells, strict=True)] if key_cells else [NO_KEY] * len(table)
    types, offsets, indexes = (table[name].to_pylist() for name in ("_change_type", "_offset", "_commit_version"))
    times = table["_commit_timestamp"].cast(pa.int64()).to_pylist()
    rows = ChangeColumns(types, offsets, indexes, times, [0] * len(types), keys, images)
    return joined_changes(rows, schema)


def _key_cells(table: pa.Table, schema: TableSchema, cells: dict[str, list[Any]]) -> list[list[Any]]:
    if hidden_key(schema) is not None:
        return [table[name].to_pylist() for name in key_names(schema)]
    return [cells[name] for name in schema.key_names]


def _natural(column: Any, shape: Column) -> list[Any]:
    """Return the natural JSON forms of a column's values."""
    type_, kind = column.type, kind_of(shape)
    if pa.types.is_list(type_):
        return list(
            cut_lists(column, _natural(flat(column), (shape.element or ANY_COLUMN) if _is_last(type_) else shape))
        )
    if kind is Kind.ARRAY and pa.types.is_string(type_):
        return [text if text is None or text[:1] not in _JSON_BEGINS else _DECODE(text) for text in column.to_pylist()]
    if pa.types.is_floating(type_):
        values = list(column.to_pylist())
        if pc.all(pc.is_finite(column)).as_py() is not False:
            return values
        return [value if value is None or math.isfinite(value) else to_literal(value) for value in values]
    if pa.types.is_binary(type_):
        texts = [None if value is None else base64.b64encode(value).decode() for value in column.to_pylist()]
        return texts if kind in _BYTES_KINDS else [text and {"t": "bytes", "b64": text} for text in texts]
    if pa.types.is_timestamp(type_):
        texts = _trimmed(pc.strftime(column, format="%Y-%m-%d %H:%M:%S"), zoned=type_.tz is not None)
        return texts if kind is Kind.DATETIME else [text and {"t": "datetime", "iso": text} for text in texts]
    if pa.types.is_decimal(type_):
        texts = column.cast(pa.string()).to_pylist()
        if kind is Kind.U64:
            return [None if text is None else int(text) for text in texts]
        return texts if kind is Kind.DEC else [text and {"t": "dec", "v": text} for text in texts]
    if pa.types.is_boolean(type_) or pa.types.is_integer(type_) or pa.types.is_string(type_):
        return list(column.to_pylist())
    texts = column.cast(pa.string()).to_pylist()
    return texts if kind is Kind.DATE else [text and {"t": "date", "iso": text} for text in texts]


_BYTES_KINDS = frozenset({Kind.BYTES, Kind.GEOMETRY})
_JSON_BEGINS = frozenset({"[", "{"})
"""How the text of an array begins: that of its natural form, or a typed literal."""


def _is_last(type_: pa.DataType) -> bool:
    """Tell whether a list is the last dimension of an array."""
    return not pa.types.is_list(type_.value_type)


def _trimmed(texts: pa.ChunkedArray, *, zoned: bool) -> list[Any]:
    """Return times without fractions that are zero, with `+00` behind where they have a zone."""
    short = pc.replace_substring_regex(texts, r"\.?0+$", "") if _has_fraction(texts) else texts
    whole = pc.if_else(pc.match_substring(texts, "."), short, texts)
    return list((pc.binary_join_element_wise(whole, "+00", "") if zoned else whole).to_pylist())


def _has_fraction(texts: pa.ChunkedArray) -> bool:
    return bool(pc.any(pc.match_substring(texts, ".")).as_py())
