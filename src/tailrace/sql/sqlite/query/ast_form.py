"""Queries as trees of JSON (SkeinQL 1.0, chapters 4 and 5), written out as SQLite's SQL. Pure.

Every member is checked; an error names the place in the tree, as in `query.body.select.where.a: …`. Names become quoted
names that SQLite never takes for strings, `{"param": n}` (from 0) the argument `?n+1`, literals SQL literals.
"""

import math
import re
from collections.abc import Callable, Mapping
from decimal import Decimal

from tailrace.model.errors import InvalidRequestError, InvalidValueError
from tailrace.model.value import Array, Json, Text, Value, from_literal
from tailrace.sql.sqlite.query.statement import ARGUMENTS_MAX, DEPTH_MAX

__all__ = ["BINARY", "CAST_TYPES", "JOINS", "to_sql"]

BINARY = {
    "eq": "=",
    "ne": "<>",
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
    "add": "+",
    "sub": "-",
    "mul": "*",
    "div": "/",
    "mod": "%",
    "like": "LIKE",
}
JOINS = {"inner": "JOIN", "left": "LEFT JOIN", "right": "RIGHT JOIN", "full": "FULL JOIN", "cross": "CROSS JOIN"}
CAST_TYPES = {
    "bool": "INTEGER",
    "i64": "INTEGER",
    "u64": "INTEGER",
    "f64": "REAL",
    "dec": "NUMERIC",
    "str": "TEXT",
    "varchar": "TEXT",
    "bytes": "BLOB",
    "json": "TEXT",
    "date": "TEXT",
    "time": "TEXT",
    "datetime": "TEXT",
    "uuid": "TEXT",
}
"""The type that a value is cast to, by the kind of a type descriptor."""

_FUNCTION = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OPERATIONS = {"union": "UNION", "intersect": "INTERSECT", "except": "EXCEPT"}
_INTEGER_MAX = 2**63


def to_sql(query: Json, source: str) -> str:
    """Return the SQL of a query tree. Tables are those of the source: `db` is its name, or left out.

    Raises:
        InvalidRequestError: The tree is malformed; the message begins with the place of the fault.
    """
    return _Writer(source).query(query, "query")


class _Writer:
    def __init__(self, source: str) -> None:
        self._source = source
        self._depth = 0

    def query(self, tree: Json, path: str) -> str:
        self._down(path)
        members = _members(tree, path, {"body"}, {"with", "order_by", "limit", "lock"})
        if members.get("lock", "none") not in (None, "none"):
            raise _fault(f"{path}.lock", "a prepared query takes no locks")
        parts = [self._with(members, path), self._body(members["body"], f"{path}.body")]
        keys = _list(members.get("order_by"), f"{path}.order_by")
        if keys:
            ordered = [self._key(key, place) for key, place in _items(keys, f"{path}.order_by")]
            parts.append(f"ORDER BY {', '.join(ordered)}")
        if members.get("limit") is not None:
            parts.append(_limit(members["limit"], f"{path}.limit"))
        self._depth -= 1
        return " ".join(part for part in parts if part)

    def _with(self, members: Mapping[str, Json], path: str) -> str:
        definitions = []
        for definition, place in _items(_list(members.get("with"), f"{path}.with"), f"{path}.with"):
            inner = _members(definition, place, {"name", "query"}, set())
            name = _name(inner["name"], f"{place}.name")
            definitions.append(f"{name} AS ({self.query(inner['query'], f'{place}.query')})")
        return f"WITH {', '.join(definitions)}" if definitions else ""

    def _key(self, key: Json, path: str) -> str:
        members = _members(key, path, {"expr"}, {"dir"})
        direction = members.get("dir", "asc")
        if direction not in ("asc", "desc"):
            raise _fault(f"{path}.dir", "is asc or desc")
        return f"{self.expression(members['expr'], f'{path}.expr')}{' DESC' if direction == 'desc' else ''}"

    def _body(self, body: Json, path: str) -> str:
        self._down(path)
        kind, inner, place = _one_of(body, path, {"select", "setop"})
        text = self._select(inner, place) if kind == "select" else self._setop(inner, place)
        self._depth -= 1
        return text

    def _setop(self, tree: Json, path: str) -> str:
        members = _members(tree, path, {"kind", "left", "right"}, {"all"})
        operation = _OPERATIONS.get(_text(members["kind"], f"{path}.kind"))
        every = _flag(members.get("all"), f"{path}.all")
        if operation is None or (every and operation != "UNION"):
            raise _fault(f"{path}.kind", "is union, intersect or except; only a union can be of all rows")
        left = self._body(members["left"], f"{path}.left")
        right = self._body(members["right"], f"{path}.right")
        if "setop" in members["right"]:  # SQL's set operations group to the left
            right = f"SELECT * FROM ({right})"  # noqa: S608
        return f"{left} {operation}{' ALL' if every else ''} {right}"

    def _select(self, tree: Json, path: str) -> str:
        members = _members(tree, path, {"projection"}, {"from", "where", "group_by", "having", "distinct"})
        projection = _list(members["projection"], f"{path}.projection")
        if not projection:
            raise _fault(f"{path}.projection", "has at least one item")
        items = [self._item(item, place) for item, place in _items(projection, f"{path}.projection")]
        parts = [
            "SELECT DISTINCT" if _flag(members.get("distinct"), f"{path}.distinct") else "SELECT",
            ", ".join(items),
        ]
        tables = _list(members.get("from"), f"{path}.from")
        if tables:
            parts.append(
                "FROM " + ", ".join(self._table(table, place) for table, place in _items(tables, f"{path}.from"))
            )
        if members.get("where") is not None:
            parts.append(f"WHERE {self.expression(members['where'], f'{path}.where')}")
        keys = _list(members.get("group_by"), f"{path}.group_by")
        if keys:
            grouped = [self.expression(key, place) for key, place in _items(keys, f"{path}.group_by")]
            parts.append(f"GROUP BY {', '.join(grouped)}")
        if members.get("having") is not None:
            parts.append(f"HAVING {self.expression(members['having'], f'{path}.having')}")
        return " ".join(parts)

    def _item(self, item: Json, path: str) -> str:
        members = _members(item, path, {"expr"}, {"as"})
        expression = members["expr"]
        if isinstance(expression, dict) and expression.get("col") == "*":
            inner = _members(expression, f"{path}.expr", {"col"}, {"table"})
            table = inner.get("table")
            return "*" if table is None else f"{_name(table, f'{path}.expr.table')}.*"
        text = self.expression(expression, f"{path}.expr")
        return text if members.get("as") is None else f"{text} AS {_name(members['as'], f'{path}.as')}"

    def _table(self, table: Json, path: str) -> str:
        self._down(path)
        text = self._table_text(table, path)
        self._depth -= 1
        return text

    def _table_text(self, table: Json, path: str) -> str:
        if isinstance(table, dict) and "join" in table:
            _, inner, place = _one_of(table, path, {"join"})
            members = _members(inner, place, {"type", "left", "right"}, {"on"})
            words = JOINS.get(_text(members["type"], f"{place}.type"))
            if words is None:
                raise _fault(f"{place}.type", f"is one of {', '.join(JOINS)}")
            left = self._table(members["left"], f"{place}.left")
            right = self._table(members["right"], f"{place}.right")
            right = f"({right})" if "join" in members["right"] else right
            on = members.get("on")
            return f"{left} {words} {right}" + (f" ON {self.expression(on, f'{place}.on')}" if on is not None else "")
        if isinstance(table, dict) and "subquery" in table:
            _, inner, place = _one_of(table, path, {"subquery"})
            members = _members(inner, place, {"query", "as"}, set())
            return f"({self.query(members['query'], f'{place}.query')}) AS {_name(members['as'], f'{place}.as')}"
        members = _members(table, path, {"table"}, {"db", "as"})
        name = _name(members["table"], f"{path}.table")
        if members.get("db") is not None:
            if members["db"] != self._source:
                raise _fault(f"{path}.db", f"is {self._source!r}, the source of the query")
            name = f"main.{name}"
        return name if members.get("as") is None else f"{name} AS {_name(members['as'], f'{path}.as')}"

    def expression(self, tree: Json, path: str) -> str:
        self._down(path)
        if not isinstance(tree, dict):
            raise _fault(path, "an expression is an object")
        kind = next((kind for kind in _EXPRESSIONS if kind in tree), None)
        if kind is None:
            raise _fault(path, f"an expression has one of the members {', '.join(_EXPRESSIONS)}")
        text = _EXPRESSIONS[kind](self, tree, path)
        self._depth -= 1
        return text

    def column(self, tree: Json, path: str) -> str:
        members = _members(tree, path, {"col"}, {"table"})
        name = _name(members["col"], f"{path}.col")
        return name if members.get("table") is None else f"{_name(members['table'], f'{path}.table')}.{name}"

    def literal(self, tree: Json, path: str) -> str:
        members = _members(tree, path, {"lit"}, set())
        try:
            return _literal(from_literal(members["lit"]))
        except InvalidValueError as error:
            raise _fault(f"{path}.lit", str(error)) from error

    def argument(self, tree: Json, path: str) -> str:
        number = _members(tree, path, {"param"}, set())["param"]
        if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < ARGUMENTS_MAX:
            raise _fault(f"{path}.param", f"is an integer from 0 to {ARGUMENTS_MAX - 1}")
        return f"?{number + 1}"

    def operation(self, tree: Json, path: str) -> str:
        operator = _text(tree["op"], f"{path}.op")
        if operator in BINARY:
            members = _members(tree, path, {"op", "a", "b"}, set())
            return f"({self._part(members, 'a', path)} {BINARY[operator]} {self._part(members, 'b', path)})"
        if operator in ("and", "or"):
            return f"({f' {operator.upper()} '.join(self._parts(tree, path))})"
        if operator == "not":
            return f"(NOT {self._part(_members(tree, path, {'op', 'a'}, set()), 'a', path)})"
        if operator == "is_null":
            return f"({self._part(_members(tree, path, {'op', 'a'}, set()), 'a', path)} IS NULL)"
        if operator == "in":
            members = _members(tree, path, {"op", "a", "list"}, set())
            listed = _items(_list(members["list"], f"{path}.list"), f"{path}.list")
            texts = ", ".join(self.expression(item, place) for item, place in listed)
            return f"({self._part(members, 'a', path)} IN ({texts}))"
        if operator == "between":
            members = _members(tree, path, {"op", "a", "lo", "hi"}, set())
            texts = " AND ".join(self._part(members, bound, path) for bound in ("lo", "hi"))
            return f"({self._part(members, 'a', path)} BETWEEN {texts})"
        raise _fault(f"{path}.op", f"unknown operator {operator!r}")

    def call(self, tree: Json, path: str) -> str:
        members = _members(tree, path, {"fn"}, {"args", "distinct"})
        name = _text(members["fn"], f"{path}.fn")
        if not _FUNCTION.fullmatch(name):
            raise _fault(f"{path}.fn", "is the name of a function")
        arguments = _items(_list(members.get("args"), f"{path}.args"), f"{path}.args")
        texts = ", ".join(self.expression(argument, place) for argument, place in arguments)
        if name.lower() == "count" and not texts:
            return f"{name}(*)"
        return f"{name}({'DISTINCT ' if _flag(members.get('distinct'), f'{path}.distinct') else ''}{texts})"

    def cast(self, tree: Json, path: str) -> str:
        inner = _members(tree, path, {"cast"}, set())["cast"]
        members = _members(inner, f"{path}.cast", {"expr", "to"}, set())
        target = members["to"]
        kind = CAST_TYPES.get(str(target.get("kind"))) if isinstance(target, dict) else None
        if kind is None:
            raise _fault(f"{path}.cast.to.kind", f"is one of {', '.join(CAST_TYPES)}")
        return f"CAST({self._part(members, 'expr', f'{path}.cast')} AS {kind})"

    def case(self, tree: Json, path: str) -> str:
        inner = _members(tree, path, {"case"}, set())["case"]
        members = _members(inner, f"{path}.case", {"when"}, {"else"})
        parts = ["CASE"]
        branches = _list(members["when"], f"{path}.case.when")
        if not branches:
            raise _fault(f"{path}.case.when", "has at least one branch")
        for branch, place in _items(branches, f"{path}.case.when"):
            pair = _members(branch, place, {"if", "then"}, set())
            parts.append(f"WHEN {self._part(pair, 'if', place)} THEN {self._part(pair, 'then', place)}")
        if members.get("else") is not None:
            parts.append(f"ELSE {self._part(members, 'else', f'{path}.case')}")
        return " ".join([*parts, "END"])

    def subquery(self, tree: Json, path: str) -> str:
        inner = _members(tree, path, {"subquery"}, set())["subquery"]
        members = _members(inner, f"{path}.subquery", {"query"}, set())
        return f"({self.query(members['query'], f'{path}.subquery.query')})"

    def exists(self, tree: Json, path: str) -> str:
        inner = _members(tree, path, {"exists"}, set())["exists"]
        members = _members(inner, f"{path}.exists", {"query"}, {"negated"})
        text = f"EXISTS ({self.query(members['query'], f'{path}.exists.query')})"
        return f"(NOT {text})" if _flag(members.get("negated"), f"{path}.exists.negated") else text

    def _part(self, members: Mapping[str, Json], name: str, path: str) -> str:
        return self.expression(members[name], f"{path}.{name}")

    def _parts(self, tree: Json, path: str) -> list[str]:
        if "args" not in tree:
            members = _members(tree, path, {"op", "a", "b"}, set())
            return [self._part(members, "a", path), self._part(members, "b", path)]
        listed = _list(_members(tree, path, {"op", "args"}, set())["args"], f"{path}.args")
        if not listed:
            raise _fault(f"{path}.args", "has at least one expression")
        return [self.expression(item, place) for item, place in _items(listed, f"{path}.args")]

    def _down(self, path: str) -> None:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise _fault(path, f"is nested deeper than {DEPTH_MAX}")


_EXPRESSIONS: dict[str, Callable[[_Writer, Json, str], str]] = {
    "col": _Writer.column,
    "lit": _Writer.literal,
    "param": _Writer.argument,
    "op": _Writer.operation,
    "fn": _Writer.call,
    "cast": _Writer.cast,
    "case": _Writer.case,
    "subquery": _Writer.subquery,
    "exists": _Writer.exists,
}


def _fault(path: str, problem: str) -> InvalidRequestError:
    return InvalidRequestError(f"{path}: {problem}")


def _members(tree: Json, path: str, required: set[str], optional: set[str]) -> Mapping[str, Json]:
    if not isinstance(tree, dict):
        raise _fault(path, "is an object")
    missing = sorted(required - tree.keys())
    if missing:
        raise _fault(path, f"lacks {missing[0]!r}")
    unknown = sorted(tree.keys() - required - optional)
    if unknown:
        raise _fault(f"{path}.{unknown[0]}", "unknown member")
    return tree


def _one_of(tree: Json, path: str, names: set[str]) -> tuple[str, Json, str]:
    if not isinstance(tree, dict) or len(tree) != 1 or next(iter(tree)) not in names:
        raise _fault(path, f"is an object with the one member {' or '.join(sorted(names))}")
    name = next(iter(tree))
    return name, tree[name], f"{path}.{name}"


def _list(value: Json, path: str) -> list[Json]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise _fault(path, "is a list")
    return value


def _items(values: list[Json], path: str) -> list[tuple[Json, str]]:
    return [(value, f"{path}[{number}]") for number, value in enumerate(values)]


def _text(value: Json, path: str) -> str:
    if not isinstance(value, str):
        raise _fault(path, "is a string")
    return value


def _flag(value: Json, path: str) -> bool:
    if value is not None and not isinstance(value, bool):
        raise _fault(path, "is true or false")
    return bool(value)


def _name(value: Json, path: str) -> str:
    name = _text(value, path)
    if not name or "\0" in name:
        raise _fault(path, "is a name")
    return "`" + name.replace("`", "``") + "`"


def _limit(tree: Json, path: str) -> str:
    members = _members(tree, path, {"limit"}, {"offset"})
    parts = []
    for name in ("limit", "offset"):
        value = members.get(name)
        if value is None and name == "offset":
            continue
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < _INTEGER_MAX:
            raise _fault(f"{path}.{name}", "is an integer of 0 or more")
        parts.append(f"{name.upper()} {value}")
    return " ".join(parts)


def _literal(value: Value) -> str:
    """Return a value as SQL, in the storage class that an argument of it would have."""
    match value:
        case None:
            return "NULL"
        case bool():
            return str(int(value))
        case int():
            if not -_INTEGER_MAX < value < _INTEGER_MAX:
                raise InvalidValueError("an integer has 64 bits at most")
            return str(value)
        case float():
            return "NULL" if math.isnan(value) else repr(value).replace("inf", "9e999")
        case bytes():
            return f"x'{value.hex()}'"
        case Array():
            raise InvalidValueError("SQLite has no arrays")
        case Decimal() | str() | Text():
            text = value.text if isinstance(value, Text) else str(value)
            if "\0" in text:
                raise InvalidValueError("a text in a query cannot hold the character NUL: use a param")
            return "'" + text.replace("'", "''") + "'"
