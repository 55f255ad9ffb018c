"""Columns of Arrow as JSON can hold them, and back. Pure.

Numbers stay numbers, but decimals are text, so that nobody rounds them; bytes are base64; dates and times are ISO 8601;
what is not a finite number is the text `NaN`, `Infinity` or `-Infinity`; a list is an array of such values.
"""

import base64
import math
from collections.abc import Iterator
from itertools import islice
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["cut_lists", "flat", "json_column", "json_texts", "typed_column"]

_WORDS = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
_ENCODE = msgspec.json.Encoder().encode


def json_column(column: Any) -> list[Any]:
    """Return the values of a column as numbers, text, booleans and lists of those."""
    type_ = column.type
    if pa.types.is_list(type_):
        return list(cut_lists(column, json_column(flat(column))))
    if pa.types.is_binary(type_):
        return [None if value is None else base64.b64encode(value).decode() for value in column.to_pylist()]
    if pa.types.is_float64(type_):
        values: list[Any] = column.to_pylist()
        if pc.all(pc.is_finite(column)).as_py() is not False:
            return values
        return [value if value is None or math.isfinite(value) else _WORDS[str(value)] for value in values]
    if pa.types.is_timestamp(type_):
        shape = "%Y-%m-%dT%H:%M:%SZ" if type_.tz else "%Y-%m-%dT%H:%M:%S"
        return list(pc.strftime(column, format=shape).to_pylist())
    if pa.types.is_int64(type_) or pa.types.is_boolean(type_) or pa.types.is_string(type_):
        return list(column.to_pylist())
    return list(column.cast(pa.string()).to_pylist())


def typed_column(values: list[Any], type_: pa.DataType) -> Any:
    """Return a column of what `json_column` made of one."""
    if pa.types.is_list(type_):
        offsets: list[int | None] = []
        items: list[Any] = []
        for value in values:
            offsets.append(None if value is None else len(items))
            items += value or ()
        bounds = pa.array([*offsets, len(items)], pa.int32())
        return pa.ListArray.from_arrays(bounds, typed_column(items, type_.value_type), type=type_)
    if pa.types.is_binary(type_):
        return pa.array([None if value is None else base64.b64decode(value) for value in values], type_)
    if pa.types.is_float64(type_):
        return pa.array([float(value) if isinstance(value, str) else value for value in values], type_)
    if pa.types.is_int64(type_) or pa.types.is_boolean(type_) or pa.types.is_string(type_):
        return pa.array(values, type_)
    return pa.array(values, pa.string()).cast(type_)


def json_texts(column: Any) -> Any:
    """Return a column of lists as the texts of their JSON arrays."""
    return pa.array([None if value is None else _ENCODE(value).decode() for value in json_column(column)], pa.string())


def flat(column: Any) -> Any:
    """Return the items of all lists of a column, one after the other."""
    return (column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column).flatten()


def cut_lists(column: Any, items: list[Any]) -> Iterator[list[Any] | None]:
    """Cut what was made of the items of a column's lists into lists again."""
    rest = iter(items)
    for length in pc.list_value_length(column).to_pylist():
        yield None if length is None else list(islice(rest, length))
