"""What the source of a compiled predicate may call, by name. Pure."""

from collections.abc import Callable
from typing import Any

from tailrace.sql.predicate import SqlValue
from tailrace.sql.sqlite.affinity import FOLDS, Affinity
from tailrace.sql.sqlite.predicate.function import FUNCTIONS, extreme, null_if
from tailrace.sql.sqlite.predicate.pattern import glob, like, match_value
from tailrace.sql.sqlite.predicate.value import (
    CASTS,
    OPERATORS,
    and3,
    not3,
    numeric,
    or3,
    order,
    same,
    textual,
    truth,
)

__all__ = ["LIBRARY", "OPERATOR_NAMES", "folded", "with_affinity"]

OPERATOR_NAMES = {operator: f"operator_{number}" for number, operator in enumerate(OPERATORS)}


def with_affinity(value: SqlValue, affinity: Affinity) -> SqlValue:
    """Return a value as a comparison of that affinity takes it."""
    if affinity >= Affinity.NUMERIC:
        return numeric(value)
    return textual(value) if affinity is Affinity.TEXT else value


def folded(value: SqlValue, fold: Callable[[str], str] | None) -> SqlValue:
    """Return a text as a collation takes it, anything else as it is."""
    return fold(value) if fold is not None and isinstance(value, str) else value


def flag(holds: bool | None) -> SqlValue:
    """Return 1, 0 or NULL for the answer of a test."""
    return None if holds is None else int(holds)


LIBRARY: dict[str, Any] = {
    **{function.__name__: function for function in (numeric, textual, order, same, truth, and3, or3, not3)},
    **{function.__name__: function for function in (extreme, null_if, folded, flag, glob, like, match_value)},
    **{f"cast_{name.lower()}": cast for name, cast in CASTS.items()},
    **{f"f_{name}": function.compute for name, function in FUNCTIONS.items()},
    **{f"fold_{name.lower()}": fold for name, fold in FOLDS.items()},
    **{OPERATOR_NAMES[operator]: compute for operator, compute in OPERATORS.items()},
    "MIN": -(2**63),
    "MAX": 2**63 - 1,
}
