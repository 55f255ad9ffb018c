"""Arguments of a query: the values a client sends, as the database is given them. Pure."""

from collections.abc import Sequence
from decimal import Decimal

from tailrace.model.errors import InvalidRequestError
from tailrace.model.value import Array, Text, Value
from tailrace.sql.query import Stored

__all__ = ["bind"]

INTEGER_MIN, INTEGER_MAX = -(2**63), 2**63 - 1


def bind(arguments: Sequence[Value], expected: int) -> tuple[Stored, ...]:
    """Return the arguments as SQLite binds them; the same are used to tell which changes matter.

    A boolean is 0 or 1, a decimal number its digits as text (a numeric column takes them for a number), a date, UUID,
    JSON document or anything else that is written as text its text.

    Raises:
        InvalidRequestError: There are more or fewer than the query has, one is an array, or an integer has more
            than 64 bits.
    """
    if len(arguments) != expected:
        raise InvalidRequestError(f"the query takes {expected} arguments, {len(arguments)} were given")
    return tuple(_stored(value, number) for number, value in enumerate(arguments, 1))


def _stored(value: Value, number: int) -> Stored:
    match value:
        case bool():
            return int(value)
        case int():
            if not INTEGER_MIN <= value <= INTEGER_MAX:
                raise InvalidRequestError(f"argument {number} does not fit into 64 bits")
            return value
        case float() if value != value:  # SQLite keeps not-a-number as NULL
            return None
        case Decimal():
            return str(value)
        case Text(_, text):
            return text
        case Array():
            raise InvalidRequestError(f"argument {number} is an array, which SQLite does not have")
        case _:
            return value
