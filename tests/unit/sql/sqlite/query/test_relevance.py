"""Each rule of relevance, with SQLite as the judge of what really changes."""

import pytest

from tailrace.model.op import Op
from tailrace.sql.sqlite.query import QueryJudge
from unit.sql.sqlite.query.sqlite_oracle import database, dependencies, verdict

ABC = (
    "CREATE TABLE a (id INTEGER PRIMARY KEY, k INTEGER, x INTEGER)",
    "CREATE TABLE b (id INTEGER PRIMARY KEY, k INTEGER, y INTEGER)",
    "CREATE TABLE c (id INTEGER PRIMARY KEY, k INTEGER, z INTEGER)",
    "INSERT INTO a VALUES (1, 1, 1), (2, 2, 2), (3, NULL, 3)",
    "INSERT INTO b VALUES (1, 1, 1), (2, 3, 2)",
    "INSERT INTO c VALUES (1, 1, 1), (2, 9, 2)",
)
TEXTS = (
    "CREATE TABLE t (id INTEGER PRIMARY KEY, s TEXT, n INTEGER, f REAL, u, nc TEXT COLLATE NOCASE, d DATE)",
    "INSERT INTO t VALUES (1, '1', 1, 1.0, 1, 'a', '2024-01-01'), (2, 'b', 2, 2.5, 'b', 'B', 5)",
)
ORDERED = (
    "CREATE TABLE t (id INTEGER PRIMARY KEY, a INTEGER, b INTEGER, w)",
    "CREATE INDEX i ON t (b, a)",
    "INSERT INTO t VALUES (1, 10, 3, zeroblob(900)), (2, 20, 2, zeroblob(900)), (3, 30, 1, zeroblob(900))",
)
HIDDEN = (
    "CREATE TABLE t (code TEXT PRIMARY KEY, a INTEGER, b INTEGER)",
    "INSERT INTO t VALUES ('p', 1, 1), ('q', 2, 2), ('r', 3, 3)",
)

CHANGING = [
    ("a row that the kept side of a left join does not match", ABC,
     "SELECT a.id FROM a LEFT JOIN b ON a.k = b.k AND a.x = 1", "INSERT INTO a VALUES (9, 9, 9)"),
    ("a row that displaces NULLs which the WHERE lets pass", ABC,
     "SELECT a.id FROM a LEFT JOIN b ON a.k = b.k WHERE b.y IS NULL OR b.y = 1", "INSERT INTO b VALUES (9, 2, 7)"),
    ("a row that displaces NULLs in an anti-join", ABC,
     "SELECT a.id FROM a LEFT JOIN b ON a.k = b.k WHERE b.id IS NULL", "INSERT INTO b VALUES (9, 2, 7)"),
    ("a row displaced within an optional side that is itself not NULL", ABC,
     "SELECT a.id FROM c LEFT JOIN (a LEFT JOIN b ON a.k = b.k) ON c.k = a.id "
     "WHERE a.x IS NOT NULL AND (b.y IS NULL OR b.y = 5)", "DELETE FROM b WHERE id = 1"),
    ("a row displaced in a full join whose other side is told by the WHERE", ABC,
     "SELECT a.id, b.id FROM a FULL JOIN b ON a.k = b.k WHERE b.y = 2 OR b.y IS NULL",
      "INSERT INTO a VALUES (9, 3, 9)"),
    ("a row displaced in a full join, both sides optional", ABC,
     "SELECT count(*) FROM a FULL JOIN b ON a.k = b.k WHERE a.x IS NULL OR a.x = 1", "INSERT INTO a VALUES (9, 3, 9)"),
    ("a row that changes which rows of a later join match", ABC,
     "SELECT count(*) FROM a LEFT JOIN b ON a.k = b.k LEFT JOIN c ON c.k = b.y WHERE c.z IS NULL OR c.z = 1",
     "INSERT INTO b VALUES (9, 2, 9)"),
    ("the other side of a right join", ABC,
     "SELECT b.id FROM a RIGHT JOIN b ON a.k = b.k WHERE a.x IS NULL", "INSERT INTO a VALUES (9, 3, 9)"),
    ("a column joined by USING on the side that fills up", ABC,
     "SELECT k FROM a RIGHT JOIN b USING (k) WHERE k = 7", "UPDATE b SET k = 7 WHERE id = 2"),
    ("a column that only a natural join compares", ABC,
     "SELECT 1 FROM a NATURAL JOIN b", "UPDATE b SET k = 5 WHERE id = 1"),
    ("a row that only DISTINCT tells apart", ABC,
     "SELECT p FROM (SELECT DISTINCT 1 AS p, x AS q FROM a)", "UPDATE a SET x = 1 WHERE id = 2"),
    ("a row that moves another one into a LIMIT", ABC,
     "SELECT p FROM (SELECT id AS p, x AS q FROM a ORDER BY id LIMIT 2) WHERE q = 3", "DELETE FROM a WHERE id = 1"),
    ("a row that moves another one into a LIMIT without an order", ABC,
     "SELECT p FROM (SELECT id AS p, x AS q FROM a LIMIT 2) WHERE q = 3", "DELETE FROM a WHERE id = 1"),
    ("a row that comes to stand for its group", ABC,
     "SELECT q FROM (SELECT k AS p, x AS q FROM a GROUP BY k) WHERE q = 1", "INSERT INTO a VALUES (-1, 1, 7)"),
    ("a column that only an aggregate beside reads", ABC,
     "SELECT p FROM (SELECT id AS p, max(x) AS q FROM a)", "UPDATE a SET x = 99 WHERE id = 1"),
    ("a column that only the other branch of a union compares", ABC,
     "SELECT count(*) FROM (SELECT k, x FROM a UNION SELECT k, y FROM b)", "UPDATE b SET y = 5 WHERE id = 1"),
    ("a column that only HAVING reads", ABC,
     "SELECT k FROM a GROUP BY k HAVING sum(x) > 2", "UPDATE a SET x = 50 WHERE id = 1"),
    ("a column that only GROUP BY reads", ABC, "SELECT count(*) FROM a GROUP BY x", "UPDATE a SET x = 2 WHERE id = 1"),
    ("a column that only ORDER BY reads", ABC, "SELECT id FROM a ORDER BY x", "UPDATE a SET x = 9 WHERE id = 1"),
    ("a column that only a window reads", ABC,
     "SELECT id, row_number() OVER w FROM a WINDOW w AS (ORDER BY x)", "UPDATE a SET x = 9 WHERE id = 1"),
    ("a column that only a CASE reads", ABC,
     "SELECT CASE WHEN x = 1 THEN 'one' END FROM a", "UPDATE a SET x = 9 WHERE id = 1"),
    ("a column of an outer query in a sub-query", ABC,
     "SELECT id FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.k = x)", "UPDATE a SET x = 7 WHERE id = 1"),
    ("an outer column beside a column without a name", ABC,
     "SELECT id FROM a WHERE EXISTS (SELECT 1 FROM (SELECT 1 + 1) WHERE x = 2)", "UPDATE a SET x = 9 WHERE id = 2"),
    ("a table named after IN", (*ABC, "CREATE VIEW only_k AS SELECT k FROM b"),
     "SELECT id FROM a WHERE k IN only_k", "UPDATE b SET k = 2 WHERE id = 2"),
    ("the table that a common table expression hides only without its schema", ABC,
     "WITH b AS (SELECT 1 AS y) SELECT main.b.y FROM main.b, b AS hidden", "INSERT INTO b VALUES (9, 9, 9)"),
    ("the table in a view, whatever common table expression has its name", (*ABC, "CREATE VIEW v AS SELECT y FROM b"),
     "WITH b AS (SELECT 1 AS y) SELECT v.y FROM v, b", "INSERT INTO b VALUES (9, 9, 9)"),
    ("a view in a view with its columns renamed",
     (*ABC, "CREATE VIEW v (o, p, q) AS SELECT * FROM a", "CREATE VIEW w (r, s) AS SELECT q, p FROM v"),
     "SELECT s FROM w WHERE r = 3", "UPDATE a SET x = 3 WHERE id = 1"),
    ("the start of a recursion", ABC,
     "WITH RECURSIVE r (n) AS (SELECT k FROM a WHERE id = 1 UNION SELECT y FROM b JOIN r ON b.k = n) SELECT n FROM r",
     "UPDATE a SET k = 3 WHERE id = 1"),
    ("a step of a recursion", ABC,
     "WITH RECURSIVE r (n) AS (SELECT k FROM a WHERE id = 1 UNION SELECT y FROM b JOIN r ON b.k = n) SELECT n FROM r",
     "UPDATE b SET y = 8 WHERE id = 1"),
    ("a common table expression named before it is defined", ABC,
     "WITH p AS (SELECT * FROM q), q AS (SELECT x FROM a) SELECT * FROM p", "UPDATE a SET x = 8 WHERE id = 1"),
    ("a comparison behind a unary plus", TEXTS, "SELECT id FROM t WHERE +s > 5",
     "INSERT INTO t (id, s) VALUES (9, '3')"),
    ("a text column against a number", TEXTS, "SELECT id FROM t WHERE s = 7", "INSERT INTO t (id, s) VALUES (9, '7')"),
    ("a number column against a text", TEXTS, "SELECT id FROM t WHERE n = '7'", "INSERT INTO t (id, n) VALUES (9, 7)"),
    ("a number column against a text with spaces", TEXTS,
     "SELECT id FROM t WHERE n = ' 7.0 '", "INSERT INTO t (id, n) VALUES (9, 7)"),
    ("an untyped column against a text", TEXTS,
     "SELECT id FROM t WHERE u < '7'", "INSERT INTO t (id, u) VALUES (9, 7)"),
    ("a text in a number column", TEXTS, "SELECT id FROM t WHERE n > 5", "INSERT INTO t (id, n) VALUES (9, 'x')"),
    ("a blob against a text", TEXTS, "SELECT id FROM t WHERE u > 'z'", "INSERT INTO t (id, u) VALUES (9, x'00')"),
    ("a date in a numeric column", TEXTS,
     "SELECT id FROM t WHERE d >= '2024-02-01'", "INSERT INTO t (id, d) VALUES (9, '2024-02-02')"),
    ("letters that a collation takes for the same", TEXTS,
     "SELECT id FROM t WHERE nc = 'A'", "INSERT INTO t (id, nc) VALUES (9, 'a')"),
    ("truth rather than equality", TEXTS, "SELECT id FROM t WHERE n IS TRUE", "INSERT INTO t (id, n) VALUES (9, 5)"),
    ("truth in brackets", TEXTS, "SELECT id FROM t WHERE n IS (TRUE)", "INSERT INTO t (id, n) VALUES (9, 5)"),
    ("a NULL that NOT turns into no row, and IS into one", TEXTS,
     "SELECT id FROM t WHERE NOT (n = 1 AND s = 'x') AND s IS NULL", "INSERT INTO t (id, n) VALUES (9, 2)"),
    ("a negated comparison", TEXTS, "SELECT id FROM t WHERE NOT n = 1", "INSERT INTO t (id, n) VALUES (9, 2)"),
    ("an empty list", TEXTS, "SELECT id FROM t WHERE n NOT IN ()", "INSERT INTO t (id) VALUES (9)"),
    ("columns equal by way of different affinities",
     ("CREATE TABLE a (s TEXT)", "CREATE TABLE b (n INTEGER)", "INSERT INTO b VALUES (1)"),
     "SELECT 1 FROM a JOIN b ON a.s = b.n WHERE b.n = 1", "INSERT INTO a VALUES ('01')"),
    ("a column of any type in a strict table", ("CREATE TABLE t (v ANY) STRICT",),
     "SELECT v FROM t WHERE v < '5'", "INSERT INTO t VALUES (7)"),
    ("the second of two columns with one name", ABC,
     'SELECT "k:1" FROM (SELECT * FROM a JOIN b ON a.id = b.id)', "UPDATE b SET k = 8 WHERE id = 1"),
    ("the sign of zero", ("CREATE TABLE t (f)", "INSERT INTO t VALUES (0.0)"), "SELECT f FROM t",
     "UPDATE t SET f = -0.0"),
    ("an integer that becomes a fraction", ("CREATE TABLE t (f)", "INSERT INTO t VALUES (1)"),
     "SELECT f FROM t", "UPDATE t SET f = 1.0"),
    ("an index that decides which rows come first", ORDERED, "SELECT a FROM t LIMIT 1",
     "UPDATE t SET b = 0 WHERE id = 1"),
    ("an index that decides which row stands for a group", ORDERED,
     "SELECT group_concat(a) FROM t", "UPDATE t SET b = 0 WHERE id = 1"),
    ("a row that is replaced under a new row number", HIDDEN,
     "SELECT a FROM t LIMIT 1", "UPDATE t SET rowid = 99 WHERE code = 'p'"),
    ("a generated column", ("CREATE TABLE t (a, b AS (a + 1) STORED)", "INSERT INTO t VALUES (1)"),
     "SELECT b FROM t", "UPDATE t SET a = 5"),
    ("a quoted name in other letters", ABC, 'SELECT "X" FROM "A" WHERE [iD] = 1', "UPDATE a SET x = 9 WHERE id = 1"),
    ("rowid for the key", ABC, "SELECT x FROM a WHERE rowid = 9", "INSERT INTO a VALUES (9, 9, 9)"),
    ("an alias in the WHERE", ABC, "SELECT x AS p FROM a WHERE p = 9", "UPDATE a SET x = 9 WHERE id = 1"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("schema", "sql", "write"), [case[1:] for case in CHANGING], ids=[case[0] for case in CHANGING]
)
def test_what_changes_the_result_is_relevant(schema, sql, write):
    told = verdict(schema, sql, write, ordered="ORDER BY" in sql)
    assert told.changed, "the case proves nothing"
    assert told.relevant
    assert told.dependencies.understood


IRRELEVANT = [
    ("a column that is not read", ABC, "SELECT id, k FROM a", "UPDATE a SET x = 9", ()),
    ("any column where rows are only counted", ABC, "SELECT count(*) FROM a", "UPDATE a SET x = 9, k = 9", ()),
    ("a row that fails a comparison", ABC, "SELECT * FROM a WHERE x > 5", "INSERT INTO a VALUES (9, 1, 5)", ()),
    ("a row outside bounds of the key", ABC, "SELECT * FROM a WHERE id BETWEEN ? AND ?",
     "INSERT INTO a VALUES (9, 1, 5)", (1, 5)),
    ("a row with another key", ABC, "SELECT * FROM a WHERE id = ?", "DELETE FROM a WHERE id = 2", (1,)),
    ("a row not in a list", ABC, "SELECT * FROM a WHERE x IN (?, ?)", "INSERT INTO a VALUES (9, 1, 3)", (1, 2)),
    ("NULL against anything", ABC, "SELECT * FROM a WHERE x <> 5", "INSERT INTO a VALUES (9, 1, NULL)", ()),
    ("an argument that is NULL", ABC, "SELECT * FROM a WHERE x = ?", "INSERT INTO a VALUES (9, 1, 1)", (None,)),
    ("both sides of an OR", ABC, "SELECT * FROM a WHERE x = 5 OR k = 7", "INSERT INTO a VALUES (9, 1, 1)", ()),
    ("a row that the other table's key excludes", ABC,
     "SELECT * FROM a JOIN b ON b.k = a.k WHERE a.k = ?", "INSERT INTO b VALUES (9, 2, 2)", (1,)),
    ("a row that the kept side's key excludes", ABC,
     "SELECT * FROM a LEFT JOIN b ON b.k = a.k WHERE a.k = ?", "INSERT INTO b VALUES (9, 2, 2)", (1,)),
    ("a row that fails the ON of its optional side", ABC,
     "SELECT * FROM a LEFT JOIN b ON b.k = a.k AND b.y > 5", "INSERT INTO b VALUES (9, 2, 2)", ()),
    ("a row without a value to join by", ABC,
     "SELECT * FROM a LEFT JOIN b ON b.k = a.k", "INSERT INTO b VALUES (9, NULL, 2)", ()),
    ("a row of an optional side that the WHERE makes necessary", ABC,
     "SELECT * FROM a LEFT JOIN b ON b.k = a.k WHERE b.y = 5", "INSERT INTO b VALUES (9, 2, 2)", ()),
    ("a row that fails the condition of a view and of the query on it",
     (*ABC, "CREATE VIEW v AS SELECT id, x FROM a WHERE k = 1"),
     "SELECT * FROM v WHERE x = 7", "INSERT INTO a VALUES (9, 1, 1)", ()),
    ("a column of a view that the query does not take",
     (*ABC, "CREATE VIEW v AS SELECT * FROM a"), "SELECT id FROM v", "UPDATE a SET x = 9", ()),
    ("a column in the list of EXISTS", ABC,
     "SELECT id FROM a WHERE EXISTS (SELECT y FROM b WHERE b.k = a.k)", "UPDATE b SET y = 9", ()),
    ("a condition inside a sub-query", ABC,
     "SELECT id FROM a WHERE k IN (SELECT k FROM b WHERE y = 5)", "INSERT INTO b VALUES (9, 2, 2)", ()),
    ("a condition in each branch of a union", ABC,
     "SELECT x FROM a WHERE x = 9 UNION ALL SELECT y FROM b WHERE y = 9", "INSERT INTO a VALUES (9, 1, 1)", ()),
    ("a table that only a common table expression is named like", ABC,
     "WITH b AS (SELECT 1 AS y) SELECT y FROM b", "INSERT INTO b VALUES (9, 9, 9)", ()),
    ("a table mentioned twice, irrelevant both times", ABC,
     "SELECT * FROM a JOIN a AS other ON other.k = a.x WHERE a.id = 1 AND other.id = 2",
      "INSERT INTO a VALUES (9, 1, 1)", ()),
    ("an update that changes nothing", ABC, "SELECT * FROM a", "UPDATE a SET x = x", ()),
    ("an index that cannot decide anything", ORDERED, "SELECT a FROM t", "UPDATE t SET b = 0 WHERE id = 1", ()),
]  # fmt: skip


@pytest.mark.parametrize(
    ("schema", "sql", "write", "arguments"), [case[1:] for case in IRRELEVANT], ids=[case[0] for case in IRRELEVANT]
)
def test_what_cannot_touch_the_result_is_irrelevant(schema, sql, write, arguments):
    told = verdict(schema, sql, write, arguments)
    assert not told.changed
    assert not told.relevant


def judge(sql):
    return QueryJudge(dependencies(database(*ABC), sql), ())


def test_a_table_mentioned_twice_is_irrelevant_only_if_it_is_both_times():
    told = judge("SELECT * FROM a JOIN a AS other ON other.k = a.x WHERE a.id = 1 AND other.id = 2")
    assert told.relevant("a", Op.INSERT, None, {"id": 2, "k": 1, "x": 1})
    assert not told.relevant("a", Op.INSERT, None, {"id": 3, "k": 1, "x": 1})


@pytest.mark.parametrize(
    ("op", "before", "after"),
    [
        (Op.UPDATE, None, {"id": 9, "k": 1, "x": 1}),
        (Op.UPDATE, {"id": 9, "x": 1}, {"id": 9, "x": 1}),
        (Op.DELETE, None, None),
        (Op.INSERT, None, {"id": 9}),
        (Op.SCHEMA, None, None),
        (Op.TRUNCATE, None, None),
    ],
    ids=[
        "no image before",
        "images without the column",
        "no image at all",
        "a new row without the column",
        "schema",
        "truncate",
    ],
)
def test_what_the_images_do_not_tell_is_relevant(op, before, after):
    assert judge("SELECT k FROM a WHERE k = 5").relevant("a", op, before, after)


def test_a_table_that_the_query_does_not_mention_does_not_concern_it():
    told = judge("SELECT k FROM a")
    assert told.concerns("a")
    assert not told.concerns("b")
    assert not told.relevant("b", Op.SCHEMA, None, None)
