"""Finds in the trees of WHERE and ON the conditions whose meaning we match exactly. Pure.

A comparison is recognised only between a plain column and a constant (or two plain columns): no functions, arithmetic,
casts or collations. Everything else is opaque: it can be true, false or NULL.
"""

import re

from sqlglot import exp

from tailrace.sql.sqlite.catalog import fold
from tailrace.sql.sqlite.query.condition import (
    FALSE,
    NULL,
    OPAQUE,
    TRUE,
    All,
    Among,
    Argument,
    Compare,
    Condition,
    Either,
    Equal,
    Fixed,
    LiteralTerm,
    Negated,
    ReferenceColumn,
    Same,
)
from tailrace.sql.sqlite.query.relation import Scope
from tailrace.sql.sqlite.query.statement import argument_number

__all__ = ["conjuncts"]

_SIGNS: dict[type[exp.Expr], tuple[str, str]] = {
    exp.EQ: ("=", "="),
    exp.NEQ: ("<>", "<>"),
    exp.LT: ("<", ">"),
    exp.LTE: ("<=", ">="),
    exp.GT: (">", "<"),
    exp.GTE: (">=", "<="),
}
"""The sign of each comparison, and the one that means the same with the sides swapped."""

_INTEGER = re.compile(r"[0-9]{1,18}")
_REAL = re.compile(r"([0-9]*)\.([0-9]*)")


def conjuncts(tree: exp.Expr | None, scope: Scope) -> list[Condition]:
    """Return conditions that must all be true for a WHERE or ON to be true."""
    if tree is None:
        return []
    tree = tree.unnest()
    if isinstance(tree, exp.And):
        return [*conjuncts(tree.this, scope), *conjuncts(tree.expression, scope)]
    return [_condition(tree, scope)]


def _condition(tree: exp.Expr, scope: Scope) -> Condition:
    tree = tree.unnest()
    match tree:
        case exp.And():
            return All((_condition(tree.this, scope), _condition(tree.expression, scope)))
        case exp.Or():
            return Either((_condition(tree.this, scope), _condition(tree.expression, scope)))
        case exp.Not():
            return Negated(_condition(tree.this, scope))
        case exp.Is() | exp.NullSafeEQ():
            return _same(tree, scope)
        case exp.NullSafeNEQ():
            return Negated(_same(tree, scope))
        case exp.In():
            return _among(tree, scope)
        case exp.Between():
            return _between(tree, scope)
        case _:
            return _comparison(tree, scope) if type(tree) in _SIGNS else _truth(tree)


def _comparison(tree: exp.Expr, scope: Scope) -> Condition:
    sign, swapped = _SIGNS[type(tree)]
    left, right = tree.this, tree.expression
    left_column, right_column = _column(left, scope), _column(right, scope)
    if left_column is not None and right_column is not None:
        return Equal(left_column, right_column) if sign == "=" else OPAQUE
    left_constant, right_constant = _constant(left), _constant(right)
    if left_column is not None and right_constant is not None:
        return Compare(sign, left_column, right_constant)
    if right_column is not None and left_constant is not None:
        return Compare(swapped, right_column, left_constant)
    return OPAQUE


def _same(tree: exp.Expr, scope: Scope) -> Condition:
    column, constant = _column(tree.this, scope), _constant(tree.expression)
    if (
        column is None or constant is None or isinstance(tree.expression.unnest(), exp.Boolean)
    ):  # IS TRUE asks for truth
        return OPAQUE
    return Same(column, constant)


def _among(tree: exp.In, scope: Scope) -> Condition:
    column = _column(tree.this, scope)
    constants = [_constant(member) for member in tree.expressions]
    if column is None or tree.args.get("query") or tree.args.get("field") or tree.args.get("unnest"):
        return OPAQUE
    known = [constant for constant in constants if constant is not None]
    return Among(column, tuple(known)) if len(known) == len(constants) else OPAQUE


def _between(tree: exp.Between, scope: Scope) -> Condition:
    column, low, high = _column(tree.this, scope), _constant(tree.args["low"]), _constant(tree.args["high"])
    if column is None or tree.args.get("symmetric"):
        return OPAQUE
    parts: list[Condition] = []
    parts.append(OPAQUE if low is None else Compare(">=", column, low))
    parts.append(OPAQUE if high is None else Compare("<=", column, high))
    return All(tuple(parts))


def _truth(tree: exp.Expr) -> Condition:
    constant = _constant(tree)
    if isinstance(constant, LiteralTerm) and (constant.value is None or isinstance(constant.value, int)):
        return Fixed(NULL if constant.value is None else TRUE if constant.value else FALSE)
    return OPAQUE


def _column(tree: exp.Expr, scope: Scope) -> ReferenceColumn | None:
    tree = tree.unnest()
    if not isinstance(tree, exp.Column) or isinstance(tree.this, exp.Star):
        return None
    found = scope.local(fold(tree.name), fold(tree.table))
    return found[0].column if len(found) == 1 else None


def _constant(tree: exp.Expr) -> LiteralTerm | Argument | None:
    tree = tree.unnest()
    negative = isinstance(tree, exp.Neg)
    if negative:
        tree = tree.this
    number = argument_number(tree)
    if number is not None and not negative:
        return Argument(number)
    if isinstance(tree, exp.Literal) and not tree.is_string:
        return _number(tree.name, -1 if negative else 1)
    if negative:
        return None
    match tree:
        case exp.Null():
            return LiteralTerm(None)
        case exp.Boolean():
            return LiteralTerm(int(tree.this))
        case exp.Literal():
            return LiteralTerm(tree.name)
        case exp.HexString():
            return LiteralTerm(bytes.fromhex(tree.name))
        case _:
            return None


def _number(text: str, sign: int) -> LiteralTerm | None:
    """Return a number that is read alike by everybody: not too long for a 64-bit integer or an exact fraction."""
    if _INTEGER.fullmatch(text):
        return LiteralTerm(sign * int(text))
    match = _REAL.fullmatch(text)
    if match and 0 < len(match[1] + match[2]) <= 15:
        return LiteralTerm(sign * float(text))
    return None
