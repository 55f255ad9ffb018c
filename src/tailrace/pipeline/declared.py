"""Types that a pipeline declares for columns, in place of those that the source's columns have. Pure.

Values are converted where nothing of them is lost: a value that does not fit is an error, never another value.
"""

import re
from collections.abc import Callable, Mapping

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import structs

from tailrace.model.errors import ConfigError
from tailrace.model.table import Column, Kind, TableSchema

__all__ = ["TYPES", "converted", "declared", "declared_type", "kind_of", "split_name"]

TYPES = ("boolean", "int", "bigint", "double", "decimal(P,S)", "string", "binary", "date", "timestamp", "timestamp_ntz")
"""What can be declared, as Spark writes it; both kinds of integers have 64 bits."""

_PLAIN_TYPES: Mapping[str, tuple[pa.DataType, Kind]] = {
    "boolean": (pa.bool_(), Kind.BOOL),
    "int": (pa.int64(), Kind.I64),
    "bigint": (pa.int64(), Kind.I64),
    "double": (pa.float64(), Kind.F64),
    "string": (pa.string(), Kind.STR),
    "binary": (pa.binary(), Kind.BYTES),
    "date": (pa.date32(), Kind.DATE),
    "timestamp": (pa.timestamp("us", tz="UTC"), Kind.DATETIME),
    "timestamp_ntz": (pa.timestamp("us"), Kind.DATETIME),
}
_DECIMAL = re.compile(r"decimal\(\s*(\d{1,2})\s*,\s*(\d{1,2})\s*\)")
_PRECISION_MAX = 38

_WHOLE = r"^[+-]?\d+$"
_ZONED = r":\d\d(\.\d+)?\s?(Z|[+-]\d\d(:?\d\d)?)$"
"""How a time with a zone ends."""


def declared_type(text: str) -> pa.DataType:
    """Return the Arrow type for the name of one.

    Raises:
        ConfigError: There is no such type.
    """
    name = text.strip().lower()
    if name in _PLAIN_TYPES:
        return _PLAIN_TYPES[name][0]
    match = _DECIMAL.fullmatch(name)
    if match is None:
        raise ConfigError(f"unknown type {text[:64]!r}: there are {', '.join(TYPES)}")
    precision, scale = int(match[1]), int(match[2])
    if not (1 <= precision <= _PRECISION_MAX and scale <= precision):
        raise ConfigError(f"{text[:64]!r} is no type: a decimal has up to {_PRECISION_MAX} digits, P of them, S after")
    return pa.decimal128(precision, scale)


def split_name(name: str, tables: Mapping[str, object] | tuple[str, ...]) -> tuple[str, str] | None:
    """Return table and column of `TABLE.COLUMN`, where one of these tables is meant; names may have dots."""
    dots = [place for place, letter in enumerate(name) if letter == "."]
    found = [(name[:place], name[place + 1 :]) for place in dots if name[:place] in tables and name[place + 1 :]]
    return found[-1] if found else None


def declared(schema: TableSchema, types: Mapping[str, str]) -> TableSchema:
    """Return the schema of a table in which columns have the types declared for them, by `TABLE.COLUMN`."""
    prefix = f"{schema.table.wire}."
    wanted = {name.removeprefix(prefix): type_ for name, type_ in types.items() if name.startswith(prefix)}
    if not wanted.keys() & {column.name for column in schema.columns}:
        return schema
    columns = [structs.replace(column, as_type=wanted.get(column.name, "")) for column in schema.columns]
    return structs.replace(schema, columns=tuple(columns))


def kind_of(column: Column) -> Kind:
    """Return the kind of a column's values, as declared where it is."""
    if not column.as_type:
        return column.kind
    plain = _PLAIN_TYPES.get(column.as_type.strip().lower())
    return Kind.DEC if plain is None else plain[1]


def converted(values: pa.Array, type_: pa.DataType) -> pa.Array:
    """Return values in another type.

    Raises:
        ArrowInvalid: One of them does not fit.
    """
    if values.type == type_:
        return values
    convert = _CONVERSIONS.get((_family(values.type), _family(type_)))
    if convert is None:
        if values.null_count == len(values):
            return pa.nulls(len(values), type_)
        raise pa.ArrowInvalid(f"no {type_} is made of {values.type}")
    result: pa.Array = convert(values, type_)
    return result


def _family(type_: pa.DataType) -> str:
    if pa.types.is_timestamp(type_):
        return "ntz" if type_.tz is None else "timestamp"
    if pa.types.is_decimal(type_):
        return "decimal"
    return str(type_)


def _cast(values: pa.Array, type_: pa.DataType) -> pa.Array:
    return values.cast(type_)


def _of_text(values: pa.Array, type_: pa.DataType) -> pa.Array:
    """Return the values of their texts. Decimals are rounded by nobody."""
    return values.cast(pa.string()).cast(type_)


def _whole(values: pa.Array, type_: pa.DataType) -> pa.Array:
    _require(pc.match_substring_regex(values, _WHOLE))  # Arrow would take hexadecimal digits, too
    return values.cast(type_)


def _truth(values: pa.Array, type_: pa.DataType) -> pa.Array:
    _require(pc.is_in(values, value_set=pa.array([0, 1, None], values.type)))
    return values.cast(type_)


def _day(values: pa.Array, type_: pa.DataType) -> pa.Array:
    days = values.cast(type_)
    _require(pc.equal(days.cast(values.type), values))
    return days


def _instant(values: pa.Array, type_: pa.DataType) -> pa.Array:
    """Return texts as points in time. One without a zone is in UTC, as SQLite has times."""
    zoned = pc.fill_null(pc.match_substring_regex(values, _ZONED), fill_value=False)
    none = pa.scalar(None, pa.string())
    with_zone = pc.if_else(zoned, values, none).cast(type_)
    without = pc.if_else(zoned, none, values).cast(pa.timestamp("us")).cast(type_)
    return pc.coalesce(with_zone, without)


def _require(fits: pa.Array) -> None:
    if pc.all(fits).as_py() is False:
        raise pa.ArrowInvalid("a value does not fit")


_CONVERSIONS: Mapping[tuple[str, str], Callable[[pa.Array, pa.DataType], pa.Array]] = {
    ("string", "bool"): _cast,
    ("string", "int64"): _whole,
    ("string", "double"): _cast,
    ("string", "decimal"): _cast,
    ("string", "date32[day]"): _cast,
    ("string", "ntz"): _cast,
    ("string", "timestamp"): _instant,
    ("bool", "int64"): _cast,
    ("int64", "bool"): _truth,
    ("int64", "double"): _cast,
    ("int64", "decimal"): _of_text,
    ("double", "int64"): _cast,
    ("double", "decimal"): _of_text,
    ("decimal", "int64"): _cast,
    ("decimal", "double"): _of_text,
    ("decimal", "decimal"): _cast,
    ("date32[day]", "ntz"): _cast,
    ("date32[day]", "timestamp"): lambda values, type_: values.cast(pa.timestamp("us")).cast(type_),
    ("ntz", "date32[day]"): _day,
    ("ntz", "timestamp"): _cast,
    ("timestamp", "ntz"): _cast,
}
"""What can be made of what; text and bytes are read as such."""
