"""Conditions on one row, in SQL's three-valued logic with "cannot tell" added. Pure.

A condition's value is a set of possible outcomes, a mask of TRUE, FALSE and NULL bits. A part that we do not
understand, or that looks at another table, has all three bits. A row can pass a WHERE only if its mask has the TRUE
bit; that it lacks the bit is a proof that the row does not pass.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import assert_never

from msgspec import Struct

from tailrace.model.value import Value
from tailrace.sql.query import Stored
from tailrace.sql.sqlite.affinity import Affinity
from tailrace.sql.sqlite.query.comparison import UNKNOWN, Unknown, coerce, order, storage

__all__ = [
    "ANY",
    "FALSE",
    "NULL",
    "OPAQUE",
    "TRUE",
    "All",
    "Among",
    "Argument",
    "Compare",
    "Condition",
    "Either",
    "Equal",
    "Fixed",
    "LiteralTerm",
    "Negated",
    "ReferenceColumn",
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


class ReferenceColumn(Struct, frozen=True):
    """A column of one table reference; `reference` is the reference's number within the query."""

    reference: int
    name: str
    affinity: Affinity


class LiteralTerm(Struct, frozen=True):
    """A literal."""

    value: Stored


class Argument(Struct, frozen=True):
    """The query's argument of that number, from 1."""

    number: int


class Compare(Struct, frozen=True):
    """`column sign constant` with one of `= <> < <= > >=`."""

    sign: str
    column: ReferenceColumn
    constant: LiteralTerm | Argument


class Among(Struct, frozen=True):
    """`column IN (constants)`."""

    column: ReferenceColumn
    constants: tuple[LiteralTerm | Argument, ...]


class Same(Struct, frozen=True):
    """`column IS constant`: NULL is like any other value."""

    column: ReferenceColumn
    constant: LiteralTerm | Argument


class Equal(Struct, frozen=True):
    """`column = column`. Never decided from one row; it carries conditions from one reference to the other."""

    left: ReferenceColumn
    right: ReferenceColumn


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

Row = Mapping[str, Value]
"""A row image, decoded: column name to value."""
Getter = Callable[[Row], Stored | Unknown]
"""Gives the value of one column in a row."""
Check = Callable[[Row], int]
"""Gives the mask of a condition for a row."""


def compile_condition(condition: Condition, reference: int, arguments: Sequence[Stored]) -> Check:
    """Return a function from a row of the reference to the condition's mask. Columns of others can be anything."""

    def getter(column: ReferenceColumn) -> Getter:
        name, affinity = column.name, column.affinity
        if column.reference != reference:
            return lambda _: UNKNOWN
        return lambda row: storage(row[name], affinity) if name in row else UNKNOWN

    return _compile(condition, getter, arguments)


def mask_of_nulls(condition: Condition, nulls: frozenset[int]) -> int:
    """Return the mask where all columns of the references `nulls` are NULL, whatever the others and the arguments."""

    def getter(column: ReferenceColumn) -> Getter:
        return (lambda _: None) if column.reference in nulls else (lambda _: UNKNOWN)

    return _compile(condition, getter, None)({})


def columns(condition: Condition) -> set[ReferenceColumn]:
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


def replace(condition: Condition, old: ReferenceColumn, new: ReferenceColumn) -> Condition:
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


def _compile(
    condition: Condition, getter: Callable[[ReferenceColumn], Getter], arguments: Sequence[Stored] | None
) -> Check:
    match condition:
        case Compare(sign, column, constant):
            return _compare(sign, getter(column), _constant(constant, column.affinity, arguments))
        case Among(column, constants):
            get = getter(column)
            members = [_compare("=", get, _constant(constant, column.affinity, arguments)) for constant in constants]
            return _fold(members, _OR, FALSE, TRUE)
        case Same(column, constant):
            return _same(getter(column), _constant(constant, column.affinity, arguments))
        case Equal(left, right):
            ours, theirs = getter(left), getter(right)
            return lambda row: NULL if ours(row) is None or theirs(row) is None else ANY
        case Fixed(mask):
            return lambda _: mask
        case All(parts):
            return _fold([_compile(part, getter, arguments) for part in parts], _AND, TRUE, FALSE)
        case Either(parts):
            return _fold([_compile(part, getter, arguments) for part in parts], _OR, FALSE, TRUE)
        case Negated(part):
            inner = _compile(part, getter, arguments)
            return lambda row: _NOT[inner(row)]
        case _:
            assert_never(condition)


def _constant(
    constant: LiteralTerm | Argument, affinity: Affinity, arguments: Sequence[Stored] | None
) -> Stored | Unknown:
    """Return a constant as a column of that affinity sees it. Without arguments these are unknown."""
    if isinstance(constant, LiteralTerm):
        return coerce(constant.value, affinity)
    return UNKNOWN if arguments is None else coerce(arguments[constant.number - 1], affinity)


def _fold(checks: Sequence[Check], table: dict[tuple[int, int], int], start: int, decisive: int) -> Check:
    """Return the check that joins others by an operation; an outcome that is decisive ends the search."""

    def check(row: Row) -> int:
        result = start
        for part in checks:
            result = table[result, part(row)]
            if result == decisive:
                break
        return result

    return check


_HOLDS: dict[str, Callable[[int], bool]] = {
    "=": lambda sign: sign == 0,
    "<>": lambda sign: sign != 0,
    "<": lambda sign: sign < 0,
    "<=": lambda sign: sign <= 0,
    ">": lambda sign: sign > 0,
    ">=": lambda sign: sign >= 0,
}


def _compare(sign: str, get: Getter, constant: Stored | Unknown) -> Check:
    if constant is None:
        return lambda _: NULL
    if constant is UNKNOWN:
        return lambda row: NULL if get(row) is None else ANY
    holds = _HOLDS[sign]

    def check(row: Row) -> int:
        value = get(row)
        if value is None:
            return NULL
        if value is UNKNOWN:
            return ANY
        return TRUE if holds(order(value, constant)) else FALSE

    return check


def _same(get: Getter, constant: Stored | Unknown) -> Check:
    if constant is UNKNOWN:
        return lambda _: TRUE | FALSE

    def check(row: Row) -> int:
        value = get(row)
        if value is UNKNOWN:
            return TRUE | FALSE
        if value is None or constant is None:
            return TRUE if value is constant else FALSE
        return TRUE if order(value, constant) == 0 else FALSE

    return check


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
