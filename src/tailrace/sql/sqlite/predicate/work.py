"""How much of a row the parts of a SQL predicate look at, so that its work is bounded before it runs. Pure.

A predicate has no loops, and most parts take time in proportion to the texts that they look at. So its work is at most
a weight times the size of the row: the sum over all parts of how many times they go over the row's bytes. `||` makes
texts longer, and a pattern with wildcards for one character is compared at each place of a text.
"""

from collections.abc import Mapping
from typing import Protocol

from msgspec import Struct

from tailrace.model.errors import PredicateError
from tailrace.sql.sqlite.affinity import Classes
from tailrace.sql.sqlite.predicate.expression import (
    Alias,
    Cell,
    Choice,
    Constant,
    Expression,
    Invocation,
    OpWord,
)

__all__ = ["DYNAMIC_MAX", "WORK_BYTES_MAX", "Weights", "weigh"]

WORK_BYTES_MAX = 64 << 20
"""Most bytes that a predicate may go over for one change: weight times the size of the image."""

DYNAMIC_MAX = 8
"""Most parts of one predicate whose pattern or set of characters comes out of the row."""

_STEPS = 4
"""This many characters of a pattern take as long as going over one byte of text and copying it."""

_WIDE = Classes.TEXT | Classes.BLOB
_TRIMS = frozenset({"trim", "ltrim", "rtrim"})
_SMALL = frozenset({"length", "instr", "typeof", "abs", "sign", "round", "IS TRUE", "IS FALSE", "IN", "BETWEEN"}) | {
    *("=", "<>", "<", "<=", ">", ">=", "IS", "IS NOT", "AND", "OR", "NOT", "LIKE", "GLOB"),
    *("+", "-", "*", "/", "%", "&", "|", "<<", ">>", "-x", "~x"),
}
"""What gives a number, however long its operands are."""


class Weights(Struct, frozen=True):
    """Weights of a predicate where columns hold what they are declared for, and where any of them may hold a text."""

    typed: int
    general: int

    @property
    def typed_bytes_max(self) -> int:
        """Return the size of the largest image that is evaluated."""
        return WORK_BYTES_MAX // max(1, self.typed)

    @property
    def general_bytes_max(self) -> int:
        """Return the size of the largest image with a cell that is not of its declared type."""
        return WORK_BYTES_MAX // max(1, self.general)


def weigh(expression: Expression) -> Weights:
    """Return the weights of a predicate.

    Raises:
        PredicateError: Too many of its patterns come out of the row.
    """
    typed, general = _Walk(typed=True), _Walk(typed=False)
    typed.length(expression)
    general.length(expression)
    if typed.dynamic > DYNAMIC_MAX:
        raise PredicateError(f"at most {DYNAMIC_MAX} patterns or sets of characters may come out of the row")
    return Weights(typed.weight, general.weight)


class _Walk:
    """Adds up one weight."""

    def __init__(self, *, typed: bool) -> None:
        self.weight = 0
        self.dynamic = 0
        self._typed = typed
        self._aliases: dict[int, int] = {}

    def length(self, expression: Expression) -> int:
        """Return how many times as long as the image a value can be, and add what its parts weigh."""
        match expression:
            case Constant() | OpWord():
                return 0
            case Alias(number):
                return self._aliases.get(number, 1)
            case Cell():
                return int(not self._typed or bool(expression.typing.declared & _WIDE))
            case Choice(base, alias, branches, otherwise):
                if base is not None and alias is not None:
                    self._aliases[alias.number] = self.length(base)
                return max([self.length(otherwise), *(self._branch(*branch) for branch in branches)])
            case Invocation():
                return self._invocation(expression)

    def _branch(self, condition: Expression, result: Expression) -> int:
        looked_at = self.length(condition)  # which adds to the weight itself
        self.weight += looked_at
        return self.length(result)

    def _invocation(self, part: Invocation) -> int:
        lengths: list[int] = []
        for place, operand in enumerate(part.operands):
            if part.name == "BETWEEN" and isinstance(operand, Alias):
                self._aliases[operand.number] = lengths[place - 1]
            lengths.append(self.length(operand))
        total = sum(lengths)
        if part.name == "IN":
            total += lengths[0] * sum(not isinstance(option, Constant) for option in part.operands[1:])
        self.weight += total * self._steps(part) if part.name not in {"AND", "OR", "NOT"} else 0
        if part.name == "||":
            return total
        return 0 if part.name in _SMALL else max(lengths, default=0)

    def _steps(self, part: Invocation) -> int:
        """Return how many times a part goes over its operands."""
        if part.name not in _PATTERNS or len(part.operands) < 2:
            return 1
        pattern = part.operands[1]
        if not isinstance(pattern, Constant):
            self.dynamic += 1
            return 1  # bounded when the pattern is known
        return 1 + _PATTERNS[part.name](str(pattern.value), escaped=len(part.operands) > 2) // _STEPS


class _Width(Protocol):
    def __call__(self, pattern: str, *, escaped: bool) -> int: ...


def _like_width(pattern: str, *, escaped: bool) -> int:
    """Return the width of the widest piece of a pattern if it has wildcards for one character."""
    if "_" not in pattern:
        return 0
    return len(pattern) if escaped else max(map(len, pattern.split("%")))


def _glob_width(pattern: str, *, escaped: bool) -> int:
    if "[" in pattern or escaped:
        return len(pattern)
    return max(map(len, pattern.split("*"))) if "?" in pattern else 0


def _set_width(pattern: str, *, escaped: bool) -> int:
    return len(set(pattern)) + int(escaped)


_PATTERNS: Mapping[str, _Width] = {
    "LIKE": _like_width,
    "GLOB": _glob_width,
    **dict.fromkeys(_TRIMS, _set_width),
}
