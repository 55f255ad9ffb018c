"""Takes a query's tree apart into relations, with views and common table expressions put in where they are used. Pure.

Only shapes that are known to mean the same to SQLite are followed; anything else raises `NotUnderstoodError`. Names are
looked up as SQLite does it: letters' case aside, the innermost scope first; a common table expression hides a table of
its name, also in the definitions beside it, but not inside a view.
"""

from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct
from sqlglot import exp

from tailrace.model.errors import InvalidRequestError
from tailrace.sql.sqlite.catalog import ROWID_NAMES, CatalogTable, CatalogView, SqliteCatalog, fold
from tailrace.sql.sqlite.query.function import Usage
from tailrace.sql.sqlite.query.relation import (
    CommonTable,
    Compound,
    Derived,
    FromItem,
    Join,
    JoinKind,
    Node,
    NotUnderstoodError,
    Output,
    Reference,
    Relation,
    Rows,
    Scope,
    SelectNode,
    Surroundings,
    base_item,
)
from tailrace.sql.sqlite.query.shape import is_plain, join_kind, refuse_unknown_parts
from tailrace.sql.sqlite.query.statement import parse_view

__all__ = ["QUERIES_MAX", "REFERENCES_MAX", "QueryReader", "UsedExpression"]

REFERENCES_MAX = 128
"""Mentions of tables in a query, views and common table expressions counted as often as they are used."""
QUERIES_MAX = 512
"""Queries within a query, counted alike."""


class UsedExpression(Struct, frozen=True):
    """An expression that is used, with what its names mean."""

    tree: exp.Expr
    scope: Scope
    around: Surroundings


class QueryReader:
    """Takes one query apart.

    `references` are its mentions of base tables; `usages` and `trees` are the words and trees of its views. `used` are
    the expressions whose value is used but whose columns were not looked at yet: demanding a column of a query puts
    them there.
    """

    def __init__(self, catalog: SqliteCatalog) -> None:
        self._catalog = catalog
        self._views: dict[str, tuple[exp.Expr, list[str]]] = {}
        self._queries = 0
        self.references: list[Reference] = []
        self.usages: list[Usage] = []
        self.trees: list[exp.Expr] = []
        self.used: list[UsedExpression] = []
        self.recursive = False

    def read(self, tree: exp.Expr, around: Surroundings, outer: Scope | None) -> Node:
        """Return a query taken apart. `outer` is the scope of the expression that it stands in."""
        self._queries += 1
        if self._queries > QUERIES_MAX:
            raise NotUnderstoodError("too many queries")
        around = _with(tree, around, outer)
        match tree:
            case exp.Subquery():
                refuse_unknown_parts(tree, {"this", "alias", "with_"})
                return self.read(tree.this, around, outer)
            case exp.Select():
                return self._select(tree, around, outer)
            case exp.SetOperation():
                return self._compound(tree, around, outer)
            case exp.Values():
                return _values(tree, around, outer)
            case _:
                raise NotUnderstoodError(type(tree).__name__)

    def table(self, name: str, schema: str, around: Surroundings) -> tuple[Relation, FromItem]:
        """Return what a name in a FROM stands for, under that name."""
        folded = fold(name)
        if schema and fold(schema) != "main":
            raise InvalidRequestError(f"a query reads the main schema only, not {schema}.{name}")
        common = around.tables.get(folded) if not schema else None
        if common is not None:
            return _derived(self._common(common), folded)
        view = self._catalog.view(name)
        if view is not None:
            return _derived(self._view(view), folded)
        table = self._catalog.table(name)
        if table is None:
            raise InvalidRequestError(f"no such table: {name}")
        reference = self._reference(table)
        return reference, base_item(reference, folded)

    def _select(self, tree: exp.Select, around: Surroundings, outer: Scope | None) -> SelectNode:
        refuse_unknown_parts(
            tree,
            {"expressions", "from_", "joins", "where", "group", "having", "order", "limit", "offset", "distinct"}
            | {"windows", "with_"},
        )
        scope = Scope(outer)
        relation, star = None, list[Output]()
        if tree.args.get("from_") is not None:
            item = tree.args["from_"].this
            relation, star = self._item(item, around, scope)
            relation, star = self._joins(tree.args.get("joins") or [], relation, star, around, scope)
        selection = SelectNode(tree, scope, around, relation, [], is_plain(tree))
        for projection in tree.expressions:
            selection.outputs += self._projection(projection, around, scope, star)
        return selection

    def _projection(self, projection: exp.Expr, around: Surroundings, scope: Scope, star: list[Output]) -> list[Output]:
        if isinstance(projection, exp.Star):
            refuse_unknown_parts(projection, set())
            return [Output(output.name, output.demand, output.column) for output in star]
        if isinstance(projection, exp.Column) and isinstance(projection.this, exp.Star):
            sources = scope.named(fold(projection.table))
            if len(sources) != 1:
                raise NotUnderstoodError("star of several tables")
            return [Output(output.name, output.demand, output.column) for output in sources[0].outputs]
        value = projection.unalias()
        output = Output(None, self._use_once(UsedExpression(value, scope, around)))
        if isinstance(value, exp.Column) and not isinstance(value.this, exp.Star):
            name = fold(value.name)
            found = scope.local(name, fold(value.table))
            if len(found) == 1:
                output.column = found[0].column
            output.name = name if found and name not in ROWID_NAMES else None
        if isinstance(projection, exp.Alias):
            output.name = fold(projection.alias)
            scope.aliases.setdefault(output.name, []).append(output)
        return [output]

    def _use_once(self, expression: UsedExpression) -> Callable[[], None]:
        """Return a function that puts the expression among the used ones the first time that it is called."""
        waiting = [expression]

        def use() -> None:
            self.used.extend(waiting)
            waiting.clear()

        return use

    def _item(self, item: exp.Expr, around: Surroundings, scope: Scope) -> tuple[Relation, list[Output]]:
        """Return one item of a FROM and the columns that a star stands for; its sources are added to the scope."""
        alias = fold(item.alias)
        match item:
            case exp.Table():
                relation, source = self._table_item(item, around)
            case exp.Subquery() if isinstance(item.this, exp.Table) or (
                isinstance(item.this, exp.Subquery) and item.this.args.get("joins")
            ):
                return self._bracketed(item, around, scope)
            case exp.Subquery():
                refuse_unknown_parts(item, {"this", "alias", "joins"})
                relation, source = _derived(self.read(item.this, around, scope.around), alias)
            case exp.Values():
                relation, source = _derived(_values(item, around, scope.around), alias)
            case _:
                raise NotUnderstoodError(type(item).__name__)
        scope.sources.append(source)
        return self._joins(item.args.get("joins") or [], relation, list(source.outputs), around, scope)

    def _table_item(self, item: exp.Table, around: Surroundings) -> tuple[Relation, FromItem]:
        refuse_unknown_parts(item, {"this", "alias", "db", "joins", "indexed"})
        if not isinstance(item.this, exp.Identifier):
            if item.this.name.lower().startswith("pragma_"):
                raise InvalidRequestError("a query does not read pragmas")
            raise NotUnderstoodError("table function")
        relation, source = self.table(item.name, item.db, around)
        if item.alias:
            source.name = fold(item.alias)
        return relation, source

    def _bracketed(self, item: exp.Subquery, around: Surroundings, scope: Scope) -> tuple[Relation, list[Output]]:
        """Return joins in brackets. Their tables keep their names, unless the brackets have one of their own."""
        refuse_unknown_parts(item, {"this", "alias", "joins"})
        if item.alias:
            raise NotUnderstoodError("joins in brackets with a name")
        relation, star = self._item(item.this, around, scope)
        return self._joins(item.args.get("joins") or [], relation, star, around, scope)

    def _joins(
        self, joins: Iterable[exp.Join], left: Relation, star: list[Output], around: Surroundings, scope: Scope
    ) -> tuple[Relation, list[Output]]:
        for join in joins:
            kind, natural = join_kind(join)
            right, columns = self._item(join.this, around, scope)
            names = [fold(name.name) for name in join.args.get("using") or []]
            if natural:
                known = {output.name for output in star}
                if None in known or any(output.name is None for output in columns):
                    raise NotUnderstoodError("natural join of columns without known names")
                names = [output.name for output in columns if output.name in known]  # type: ignore[misc]
            equal = [(_called(star, name), _called(columns, name)) for name in names]
            left = Join(kind, left, right, join.args.get("on"), equal)
            merged = {name: _merged(*pair, kind) for name, pair in zip(names, equal, strict=True)}
            scope.merged.update(merged)
            star = [merged.get(output.name or "", output) for output in star]
            star += [output for output in columns if output.name not in merged]
        return left, star

    def _compound(self, tree: exp.SetOperation, around: Surroundings, outer: Scope | None) -> Compound:
        parts, operations = _branches(tree)
        bag = all(isinstance(part, exp.Union) and part.args.get("distinct") is False for part in operations)
        limits = [part.args[name] for part in operations for name in ("limit", "offset") if part.args.get(name)]
        ordered = [part.args["order"] for part in operations if part.args.get("order")]
        if any(order.find(exp.Query) for order in ordered):
            raise NotUnderstoodError("a query in the ORDER BY of a compound")
        branches = [self.read(part, around, outer) for part in parts]
        if len({len(branch.outputs) for branch in branches}) != 1:
            raise NotUnderstoodError("branches of different width")
        outputs = [_united(column) for column in zip(*(branch.outputs for branch in branches), strict=True)]
        return Compound(branches, outputs, bag and not limits and not ordered, limits, Scope(outer), around)

    def _common(self, common: CommonTable) -> Node:
        refuse_unknown_parts(common.tree, {"this", "alias", "materialized"})
        columns = [column.name for column in common.tree.args["alias"].columns]
        if common.open:
            common.recursive = self.recursive = True
            names = columns or _first_names(common.tree.this)
            return Rows([Output(fold(name), lambda: None) for name in names], [], Scope(None), common.around)
        common.open = True
        try:
            node = self.read(common.tree.this, common.around, common.scope)
        finally:
            common.open = False
        if isinstance(node, Compound) and common.recursive:
            node.bag = False
        elif common.recursive:
            raise NotUnderstoodError("recursion without branches")
        return _renamed(node, columns)

    def _view(self, view: CatalogView) -> Node:
        if view.name not in self._views:
            create, words = parse_view(view.sql)
            if create is None:
                raise NotUnderstoodError("view")
            refuse_unknown_parts(create, {"this", "kind", "expression", "exists", "properties"})
            header = create.this
            names = [column.name for column in header.expressions] if isinstance(header, exp.Schema) else []
            self._views[view.name] = (create.expression, names)
            self.usages.append(words)
            self.trees.append(create.expression)
        tree, names = self._views[view.name]
        return _renamed(self.read(tree, Surroundings(), None), names)

    def _reference(self, table: CatalogTable) -> Reference:
        if len(self.references) >= REFERENCES_MAX:
            raise NotUnderstoodError("too many tables")
        reference = Reference(len(self.references), table)
        self.references.append(reference)
        return reference


def _with(tree: exp.Expr, around: Surroundings, outer: Scope | None) -> Surroundings:
    """Return what can be seen within a query: the definitions of its own WITH hide those around it."""
    clause = tree.args.get("with_")
    if clause is None:
        return around
    inside = Surroundings(dict(around.tables))
    for definition in clause.expressions:
        if not isinstance(definition, exp.CTE):
            raise NotUnderstoodError("with")
        inside.tables[fold(definition.alias)] = CommonTable(definition, inside, outer)
    return inside


def _derived(node: Node, name: str) -> tuple[Derived, FromItem]:
    """Return a query as an item of a FROM. Only a plain SELECT hands base columns through."""
    through = isinstance(node, SelectNode) and node.plain
    outputs = [Output(output.name, output.demand, output.column if through else None) for output in node.outputs]
    return Derived(node), FromItem(name, outputs)


def _branches(tree: exp.SetOperation) -> tuple[list[exp.Expr], list[exp.SetOperation]]:
    """Return the queries of a compound from left to right, and the operations between them."""
    parts: list[exp.Expr] = []
    operations: list[exp.SetOperation] = []
    pending: list[exp.Expr] = [tree]
    while pending:
        part = pending.pop()
        if isinstance(part, exp.SetOperation):
            refuse_unknown_parts(part, {"this", "expression", "distinct", "order", "limit", "offset", "with_"})
            if part is not tree and part.args.get("with_"):
                raise NotUnderstoodError("WITH within a compound")
            operations.append(part)
            pending += [part.expression, part.this]
        else:
            parts.append(part)
    return parts, operations


def _values(tree: exp.Values, around: Surroundings, outer: Scope | None) -> Rows:
    refuse_unknown_parts(tree, {"expressions", "alias", "joins"})
    width = len(tree.expressions[0].expressions) if isinstance(tree.expressions[0], exp.Tuple) else 1
    outputs = [Output(f"column{number + 1}", lambda: None) for number in range(width)]
    return Rows(outputs, tree.expressions, Scope(outer), around)


def _renamed(node: Node, names: list[str]) -> Node:
    if names and len(names) != len(node.outputs):
        raise NotUnderstoodError("another number of columns")
    for output, name in zip(node.outputs, names, strict=False):
        output.name = fold(name)
    return node


def _first_names(tree: exp.Expr) -> list[str]:
    """Return the names of the columns of a recursive query that has no list of them: those of its first branch."""
    while isinstance(tree, exp.SetOperation | exp.Subquery):
        tree = tree.this
    names = [projection.alias_or_name for projection in tree.expressions] if isinstance(tree, exp.Select) else []
    if not names or "" in names or "*" in names:
        raise NotUnderstoodError("recursion without names")
    return names


def _called(outputs: list[Output], name: str) -> Output:
    found = [output for output in outputs if output.name == name]
    if len(found) != 1:
        raise NotUnderstoodError("a joined column is missing or ambiguous")
    return found[0]


def _merged(left: Output, right: Output, kind: JoinKind) -> Output:
    """Return the one column that a join by name makes of two: of a right or full join, the first that is not NULL."""
    return left if kind in ("inner", "left") else _united((left, right))


def _united(outputs: Sequence[Output]) -> Output:
    def demand() -> None:
        for output in outputs:
            output.demand()

    return Output(outputs[0].name, demand)
