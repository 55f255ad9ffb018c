"""Queries written in SQL as trees of JSON, the way back from `tailrace.sql.sqlite.query.ast_form`. Pure.

Only what the trees can say: joins with ON, no USING; no windows, no collations, no column lists of common table
expressions. `to_sql` of the result is a query that means the same.
"""

from collections.abc import Iterable

from sqlglot import exp

from tailrace.model.errors import InvalidRequestError
from tailrace.model.value import Json, to_literal
from tailrace.sql.sqlite.catalog import fold
from tailrace.sql.sqlite.query.ast_form import BINARY, CAST_TYPES
from tailrace.sql.sqlite.query.relation import NotUnderstoodError
from tailrace.sql.sqlite.query.shape import join_kind, refuse_unknown_parts
from tailrace.sql.sqlite.query.statement import Query, argument_number

__all__ = ["from_sql"]

_BINARY: dict[type[exp.Expr], str] = {
    exp.EQ: "eq",
    exp.NEQ: "ne",
    exp.LT: "lt",
    exp.LTE: "le",
    exp.GT: "gt",
    exp.GTE: "ge",
    exp.Sub: "sub",
    exp.Mul: "mul",
    exp.Div: "div",
    exp.Mod: "mod",
    exp.Like: "like",
}
assert set(_BINARY.values()) | {"add"} == set(BINARY)

_FUNCTIONS: dict[type[exp.Expr], str] = {
    exp.Abs: "abs",
    exp.Avg: "avg",
    exp.Coalesce: "coalesce",
    exp.Count: "count",
    exp.Length: "length",
    exp.Lower: "lower",
    exp.Max: "max",
    exp.Min: "min",
    exp.Nullif: "nullif",
    exp.Round: "round",
    exp.Sum: "sum",
    exp.Upper: "upper",
}
_KINDS = {"INTEGER": "i64", "REAL": "f64", "NUMERIC": "dec", "TEXT": "str", "BLOB": "bytes"}
assert set(_KINDS.values()) <= set(CAST_TYPES)
_TYPES = {"INT": "INTEGER", "FLOAT": "REAL", "DECIMAL": "NUMERIC", "VARBINARY": "BLOB"}
"""sqlglot's names of SQLite's types, where they differ."""

_SETOPS: dict[type[exp.Expr], str] = {exp.Union: "union", exp.Intersect: "intersect", exp.Except: "except"}
_EXPRESSIBLE = {
    "expressions",
    "from_",
    "joins",
    "where",
    "group",
    "having",
    "order",
    "limit",
    "offset",
    "distinct",
    "with_",
}


def from_sql(statement: Query, source: str) -> Json:
    """Return the tree of a query. Tables that are no common table expressions get `db`: the source's name.

    Raises:
        InvalidRequestError: The query uses something that trees cannot say.
    """
    if statement.tree is None:
        raise InvalidRequestError(f"the query cannot be read: {statement.problem}")
    try:
        return _query(statement.tree, frozenset(), source)
    except NotUnderstoodError as error:
        raise InvalidRequestError(f"the query has no tree form: {error}") from error


def _query(tree: exp.Expr, commons: frozenset[str], source: str) -> Json:
    query: dict[str, Json] = {}
    clause = tree.args.get("with_")
    if clause is not None:
        definitions = clause.expressions
        commons |= {fold(definition.alias) for definition in definitions}
        query["with"] = [_definition(definition, commons, source) for definition in definitions]
    query["body"] = _body(tree, commons, source)
    order = tree.args.get("order")
    if order is not None:
        query["order_by"] = [_key(key, commons, source) for key in order.expressions]
    limit, offset = tree.args.get("limit"), tree.args.get("offset")
    if limit is not None:
        query["limit"] = {"limit": _count(limit)} | ({"offset": _count(offset)} if offset is not None else {})
    return query


def _definition(definition: exp.CTE, commons: frozenset[str], source: str) -> Json:
    refuse_unknown_parts(definition, {"this", "alias"})
    if definition.args["alias"].columns:
        raise NotUnderstoodError("columns of a common table expression")
    return {"name": definition.alias, "query": _query(definition.this, commons, source)}


def _key(key: exp.Expr, commons: frozenset[str], source: str) -> Json:
    refuse_unknown_parts(key, {"this", "desc", "nulls_first"})
    return {"expr": _expression(key.this, commons, source), "dir": "desc" if key.args.get("desc") else "asc"}


def _count(clause: exp.Expr) -> int:
    value = clause.expression
    if not isinstance(value, exp.Literal) or value.is_string or not value.name.isdecimal():
        raise NotUnderstoodError("LIMIT other than a number")
    return int(value.name)


def _body(tree: exp.Expr, commons: frozenset[str], source: str) -> Json:
    if isinstance(tree, exp.SetOperation):
        refuse_unknown_parts(tree, {"this", "expression", "distinct", "order", "limit", "offset", "with_"})
        operation = {"kind": _SETOPS[type(tree)], "all": tree.args.get("distinct") is False}
        sides = {name: _side(side, commons, source) for name, side in (("left", tree.this), ("right", tree.expression))}
        return {"setop": operation | sides}
    if not isinstance(tree, exp.Select):
        raise NotUnderstoodError(type(tree).__name__)
    refuse_unknown_parts(tree, _EXPRESSIBLE)
    select: dict[str, Json] = {"projection": [_item(item, commons, source) for item in tree.expressions]}
    if tree.args.get("from_") is not None:
        select["from"] = _tables(tree.args["from_"].this, tree.args.get("joins") or [], commons, source)
    if tree.args.get("where") is not None:
        select["where"] = _expression(tree.args["where"].this, commons, source)
    group = tree.args.get("group")
    if group is not None:
        refuse_unknown_parts(group, {"expressions"})
        select["group_by"] = [_expression(key, commons, source) for key in group.expressions]
    if tree.args.get("having") is not None:
        select["having"] = _expression(tree.args["having"].this, commons, source)
    if tree.args.get("distinct") is not None:
        select["distinct"] = True
    return {"select": select}


def _side(tree: exp.Expr, commons: frozenset[str], source: str) -> Json:
    if any(tree.args.get(name) for name in ("order", "limit", "offset", "with_")):
        raise NotUnderstoodError("a branch with clauses of its own")
    return _body(tree, commons, source)


def _item(item: exp.Expr, commons: frozenset[str], source: str) -> Json:
    if isinstance(item, exp.Star):
        return {"expr": {"col": "*"}}
    if isinstance(item, exp.Column) and isinstance(item.this, exp.Star):
        return {"expr": {"col": "*", "table": item.table}}
    alias = {"as": item.alias} if isinstance(item, exp.Alias) else {}
    return {"expr": _expression(item.unalias(), commons, source)} | alias


def _tables(first: exp.Expr, joins: Iterable[exp.Join], commons: frozenset[str], source: str) -> list[Json]:
    """Return the joined tables as one: a comma is a cross join, with which later joins go on."""
    left = _table(first, commons, source)
    for join in joins:
        kind, natural = join_kind(join)
        if natural or join.args.get("using"):
            raise NotUnderstoodError("a join by column names")
        on = join.args.get("on")
        words = "cross" if kind == "inner" and on is None else kind
        joined = {"type": words, "left": left, "right": _table(join.this, commons, source)}
        left = {"join": joined | ({"on": _expression(on, commons, source)} if on is not None else {})}
    return [left]


def _table(item: exp.Expr, commons: frozenset[str], source: str) -> Json:
    if isinstance(item, exp.Table) and isinstance(item.this, exp.Identifier):
        refuse_unknown_parts(item, {"this", "alias", "db", "joins"})
        alias = {"as": item.alias} if item.alias else {}
        home = {} if not item.db and fold(item.name) in commons else {"db": source}
        table: Json = home | {"table": item.name} | alias
    elif isinstance(item, exp.Subquery) and isinstance(item.this, exp.Table) and not item.alias:
        table = _table(item.this, commons, source)
    elif isinstance(item, exp.Subquery) and item.alias:
        refuse_unknown_parts(item, {"this", "alias", "joins"})
        table = {"subquery": {"query": _query(item.this, commons, source), "as": item.alias}}
    else:
        raise NotUnderstoodError(type(item).__name__)
    joins = item.args.get("joins") or []
    return _joined(table, joins, commons, source) if joins else table


def _joined(left: Json, joins: Iterable[exp.Join], commons: frozenset[str], source: str) -> Json:
    for join in joins:
        kind, natural = join_kind(join)
        on = join.args.get("on")
        if natural or join.args.get("using") or on is None:
            raise NotUnderstoodError("a join in brackets without ON")
        right = _table(join.this, commons, source)
        left = {"join": {"type": kind, "left": left, "right": right, "on": _expression(on, commons, source)}}
    return left


def _expression(tree: exp.Expr, commons: frozenset[str], source: str) -> Json:
    while isinstance(tree, exp.Paren):
        tree = tree.this
    number = argument_number(tree)
    if number is not None:
        return {"param": number - 1}
    if type(tree) in _FUNCTIONS:
        return _call(_FUNCTIONS[type(tree)], tree, commons, source)
    operation = _operation(tree, commons, source)
    if operation is not None:
        return operation
    match tree:
        case exp.Column():
            refuse_unknown_parts(tree, {"this", "table"})
            return {"col": tree.name} | ({"table": tree.table} if tree.table else {})
        case exp.Anonymous():
            return {"fn": tree.name, "args": [_expression(item, commons, source) for item in tree.expressions]}
        case exp.Cast():
            return {"cast": {"expr": _expression(tree.this, commons, source), "to": {"kind": _kind(tree)}}}
        case exp.Case():
            return _case(tree, commons, source)
        case exp.Exists():
            return {"exists": {"query": _query(tree.this, commons, source), "negated": False}}
        case exp.Subquery():
            return {"subquery": {"query": _query(tree.this, commons, source)}}
        case _:
            return {"lit": _literal(tree)}


def _operation(tree: exp.Expr, commons: frozenset[str], source: str) -> Json | None:
    """Return an expression that has an operator, None for any other."""

    def part(child: exp.Expr) -> Json:
        return _expression(child, commons, source)

    if isinstance(tree, exp.Sub) and isinstance(tree.expression, exp.Neg):  # how a plus is read
        return {"op": "add", "a": part(tree.this), "b": part(tree.expression.this)}
    if type(tree) in _BINARY:
        return {"op": _BINARY[type(tree)], "a": part(tree.this), "b": part(tree.expression)}
    match tree:
        case exp.And() | exp.Or():
            return {"op": type(tree).__name__.lower(), "args": [part(child) for child in tree.flatten()]}
        case exp.Not():
            return {"op": "not", "a": part(tree.this)}
        case exp.Is() if isinstance(tree.expression, exp.Null):
            return {"op": "is_null", "a": part(tree.this)}
        case exp.In():
            refuse_unknown_parts(tree, {"this", "expressions"})
            return {"op": "in", "a": part(tree.this), "list": [part(item) for item in tree.expressions]}
        case exp.Between():
            refuse_unknown_parts(tree, {"this", "low", "high"})
            return {"op": "between", "a": part(tree.this), "lo": part(tree.args["low"]), "hi": part(tree.args["high"])}
        case _:
            return None


def _call(name: str, tree: exp.Expr, commons: frozenset[str], source: str) -> Json:
    refuse_unknown_parts(tree, {"this", "expression", "expressions", "decimals", "big_int"})
    if isinstance(tree.this, exp.Star):
        return {"fn": name, "args": []}
    first = tree.this
    distinct = isinstance(first, exp.Distinct)
    if distinct:
        first = first.expressions[0]
    others = [tree.args.get("expression"), tree.args.get("decimals"), *(tree.args.get("expressions") or [])]
    arguments = [first, *(other for other in others if isinstance(other, exp.Expr))]
    call: Json = {"fn": name, "args": [_expression(argument, commons, source) for argument in arguments]}
    return call | ({"distinct": True} if distinct else {})


def _case(tree: exp.Case, commons: frozenset[str], source: str) -> Json:
    refuse_unknown_parts(tree, {"ifs", "default"})
    when = [
        {"if": _expression(branch.this, commons, source), "then": _expression(branch.args["true"], commons, source)}
        for branch in tree.args["ifs"]
    ]
    default = tree.args.get("default")
    return {"case": {"when": when} | ({"else": _expression(default, commons, source)} if default is not None else {})}


def _kind(tree: exp.Cast) -> str:
    name = str(tree.to.this.value)
    kind = _KINDS.get(_TYPES.get(name, name))
    if kind is None:
        raise NotUnderstoodError("a type of CAST")
    return kind


def _literal(tree: exp.Expr) -> Json:
    sign, value = (-1, tree.this) if isinstance(tree, exp.Neg) else (1, tree)
    match value:
        case exp.Null() if sign == 1:
            return {"t": "null"}
        case exp.Boolean() if sign == 1:
            return {"t": "i64", "v": int(value.this)}
        case exp.HexString() if sign == 1:
            return to_literal(bytes.fromhex(value.name))
        case exp.Literal() if value.is_string and sign == 1:
            return to_literal(value.name)
        case exp.Literal() if not value.is_string:
            text = value.name
            return to_literal(sign * (int(text) if text.isdecimal() else float(text)))
        case _:
            raise NotUnderstoodError(type(tree).__name__)
