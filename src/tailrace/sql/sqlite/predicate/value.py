"""Values as SQLite computes with them: conversion, order, truth, arithmetic. Pure.

Here a value is None, an int of 64 bits, a finite or infinite float, a str or bytes; there is neither bool nor NaN. The
functions do what SQLite's virtual machine does. What SQLite's versions do in different ways, a real number written
as text above all, is not imitated but raises `PredicateError`.
"""

import math
import re
from collections.abc import Callable
from typing import NoReturn

from tailrace.model.errors import PredicateError
from tailrace.sql.predicate import SqlValue

__all__ = [
    "CASTS",
    "OPERATORS",
    "and3",
    "not3",
    "numeric",
    "or3",
    "order",
    "same",
    "textual",
    "to_integer",
    "to_number",
    "to_real",
    "to_text",
    "truth",
]

_MAX = 2**63 - 1
_MIN = -(2**63)

_SPACE = r"[ \t\n\v\f\r]*"
_PREFIX = re.compile(rf"{_SPACE}([+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)")
_WHOLE = re.compile(rf"{_SPACE}([+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?){_SPACE}(?:\Z|\0)")
_INTEGER_PREFIX = re.compile(rf"{_SPACE}([+-]?[0-9]+)")
_INTEGER_DIGITS_MAX = 40
"""Longer integers are surely beyond 64 bits."""

_CLASS = {int: 0, float: 0, str: 1, bytes: 2}
_EXACT_MAX = 2.0**51
"""A real number up to here that has no fraction becomes an integer when it is cast from text to NUMERIC."""


def numeric(value: SqlValue) -> SqlValue:
    """Return the number that a text is as a whole, or the value as it is: what a numeric affinity does."""
    if not isinstance(value, str):
        return value
    found = _WHOLE.match(value)
    return value if found is None else _read_number(found[1], value)


def textual(value: SqlValue) -> SqlValue:
    """Return a number as text, anything else as it is: what the affinity TEXT does."""
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        _refuse_real()
    return value


def order(one: SqlValue, other: SqlValue, fold: Callable[[str], str] | None = None) -> int:
    """Return -1, 0 or 1 as one value stands before, with or after another; neither is NULL (chapter 4.1)."""
    rank = _CLASS[one.__class__] - _CLASS[other.__class__]
    if rank:
        return -1 if rank < 0 else 1
    if fold is not None and isinstance(one, str) and isinstance(other, str):
        one, other = fold(one), fold(other)
    return (one > other) - (one < other)  # type: ignore[operator]


def same(one: SqlValue, other: SqlValue, fold: Callable[[str], str] | None = None) -> bool:
    """Tell whether two values are equal, NULL to itself."""
    if fold is not None and isinstance(one, str) and isinstance(other, str):
        return fold(one) == fold(other)
    return one == other


def truth(value: SqlValue) -> bool | None:
    """Return what a value is as a condition; None for NULL."""
    if value is None:
        return None
    return to_real(value) != 0


def and3(*values: SqlValue) -> SqlValue:
    """Return 0 if any value is false, else NULL if any is NULL, else 1."""
    truths = [truth(value) for value in values]
    return 0 if False in truths else None if None in truths else 1


def or3(*values: SqlValue) -> SqlValue:
    """Return 1 if any value is true, else NULL if any is NULL, else 0."""
    truths = [truth(value) for value in values]
    return 1 if True in truths else None if None in truths else 0


def not3(value: SqlValue) -> SqlValue:
    """Return the opposite of a condition; NULL for NULL."""
    found = truth(value)
    return None if found is None else int(not found)


def to_number(value: SqlValue) -> int | float | None:
    """Return the number that arithmetic takes a value for: that which the text begins with, or 0."""
    if isinstance(value, str | bytes):
        raw = _raw(value)
        found = _WHOLE.match(raw) or _PREFIX.match(raw)
        return 0 if found is None else _read_number(found[1], found[0])
    return value


def to_real(value: int | float | str | bytes) -> float:
    """Return a value that is not NULL as a real number."""
    if isinstance(value, str | bytes):
        found = _PREFIX.match(_raw(value))
        return 0.0 if found is None else float(found[1])
    return float(value)


def to_integer(value: int | float | str | bytes) -> int:
    """Return a value that is not NULL as an integer: cut at the point and at 64 bits."""
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        return _clamp(value)
    found = _INTEGER_PREFIX.match(_raw(value))
    if found is None:
        return 0
    digits = found[1]
    if len(digits.lstrip("+-0")) > _INTEGER_DIGITS_MAX:
        return _MIN if digits[0] == "-" else _MAX
    return min(max(int(digits), _MIN), _MAX)


def to_text(value: int | float | str | bytes) -> str:
    """Return a value that is not NULL as text."""
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            raise PredicateError("a blob that is not UTF-8 was used as text") from None
    if isinstance(value, float):
        _refuse_real()
    return str(value)


def _refuse_real() -> NoReturn:
    raise PredicateError("a real number was used as text, which SQLite's versions write in different ways")


def _raw(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode("latin-1")


def _read_number(text: str, around: str) -> int | float:
    """Read a number. In a text with a NUL character, which ends a number for SQLite, it is real."""
    if "." in text or "e" in text or "E" in text or len(text) > _INTEGER_DIGITS_MAX or "\0" in around:
        return float(text)
    number = int(text)
    return number if _MIN <= number <= _MAX else float(text)


def _clamp(value: float) -> int:
    if value >= _MAX:
        return _MAX
    return _MIN if value <= _MIN else int(value)


def _finish(value: float) -> SqlValue:
    return None if math.isnan(value) else value


def _add(one: SqlValue, other: SqlValue) -> SqlValue:
    left, right = to_number(one), to_number(other)
    if left is None or right is None:
        return None
    if isinstance(left, int) and isinstance(right, int) and _MIN <= left + right <= _MAX:
        return left + right
    return _finish(float(left) + float(right))


def _subtract(one: SqlValue, other: SqlValue) -> SqlValue:
    left, right = to_number(one), to_number(other)
    if left is None or right is None:
        return None
    if isinstance(left, int) and isinstance(right, int) and _MIN <= left - right <= _MAX:
        return left - right
    return _finish(float(left) - float(right))


def _multiply(one: SqlValue, other: SqlValue) -> SqlValue:
    left, right = to_number(one), to_number(other)
    if left is None or right is None:
        return None
    if isinstance(left, int) and isinstance(right, int) and _MIN <= left * right <= _MAX:
        return left * right
    return _finish(float(left) * float(right))


def _divide(one: SqlValue, other: SqlValue) -> SqlValue:
    left, right = to_number(one), to_number(other)
    if left is None or right is None or right == 0:
        return None
    if isinstance(left, int) and isinstance(right, int) and not (right == -1 and left == _MIN):
        whole = abs(left) // abs(right)
        return whole if (left < 0) == (right < 0) else -whole
    return _finish(float(left) / float(right))


def _remainder(one: SqlValue, other: SqlValue) -> SqlValue:
    left, right = to_number(one), to_number(other)
    if one is None or other is None:
        return None
    whole, by = to_integer(one), abs(to_integer(other))
    if by == 0:
        return None
    rest = abs(whole) % by
    rest = -rest if whole < 0 else rest
    return rest if isinstance(left, int) and isinstance(right, int) else float(rest)


def _negate(value: SqlValue) -> SqlValue:
    return _subtract(0, value)


def _signed(bits: int) -> int:
    bits &= 2**64 - 1
    return bits - 2**64 if bits > _MAX else bits


def _bits(compute: Callable[[int, int], int]) -> Callable[[SqlValue, SqlValue], SqlValue]:
    def operator(one: SqlValue, other: SqlValue) -> SqlValue:
        if one is None or other is None:
            return None
        return compute(to_integer(one), to_integer(other))

    return operator


def _shift_left(value: int, by: int) -> int:
    if by < 0:
        return value >> min(-by, 64)
    return _signed(value << by) if by < 64 else 0


def _invert(value: SqlValue) -> SqlValue:
    return None if value is None else ~to_integer(value)


def _concatenate(one: SqlValue, other: SqlValue) -> SqlValue:
    return None if one is None or other is None else to_text(one) + to_text(other)


OPERATORS: dict[str, Callable[..., SqlValue]] = {
    "+": _add,
    "-": _subtract,
    "*": _multiply,
    "/": _divide,
    "%": _remainder,
    "||": _concatenate,
    "&": _bits(lambda one, other: one & other),
    "|": _bits(lambda one, other: one | other),
    "<<": _bits(_shift_left),
    ">>": _bits(lambda value, by: _shift_left(value, -by)),
    "-x": _negate,
    "~x": _invert,
}
"""Operators that compute a value."""


def _cast_numeric(value: SqlValue) -> SqlValue:
    if value is None or isinstance(value, int | float):
        return value
    number = to_number(value)
    if isinstance(number, float) and abs(number) < _EXACT_MAX and number.is_integer():
        return int(number)
    return number


def _cast_blob(value: SqlValue) -> SqlValue:
    return value if value is None or isinstance(value, bytes) else to_text(value).encode()


CASTS: dict[str, Callable[[SqlValue], SqlValue]] = {
    "INTEGER": lambda value: None if value is None else to_integer(value),
    "REAL": lambda value: None if value is None else to_real(value),
    "TEXT": lambda value: None if value is None else to_text(value),
    "NUMERIC": _cast_numeric,
    "BLOB": _cast_blob,
}
"""Casts by the affinity of their type."""
