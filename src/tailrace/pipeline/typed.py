"""Rows with types: which Arrow type a column has, and images as columns of those types. Pure.

A value that its column's type cannot hold, which SQLite allows, is never changed or lost in silence: `MisfitError`
names its table, key and column. Such a column can be read as text instead.

How it is fast: the compiled helper takes images apart whose cells have the usual forms; those that it leaves, or all
where it is not there, DuckDB takes apart at once, into text, and Arrow turns texts into types, strictly. Rows that both
refuse, such as an infinity among numbers, are looked at again by themselves, and counted in the log.
"""

import logging
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from decimal import Decimal
from functools import partial, reduce
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct, structs

from tailrace.model.errors import InvalidValueError
from tailrace.model.key import TEXT_KINDS
from tailrace.model.table import Column, Identity, Kind, TableSchema
from tailrace.model.value import Array, Text, Value, from_natural
from tailrace.pipeline.declared import converted, declared_type
from tailrace.pipeline.duck import connection
from tailrace.pipeline.image_columns import Form, ImageColumn, image_columns

__all__ = [
    "DecodedImages",
    "MisfitError",
    "arrow_type",
    "as_declared",
    "decode_images",
    "hidden_key",
    "is_read_as",
    "row_schema",
    "source_schema",
]

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
            f"fix the row in the source, or declare another type for the column (--type); the Spark source can read "
            f"it as text (option stringColumns)"
        )
        self.table = table
        self.key = key
        self.column = column


def arrow_type(column: Column) -> pa.DataType:
    """Return the type of a column's values in Arrow.

    That is the one that is declared for it, where there is one.
    An array is a list where its elements and its dimensions are known, and the text of its natural JSON form otherwise.
    """
    if column.as_type:
        return declared_type(column.as_type)
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


class DecodedImages(Struct, frozen=True):
    """Columns out of images, and whether it is known that no image lacks a column of its version."""

    columns: list[pa.Array]
    whole: bool


def decode_images(
    images: pa.Array, keys: pa.Array, version: TableSchema, wanted: pa.Schema, as_text: Collection[str] = ()
) -> DecodedImages:
    """Return the columns of `wanted` out of row images of one schema version, none of which is null.

    A column that the version does not have is null, and so is one that an image lacks: `tailrace.pipeline.unchanged`
    tells those apart. Where text is wanted of a column that holds something
    else, and of the columns in `as_text`, each value is given as its JSON text, strings without quotation marks.

    Raises:
        MisfitError: A value does not fit its type.
    """
    asked, wanted = wanted, source_schema(wanted, version)
    wishes = [_Wish(column, f.type, f.name in as_text) for f in wanted if (column := version.column(f.name))]
    names = [column.name for column in version.columns]
    taken = image_columns(images, names, {wish.name: wish.form for wish in wishes if wish.form is not None})
    quick, whole = ({}, False) if taken is None else taken
    cells = {wish.name: _quickly(quick[wish.name], wish.type) for wish in wishes if wish.name in quick}
    found = {name: one.values for name, one in cells.items()}
    found |= _slowly(images, keys, version, [wish for wish in wishes if wish.name not in cells])
    left = [one.left for one in cells.values() if one.left is not None]
    if left:
        rows = pc.indices_nonzero(reduce(pc.or_, left))
        again = [wish for wish in wishes if wish.name in cells and cells[wish.name].left is not None]
        for name, values in _slowly(images.take(rows), keys.take(rows), version, again).items():
            mask: Any = cells[name].left
            found[name] = pc.replace_with_mask(found[name], mask, values.filter(mask.take(rows)))
    hidden = hidden_key(version)
    if hidden is not None and hidden in wanted.names and hidden not in found:
        found[hidden] = _numbers(keys).cast(wanted.field(hidden).type)
    columns = [found[f.name] if f.name in found else pa.nulls(len(images), f.type) for f in wanted]
    return DecodedImages(as_declared(columns, asked, version, lambda row: str(keys[row].as_py().decode())), whole)


def _quickly(column: ImageColumn, type_: pa.DataType) -> "_Cells":
    """Return cells that the compiled helper has found in their type, and which have to be read again."""
    if column.values.type == type_:
        return _Cells(column.values, column.left)
    # Of cells that are left the text means nothing, and may be anything.
    texts = column.values if column.left is None else pc.if_else(column.left, _NO_TEXT, column.values)
    cast, misfits = _cast(texts, type_)
    return _Cells(cast, _either(column.left, misfits))


def _slowly(images: pa.Array, keys: pa.Array, version: TableSchema, wishes: Sequence["_Wish"]) -> dict[str, pa.Array]:
    """Return columns out of images by name, in whatever form their cells are written."""
    if not wishes:
        return {}
    texts = _texts(images, [wish for wish in wishes if not pa.types.is_list(wish.type)], version)
    columns = {}
    for wish in wishes:
        cells = _convert(texts.get(wish.name), wish.column.kind, wish.type, lenient=wish.lenient)
        careful = partial(_carefully, version=version, wish=wish)
        columns[wish.name] = _completed(cells, images, keys, careful)
    return columns


def source_schema(wanted: pa.Schema, version: TableSchema) -> pa.Schema:
    """Return columns in the types that the source has for them; those that are to be text or bytes stay so."""
    fields = []
    for field in wanted:
        column = version.column(field.name)
        if column is not None and column.as_type and not is_read_as(field.type):
            fields.append(pa.field(field.name, arrow_type(structs.replace(column, as_type=""))))
        else:
            fields.append(field)
    return pa.schema(fields)


def is_read_as(type_: pa.DataType) -> bool:
    """Tell whether values of a declared type are read as such, and not converted afterwards."""
    return bool(pa.types.is_string(type_) or pa.types.is_binary(type_))


def as_declared(
    columns: Sequence[Any], wanted: pa.Schema, version: TableSchema, key_of: Callable[[int], str]
) -> list[Any]:
    """Return columns of `source_schema` in the types that are declared for them; `key_of` tells the key of a row.

    Raises:
        MisfitError: A value does not fit its type.
    """
    given = {column.name for column in version.columns if column.as_type}
    return [
        _as_declared(values, field, version, key_of) if field.name in given else values
        for values, field in zip(columns, wanted, strict=True)
    ]


def _as_declared(values: Any, field: pa.Field, version: TableSchema, key_of: Callable[[int], str]) -> Any:
    whole = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    try:
        return converted(whole, field.type)
    except pa.ArrowInvalid:
        for row in range(len(whole)):
            try:
                converted(whole.slice(row, 1), field.type)
            except pa.ArrowInvalid:
                raise MisfitError(version.table.wire, key_of(row), field.name, str(field.type)) from None
        raise


_NO_TEXT = pa.scalar(None, pa.string())


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
    """One column to be taken out of images, in this type; `lenient` where any value may become text."""

    def __init__(self, column: Column, type_: pa.DataType, lenient: bool) -> None:
        self.name = column.name
        self.column = column
        self.type = type_
        self.lenient = lenient
        # The JSON text tells a string from a number; the plain text has strings without quotation marks and escapes.
        plain = column.kind not in _QUOTED and not _is_number(type_) and not pa.types.is_boolean(type_)
        self.plain = plain or pa.types.is_string(type_)
        self.base64 = pa.types.is_binary(type_)
        self.form = self._form()

    def _form(self) -> Form | None:
        """Return the form in which the compiled helper takes it; None where it cannot."""
        form = _FORMS.get(self.type)
        if form is not None or pa.types.is_list(self.type) or _is_number(self.type):
            return form
        if self.base64:
            return Form.BASE64 if self.column.kind in _BYTES_KINDS else None
        if self.plain:
            return Form.TEXT
        return Form.DIGITS if self.column.kind is Kind.U64 else None


_FORMS = {
    pa.int64(): Form.INT64,
    pa.float64(): Form.FLOAT64,
    pa.bool_(): Form.BOOL,
    pa.string(): Form.TEXT,
}
_BYTES_KINDS = frozenset({Kind.BYTES, Kind.GEOMETRY})

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


_TEXT_KINDS = frozenset({Kind.STR, Kind.DEC, *TEXT_KINDS})


def _carefully(images: pa.Array, keys: pa.Array, *, version: TableSchema, wish: _Wish) -> pa.Array:
    """Return one column, one value after the other; tell the log how many there were.

    Raises:
        MisfitError: A value does not fit.
    """
    column, type_ = wish.column, wish.type
    if column.kind is not Kind.ARRAY:
        extra = {"table": version.table.wire, "column": column.name, "rows": len(images)}
        logger.info("values read one by one", extra=extra)
    fit = _fitter(type_)
    cells = []
    for row, image in enumerate(images.to_pylist()):
        natural = msgspec.json.decode(image).get(column.name)
        try:
            if pa.types.is_string(type_) and (wish.lenient or column.kind is Kind.ARRAY):
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
