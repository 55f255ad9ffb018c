"""Conditions on one row, in SQL's three-valued logic with "cannot tell" added. Pure.

A condition's value is a set of possible outcomes, a mask of TRUE, FALSE and NULL bits. A part that we do not
understand, or that looks at another table, has all three bits. A row can pass a WHERE only if its mask has the TRUE
bit; that it lacks the bit is a proof that the row does not pass.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import assert_never

from msgspec import Struct

from tailrace.model.catalog import Affinity
from tailrace.model.value import Value
from tailrace.subscription.query.argument import Stored
from tailrace.subscription.query.comparison import UNKNOWN, Unknown, coerce, order, storage

__all__ = [
    "ANY",
    "FALSE",
    "NULL",
    "OPAQUE",
    "TRUE",
    "All",
    "Among",
    "Argument",
    "Column",
    "Compare",
    "Condition",
    "Constant",
    "Either",
    "Equal",
    "Fixed",
    "Negated",
    "Same",
    "columns",
    "compile_condition",
    "mask_of_nulls",
    "replace",
]

TRUE = 1
FALSE = 2
NULL = 4
ANY = TRUE | FALSE | NULL


class Column(Struct, frozen=True):
    """A column of one table reference; `reference` is the reference's number within the query."""

    reference: int
    name: str
    affinity: Affinity


class Constant(Struct, frozen=True):
    """A literal."""

    value: Stored


class Argument(Struct, frozen=True):
    """The query's argument of that number, from 1."""

    number: int


class Compare(Struct, frozen=True):
    """`column sign constant` with one of `= <> < <= > >=`."""

    sign: str
    column: Column
    constant: Constant | Argument


class Among(Struct, frozen=True):
    """`column IN (constants)`."""

    column: Column
    constants: tuple[Constant | Argument, ...]


class Same(Struct, frozen=True):
    """`column IS constant`: NULL is like any other value."""

    column: Column
    constant: Constant | Argument


class Equal(Struct, frozen=True):
    """`column = column`. Never told from one row; it carries conditions from one reference to the other."""

    left: Column
    right: Column


class Fixed(Struct, frozen=True):
    """An outcome out of the mask, whatever the row. A part that is not understood is `OPAQUE`."""

    mask: int


class All(Struct, frozen=True):
    """AND."""

    parts: tuple["Condition", ...]


class Either(Struct, frozen=True):
    """OR."""

    parts: tuple["Condition", ...]


class Negated(Struct, frozen=True):
    """NOT."""

    part: "Condition"


OPAQUE = Fixed(ANY)
Condition = Compare | Among | Same | Equal | Fixed | All | Either | Negated

Lookup = Callable[[Column], Stored | Unknown]
"""Gives the value of a column in the row at hand."""
Row = Mapping[str, Value]


def compile_condition(condition: Condition, reference: int, arguments: Sequence[Stored]) -> Callable[[Row], int]:
    """Return a function from a row of the reference to the condition's mask. Columns of others can be anything."""
    constants = _Constants(arguments)

    def evaluate(row: Row) -> int:
        def lookup(column: Column) -> Stored | Unknown:
            if column.reference != reference or column.name not in row:
                return UNKNOWN
            return storage(row[column.name], column.affinity)

        return _mask(condition, lookup, constants)

    return evaluate


def mask_of_nulls(condition: Condition, nulls: frozenset[int]) -> int:
    """Return the mask where all columns of the references `nulls` are NULL, whatever the others and the arguments."""

    def lookup(column: Column) -> Stored | Unknown:
        return None if column.reference in nulls else UNKNOWN

    return _mask(condition, lookup, _Constants(None))


def columns(condition: Condition) -> set[Column]:
    """Return the columns that a condition is understood to compare."""
    match condition:
        case Compare() | Among() | Same():
            return {condition.column}
        case Equal():
            return {condition.left, condition.right}
        case All() | Either():
            return set().union(*(columns(part) for part in condition.parts))
        case Negated():
            return columns(condition.part)
        case Fixed():
            return set()
        case _:
            assert_never(condition)


def replace(condition: Condition, old: Column, new: Column) -> Condition:
    """Return the condition with one column in the place of another."""
    match condition:
        case Compare(sign, column, constant):
            return Compare(sign, new if column == old else column, constant)
        case Among(column, constants):
            return Among(new if column == old else column, constants)
        case Same(column, constant):
            return Same(new if column == old else column, constant)
        case All(parts):
            return All(tuple(replace(part, old, new) for part in parts))
        case Either(parts):
            return Either(tuple(replace(part, old, new) for part in parts))
        case Negated(part):
            return Negated(replace(part, old, new))
        case Equal() | Fixed():
            return condition
        case _:
            assert_never(condition)


class _Constants:
    """The constants of a condition as columns see them. Each is coerced once. Without arguments these are unknown."""

    def __init__(self, arguments: Sequence[Stored] | None) -> None:
        self._arguments = arguments
        self._coerced: dict[tuple[Constant | Argument, Affinity, type], Stored | Unknown] = {}

    def get(self, constant: Constant | Argument, affinity: Affinity) -> Stored | Unknown:
        if isinstance(constant, Constant):
            value = constant.value
        elif self._arguments is None:
            return UNKNOWN
        else:
            value = self._arguments[constant.number - 1]
        key = (constant, affinity, type(value))  # 1 and 1.0 are equal keys but for their types
        if key not in self._coerced:
            self._coerced[key] = coerce(value, affinity)
        return self._coerced[key]


def _mask(condition: Condition, lookup: Lookup, constants: _Constants) -> int:
    match condition:
        case Compare(sign, column, constant):
            return _compare(sign, lookup(column), constants.get(constant, column.affinity))
        case Among(column, members):
            return _among(lookup(column), [constants.get(member, column.affinity) for member in members])
        case Same(column, constant):
            return _same(lookup(column), constants.get(constant, column.affinity))
        case Equal(left, right):
            return NULL if lookup(left) is None or lookup(right) is None else ANY
        case Fixed(mask):
            return mask
        case All(parts):
            result = TRUE
            for part in parts:
                result = _AND[result, _mask(part, lookup, constants)]
            return result
        case Either(parts):
            result = FALSE
            for part in parts:
                result = _OR[result, _mask(part, lookup, constants)]
            return result
        case Negated(part):
            return _NOT[_mask(part, lookup, constants)]
        case _:
            assert_never(condition)


_HOLDS: dict[str, Callable[[int], bool]] = {
    "=": lambda sign: sign == 0,
    "<>": lambda sign: sign != 0,
    "<": lambda sign: sign < 0,
    "<=": lambda sign: sign <= 0,
    ">": lambda sign: sign > 0,
    ">=": lambda sign: sign >= 0,
}


def _compare(sign: str, value: Stored | Unknown, constant: Stored | Unknown) -> int:
    if value is None or constant is None:
        return NULL
    if value is UNKNOWN or constant is UNKNOWN:
        return ANY
    ordered = order(value, constant)
    assert ordered is not None
    return TRUE if _HOLDS[sign](ordered) else FALSE


def _among(value: Stored | Unknown, members: Sequence[Stored | Unknown]) -> int:
    result = FALSE
    for member in members:
        result = _OR[result, _compare("=", value, member)]
    return result


def _same(value: Stored | Unknown, constant: Stored | Unknown) -> int:
    if value is UNKNOWN or constant is UNKNOWN:
        return TRUE | FALSE
    if value is None or constant is None:
        return TRUE if value is constant else FALSE
    return TRUE if order(value, constant) == 0 else FALSE


_OUTCOMES = (TRUE, FALSE, NULL)


def _and(left: int, right: int) -> int:
    return FALSE if FALSE in (left, right) else NULL if NULL in (left, right) else TRUE


def _or(left: int, right: int) -> int:
    return TRUE if TRUE in (left, right) else NULL if NULL in (left, right) else FALSE


def _lift(decide: Callable[[int, int], int]) -> dict[tuple[int, int], int]:
    """Return the table of an operation on masks: the outcomes of all pairs of possible outcomes."""
    table = {}
    for left, right in product(range(1, 8), repeat=2):
        outcomes = [decide(a, b) for a in _OUTCOMES if a & left for b in _OUTCOMES if b & right]
        table[left, right] = sum(set(outcomes))
    return table


_AND = _lift(_and)
_OR = _lift(_or)
_NOT = {mask: (mask & NULL) | (FALSE if mask & TRUE else 0) | (TRUE if mask & FALSE else 0) for mask in range(1, 8)}
