"""Values of cells and their three JSON forms. Pure.

A cell holds one of the Python types of `Value`. It is written in three ways:

* **natural**, as the log keeps it: the plain JSON form where that and the column's kind say exactly which value it is,
  a typed literal otherwise. Nothing is lost: `from_natural(to_natural(v, column), column) == v` for every value.
* **literal** (`Lit`): an object that carries its own type, e.g. `{"t":"i64","v":1}`.
* **plain**: ordinary JSON for readers that need no type tags; not-a-number and the infinities become null, and the
  lower bounds of arrays are not there.

How the natural form tells values apart: null, booleans and numbers speak for themselves (an integer has neither point
nor exponent, a float always has one). A JSON string is of the column's kind where that kind is written as a string
(`_STRING_KINDS`), and text in any other column. A JSON array is an array in a column of arrays, whose elements are
natural forms of the element's kind, and which has arrays within where it has several dimensions; it is nothing in any
other column. Everything else is a literal: an object whose first member is `t`.
"""

import base64
import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any, TypeAlias

from msgspec import Struct, structs
from msgspec import json as msgspec_json

from tailrace.model.errors import InvalidValueError
from tailrace.model.table import ANY_COLUMN, Column, Kind

__all__ = [
    "LITERAL_TAGS",
    "Array",
    "Item",
    "Json",
    "Text",
    "Value",
    "from_literal",
    "from_natural",
    "literal_to_plain",
    "to_literal",
    "to_natural",
    "to_plain",
]

Json = Any
"""What a JSON document decodes to: None, bool, int, float, str, list or dict."""


class Text(Struct, frozen=True):
    """A value that travels as text with the name of its type: a date, a UUID, a JSON document, an interval.

    The text is the database's own, kept to the letter, so that zero dates, `24:00:00`, `infinity` and numbers inside
    JSON survive. `type` is the database's name of the type of a `FOREIGN` value, and empty for all others.
    """

    kind: Kind
    text: str
    type: str = ""


class Array(Struct, frozen=True):
    """An array. Where it has several dimensions, its items are tuples of items.

    `lower` has the number of the first item of each dimension; it is empty where all of them are 1.
    """

    items: "tuple[Item, ...]"
    lower: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.lower and all(bound == 1 for bound in self.lower):
            structs.force_setattr(self, "lower", ())


Value = None | bool | int | float | Decimal | str | bytes | Text | Array
Item: TypeAlias = "Value | tuple[Item, ...]"
"""What an array holds: values, or in all dimensions but the last one arrays of them."""

_TEXT_MEMBER = {
    Kind.DATE: "iso",
    Kind.TIME: "iso",
    Kind.DATETIME: "iso",
    Kind.UUID: "v",
    Kind.INTERVAL: "v",
    Kind.ENUM: "v",
    Kind.BIT: "v",
    Kind.NETWORK: "v",
    Kind.RANGE: "v",
    Kind.COMPOSITE: "v",
}
"""Literal member that holds the text of each kind of `Text`, but JSON, whose document is written out, and FOREIGN."""

_STRING_KINDS = {Kind.STR, Kind.BYTES, Kind.GEOMETRY, Kind.DEC, Kind.JSON, Kind.FOREIGN, *_TEXT_MEMBER}
"""Kinds whose natural form is a JSON string."""

_BYTES_KINDS = {Kind.BYTES, Kind.GEOMETRY}

_NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def to_literal(value: Value, column: Column = ANY_COLUMN) -> dict[str, Json]:
    """Return the typed literal of a value; `column` tells a signed integer from an unsigned one, bytes from a geometry.

    A float that JSON cannot write carries its name instead: `{"t":"f64","v":"NaN"}`. A JSON document that cannot be
    written out without changing it (duplicate members, numbers beyond double precision) carries its text as `text`.
    The items of an array are literals, or arrays of them.
    """
    match value:
        case None:
            return {"t": "null"}
        case bool():
            return {"t": "bool", "v": value}
        case int():
            return {"t": "u64" if column.kind is Kind.U64 or value > 2**63 - 1 else "i64", "v": value}
        case float():
            return {"t": "f64", "v": value if math.isfinite(value) else _float_name(value)}
        case Decimal():
            return {"t": "dec", "v": str(value)}
        case str():
            return {"t": "str", "v": value}
        case bytes():
            tag = "geometry" if column.kind is Kind.GEOMETRY else "bytes"
            return {"t": tag, "b64": base64.b64encode(value).decode()}
        case Text(Kind.JSON, text):
            document, exact = _document(text)
            return {"t": "json", "v": document} if exact else {"t": "json", "v": document, "text": text}
        case Text(Kind.FOREIGN, text, type_):
            return {"t": "foreign", "type": type_, "v": text}
        case Text(text_kind, text):
            return {"t": str(text_kind), _TEXT_MEMBER[text_kind]: text}
        case Array(items, lower):
            element = column.element or ANY_COLUMN
            made = {"t": "array", "v": _nested(items, lambda item: to_literal(item, element))}
            return {**made, "lower": list(lower)} if lower else made


def from_literal(literal: Json) -> Value:
    """Return the value of a typed literal.

    Raises:
        InvalidValueError: It is not a literal; the message names the member at fault.
    """
    if not isinstance(literal, dict) or not isinstance(literal.get("t"), str):
        raise InvalidValueError('a typed literal is an object with a member "t"')
    tag: str = literal["t"]
    reader = _READERS.get(tag)
    if reader is None:
        raise InvalidValueError(f"unknown literal type {tag!r}")
    member, read = reader
    if member and member not in literal:
        raise InvalidValueError(f"literal of type {tag!r} lacks {member!r}")
    try:
        whole = _WHOLE_READERS.get(tag)
        return read(literal.get(member)) if whole is None else whole(literal)
    except (TypeError, ValueError, ArithmeticError, RecursionError) as error:
        raise InvalidValueError(f"literal of type {tag!r} has an ill-typed {member!r}") from error


def to_natural(value: Value, column: Column) -> Json:
    """Return the natural JSON form of a value in a column."""
    kind = column.kind
    match value:
        case None | bool():
            return value
        case int():
            return value
        case float():
            return value if math.isfinite(value) else to_literal(value)
        case str():
            return value if kind is Kind.STR or kind not in _STRING_KINDS else to_literal(value)
        case Decimal():
            return str(value) if kind is Kind.DEC else to_literal(value)
        case bytes():
            return base64.b64encode(value).decode() if kind in _BYTES_KINDS else to_literal(value)
        case Text(text_kind, text, type_):
            known = kind is text_kind and (kind is not Kind.FOREIGN or type_ == column.declared)
            return text if known else to_literal(value)
        case Array(items, lower):
            if kind is not Kind.ARRAY or lower:
                return to_literal(value, column)
            element = column.element or ANY_COLUMN
            return _nested(items, lambda item: _natural_item(item, element))


def from_natural(natural: Json, column: Column) -> Value:
    """Return the value that a natural form stands for in a column.

    Raises:
        InvalidValueError: It is not a natural form of any value.
    """
    match natural:
        case None | bool() | int() | float():
            return natural
        case str():
            read = _FROM_STRING.get(column.kind)
            if read is not None:
                return read(natural)
            return natural if column.kind is not Kind.FOREIGN else Text(Kind.FOREIGN, natural, column.declared)
        case dict():
            return from_literal(natural)
        case list() if column.kind is Kind.ARRAY:
            element = column.element or ANY_COLUMN
            return Array(_gathered(natural, lambda item: from_natural(item, element)))
        case _:
            raise InvalidValueError("a cell is a JSON scalar or a typed literal")


def to_plain(value: Value) -> Json:
    """Return the plain JSON form of a value."""
    match value:
        case float():
            return value if math.isfinite(value) else None
        case Decimal():
            return str(value)
        case bytes():
            return base64.b64encode(value).decode()
        case Text(Kind.JSON, text):
            return _document(text)[0]
        case Text(_, text):
            return text
        case Array(items):
            return _nested(items, to_plain)
        case _:
            return value


def literal_to_plain(literal: Json) -> Json:
    """Return the plain JSON form of a typed literal."""
    return to_plain(from_literal(literal))


def _nested(items: "tuple[Item, ...]", form: Callable[[Value], Json]) -> list[Json]:
    """Return the items of an array as lists within lists, each value in its form."""
    return [_nested(item, form) if isinstance(item, tuple) else form(item) for item in items]


def _gathered(items: list[Json], read: Callable[[Json], Value]) -> "tuple[Item, ...]":
    """Return lists within lists as the items of an array, each value read."""
    return tuple(_gathered(item, read) if isinstance(item, list) else read(item) for item in items)


def _natural_item(item: Value, element: Column) -> Json:
    """Return the natural form of an item. An array that is an item is a literal: a JSON array is a dimension there."""
    return to_literal(item, element) if isinstance(item, Array) else to_natural(item, element)


def _float_name(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


def _document(text: str) -> tuple[Json, bool]:
    """Return the JSON document of a text, and whether writing it out again gives the same document."""
    try:
        document = msgspec_json.decode(text)
    except ValueError:
        return text, False
    compact = msgspec_json.encode(document).decode()
    return document, compact == text


def _read_int(value: Json) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(value)
    return value


def _read_float(value: Json) -> float:
    if isinstance(value, str):
        return _NOT_FINITE[value] if value in _NOT_FINITE else _refuse(value)
    if isinstance(value, bool):
        raise TypeError(value)
    return float(value)


def _refuse(value: Json) -> float:
    raise ValueError(value)


def _read_bool(value: Json) -> bool:
    if not isinstance(value, bool):
        raise TypeError(value)
    return value


def _read_str(value: Json) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    return value


def _read_bytes(value: Json) -> bytes:
    return base64.b64decode(_read_str(value), validate=True)


def _read_text(kind: Kind) -> Callable[[Json], Value]:
    return lambda value: Text(kind, _read_str(value))


def _read_json(value: Json) -> Text:
    return Text(Kind.JSON, msgspec_json.encode(value).decode())


def _read_json_literal(literal: dict[str, Json]) -> Text:
    text = literal.get("text")
    return Text(Kind.JSON, text) if isinstance(text, str) else _read_json(literal["v"])


def _read_foreign(literal: dict[str, Json]) -> Text:
    return Text(Kind.FOREIGN, _read_str(literal["v"]), _read_str(literal.get("type")))


def _read_array(literal: dict[str, Json]) -> Array:
    items, lower = literal["v"], literal.get("lower", [])
    if not isinstance(items, list) or not isinstance(lower, list):
        raise TypeError(literal)
    return Array(_gathered(items, from_literal), tuple(map(_read_int, lower)))


_READERS: dict[str, tuple[str, Callable[[Json], Value]]] = {
    "null": ("", lambda _: None),
    "bool": ("v", _read_bool),
    "i64": ("v", _read_int),
    "u64": ("v", _read_int),
    "f64": ("v", _read_float),
    "dec": ("v", lambda value: Decimal(_read_str(value))),
    "str": ("v", _read_str),
    "bytes": ("b64", _read_bytes),
    "geometry": ("b64", _read_bytes),
    "json": ("v", _read_json),
    "foreign": ("v", _read_str),
    "array": ("v", _read_str),
    **{str(kind): (member, _read_text(kind)) for kind, member in _TEXT_MEMBER.items()},
}

LITERAL_TAGS = frozenset(_READERS)
"""The types of literals that are known."""

_WHOLE_READERS: dict[str, Callable[[dict[str, Json]], Value]] = {
    "json": _read_json_literal,
    "foreign": _read_foreign,
    "array": _read_array,
}
"""How literals are read that have more members than one."""

_FROM_STRING: dict[Kind, Callable[[str], Value]] = {
    Kind.BYTES: _read_bytes,
    Kind.GEOMETRY: _read_bytes,
    Kind.DEC: Decimal,
    Kind.JSON: lambda text: Text(Kind.JSON, text),
    **{kind: _read_text(kind) for kind in _TEXT_MEMBER},
}
