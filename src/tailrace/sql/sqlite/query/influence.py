"""Follows one row through the joins and filters of a query: what must hold for the row to make a difference. Pure.

A row of a table reference makes a difference in two ways: through joined rows that contain it, and, on the optional
side of an outer join, by keeping the other side from being filled up with NULLs. In the second case we say that the
row *displaces* a null row. A condition is a *fact* about the row if no such difference survives where it is not true:

* WHERE and the ON of an inner join are facts. So is the ON of an outer join for the rows of its optional side: a row
  that matches nothing is neither joined nor displaces. It is none for the side that is kept anyway.
* A row that may displace has two fates, with it and with NULLs in the place of its side of the join. Conditions that do
  not look at that side are facts all the same: if one of the fates survives, then so does one together with the row. If
  a condition cannot be true with the NULLs, displaced null rows end there: from then on the row is followed like any
  other.

Every step only drops facts that are in doubt, never adds some.
"""

from collections.abc import Iterable, Sequence

from msgspec import Struct

from tailrace.sql.sqlite.query.condition import (
    TRUE,
    Condition,
    Equal,
    ReferenceColumn,
    columns,
    mask_of_nulls,
    replace,
)
from tailrace.sql.sqlite.query.recognise import conjuncts
from tailrace.sql.sqlite.query.relation import Compound, Derived, Join, Node, Reference, Relation, Scope, SelectNode

__all__ = ["CONDITIONS_MAX", "find_conditions"]

CONDITIONS_MAX = 64
"""Conditions kept for one table reference; more would only make it more precise."""

_NOBODY: frozenset[int] = frozenset()


class _Row(Struct):
    """A row of a reference on its way.

    `nulls` are the references that are NULL in every null row that it displaces, `varying` those that are NULL in some.
    Both are empty while it cannot displace anything.
    """

    reference: Reference
    facts: list[Condition]
    nulls: frozenset[int] = _NOBODY
    varying: frozenset[int] = _NOBODY


def find_conditions(node: Node) -> None:
    """Give each reference in the FROMs of a query the conditions that its rows must satisfy to make a difference."""
    for row in _through_query(node):
        _settle(row)


def _through_query(node: Node) -> list[_Row]:
    """Return the rows that come out of a query one by one; those of other queries are settled here."""
    if isinstance(node, Compound):
        for branch in node.branches:
            find_conditions(branch)
        return []
    if not isinstance(node, SelectNode) or node.relation is None:
        return []
    rows, _ = _through(node.relation, node.scope)
    where = node.tree.args.get("where")
    conditions = conjuncts(where.this if where is not None else None, node.scope)
    for row in rows:
        _filter(row, conditions)
    if node.plain:
        return rows
    for row in rows:
        _settle(row)
    return []


def _through(relation: Relation, scope: Scope) -> tuple[list[_Row], frozenset[int]]:
    """Return the rows that come out of a relation, and the references in it."""
    match relation:
        case Reference():
            return [_Row(relation, [])], frozenset({relation.number})
        case Derived():
            rows = _through_query(relation.node)
            return rows, frozenset(row.reference.number for row in rows)
        case Join():
            return _join(relation, scope)


def _join(join: Join, scope: Scope) -> tuple[list[_Row], frozenset[int]]:
    left_rows, left = _through(join.left, scope)
    right_rows, right = _through(join.right, scope)
    conditions = conjuncts(join.on, scope)
    for ours, theirs in join.equal:
        conditions += _equality(ours.column, theirs.column)
    for rows, own, optional in (
        (left_rows, left, join.kind in ("right", "full")),
        (right_rows, right, join.kind in ("left", "full")),
    ):
        for row in rows:
            if join.kind == "inner" or (optional and join.kind != "full"):
                _filter(row, conditions)
            if optional:
                row.nulls = row.nulls or own
                row.varying = own
    return [*left_rows, *right_rows], left | right


def _equality(ours: ReferenceColumn | None, theirs: ReferenceColumn | None) -> list[Condition]:
    return [Equal(ours, theirs)] if ours is not None and theirs is not None else []


def _filter(row: _Row, conditions: Iterable[Condition]) -> None:
    conditions = list(conditions)
    if row.nulls and any(not mask_of_nulls(condition, row.nulls) & TRUE for condition in conditions):
        row.nulls = row.varying = _NOBODY
    row.facts += [
        condition
        for condition in conditions
        if not any(column.reference in row.varying for column in columns(condition))
    ]


def _settle(row: _Row) -> None:
    """Keep the facts that a row image can be held against, those of equal columns of other references included."""
    number = row.reference.number
    equals = _classes(row.facts)
    kept: list[Condition] = []
    for fact in row.facts:
        for column in columns(fact):
            own = next((other for other in equals.get(column, ()) if other.reference == number), None)
            if column.reference != number and own is not None:
                fact = replace(fact, column, own)  # noqa: PLW2901
        if any(column.reference == number for column in columns(fact)) and fact not in kept:
            kept.append(fact)
    row.reference.conditions = tuple(kept[:CONDITIONS_MAX])


def _classes(facts: Sequence[Condition]) -> dict[ReferenceColumn, set[ReferenceColumn]]:
    """Return for each column those that the facts make equal to it; only columns that compare in the same way."""
    classes: dict[ReferenceColumn, set[ReferenceColumn]] = {}
    for fact in facts:
        if isinstance(fact, Equal) and fact.left.affinity == fact.right.affinity:
            union = classes.get(fact.left, {fact.left}) | classes.get(fact.right, {fact.right})
            classes.update(dict.fromkeys(union, union))
    return classes
