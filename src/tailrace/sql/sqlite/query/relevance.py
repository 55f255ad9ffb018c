"""Tells whether a change can touch a query's result. Pure.

"No" is proven, "yes" is not: a change is irrelevant only if it is for every mention of its table. It is for one mention

* if it is an update and none of the columns read there differs, or
* if neither the row before nor the row after can satisfy all conditions of the mention.

A truncation may have removed any row. A row image that lacks a column, or a value that we cannot compare as the
database does, proves nothing.
"""

from collections.abc import Callable, Sequence

from msgspec import Struct

from tailrace.model.op import ROWLESS, Op
from tailrace.sql.query import RowImage, Stored
from tailrace.sql.sqlite.query.comparison import same
from tailrace.sql.sqlite.query.condition import TRUE, columns, compile_condition
from tailrace.sql.sqlite.query.dependency import Dependency, QueryDependencies

__all__ = ["QueryJudge"]


class QueryJudge:
    """Judges changes for one query with its arguments bound. Safe to share: it keeps nothing of what it judged."""

    def __init__(self, dependencies: QueryDependencies, arguments: Sequence[Stored]) -> None:
        self._mentions: dict[str, list[_Mention]] = {}
        self._columns: dict[str, frozenset[str]] = {}
        for dependency in dependencies.dependencies:
            table = dependency.table
            self._mentions.setdefault(table, []).append(_mention(dependency, arguments))
            compared = {column.name for condition in dependency.conditions for column in columns(condition)}
            self._columns[table] = self._columns.get(table, frozenset()) | dependency.columns | compared

    def concerns(self, table: str) -> bool:
        """Return whether the query depends on a table at all, by its name on the wire."""
        return table in self._mentions

    def columns(self, table: str) -> frozenset[str]:
        """Return the columns of a table that a judgement needs; images may lack all others."""
        return self._columns.get(table, frozenset())

    def relevant(self, table: str, op: Op, before: RowImage | None, after: RowImage | None) -> bool:
        """Return whether a change can touch the result; False is a proof that it cannot.

        An image that is not there but should be (the row before an update, say) proves nothing.
        """
        mentions = self._mentions.get(table)
        if mentions is None:
            return False
        if op in ROWLESS:
            return True
        return any(_touches(mention, op, before, after) for mention in mentions)


class _Mention(Struct, frozen=True):
    columns: tuple[str, ...]
    conditions: tuple[Callable[[RowImage], int], ...]
    every_update: bool


def _mention(dependency: Dependency, arguments: Sequence[Stored]) -> _Mention:
    conditions = tuple(
        compile_condition(condition, dependency.reference, arguments) for condition in dependency.conditions
    )
    return _Mention(tuple(sorted(dependency.columns)), conditions, dependency.every_update)


def _touches(mention: _Mention, op: Op, before: RowImage | None, after: RowImage | None) -> bool:
    if op is Op.UPDATE and not mention.every_update and _unchanged(mention.columns, before, after):
        return False
    if op is Op.INSERT:
        return _matters(mention, after)
    if op is Op.DELETE:
        return _matters(mention, before)
    return _matters(mention, before) or _matters(mention, after)


def _unchanged(names: Sequence[str], before: RowImage | None, after: RowImage | None) -> bool:
    if before is None or after is None:
        return False
    return all(name in before and name in after and same(before[name], after[name]) for name in names)


def _matters(mention: _Mention, image: RowImage | None) -> bool:
    """Return whether a row can satisfy all conditions, so that its being there can make a difference."""
    return image is None or all(condition(image) & TRUE for condition in mention.conditions)
