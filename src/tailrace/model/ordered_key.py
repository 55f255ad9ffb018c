"""Keys as bytes that compare as the keys do: those of seed D. Pure.

A key is the number of its table, four bytes with the highest first, and then its values in key order. Each value
begins with a byte that tells its class, and no value is the beginning of another one:

| first byte | value | what follows |
|---|---|---|
| `05` | null | nothing |
| `10`, `11` | false, true | nothing |
| `20`, `22`, `24`, `25` | -infinity, 0, infinity, not a number | nothing |
| `23` | a number above 0 | its exponent and its digits |
| `21` | a number below 0 | the same of its opposite, all bits inverted |
| `30`, `31` | text in UTF-8, bytes | the bytes with `00 FF` for each `00`, and `00` as the end |
| `40` to `44` | date, time, datetime, uuid, json | their text, written as text is |

A number is `0.DDD… * 10^exponent` with a first digit other than 0. The exponent has three bytes, highest first, with
800000 (hexadecimal) added. A digit has half a byte, which is the digit plus 1; a half of 0 ends them, and another one
fills the last byte. Numbers that are equal have equal bytes, whatever their types: 1 and 1.0 are one key, as they are
for a database.
"""

from collections.abc import Sequence
from decimal import Decimal

from tailrace.model.errors import InvalidValueError
from tailrace.model.table import Kind
from tailrace.model.value import Text, Value

__all__ = ["TABLE_BYTES", "decode_ordered", "encode_ordered", "table_prefix"]

TABLE_BYTES = 4

_NULL, _FALSE, _TRUE = 0x05, 0x10, 0x11
_MINUS_INFINITY, _BELOW, _ZERO, _ABOVE, _INFINITY, _NAN = range(0x20, 0x26)
_STR, _BYTES = 0x30, 0x31
_TEXT_KINDS = (Kind.DATE, Kind.TIME, Kind.DATETIME, Kind.UUID, Kind.JSON)
_TEXT_TAGS = {kind: 0x40 + place for place, kind in enumerate(_TEXT_KINDS)}
_TEXT_OF_TAG = {tag: kind for kind, tag in _TEXT_TAGS.items()}

_BIAS = 0x800000
_EXPONENT_BYTES = 3
_WHOLE_DIGITS_MAX = 320
"""Digits of the largest number that a column other than one of decimals may hold: a float."""

_INVERTED = bytes(range(255, -1, -1))
_TO_HALVES = str.maketrans("0123456789", "123456789a")
_FROM_HALVES = str.maketrans("123456789a", "0123456789")
_END, _ESCAPE = b"\x00", b"\x00\xff"


def table_prefix(table_id: int) -> bytes:
    """Return what all keys of a table begin with, and none of another."""
    return table_id.to_bytes(TABLE_BYTES, "big")


def encode_ordered(table_id: int, values: Sequence[Value]) -> bytes:
    """Return the bytes of a key. Those of two keys of a table compare as the keys do, in the order of `model.key`.

    Raises:
        InvalidValueError: A number has more digits than any database keeps.
    """
    return table_prefix(table_id) + b"".join([_encoded(value) for value in values])


def decode_ordered(data: bytes, kinds: Sequence[Kind]) -> tuple[Value, ...]:
    """Return the values of a key whose columns are of these kinds: a whole number is a float in a column of floats.

    Raises:
        InvalidValueError: The bytes are no such key.
    """
    place = TABLE_BYTES
    values = []
    try:
        for kind in kinds:
            value, place = _decoded(data, place, kind)
            values.append(value)
    except (IndexError, ValueError, ArithmeticError):
        raise InvalidValueError("these bytes are no key") from None
    if place != len(data):
        raise InvalidValueError(f"the key has more than {len(kinds)} values")
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
        case Text(kind, text):
            return _escaped(_TEXT_TAGS[kind], text.encode())


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
    halves = stripped.translate(_TO_HALVES) + ("0" if len(stripped) % 2 else "00")
    body = (exponent + _BIAS).to_bytes(_EXPONENT_BYTES, "big") + bytes.fromhex(halves)
    return bytes((_BELOW,)) + body.translate(_INVERTED) if below else bytes((_ABOVE,)) + body


def _escaped(tag: int, data: bytes) -> bytes:
    return bytes((tag,)) + data.replace(_END, _ESCAPE) + _END


def _decoded(data: bytes, place: int, kind: Kind) -> tuple[Value, int]:
    tag = data[place]
    place += 1
    if tag in _CONSTANTS:
        constant = _CONSTANTS[tag]
        return (_of_kind(Decimal(0), kind) if tag == _ZERO else constant), place
    if tag in (_ABOVE, _BELOW):
        return _decoded_number(data, place, kind, below=tag == _BELOW)
    end = place
    while data[end : end + 2] == _ESCAPE or data[end] != 0:
        end += 2 if data[end] == 0 else 1
    raw = data[place:end].replace(_ESCAPE, _END)
    end += 1
    if tag == _BYTES:
        return raw, end
    if tag == _STR:
        return raw.decode(), end
    if tag in _TEXT_OF_TAG:
        return Text(_TEXT_OF_TAG[tag], raw.decode()), end
    raise ValueError(tag)


def _decoded_number(data: bytes, place: int, kind: Kind, *, below: bool) -> tuple[Value, int]:
    first = place + _EXPONENT_BYTES
    end = first
    last = 0xFF if below else 0
    while data[end] & 0x0F != last & 0x0F:
        end += 1
    end += 1
    body = data[place:end].translate(_INVERTED) if below else data[place:end]
    digits = body[_EXPONENT_BYTES:].hex().rstrip("0").translate(_FROM_HALVES)
    exponent = int.from_bytes(body[:_EXPONENT_BYTES], "big") - _BIAS - len(digits)
    number = Decimal((int(below), tuple(map(int, digits)), exponent))
    if not digits:
        raise ValueError(place)
    return _of_kind(number, kind), end


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
