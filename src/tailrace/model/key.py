"""Keys: their total order, and the bytes that a key given as typed literals has in the log. Pure.

Values of different classes stand in the order null, boolean, number, text, bytes, and after them the kinds of `Text`
and arrays. Numbers are compared exactly, whatever their types; not-a-number follows all others. Text is in the order of
its UTF-8 bytes, which is that of its code points; so intervals, ranges and the like are not in the order that their
database has them in. Arrays are compared item by item, and by their lower bounds last.
"""

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from tailrace.model.errors import InvalidValueError
from tailrace.model.image import encode_key
from tailrace.model.table import Column, Kind, TableSchema
from tailrace.model.value import Array, Item, Json, Text, Value, from_literal

__all__ = ["TEXT_KINDS", "ValueOrder", "are_comparable", "key_bytes", "order_of", "order_of_key"]

ValueOrder = tuple[int, Any]
"""Place of a value in the order of all values: its class, and what is compared within it."""

TEXT_KINDS = (
    *(Kind.DATE, Kind.TIME, Kind.DATETIME, Kind.UUID, Kind.JSON, Kind.INTERVAL),
    *(Kind.ENUM, Kind.BIT, Kind.NETWORK, Kind.RANGE, Kind.COMPOSITE, Kind.FOREIGN),
)
"""The kinds of `Text` in the order of their values. A new one comes last: the bytes of keys depend on it."""

_CLASSES = {kind: place for place, kind in enumerate(TEXT_KINDS, 5)}
_ARRAY_CLASS, _DIMENSION_CLASS = 100, 101
_INTEGER_KINDS = frozenset({Kind.I64, Kind.U64})
_SIGNED_MAX = 2**63 - 1


def order_of(value: Value) -> ValueOrder:
    """Return what stands for a value in a comparison with others."""
    match value:
        case None:
            return (0, 0)
        case bool():
            return (1, value)
        case int():
            return (2, (0, value))
        case float():
            return (2, (1, 0) if value != value else (0, value))
        case Decimal():
            return (2, (1, 0) if value.is_nan() else (0, value))
        case str():
            return (3, value)
        case bytes():
            return (4, value)
        case Text(Kind.FOREIGN, text, type_):
            return (_CLASSES[Kind.FOREIGN], (type_, text))
        case Text(kind, text):
            return (_CLASSES[kind], text)
        case Array(items, lower):
            return (_ARRAY_CLASS, (_order_of_items(items), lower))


def _order_of_items(items: "tuple[Item, ...]") -> tuple[ValueOrder, ...]:
    """Return what stands for the items of an array, which are values, or items themselves where it has dimensions."""
    return tuple(
        (_DIMENSION_CLASS, _order_of_items(item)) if isinstance(item, tuple) else order_of(item) for item in items
    )


def order_of_key(values: Sequence[Value]) -> tuple[ValueOrder, ...]:
    """Return what stands for a key in a comparison with others: column by column, a shorter one before a longer."""
    return tuple(order_of(value) for value in values)


def are_comparable(one: Value, other: Value) -> bool:
    """Tell whether two values are of one class, so that their order says something about them."""
    return order_of(one)[0] == order_of(other)[0]


def key_bytes(literals: Sequence[Json], schema: TableSchema) -> bytes | None:
    """Return the bytes that a key of these typed literals has in the log; None if no key of the table can equal it.

    Literals equal values of the same type only. Where the column is of an integer kind, that kind says which of the two
    integer types its values have, so a literal of either is read as that; elsewhere `u64` 1 and `i64` 1 differ.

    Raises:
        InvalidValueError: One of them is not a literal, or they are not as many as the key has columns.
    """
    columns = schema.key_columns
    if len(literals) != len(columns):
        raise InvalidValueError(f"a key of {schema.table.wire} has {len(columns)} columns, not {len(literals)}")
    values = [from_literal(literal) for literal in literals]
    if all(map(_is_possible, literals, values, columns)):
        return encode_key(values, schema)
    return None


def _is_possible(literal: Json, value: Value, column: Column) -> bool:
    if not isinstance(value, int) or isinstance(value, bool) or column.kind in _INTEGER_KINDS:
        return True
    return bool(literal["t"] == "u64") is (value > _SIGNED_MAX)
