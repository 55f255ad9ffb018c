"""Values of cells and their three JSON forms. Pure.

A cell holds one of the Python types of `Value`. It is written in three ways:

* **natural**, as the log keeps it: the plain JSON form where that and the column's kind say exactly which value it is,
  a typed literal otherwise. Nothing is lost: `from_natural(to_natural(v, kind), kind) == v` for every value.
* **literal** (`Lit`): an object that carries its own type, e.g. `{"t":"i64","v":1}`.
* **plain**: ordinary JSON for readers that need no type tags; not-a-number and the infinities become null.

How the natural form tells values apart: null, booleans and numbers speak for themselves (an integer has neither point
nor exponent, a float always has one). A JSON string is of the column's kind where that kind is written as a string
(`_STRING_KINDS`), and text in any other column. Everything else is a literal: an object with the member `t`.
"""

import base64
import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from msgspec import Struct
from msgspec import json as msgspec_json

from tailrace.model.errors import InvalidValueError
from tailrace.model.table import Kind

__all__ = [
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
    """A value that travels as text with the name of its type: a date, a UUID, a JSON document.

    The text is the database's own, kept to the letter, so that zero dates, `24:00:00`, `infinity` and numbers inside
    JSON survive.
    """

    kind: Kind
    text: str


Value = None | bool | int | float | Decimal | str | bytes | Text

_TEXT_MEMBER = {Kind.DATE: "iso", Kind.TIME: "iso", Kind.DATETIME: "iso", Kind.UUID: "v"}
"""Literal member that holds the text of each kind of `Text`, but JSON, whose document is written out."""

_STRING_KINDS = {Kind.STR, Kind.BYTES, Kind.DEC, Kind.JSON, *_TEXT_MEMBER}
"""Kinds whose natural form is a JSON string."""

_NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def to_literal(value: Value, kind: Kind = Kind.ANY) -> dict[str, Json]:
    """Return the typed literal of a value; `kind` tells a signed integer from an unsigned one.

    A float that JSON cannot write carries its name instead: `{"t":"f64","v":"NaN"}`. A JSON document that cannot be
    written out without changing it (duplicate members, numbers beyond double precision) carries its text as `text`.
    """
    match value:
        case None:
            return {"t": "null"}
        case bool():
            return {"t": "bool", "v": value}
        case int():
            return {"t": "u64" if kind is Kind.U64 or value > 2**63 - 1 else "i64", "v": value}
        case float():
            return {"t": "f64", "v": value if math.isfinite(value) else _float_name(value)}
        case Decimal():
            return {"t": "dec", "v": str(value)}
        case str():
            return {"t": "str", "v": value}
        case bytes():
            return {"t": "bytes", "b64": base64.b64encode(value).decode()}
        case Text(Kind.JSON, text):
            document, exact = _document(text)
            return {"t": "json", "v": document} if exact else {"t": "json", "v": document, "text": text}
        case Text(text_kind, text):
            return {"t": str(text_kind), _TEXT_MEMBER[text_kind]: text}


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
    if tag == "json" and isinstance(literal.get("text"), str):
        return Text(Kind.JSON, literal["text"])
    try:
        return read(literal.get(member))
    except (TypeError, ValueError, ArithmeticError) as error:
        raise InvalidValueError(f"literal of type {tag!r} has an ill-typed {member!r}") from error


def to_natural(value: Value, kind: Kind) -> Json:
    """Return the natural JSON form of a value in a column of that kind."""
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
            return base64.b64encode(value).decode() if kind is Kind.BYTES else to_literal(value)
        case Text(text_kind, text):
            return text if kind is text_kind else to_literal(value)


def from_natural(natural: Json, kind: Kind) -> Value:
    """Return the value that a natural form stands for in a column of that kind.

    Raises:
        InvalidValueError: It is not a natural form of any value.
    """
    match natural:
        case None | bool() | int() | float():
            return natural
        case str():
            return _FROM_STRING.get(kind, str)(natural)
        case dict():
            return from_literal(natural)
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
        case _:
            return value


def literal_to_plain(literal: Json) -> Json:
    """Return the plain JSON form of a typed literal."""
    return to_plain(from_literal(literal))


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


_READERS: dict[str, tuple[str, Callable[[Json], Value]]] = {
    "null": ("", lambda _: None),
    "bool": ("v", _read_bool),
    "i64": ("v", _read_int),
    "u64": ("v", _read_int),
    "f64": ("v", _read_float),
    "dec": ("v", lambda value: Decimal(_read_str(value))),
    "str": ("v", _read_str),
    "bytes": ("b64", _read_bytes),
    "json": ("v", _read_json),
    **{str(kind): (member, _read_text(kind)) for kind, member in _TEXT_MEMBER.items()},
}

_FROM_STRING: dict[Kind, Callable[[str], Value]] = {
    Kind.BYTES: _read_bytes,
    Kind.DEC: Decimal,
    Kind.JSON: lambda text: Text(Kind.JSON, text),
    **{kind: _read_text(kind) for kind in _TEXT_MEMBER},
}
