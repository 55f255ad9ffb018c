import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.model.errors import InvalidRequestError
from tailrace.sql.sqlite.query.statement import ARGUMENTS_MAX, DEPTH_MAX, TEXT_MAX, parse, parse_view


@pytest.mark.parametrize(
    ("sql", "text"),
    [
        ("select a from t", "SELECT a FROM t"),
        ("  SELECT a\n\tFROM t ; ;", "SELECT a FROM t"),
        ("SELECT a -- why\nFROM t /* what */", "SELECT a FROM t"),
        ("SELECT a/**/FROM t", "SELECT a FROM t"),
        ("select Name, 'select' from T where x is null", "SELECT Name, 'select' FROM T WHERE x IS NULL"),
        ("SELECT ?, ?3, ?", "SELECT ?1, ?3, ?4"),
        ("SELECT a+1, count( * ) FROM t", "SELECT a+1, count( * ) FROM t"),
        ("VALUES (1), (2)", "VALUES (1), (2)"),
        ("with c as (select 1) select * from c", "WITH c AS (SELECT 1) SELECT * FROM c"),
    ],
)
def test_the_canonical_text(sql, text):
    assert parse(sql).text == text
    assert parse(text).text == text


def test_the_same_query_has_the_same_id_and_another_has_another():
    statement = parse("select a from t where b = ?")
    assert statement.query_id == parse("SELECT a  FROM t WHERE b = ?1 -- note").query_id
    assert statement.query_id == "q_udtlprgutz4zxvtyjrceu4xsu2d75tmopt6gwoqsoi7zg57sdmda"
    others = ["SELECT a FROM t WHERE b = ?2", "SELECT A FROM t WHERE b = ?1", "SELECT a FROM t WHERE b = '?1'"]
    assert len({statement.query_id, *(parse(other).query_id for other in others)}) == 4


@pytest.mark.parametrize(
    ("sql", "problem"),
    [
        ("", "begins with"),
        ("-- nothing", "begins with"),
        ("DELETE FROM t", "begins with"),
        ("EXPLAIN SELECT 1", "begins with"),
        ("PRAGMA user_version", "begins with"),
        ("ATTACH 'x' AS y", "begins with"),
        ("(SELECT 1)", "begins with"),
        ("SELECT 1; SELECT 2", "one statement"),
        ("WITH c AS (SELECT 1) DELETE FROM t", "only reads"),
        ("WITH c AS (SELECT 1) INSERT INTO t SELECT * FROM c", "only reads"),
        ("SELECT :name", "numbers, not names"),
        ("SELECT @name", "numbers, not names"),
        ("SELECT $name", "numbers, not names"),
        ("SELECT ?0", "numbered from 1"),
        (f"SELECT ?{ARGUMENTS_MAX + 1}", "numbered from 1"),
        ("SELECT 'open", "token at character 8"),
        ("SELECT 1 ^ 2", "token at character 10"),
        ("SELECT x'abc'", "token"),
        ("SELECT 1abc", "token"),
        ("SELECT " + "(" * (DEPTH_MAX + 1) + "1" + ")" * (DEPTH_MAX + 1), "nested deeper"),
        ("SELECT '" + "x" * TEXT_MAX + "'", "longer than"),
    ],
)
def test_what_is_not_one_query_is_refused(sql, problem):
    with pytest.raises(InvalidRequestError, match=problem):
        parse(sql)


def test_a_plus_is_read_so_that_a_bare_column_is_not_seen():
    assert parse("SELECT +a FROM t").tree.sql() == "SELECT - -a FROM t"


def test_what_sqlglot_cannot_read_is_kept_with_the_reason():
    statement = parse("SELECT a FROM t WHERE a IS NOT NOT NULL GROUP")
    assert statement.tree is None
    assert statement.problem


def test_a_view_is_read_with_its_columns():
    tree, words = parse_view("CREATE VIEW v(p, q) AS SELECT a, random() FROM t")
    assert [column.name for column in tree.this.expressions] == ["p", "q"]
    assert words.functions == {"random"}


def test_a_view_that_sqlglot_cannot_read_is_none():
    assert parse_view("CREATE VIEW v AS SELECT FROM WHERE")[0] is None


@settings(deadline=None)
@given(st.text(max_size=60))
def test_any_text_is_a_statement_or_an_invalid_request(text):
    try:
        statement = parse("SELECT " + text)
    except InvalidRequestError:
        return
    assert parse(statement.text).query_id == statement.query_id
