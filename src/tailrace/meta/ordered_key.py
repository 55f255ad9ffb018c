"""Keys as bytes that compare as the keys do: those of JimDB. Pure.

A key is the number of its table, four bytes with the highest first, and then its values in key order. Each value
begins with a byte that tells its class, and that tells where it ends:

| first byte | value | what follows |
|---|---|---|
| `05` | null | nothing |
| `10`, `11` | false, true | nothing |
| `20`, `22`, `24`, `25` | -infinity, 0, infinity, not a number | nothing |
| `23` | a number above 0 | its exponent and its digits |
| `21` | a number below 0 | the same of its opposite, each byte taken from `7F` |
| `30`, `31` | text in UTF-8, bytes | the bytes with `00 7F` for each `00`, and `00` as the end |
| `40` to `44` | date, time, datetime, uuid, json | their text, written as text is |
| `45` to `4A` | interval, enum, bit, network, range, composite | the same |
| `4B` | a value of any other type | the name of its type, written as text is, `30` and its text |
| `60` | an array | its items and `01`, then its lower bounds where not all are 1, and `01` |
| `61` | items of an array of several dimensions that are one item of it | the items and `01` |

A number is `0.DDD… * 10^exponent` with a first digit other than 0. The exponent has three bytes of seven bits each,
highest first, with 2^20 added. Then come the digits, two in a byte, which is their number plus 1; `00` is the end, and
an odd digit has a 0 behind it. Numbers that are equal have equal bytes, whatever their types: 1 and 1.0 are one key, as
they are for a database. So a key without values of bytes is text in UTF-8, as long as the number of its table is below
128: the wire of JimDB has a place where a key is text.
"""

from collections.abc import Sequence
from decimal import Decimal

from tailrace.model.errors import InvalidValueError
from tailrace.model.key import TEXT_KINDS
from tailrace.model.table import ANY_COLUMN, Column, Kind
from tailrace.model.value import Array, Item, Text, Value

__all__ = ["TABLE_BYTES", "decode_ordered", "encode_ordered", "table_prefix"]

TABLE_BYTES = 4

_NULL, _FALSE, _TRUE = 0x05, 0x10, 0x11
_MINUS_INFINITY, _BELOW, _ZERO, _ABOVE, _INFINITY, _NAN = range(0x20, 0x26)
_STR, _BYTES = 0x30, 0x31
_TEXT_TAGS = {kind: 0x40 + place for place, kind in enumerate(TEXT_KINDS)}
_FOREIGN, _ARRAY, _DIMENSION = _TEXT_TAGS[Kind.FOREIGN], 0x60, 0x61
_ARRAY_END = 0x01
"""Ends the items of an array, and its lower bounds: less than the first byte of any value."""

_TEXT_OF_TAG = {tag: kind for kind, tag in _TEXT_TAGS.items()}

_BIAS = 1 << 20
_EXPONENT_BYTES = 3
_WHOLE_DIGITS_MAX = 320
"""Digits of the largest number that a column other than one of decimals may hold: a float."""

_OPPOSITE = bytes(0x7F - byte if byte <= 0x7F else byte for byte in range(256))
_END, _ESCAPE = b"\x00", b"\x00\x7f"


def table_prefix(table_id: int) -> bytes:
    """Return what all keys of a table begin with, and none of another."""
    return table_id.to_bytes(TABLE_BYTES, "big")


def encode_ordered(table_id: int, values: Sequence[Value]) -> bytes:
    """Return the bytes of a key. Those of two keys of a table compare as the keys do, in the order of `model.key`.

    Raises:
        InvalidValueError: A number has more digits than any database keeps.
    """
    return table_prefix(table_id) + b"".join([_encoded(value) for value in values])


def decode_ordered(data: bytes, columns: Sequence[Column]) -> tuple[Value, ...]:
    """Return the values of a key of these columns: a whole number is a float in a column of floats.

    Raises:
        InvalidValueError: The bytes are no such key.
    """
    place = TABLE_BYTES
    values = []
    try:
        for column in columns:
            value, place = _decoded(data, place, column)
            values.append(value)
    except (IndexError, ValueError, ArithmeticError, RecursionError):
        raise InvalidValueError("these bytes are not a key") from None
    if place != len(data):
        raise InvalidValueError(f"the key has more than {len(columns)} values")
    return tuple(values)


def _encoded(value: Value) -> bytes:
    match value:
        case None:
            return bytes((_NULL,))
        case bool():
            return bytes((_TRUE if value else _FALSE,))
        case int():
            digits = str(abs(value))
            return _number(digits, len(digits), below=value < 0)
        case float() | Decimal():
            return _exact(Decimal(value))
        case str():
            return _escaped(_STR, value.encode())
        case bytes():
            return _escaped(_BYTES, value)
        case Text(Kind.FOREIGN, text, type_):
            return _escaped(_FOREIGN, type_.encode()) + _escaped(_STR, text.encode())
        case Text(kind, text):
            return _escaped(_TEXT_TAGS[kind], text.encode())
        case Array(items, lower):
            return _array(items, lower)


def _array(items: "tuple[Item, ...]", lower: tuple[int, ...]) -> bytes:
    return bytes((_ARRAY,)) + _items(items) + b"".join(map(_encoded, lower)) + bytes((_ARRAY_END,))


def _items(items: "tuple[Item, ...]") -> bytes:
    parts = [bytes((_DIMENSION,)) + _items(item) if isinstance(item, tuple) else _encoded(item) for item in items]
    return b"".join(parts) + bytes((_ARRAY_END,))


def _exact(number: Decimal) -> bytes:
    if number.is_nan():
        return bytes((_NAN,))
    if number.is_infinite():
        return bytes((_INFINITY if number > 0 else _MINUS_INFINITY,))
    sign, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int)
    text = "".join(map(str, digits))
    return _number(text, len(text) + exponent, below=sign == 1)


def _number(digits: str, exponent: int, *, below: bool) -> bytes:
    """Return the bytes of 0.digits * 10^exponent, or of its opposite."""
    stripped = digits.lstrip("0")
    exponent -= len(digits) - len(stripped)
    stripped = stripped.rstrip("0")
    if not stripped:
        return bytes((_ZERO,))
    if not -_BIAS <= exponent < _BIAS:
        raise InvalidValueError("a number of a key has too many digits")
    exponent += _BIAS
    pairs = stripped if len(stripped) % 2 == 0 else stripped + "0"
    digits_bytes = [int(pairs[place : place + 2]) + 1 for place in range(0, len(pairs), 2)]
    body = bytes((exponent >> 14, exponent >> 7 & 0x7F, exponent & 0x7F, *digits_bytes, 0))
    return bytes((_BELOW,)) + body.translate(_OPPOSITE) if below else bytes((_ABOVE,)) + body


def _escaped(tag: int, data: bytes) -> bytes:
    return bytes((tag,)) + data.replace(_END, _ESCAPE) + _END


def _decoded(data: bytes, place: int, column: Column) -> tuple[Value, int]:
    tag = data[place]
    place += 1
    if tag in _CONSTANTS:
        constant = _CONSTANTS[tag]
        return (_of_kind(Decimal(0), column.kind) if tag == _ZERO else constant), place
    if tag in (_ABOVE, _BELOW):
        return _decoded_number(data, place, column.kind, below=tag == _BELOW)
    if tag == _ARRAY:
        return _decoded_array(data, place, column.element or ANY_COLUMN)
    raw, end = _unescaped(data, place)
    if tag == _BYTES:
        return raw, end
    if tag == _STR:
        return raw.decode(), end
    if tag == _FOREIGN:
        text, end = _decoded(data, end, ANY_COLUMN)
        if not isinstance(text, str):
            raise ValueError(tag)
        return Text(Kind.FOREIGN, text, raw.decode()), end
    if tag in _TEXT_OF_TAG:
        return Text(_TEXT_OF_TAG[tag], raw.decode()), end
    raise ValueError(tag)


def _unescaped(data: bytes, place: int) -> tuple[bytes, int]:
    """Return the bytes of a text that begins here, and where it ends."""
    end = place
    while data[end : end + 2] == _ESCAPE or data[end] != 0:
        end += 2 if data[end] == 0 else 1
    return data[place:end].replace(_ESCAPE, _END), end + 1


def _decoded_array(data: bytes, place: int, element: Column) -> tuple[Array, int]:
    items, place = _decoded_items(data, place, element)
    lower = []
    while data[place] != _ARRAY_END:
        bound, place = _decoded(data, place, ANY_COLUMN)
        if type(bound) is not int:
            raise ValueError(place)
        lower.append(bound)
    return Array(items, tuple(lower)), place + 1


def _decoded_items(data: bytes, place: int, element: Column) -> "tuple[tuple[Item, ...], int]":
    items: list[Item] = []
    while data[place] != _ARRAY_END:
        item: Item
        if data[place] == _DIMENSION:
            item, place = _decoded_items(data, place + 1, element)
        else:
            item, place = _decoded(data, place, element)
        items.append(item)
    return tuple(items), place + 1


def _decoded_number(data: bytes, place: int, kind: Kind, *, below: bool) -> tuple[Value, int]:
    end = data.index(0x7F if below else 0, place + _EXPONENT_BYTES)
    body = data[place:end].translate(_OPPOSITE) if below else data[place:end]
    digits = "".join([f"{pair - 1:02}" for pair in body[_EXPONENT_BYTES:]])
    exponent = body[0] << 14 | body[1] << 7 | body[2]
    if not digits.isdigit() or len(digits) % 2 or max(body[:_EXPONENT_BYTES]) > 0x7F:
        raise ValueError(place)
    number = Decimal((int(below), tuple(map(int, digits)), exponent - _BIAS - len(digits)))
    return _of_kind(number, kind), end + 1


def _of_kind(number: Decimal, kind: Kind) -> Value:
    """Return a number in the type that a column of that kind has it in."""
    if kind is Kind.DEC:
        return number
    if number.adjusted() > _WHOLE_DIGITS_MAX:
        raise ValueError(kind)
    whole = number == number.to_integral_value()
    return int(number) if whole and kind is not Kind.F64 else float(number)


_CONSTANTS: dict[int, Value] = {
    _NULL: None,
    _FALSE: False,
    _TRUE: True,
    _ZERO: 0,
    _MINUS_INFINITY: float("-inf"),
    _INFINITY: float("inf"),
    _NAN: float("nan"),
}
