"""Rows with types: which Arrow type a column has, and images as columns of those types. Pure.

A value that its column's type cannot hold, which SQLite allows, is never changed or lost in silence: `MisfitError`
names its table, key and column. Such a column can be read as text instead.

How it is fast: DuckDB takes all images of a batch apart at once, into text; Arrow turns texts into types, strictly.
Rows that either refuses, such as an infinity among numbers, are looked at again by themselves, and counted in the log.
"""

import logging
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from decimal import Decimal
from functools import partial
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from tailrace.model.errors import InvalidValueError
from tailrace.model.key import TEXT_KINDS
from tailrace.model.table import Column, Identity, Kind, TableSchema
from tailrace.model.value import Array, Text, Value, from_natural
from tailrace.pipeline.duck import connection

__all__ = ["MisfitError", "arrow_type", "decode_images", "hidden_key", "row_schema"]

logger = logging.getLogger(__name__)

_TYPES: dict[Kind, pa.DataType] = {
    Kind.BOOL: pa.bool_(),
    Kind.I64: pa.int64(),
    Kind.U64: pa.decimal128(20, 0),
    Kind.F64: pa.float64(),
    Kind.BYTES: pa.binary(),
    Kind.GEOMETRY: pa.binary(),
    Kind.DATE: pa.date32(),
    Kind.DATETIME: pa.timestamp("us"),
}
"""Type of each kind; all others are text, but see `arrow_type`."""

_PRECISION = re.compile(r"\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\)")
_ZONE = re.compile(r"with\s+time\s+zone|timestamptz", re.IGNORECASE)
_PRECISION_MAX = 38
_EXACT_FLOAT_MAX = 2**53
_LITERAL = '{"t":'
_HIDDEN_KEYS = ("rowid", "_rowid_", "_rowid_key")


class MisfitError(InvalidValueError):
    """A value does not fit the type of its column. Fix the row, or read the column as text."""

    def __init__(self, table: str, key: str, column: str, type_: str) -> None:
        super().__init__(
            f"the value of column {column!r} in the row with key {key} of table {table} is no {type_}: "
            f"fix the row in the source; the Spark source can read the column as text (option stringColumns)"
        )
        self.table = table
        self.key = key
        self.column = column


def arrow_type(column: Column) -> pa.DataType:
    """Return the type of a column's values in Arrow.

    An array is a list where its elements and its dimensions are known, and the text of its natural JSON form otherwise.
    """
    if column.kind is Kind.ARRAY:
        return _list_type(column)
    if column.kind is Kind.DEC:
        match = _PRECISION.search(column.declared)
        if match is None or not 1 <= int(match[1]) <= _PRECISION_MAX or int(match[2] or 0) > int(match[1]):
            return pa.string()
        return pa.decimal128(int(match[1]), int(match[2] or 0))
    if column.kind is Kind.DATETIME and _has_zone(column):
        return pa.timestamp("us", tz="UTC")
    return _TYPES.get(column.kind, pa.string())


def _list_type(column: Column) -> pa.DataType:
    if column.element is None or column.element.kind in _MIXED or not column.dimensions:
        return pa.string()
    type_ = arrow_type(column.element)
    for _ in range(column.dimensions):
        type_ = pa.list_(type_)
    return type_


_MIXED = frozenset({Kind.ANY, Kind.ARRAY})
"""Kinds of elements that have no one type. An element that is an array itself has a literal in the natural form."""


def _has_zone(column: Column) -> bool:
    """Tell whether the times of a column have a zone; of schemas that do not say so, the declared type tells."""
    return bool(_ZONE.search(column.declared)) if column.zone is None else column.zone


def hidden_key(schema: TableSchema) -> str | None:
    """Return the name of the column that shows the row number by which a table's rows are known; None without one."""
    if schema.identity is not Identity.ROW_NUMBER:
        return None
    taken = {column.name.lower() for column in schema.columns}
    return next(name for name in _HIDDEN_KEYS if name not in taken)


def row_schema(schema: TableSchema, as_text: Collection[str] = ()) -> pa.Schema:
    """Return the columns of a table with their types; a hidden key comes first.

    Those in `as_text` are text, and so are arrays in a key.
    """
    key = hidden_key(schema)
    # Rows are found by their keys, which Arrow can do by texts, not by lists.
    texts = {*as_text, *(column.name for column in schema.key_columns if column.kind is Kind.ARRAY)}
    fields = [] if key is None else [pa.field(key, pa.int64())]
    fields += [
        pa.field(column.name, pa.string() if column.name in texts else arrow_type(column)) for column in schema.columns
    ]
    return pa.schema(fields)


def decode_images(
    images: pa.Array, keys: pa.Array, version: TableSchema, wanted: pa.Schema, as_text: Collection[str] = ()
) -> list[pa.Array]:
    """Return the columns of `wanted` out of row images of one schema version, none of which is null.

    A column that the version does not have is null, and so is one that an image lacks: `tailrace.pipeline.unchanged`
    tells those apart. Where text is wanted of a column that holds something
    else, and of the columns in `as_text`, each value is given as its JSON text, strings without quotation marks.

    Raises:
        MisfitError: A value does not fit its type.
    """
    hidden = hidden_key(version)
    present = {field.name: column for field in wanted if (column := version.column(field.name)) is not None}
    wishes = [_Wish(present[f.name], f.type) for f in wanted if f.name in present and not pa.types.is_list(f.type)]
    texts = _texts(images, wishes, version)
    columns = []
    for field in wanted:
        column = present.get(field.name)
        if column is not None:
            lenient = field.name in as_text
            cells = _convert(texts.get(field.name), column.kind, field.type, lenient=lenient)
            careful = partial(_carefully, version=version, column=column, type_=field.type, lenient=lenient)
            column_values = _completed(cells, images, keys, careful)
        elif field.name == hidden:
            column_values = _numbers(keys).cast(field.type)
        else:
            column_values = pa.nulls(len(images), field.type)
        columns.append(column_values)
    return columns


class _Cells(Struct, frozen=True):
    """Cells of a column, and which of them mean nothing yet; None where all are right."""

    values: pa.Array
    left: pa.Array | None = None


def _completed(
    cells: _Cells | None, images: pa.Array, keys: pa.Array, careful: Callable[[pa.Array, pa.Array], pa.Array]
) -> pa.Array:
    """Return the cells of a column; `careful` reads those of images that are left, or all where there are none."""
    if cells is None:
        return careful(images, keys)
    if cells.left is None:
        return cells.values
    rows = pc.indices_nonzero(cells.left)
    return pc.replace_with_mask(cells.values, cells.left, careful(images.take(rows), keys.take(rows)))


def _numbers(keys: pa.Array) -> pa.Array:
    """Return the texts of keys of one number; a truncation has none."""
    texts = pc.utf8_slice_codeunits(keys.view(pa.utf8()), 1, -1)
    return pc.if_else(pc.equal(texts, ""), pa.scalar(None, pa.utf8()), texts)


class _Wish:
    """One column to be taken out of images: its name, and the form in which DuckDB gives it."""

    def __init__(self, column: Column, type_: pa.DataType) -> None:
        self.name = column.name
        # The JSON text tells a string from a number; the plain text has strings without quotation marks and escapes.
        plain = column.kind not in _QUOTED and not _is_number(type_) and not pa.types.is_boolean(type_)
        self.plain = plain or pa.types.is_string(type_)
        self.base64 = pa.types.is_binary(type_)


_QUOTED = frozenset({Kind.BYTES, Kind.GEOMETRY, Kind.U64})
"""Kinds whose strings must be distinguished from other values with the same text."""


def _texts(images: pa.Array, wishes: Sequence[_Wish], version: TableSchema) -> dict[str, _Cells]:
    """Return columns of images as text by name, without those that DuckDB cannot name."""
    found: dict[str, _Cells] = {}
    import duckdb

    for some in _apart(wishes):
        try:
            found |= _taken_apart(images, some)
        except duckdb.Error as error:
            extra = {"table": version.table.wire, "rows": len(images), "problem": type(error).__name__}
            logger.warning("images cannot be taken apart together", extra=extra)
    return found


def _apart(wishes: Sequence[_Wish]) -> Iterator[list[_Wish]]:
    """Yield wishes so that no two of a list have names that differ only in case, which a struct of DuckDB cannot."""
    left = list(wishes)
    while left:
        some = {wish.name.lower(): wish for wish in reversed(left)}
        yield list(some.values())
        left = [wish for wish in left if some[wish.name.lower()] is not wish]


def _taken_apart(images: pa.Array, wishes: Sequence[_Wish]) -> dict[str, _Cells]:
    spec = msgspec.json.encode({wish.name: "VARCHAR" if wish.plain else "JSON" for wish in wishes}).decode()
    selected = ", ".join(_expressions(wish, number) for number, wish in enumerate(wishes))
    quoted = spec.replace("'", "''")
    query = f"SELECT {selected} FROM (SELECT json_transform(image, '{quoted}') AS cells FROM images)"  # noqa: S608
    relation = connection().from_arrow(pa.table([images.view(pa.utf8())], ["image"]))
    table = relation.query("images", query).to_arrow_table()
    return {
        wish.name: _Cells(
            table[f"c{number}"].combine_chunks(),
            _some(table[f"m{number}"].combine_chunks()) if wish.base64 else None,
        )
        for number, wish in enumerate(wishes)
    }


def _expressions(wish: _Wish, number: int) -> str:
    """Return the cell of a column; of bytes the decoded ones, and whether they are none although the cell is not."""
    name = wish.name.replace("'", "''")
    cell = f"struct_extract(cells, '{name}')"
    if not wish.base64:
        return f"{cell} AS c{number}"
    # As text: a cell of the type JSON would have what it is compared with parsed as JSON.
    text = f"CAST({cell} AS VARCHAR)"
    inner = f"substring({text}, 2, length({text}) - 2)"
    decoded = f"""TRY(from_base64(CASE WHEN starts_with({text}, '"') THEN {inner} END))"""
    return f"{decoded} AS c{number}, {cell} IS NOT NULL AND c{number} IS NULL AS m{number}"


def _convert(text: _Cells | None, kind: Kind, type_: pa.DataType, *, lenient: bool) -> _Cells | None:
    """Return texts in their type, and which do not fit at first sight; None where that is not known of any."""
    if text is None:
        return None
    values = text.values
    if pa.types.is_binary(type_):
        return text if kind in _BYTES_KINDS else None
    if pa.types.is_string(type_):
        if lenient or kind is Kind.ANY or kind not in _TEXT_KINDS:
            return text
        return _Cells(values, _some(pc.starts_with(values, _LITERAL)))
    if pa.types.is_boolean(type_):
        misfits = pc.invert(pc.is_in(values, value_set=pa.array(["true", "false", None], pa.string())))
        return _Cells(pc.equal(values, "true"), _some(misfits))
    cast, misfits = _cast(values, type_)
    if pa.types.is_floating(type_):
        misfits = _either(misfits, _rounded(cast, values))
    return _Cells(cast, misfits)


def _cast(text: pa.Array, type_: pa.DataType) -> tuple[pa.Array, pa.Array | None]:
    """Return texts in their type, null where they do not fit, and which do not; None where all fit."""
    try:
        return text.cast(type_), None
    except pa.ArrowInvalid:
        if len(text) <= _LOOKED_AT:
            return pa.nulls(len(text), type_), text.is_valid()
    # What is written as an object or a string is found at once; the rest is searched in halves.
    strange = pc.fill_null(pc.or_(pc.starts_with(text, "{"), pc.starts_with(text, '"')), fill_value=False)
    if strange.true_count:
        plain = pc.if_else(strange, pa.scalar(None, text.type), text)
        cast, misfits = _cast(plain, type_)
        return cast, _either(strange, misfits)
    half = len(text) // 2
    (first, left), (second, right) = _cast(text.slice(0, half), type_), _cast(text.slice(half), type_)
    masks = [
        pa.repeat(pa.scalar(value=False), len(part)) if mask is None else mask
        for part, mask in ((first, left), (second, right))
    ]
    return pa.concat_arrays([first, second]), pa.concat_arrays(masks)


_LOOKED_AT = 4
"""So few values are looked at one by one where they cannot be cast together."""


def _rounded(numbers: pa.Array, text: pa.Array) -> pa.Array | None:
    """Tell which texts are whole numbers that a float may not hold exactly; None where none is."""
    largest = pc.max(pc.abs(numbers)).as_py()
    if largest is None or largest < _EXACT_FLOAT_MAX:
        return None
    whole = pc.invert(pc.match_substring_regex(text, "[.eE]"))
    return _some(pc.and_(whole, pc.greater_equal(pc.abs(numbers), float(_EXACT_FLOAT_MAX))))


def _some(mask: pa.Array) -> pa.Array | None:
    """Return a mask without nulls; None where it is false for all."""
    return pc.fill_null(mask, fill_value=False) if mask.true_count else None


def _either(one: pa.Array | None, other: pa.Array | None) -> pa.Array | None:
    return other if one is None else one if other is None else pc.or_(one, other)


_BYTES_KINDS = frozenset({Kind.BYTES, Kind.GEOMETRY})
_TEXT_KINDS = frozenset({Kind.STR, Kind.DEC, *TEXT_KINDS})


def _carefully(
    images: pa.Array, keys: pa.Array, *, version: TableSchema, column: Column, type_: pa.DataType, lenient: bool
) -> pa.Array:
    """Return one column, one value after the other; tell the log how many there were.

    Raises:
        MisfitError: A value does not fit.
    """
    if column.kind is not Kind.ARRAY:
        extra = {"table": version.table.wire, "column": column.name, "rows": len(images)}
        logger.info("values read one by one", extra=extra)
    fit = _fitter(type_)
    cells = []
    for row, image in enumerate(images.to_pylist()):
        natural = msgspec.json.decode(image).get(column.name)
        try:
            if pa.types.is_string(type_) and (lenient or column.kind is Kind.ARRAY):
                text = natural if natural is None or isinstance(natural, str) else msgspec.json.encode(natural).decode()
                cells.append(text)
            else:
                cells.append(None if natural is None else fit(from_natural(natural, column)))
        except (ValueError, ArithmeticError, TypeError, pa.ArrowInvalid, InvalidValueError):
            key = keys[row].as_py().decode()
            raise MisfitError(version.table.wire, key, column.name, str(type_)) from None
    return pa.array(cells, type_)


def _fitter(type_: pa.DataType) -> Callable[[Value], Any]:
    """Return what turns a value into one that Arrow takes for this type; it raises where the value does not fit."""
    if pa.types.is_list(type_):
        return lambda value: _items(value, type_)
    if pa.types.is_integer(type_):
        return lambda value: _checked(_whole(value), type_)
    if pa.types.is_floating(type_):
        return _real
    if pa.types.is_boolean(type_):
        return lambda value: _only(value, bool)
    if pa.types.is_binary(type_):
        return lambda value: _only(value, bytes)
    if pa.types.is_decimal(type_):
        return lambda value: _checked(_number(value), type_)
    if pa.types.is_string(type_):
        return _written
    return lambda value: pa.scalar(_written(value)).cast(type_).as_py()


def _items(value: Value, type_: pa.DataType) -> list[Any]:
    """Return the items of an array. A list has no lower bounds, and as many dimensions as its type says."""
    array = _only(value, Array)
    if array.lower:
        raise ValueError(array.lower)
    return _fitted_items(array.items, type_.value_type)


def _fitted_items(items: Sequence[Any], type_: pa.DataType) -> list[Any]:
    if pa.types.is_list(type_):
        return [_fitted_items(_only(item, tuple), type_.value_type) for item in items]
    fit = _fitter(type_)
    return [None if item is None else fit(item) for item in items]


def _whole(value: Value) -> int:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return int(_only(value, int))


def _real(value: Value) -> float:
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= _EXACT_FLOAT_MAX:
        return float(value)
    return float(_only(value, float))


def _number(value: Value) -> Decimal:
    return Decimal(_whole(value)) if isinstance(value, int) else _only(value, Decimal)


def _written(value: Value) -> str:
    match value:
        case str():
            return value
        case Text(_, text):
            return text
        case Decimal():
            return str(value)
        case _:
            raise TypeError(value)


def _only(value: Value, kind: type) -> Any:
    if type(value) is not kind:
        raise TypeError(value)
    return value


def _checked(value: Any, type_: pa.DataType) -> Any:
    return pa.scalar(value, type_).as_py()


def _is_number(type_: pa.DataType) -> bool:
    return bool(pa.types.is_integer(type_) or pa.types.is_floating(type_))
