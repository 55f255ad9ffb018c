import apsw
import pytest

from tailrace.sql.sqlite.lexer import lex
from tailrace.sql.sqlite.query.function import AGGREGATES, SCALARS, usage, volatile_names


@pytest.mark.parametrize(
    ("sql", "functions"),
    [
        ("SELECT lower(a), Upper (b), \"length\"(c)", {"lower", "upper", "length"}),
        ("SELECT a FROM t WHERE a IN (1) AND EXISTS (SELECT 1) AND (b) BETWEEN (1) AND (2)", set()),
        ("WITH c (a, b) AS (VALUES (1, 2)), d(x) AS MATERIALIZED (SELECT 1) SELECT * FROM c JOIN d USING (x)", set()),
        ("SELECT CAST(a AS VARCHAR(9))", set()),
        ("SELECT current_timestamp, date('now')", {"current_timestamp", "date"}),
        ("SELECT * FROM json_each('[1]')", {"json_each"}),
        ("SELECT random/**/()", {"random"}),
        ("SELECT sum(a) FILTER (WHERE b) OVER (ORDER BY c) FROM t", {"sum"}),
    ],
)  # fmt: skip
def test_calls_are_found(sql, functions):
    assert usage(lex(sql)[0]).functions == functions


@pytest.mark.parametrize(
    ("sql", "choosing"),
    [
        ("SELECT a FROM t WHERE b = 1 UNION ALL SELECT lower(a) FROM t", False),
        ("SELECT count(*) FROM t", False),
        ("SELECT a FROM t UNION SELECT a FROM t", True),
        ("SELECT a FROM t LIMIT 1", True),
        ("SELECT a FROM t ORDER BY a", True),
        ("SELECT DISTINCT a FROM t", True),
        ("SELECT a FROM t GROUP BY a", True),
        ("SELECT sum(a) FROM t", True),
        ("SELECT unknown(a) FROM t", True),
        ('SELECT "distinct" FROM t', False),
    ],
)
def test_what_chooses_between_rows_is_found(sql, choosing):
    assert usage(lex(sql)[0]).choosing is choosing


def test_what_is_in_no_table_is_volatile():
    assert volatile_names(frozenset({"lower", "sum", "random", "date"})) == ["date", "random"]


def test_sqlite_calls_the_scalars_deterministic_too():
    rows = list(apsw.Connection(":memory:").execute("SELECT name, flags & 0x800 FROM pragma_function_list"))
    deterministic = {name for name, flag in rows if flag}
    assert SCALARS - deterministic == {"count", "soundex"}  # an aggregate; not compiled in
    assert {name for name, _ in rows} >= AGGREGATES


def test_functions_of_the_clock_and_of_the_connection_are_in_no_table():
    clock = {"date", "time", "datetime", "julianday", "strftime", "unixepoch", "timediff"}
    connection = {"random", "randomblob", "changes", "total_changes", "last_insert_rowid", "sqlite_version"}
    assert not (SCALARS | AGGREGATES) & (clock | connection)
