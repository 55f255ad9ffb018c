"""Scalar functions of SQLite that a predicate may call. Pure.

https://www.sqlite.org/lang_corefunc.html. Only those whose result hangs on nothing but their arguments and is the same
in all versions. `coalesce`, `ifnull`, `iif` and `nullif` are not here: they are compiled like CASE.
"""

from collections.abc import Callable

from msgspec import Struct

from tailrace.model.errors import PredicateError
from tailrace.sql.predicate import SqlValue
from tailrace.sql.sqlite.affinity import Classes, small_letters
from tailrace.sql.sqlite.predicate.value import (
    numeric,
    order,
    same,
    to_integer,
    to_real,
    to_text,
)

__all__ = ["FUNCTIONS", "ScalarFunction", "extreme", "null_if"]

_TRUNCATION_MAX = 2.0**52
_LENGTH_MAX = 2**63 - 1
_TRIM_STEPS_MAX = 1 << 26
"""Most comparisons of one trim: characters of the text times characters to remove."""


class ScalarFunction(Struct, frozen=True):
    """A function: how many arguments it takes, what it returns, and what it does.

    `as_text` tells that it takes its first argument as text, so that a real number there is refused; so is a blob
    unless `blob_too`.
    """

    compute: Callable[..., SqlValue]
    arguments_min: int
    arguments_max: int
    result: Classes
    as_text: bool = False
    blob_too: bool = False


def extreme(sign: int, fold: Callable[[str], str] | None, *values: SqlValue) -> SqlValue:
    """Return the greatest value for a positive sign, the least for a negative one; NULL if any is NULL.

    Of equal values the greatest is the first, the least the last.
    """
    if None in values:
        return None
    best = values[0]
    for value in values[1:]:
        beyond = order(value, best, fold) * sign
        if beyond > 0 or (beyond == 0 and sign < 0):
            best = value
    return best


def null_if(one: SqlValue, other: SqlValue, fold: Callable[[str], str] | None = None) -> SqlValue:
    """Return the first value, or NULL when both are equal."""
    return None if same(one, other, fold) else one


def _absolute(value: SqlValue) -> SqlValue:
    if value is None:
        return None
    if isinstance(value, int):
        if value == -(2**63):
            raise PredicateError("integer overflow in abs()")
        return abs(value)
    number = to_real(value)
    return -number if number < 0 else number


def _sign(value: SqlValue) -> SqlValue:
    number = numeric(value)
    if not isinstance(number, int | float):
        return None
    return (number > 0) - (number < 0)


def _round(value: SqlValue) -> SqlValue:
    if value is None:
        return None
    number = to_real(value)
    if abs(number) >= _TRUNCATION_MAX:
        return number
    return float(int(number - 0.5 if number < 0 else number + 0.5))


def _lower(value: SqlValue) -> SqlValue:
    return None if value is None else small_letters(to_text(value))


def _upper(value: SqlValue) -> SqlValue:
    if value is None:
        return None
    return to_text(value).encode(errors="surrogatepass").upper().decode(errors="surrogatepass")  # of bytes, ASCII alone


def _length(value: SqlValue) -> SqlValue:
    if value is None:
        return None
    return len(value) if isinstance(value, bytes) else len(to_text(value).partition("\0")[0])


def _type_of(value: SqlValue) -> SqlValue:
    return {int: "integer", float: "real", str: "text", bytes: "blob"}.get(value.__class__, "null")


def _trimmer(strip: Callable[..., str]) -> Callable[..., SqlValue]:
    def trim(value: SqlValue, letters: SqlValue = " ") -> SqlValue:
        if value is None or letters is None:
            return None
        text, marks = to_text(value), "".join(set(to_text(letters).partition("\0")[0]))
        if len(text) * len(marks) > _TRIM_STEPS_MAX:
            raise PredicateError("the text and the set of characters to trim are too long")
        return strip(text, marks) if marks else text

    return trim


def _position(value: SqlValue, part: SqlValue) -> SqlValue:
    if value is None or part is None:
        return None
    if isinstance(value, bytes) and isinstance(part, bytes):
        return value.find(part) + 1
    return to_text(value).find(to_text(part)) + 1


def _part(value: SqlValue, begin: SqlValue, length: SqlValue = _LENGTH_MAX) -> SqlValue:
    if value is None or begin is None or length is None or value == b"":
        return None
    whole = value if isinstance(value, bytes) else to_text(value).partition("\0")[0]
    first, count = to_integer(begin), to_integer(length)
    if first < 0:
        first += len(whole)
        if first < 0:
            count = 0 if count < 0 else count + first
            first = 0
    elif first > 0:
        first -= 1
    elif count > 0:
        count -= 1
    if count < 0:
        count = min(first, -count)
        first -= count
    return whole[first : first + count]


_TEXT = Classes.NULL | Classes.TEXT
_INTEGER = Classes.NULL | Classes.INTEGER

FUNCTIONS: dict[str, ScalarFunction] = {
    "abs": ScalarFunction(_absolute, 1, 1, Classes.NULL | Classes.NUMBER),
    "instr": ScalarFunction(_position, 2, 2, _INTEGER, as_text=True, blob_too=True),
    "length": ScalarFunction(_length, 1, 1, _INTEGER, as_text=True, blob_too=True),
    "lower": ScalarFunction(_lower, 1, 1, _TEXT, as_text=True),
    "ltrim": ScalarFunction(_trimmer(str.lstrip), 1, 2, _TEXT, as_text=True),
    "round": ScalarFunction(_round, 1, 1, Classes.NULL | Classes.REAL),
    "rtrim": ScalarFunction(_trimmer(str.rstrip), 1, 2, _TEXT, as_text=True),
    "sign": ScalarFunction(_sign, 1, 1, _INTEGER),
    "substr": ScalarFunction(_part, 2, 3, Classes.NULL | Classes.TEXT | Classes.BLOB, as_text=True, blob_too=True),
    "substring": ScalarFunction(_part, 2, 3, Classes.NULL | Classes.TEXT | Classes.BLOB, as_text=True, blob_too=True),
    "trim": ScalarFunction(_trimmer(str.strip), 1, 2, _TEXT, as_text=True),
    "typeof": ScalarFunction(_type_of, 1, 1, Classes.TEXT),
    "upper": ScalarFunction(_upper, 1, 1, _TEXT, as_text=True),
}
