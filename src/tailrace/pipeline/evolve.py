"""How the columns of a sink follow those of the source: added, kept when dropped, widened; never narrowed. Pure."""

import pyarrow as pa

from tailrace.pipeline.json_column import json_texts

__all__ = ["aligned", "fitted", "united", "usual", "widened"]

_BINARY_LIKE = {
    pa.string(),
    pa.large_string(),
    pa.string_view(),
    pa.binary(),
    pa.large_binary(),
    pa.binary_view(),
}
_INT64_DIGITS = 19
_DECIMAL_DIGITS_MAX = 38


def united(target: pa.Schema | None, incoming: pa.Schema) -> pa.Schema:
    """Return the columns that hold both: those of `target` in their order, then the new ones. All may be null."""
    fields = {} if target is None else {field.name: field.type for field in target}
    for field in incoming:
        known = fields.get(field.name)
        fields[field.name] = field.type if known is None else widened(known, field.type)
    return pa.schema([pa.field(name, type_) for name, type_ in fields.items()])


def fitted(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return a table with exactly these columns: cast where they are wider, null where there are none."""
    columns = [
        _cast(table[field.name], field.type)
        if field.name in table.column_names
        else pa.nulls(table.num_rows, field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema)


def aligned(table: pa.Table, target: pa.Schema) -> pa.Table:
    """Return the same columns, each in the type that the target has for it."""
    known = {field.name: field.type for field in target}
    fields = [pa.field(field.name, known.get(field.name, field.type)) for field in table.schema]
    return fitted(table, pa.schema(fields))


def widened(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    """Return the type that takes the values of both. Where no type but text does, it is text.

    Whole numbers become floats where the source's column became one: the source has converted its own values alike.
    """
    if one == other:
        return one
    for narrow, wide in ((one, other), (other, one)):
        if pa.types.is_null(narrow):
            return wide
        if pa.types.is_boolean(narrow) and pa.types.is_int64(wide):
            return wide
        if pa.types.is_int64(narrow) and pa.types.is_float64(wide):
            return wide
        if pa.types.is_date32(narrow) and wide == pa.timestamp("us"):
            return wide
        if pa.types.is_int64(narrow) and pa.types.is_decimal128(wide):
            return _decimal(_INT64_DIGITS, 0, wide.precision - wide.scale, wide.scale)
    if pa.types.is_list(one) and pa.types.is_list(other):
        return _list(one.value_type, other.value_type)
    if pa.types.is_decimal128(one) and pa.types.is_decimal128(other):
        return _decimal(one.precision - one.scale, one.scale, other.precision - other.scale, other.scale)
    return pa.binary() if pa.types.is_binary(one) or pa.types.is_binary(other) else pa.string()


def usual(type_: pa.DataType) -> pa.DataType:
    """Return a type in the form that we use ourselves: not large, and times with a zone in UTC."""
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        return pa.list_(usual(type_.value_type))
    if pa.types.is_timestamp(type_) and type_.tz is not None:
        return pa.timestamp("us", tz="UTC")
    return _USUAL.get(type_, type_)


_USUAL = {pa.large_string(): pa.string(), pa.large_binary(): pa.binary()}


def _list(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    """Return the list type that takes the items of both; text where no list does without making text of items."""
    both = widened(one, other)
    return pa.string() if pa.types.is_binary(both) or pa.types.is_string(both) else pa.list_(both)


def _decimal(whole: int, scale: int, other_whole: int, other_scale: int) -> pa.DataType:
    """Return the decimal type with room for both, or text where there is none."""
    digits = max(whole, other_whole) + max(scale, other_scale)
    return pa.decimal128(digits, max(scale, other_scale)) if digits <= _DECIMAL_DIGITS_MAX else pa.string()


def _cast(column: pa.ChunkedArray, type_: pa.DataType) -> pa.ChunkedArray:
    """Return the column in a type that is at least as wide."""
    if column.type == type_:
        return column
    if pa.types.is_list(column.type) and not pa.types.is_list(type_):
        return pa.chunked_array([json_texts(column)]).cast(type_)
    if pa.types.is_binary(type_) and not _is_binary_like(column.type):
        return column.cast(pa.string()).cast(type_)
    return column.cast(type_, safe=not pa.types.is_float64(type_))


def _is_binary_like(type_: pa.DataType) -> bool:
    """Tell whether values of a type are bytes already."""
    return type_ in _BINARY_LIKE
