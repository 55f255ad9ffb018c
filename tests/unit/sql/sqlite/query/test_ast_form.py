from contextlib import suppress

import apsw
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.model.errors import InvalidRequestError
from tailrace.model.value import to_literal
from tailrace.sql.sqlite.query.ast_form import BINARY, CAST_TYPES, JOINS, to_sql
from tailrace.sql.sqlite.query.statement import DEPTH_MAX, parse

ONE = {"lit": {"t": "i64", "v": 1}}
T = {"db": "app", "table": "t"}
U = {"db": "app", "table": "u"}


def select(expression=ONE, **members):
    return {"body": {"select": {"projection": [{"expr": expression}]} | members}}


def expression(tree):
    return to_sql(select(tree), "app").removeprefix("SELECT ")


EXPRESSIONS = [
    ({"col": "a"}, "`a`"),
    ({"col": "a`b", "table": "t"}, "`t`.`a``b`"),
    ({"param": 0}, "?1"),
    ({"op": "not", "a": {"col": "a"}}, "(NOT `a`)"),
    ({"op": "and", "a": {"col": "a"}, "b": {"col": "b"}}, "(`a` AND `b`)"),
    ({"op": "or", "args": [{"col": "a"}, {"col": "b"}, ONE]}, "(`a` OR `b` OR 1)"),
    ({"op": "in", "a": {"col": "a"}, "list": [ONE, {"param": 1}]}, "(`a` IN (1, ?2))"),
    ({"op": "in", "a": {"col": "a"}, "list": []}, "(`a` IN ())"),
    ({"op": "between", "a": {"col": "a"}, "lo": ONE, "hi": {"param": 0}}, "(`a` BETWEEN 1 AND ?1)"),
    ({"op": "is_null", "a": {"col": "a"}}, "(`a` IS NULL)"),
    ({"fn": "lower", "args": [{"col": "a"}]}, "lower(`a`)"),
    ({"fn": "count", "args": []}, "count(*)"),
    ({"fn": "count", "args": [{"col": "a"}], "distinct": True}, "count(DISTINCT `a`)"),
    ({"cast": {"expr": {"col": "a"}, "to": {"kind": "varchar", "max": 9}}}, "CAST(`a` AS TEXT)"),
    ({"case": {"when": [{"if": {"col": "a"}, "then": ONE}]}}, "CASE WHEN `a` THEN 1 END"),
    ({"case": {"when": [{"if": {"col": "a"}, "then": ONE}], "else": {"param": 0}}}, "CASE WHEN `a` THEN 1 ELSE ?1 END"),
    ({"subquery": {"query": select()}}, "(SELECT 1)"),
    ({"exists": {"query": select()}}, "EXISTS (SELECT 1)"),
    ({"exists": {"query": select(), "negated": True}}, "(NOT EXISTS (SELECT 1))"),
    *[({"op": name, "a": {"col": "a"}, "b": ONE}, f"(`a` {sign} 1)") for name, sign in BINARY.items()],
]


@pytest.mark.parametrize(("tree", "sql"), EXPRESSIONS, ids=[case[1] for case in EXPRESSIONS])
def test_expressions(tree, sql):
    assert expression(tree) == sql


QUERIES = [
    (select({"col": "*"}, **{"from": [T]}), "SELECT * FROM main.`t`"),
    (select({"col": "*", "table": "u"}, **{"from": [{"table": "t", "as": "u"}]}), "SELECT `u`.* FROM `t` AS `u`"),
    (select(**{"from": [T, {"table": "u"}]}), "SELECT 1 FROM main.`t`, `u`"),
    (select(distinct=True, where={"col": "a"}, group_by=[{"col": "b"}], having={"col": "c"}, **{"from": [T]}),
     "SELECT DISTINCT 1 FROM main.`t` WHERE `a` GROUP BY `b` HAVING `c`"),
    (select(distinct=False, where=None, group_by=[], having=None, **{"from": []}), "SELECT 1"),
    (select(**{"from": [{"subquery": {"query": select(), "as": "s"}}]}), "SELECT 1 FROM (SELECT 1) AS `s`"),
    ({"with": [{"name": "c", "query": select()}]} | select(**{"from": [{"table": "c"}]}),
     "WITH `c` AS (SELECT 1) SELECT 1 FROM `c`"),
    (select() | {"order_by": [{"expr": ONE}, {"expr": {"col": "a"}, "dir": "desc"}], "limit": {"limit": 5, "offset": 0},
                 "lock": "none"}, "SELECT 1 ORDER BY 1, `a` DESC LIMIT 5 OFFSET 0"),
    *[(select(**{"from": [{"join": {"type": kind, "left": T, "right": U, "on": ONE}}]}),
       f"SELECT 1 FROM main.`t` {words} main.`u` ON 1") for kind, words in JOINS.items()],
    (select(**{"from": [{"join": {"type": "left", "left": T, "on": ONE, "right": {
        "join": {"type": "inner", "left": U, "right": T, "on": ONE}}}}]}),
     "SELECT 1 FROM main.`t` LEFT JOIN (main.`u` JOIN main.`t` ON 1) ON 1"),
]  # fmt: skip


@pytest.mark.parametrize(("tree", "sql"), QUERIES, ids=[case[1] for case in QUERIES])
def test_queries(tree, sql):
    assert to_sql(tree, "app") == sql


@pytest.mark.parametrize(
    ("kind", "every", "words"),
    [
        ("union", True, "UNION ALL"),
        ("union", False, "UNION"),
        ("intersect", False, "INTERSECT"),
        ("except", None, "EXCEPT"),
    ],
)
def test_set_operations_group_as_the_tree_says(kind, every, words):
    leaf = select()["body"]
    inner = {"setop": {"kind": kind, "all": every, "left": leaf, "right": leaf}}
    left = {"body": {"setop": {"kind": kind, "all": every, "left": inner, "right": leaf}}}
    right = {"body": {"setop": {"kind": kind, "all": every, "left": leaf, "right": inner}}}
    assert to_sql(left, "app") == f"SELECT 1 {words} SELECT 1 {words} SELECT 1"
    assert to_sql(right, "app") == f"SELECT 1 {words} SELECT * FROM (SELECT 1 {words} SELECT 1)"


FAULTS = [
    (None, "query: is an object"),
    ({}, "query: lacks 'body'"),
    ({"body": {}}, "query.body: is an object with the one member select or setop"),
    ({"body": {"select": {}}}, "query.body.select: lacks 'projection'"),
    ({"body": {"select": {"projection": []}}}, "query.body.select.projection: has at least one item"),
    ({"body": {"select": {"projection": 1}}}, "query.body.select.projection: is a list"),
    (select() | {"limits": 1}, "query.limits: unknown member"),
    (select() | {"lock": "for_update"}, "query.lock: a prepared query takes no locks"),
    (select() | {"limit": {"limit": -1}}, "query.limit.limit: is an integer of 0 or more"),
    (select() | {"limit": {"limit": 1, "offset": True}}, "query.limit.offset: is an integer"),
    (select() | {"order_by": [{"expr": ONE, "dir": "up"}]}, "query.order_by[0].dir: is asc or desc"),
    (select() | {"with": [{"name": ""} | {"query": select()}]}, "query.with[0].name: is a name"),
    (select(where={"op": "eq", "a": ONE}), "query.body.select.where: lacks 'b'"),
    (select(where={"op": "eq", "a": ONE, "b": {"nothing": 1}}), "query.body.select.where.b: an expression has one of"),
    (select(where={"op": "and", "args": [ONE, 5]}), "query.body.select.where.args[1]: an expression is an object"),
    (select(where={"op": "and", "args": []}), "query.body.select.where.args: has at least one"),
    (select(where={"op": "xor", "a": ONE, "b": ONE}), "query.body.select.where.op: unknown operator 'xor'"),
    (select({"param": -1}), "query.body.select.projection[0].expr.param: is an integer"),
    (select({"param": True}), "query.body.select.projection[0].expr.param: is an integer"),
    (select({"lit": {"t": "i64", "v": "1"}}), "query.body.select.projection[0].expr.lit: literal of type 'i64'"),
    (select({"lit": {"t": "u64", "v": 2**63}}), "query.body.select.projection[0].expr.lit: an integer has 64 bits"),
    (select({"lit": {"t": "array", "v": []}}), "query.body.select.projection[0].expr.lit: SQLite has no arrays"),
    (select({"lit": {"t": "str", "v": "a\0b"}}), "query.body.select.projection[0].expr.lit: a text in a query"),
    (select({"fn": "a; b", "args": []}), "query.body.select.projection[0].expr.fn: is the name of a function"),
    (select({"fn": "f", "args": [], "distinct": 1}), "query.body.select.projection[0].expr.distinct: is true or false"),
    (select({"cast": {"expr": ONE, "to": "str"}}), "query.body.select.projection[0].expr.cast.to.kind: is one of"),
    (select({"case": {"when": []}}), "query.body.select.projection[0].expr.case.when: has at least one branch"),
    (select({"col": 5}), "query.body.select.projection[0].expr.col: is a string"),
    (select(**{"from": [{"db": "elsewhere", "table": "t"}]}), "query.body.select.from[0].db: is 'app'"),
    (select(**{"from": [{"join": {"type": "outer", "left": T, "right": T}}]}),
     "query.body.select.from[0].join.type: is one"),
    (select(**{"from": [{"subquery": {"query": select()}}]}), "query.body.select.from[0].subquery: lacks 'as'"),
    ({"body": {"setop": {"kind": "union", "left": select()["body"], "right": {"select": {}}}}},
     "query.body.setop.right.select: lacks 'projection'"),
    ({"body": {"setop": {"kind": "except", "all": True, "left": select()["body"], "right": select()["body"]}}},
     "query.body.setop.kind: is union, intersect or except; only a union"),
]  # fmt: skip


@pytest.mark.parametrize(("tree", "problem"), FAULTS, ids=[case[1] for case in FAULTS])
def test_a_fault_is_told_with_its_place(tree, problem):
    with pytest.raises(InvalidRequestError) as raised:
        to_sql(tree, "app")
    assert str(raised.value).startswith(problem)


def test_a_tree_that_is_too_deep_is_refused():
    tree = ONE
    for _ in range(DEPTH_MAX):
        tree = {"op": "not", "a": tree}
    with pytest.raises(InvalidRequestError, match="nested deeper"):
        to_sql(select(tree), "app")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["body", "select", "projection", "expr", "op", "a", "args", "col", "from", "x"]), inner
        )
    ),
    max_leaves=12,
)


@settings(deadline=None)
@given(JSON)
def test_any_json_is_a_query_or_an_invalid_request(tree):
    with suppress(InvalidRequestError):
        to_sql(tree, "app")


VALUES = st.one_of(
    st.none(),
    st.integers(-(2**63) + 1, 2**63 - 1),
    st.floats(allow_nan=False),
    st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8),
    st.binary(max_size=8),
)


@settings(deadline=None)
@given(VALUES)
def test_sqlite_reads_a_literal_as_the_value_that_it_stands_for(value):
    sql = parse(to_sql(select({"lit": to_literal(value)}), "app")).text
    (read,) = apsw.Connection(":memory:").execute(sql).fetchone()
    assert type(read) is type(value)
    assert read == (pytest.approx(value, rel=1e-15) if isinstance(value, float) else value)


@pytest.mark.parametrize("kind", CAST_TYPES)
def test_each_kind_can_be_cast_to(kind):
    assert "CAST(1 AS " in expression({"cast": {"expr": ONE, "to": {"kind": kind}}})
