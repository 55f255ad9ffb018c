"""Notes which columns of which table references a query reads, sub-queries in its expressions included."""

from collections.abc import Iterable

from sqlglot import exp

from tailrace.sql.sqlite.catalog import fold
from tailrace.sql.sqlite.query.influence import find_conditions
from tailrace.sql.sqlite.query.reader import QueryReader, UsedExpression
from tailrace.sql.sqlite.query.relation import (
    Compound,
    Derived,
    Join,
    Node,
    NotUnderstoodError,
    Reference,
    Relation,
    Rows,
    Scope,
    SelectNode,
    Surroundings,
)

__all__ = ["Marker"]

_CLAUSES = ("where", "group", "having", "order", "limit", "offset", "windows")


class Marker:
    """Walks through a query that a reader takes apart, and demands every column that is used.

    `scalar` tells that a sub-query is used for its one value: if it has several rows, their order decides which.
    """

    def __init__(self, reader: QueryReader) -> None:
        self._reader = reader
        self.scalar = False

    def mark(self, tree: exp.Expr) -> None:
        """Mark everything that a whole query reads, and find its references' conditions."""
        self._query(tree, Surroundings(), None, whole=True)
        while self._reader.used:
            used = self._reader.used.pop()
            self._walk(used.tree, used.scope, used.around)

    def _query(self, tree: exp.Expr, around: Surroundings, outer: Scope | None, *, whole: bool) -> None:
        """Mark a query in its own right. Not `whole`: only whether it has rows is used, not what is in them."""
        node = self._reader.read(tree, around, outer)
        self._enter(node)
        if whole:
            _demand_all(node)
        find_conditions(node)

    def _enter(self, node: Node) -> None:
        """Mark what a query reads whichever of its columns are used."""
        match node:
            case SelectNode():
                if node.relation is not None:
                    self._relation(node.relation, node)
                for name in _CLAUSES:
                    self._walk_all(node.tree.args.get(name), node)
                if not node.plain:
                    _demand_all(node)
            case Compound():
                for branch in node.branches:
                    self._enter(branch)
                    if not node.bag:
                        _demand_all(branch)
                self._walk_all(node.limits, node)
            case Rows():
                self._walk_all(node.expressions, node)

    def _relation(self, relation: Relation, node: SelectNode) -> None:
        match relation:
            case Derived():
                self._enter(relation.node)
            case Join():
                self._relation(relation.left, node)
                self._relation(relation.right, node)
                self._walk_all(relation.on, node)
                for left, right in relation.equal:
                    left.demand()
                    right.demand()
            case Reference():
                pass

    def _walk_all(self, trees: exp.Expr | Iterable[exp.Expr] | None, node: Node) -> None:
        for tree in [trees] if isinstance(trees, exp.Expr) else trees or ():
            self._reader.used.append(UsedExpression(tree, node.scope, node.around))

    def _walk(self, tree: exp.Expr, scope: Scope, around: Surroundings) -> None:
        """Mark the columns of one expression; sub-queries in it are marked in their own right."""
        match tree:
            case exp.Column():
                self._column(tree, scope)
            case exp.Count() if isinstance(tree.this, exp.Star):
                pass
            case exp.Exists():
                self._query(tree.this, around, scope, whole=False)
            case exp.In():
                self._membership(tree, scope, around)
            case exp.Query():
                self.scalar = True
                self._query(tree, around, scope, whole=True)
            case exp.Star() | exp.Table() | exp.Values() | exp.Dot():
                raise NotUnderstoodError(type(tree).__name__)
            case _:
                for child in tree.iter_expressions():
                    self._walk(child, scope, around)

    def _column(self, column: exp.Column, scope: Scope) -> None:
        name = fold(column.name)
        if isinstance(column.this, exp.Star):
            raise NotUnderstoodError("star in an expression")
        found = scope.find(name, fold(column.table))
        if not found and (column.table or not column.this.args.get("quoted")):
            raise NotUnderstoodError("unknown column")  # in double quotes, SQLite takes it for a string
        for output in found:
            output.demand()

    def _membership(self, tree: exp.In, scope: Scope, around: Surroundings) -> None:
        self._walk(tree.this, scope, around)
        for member in tree.expressions:
            self._walk(member, scope, around)
        query, table = tree.args.get("query"), tree.args.get("field")
        if query is not None:
            self._query(query, around, scope, whole=True)
        if table is not None:
            if not isinstance(table, exp.Column) or table.args.get("catalog"):
                raise NotUnderstoodError("IN")
            relation, source = self._reader.table(table.name, table.table, around)
            if isinstance(relation, Derived):
                self._enter(relation.node)
                find_conditions(relation.node)
            for output in source.outputs:
                output.demand()


def _demand_all(node: Node) -> None:
    for output in node.outputs:
        output.demand()
