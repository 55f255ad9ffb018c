"""Compares a column's value with a constant exactly as SQLite does, or says that it cannot tell. Pure.

Chapters 3 and 4 of SQLite's "Datatypes": storage classes order NULL < numbers < text < blobs; the column's affinity is
applied to the constant first. Where we would have to copy SQLite's rounding or formatting of numbers we cannot tell.
"""

import math
import re
from decimal import Decimal
from enum import Enum

from tailrace.model.value import Array, Text, Value
from tailrace.sql.query import Stored
from tailrace.sql.sqlite.affinity import Affinity
from tailrace.sql.sqlite.query.argument import INTEGER_MAX, INTEGER_MIN

__all__ = ["UNKNOWN", "Unknown", "coerce", "order", "same", "storage"]


class Unknown(Enum):
    """The one mark for "cannot tell"."""

    UNKNOWN = "unknown"


UNKNOWN = Unknown.UNKNOWN

_NUMBER = re.compile(r"[ \t\n\v\f\r]*[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[ \t\n\v\f\r]*")
_CLASSES: dict[type, int] = {int: 0, float: 0, str: 1, bytes: 2}
"""Where the values of a type sort among the others."""
_SHORT_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")


def storage(value: Value, affinity: Affinity) -> Stored | Unknown:
    """Return the stored value that a cell of a row image stands for.

    Unknown for what SQLite does not keep in a column of that affinity: then the image does not say what is compared.
    """
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, Array):
        return UNKNOWN
    if isinstance(value, Text):
        value = value.text
    if isinstance(value, str):
        return UNKNOWN if affinity >= Affinity.NUMERIC and _NUMBER.fullmatch(value) else value
    if affinity is Affinity.TEXT or isinstance(value, Decimal):
        return UNKNOWN
    if isinstance(value, float):
        return None if math.isnan(value) else value
    return int(value) if INTEGER_MIN <= value <= INTEGER_MAX else UNKNOWN


def coerce(constant: Stored, affinity: Affinity) -> Stored | Unknown:
    """Return the constant after a column of that affinity has had its effect on it."""
    if affinity >= Affinity.NUMERIC and isinstance(constant, str) and _NUMBER.fullmatch(constant):
        return int(constant) if _SHORT_INTEGER.fullmatch(constant) else UNKNOWN
    if affinity is Affinity.TEXT and isinstance(constant, float):
        return UNKNOWN
    if affinity is Affinity.TEXT and isinstance(constant, int):
        return str(constant)
    return constant


def order(left: int | float | str | bytes, right: int | float | str | bytes) -> int:
    """Return -1, 0 or 1 as `left` sorts before, with or after `right`."""
    left_class, right_class = _CLASSES[type(left)], _CLASSES[type(right)]
    if left_class != right_class:
        return -1 if left_class < right_class else 1
    if left == right:
        return 0
    return -1 if left < right else 1  # type: ignore[operator]


def same(left: Value, right: Value) -> bool:
    """Return whether two cells hold the very same value: 1, 1.0 and true differ, and so do 0.0 and -0.0."""
    if type(left) is not type(right):
        return False
    if isinstance(left, float) and isinstance(right, float):
        return left.hex() == right.hex()
    if isinstance(left, Decimal):
        return str(left) == str(right)
    return left == right
