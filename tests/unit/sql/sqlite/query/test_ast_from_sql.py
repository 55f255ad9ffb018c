import pytest

from tailrace.model.errors import InvalidRequestError
from tailrace.sql.sqlite.query.ast_form import to_sql
from tailrace.sql.sqlite.query.ast_from_sql import from_sql
from tailrace.sql.sqlite.query.statement import parse
from unit.sql.sqlite.query.test_ast_form import EXPRESSIONS, QUERIES, select

ROUND = [to_sql(select(tree), "app") for tree, _ in EXPRESSIONS] + [sql for _, sql in QUERIES]
OTHERWISE = {
    "SELECT (NOT EXISTS (SELECT 1))": "SELECT (NOT EXISTS (SELECT 1))",
    "SELECT 1 FROM main.`t`, `u`": "SELECT 1 FROM main.`t` CROSS JOIN main.`u`",
    "SELECT `u`.* FROM `t` AS `u`": "SELECT `u`.* FROM main.`t` AS `u`",
    "SELECT 1 FROM main.`t` CROSS JOIN main.`u` ON 1": "SELECT 1 FROM main.`t` JOIN main.`u` ON 1",
}
"""Queries that come back in other words."""


@pytest.mark.parametrize("sql", ROUND)
def test_the_way_there_and_back_gives_the_same_query(sql):
    assert to_sql(from_sql(parse(sql), "app"), "app") == OTHERWISE.get(sql, sql)


@pytest.mark.parametrize(
    ("sql", "again"),
    [
        ("select a, 'x' from t where b > -1.5", "SELECT `a`, 'x' FROM main.`t` WHERE (`b` > -1.5)"),
        ("SELECT 1 FROM a, b LEFT JOIN c ON 1", "SELECT 1 FROM main.`a` CROSS JOIN main.`b` LEFT JOIN main.`c` ON 1"),
        ("SELECT a + 1 - 2 FROM t", "SELECT ((`a` + 1) - 2) FROM main.`t`"),
        ("SELECT x'00ff', TRUE, NULL", "SELECT x'00ff', 1, NULL"),
        ("WITH C AS (SELECT 1) SELECT * FROM c", "WITH `C` AS (SELECT 1) SELECT * FROM `c`"),
        ("SELECT ifnull(a, round(b, 2)) FROM t", "SELECT coalesce(`a`, round(`b`, 2)) FROM main.`t`"),
        ("SELECT count(DISTINCT a), max(b) FROM t", "SELECT count(DISTINCT `a`), max(`b`) FROM main.`t`"),
    ],
)
def test_sql_becomes_a_tree_that_means_the_same(sql, again):
    assert to_sql(from_sql(parse(sql), "app"), "app") == again


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT a FROM t JOIN u USING (a)",
        "SELECT a FROM t NATURAL JOIN u",
        "SELECT sum(a) OVER (ORDER BY b) FROM t",
        "SELECT a COLLATE NOCASE FROM t",
        "WITH c(x) AS (SELECT 1) SELECT * FROM c",
        "SELECT a FROM t LIMIT ?1",
        "SELECT a FROM t WHERE a IN (SELECT b FROM u)",
        "VALUES (1)",
        "SELECT * FROM json_each('[1]')",
        "SELECT CAST(a AS WHATEVER) FROM t",
        "SELECT a FROM t WHERE",
    ],
)
def test_what_trees_cannot_say_is_refused(sql):
    with pytest.raises(InvalidRequestError, match=r"no tree form|cannot be read"):
        from_sql(parse(sql), "app")
