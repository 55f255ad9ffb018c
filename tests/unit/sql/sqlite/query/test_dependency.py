import apsw.ext
import pytest

from tailrace.model.errors import InvalidRequestError
from tailrace.source.sqlite.query_catalog import QueryCatalog
from tailrace.sql.sqlite.query import analyse, parse
from unit.sql.sqlite.query.sqlite_oracle import database, dependencies

SCHEMA = (
    "CREATE TABLE Users (id INTEGER PRIMARY KEY, name TEXT, org INTEGER, bio TEXT)",
    "CREATE TABLE orders (id INTEGER PRIMARY KEY, user_id INTEGER, total REAL, note TEXT)",
    "CREATE TABLE tags (tag TEXT, user_id INTEGER, PRIMARY KEY (tag, user_id)) WITHOUT ROWID",
    "CREATE TABLE notes (body TEXT)",
    "CREATE TABLE codes (code TEXT PRIMARY KEY, label TEXT)",
    "CREATE VIEW rich AS SELECT user_id, sum(total) AS sum FROM orders GROUP BY user_id",
    "CREATE VIEW rich_users AS SELECT name, sum FROM users JOIN rich ON rich.user_id = users.id",
    "CREATE VIEW now_view AS SELECT id, date('now') AS today FROM users",
)


def analysed(sql, *, blind=True, schema=SCHEMA):
    return dependencies(database(*schema), sql, blind=blind)


def reads(sql, **options):
    found = analysed(sql, **options)
    assert found.understood
    return {table: set() for table in found.tables} | {
        table: set().union(*(item.columns for item in found.dependencies if item.table == table))
        for table in found.tables
    }


READS = [
    ("SELECT name FROM users", {"Users": {"name"}}),
    ("SELECT * FROM USERS", {"Users": {"id", "name", "org", "bio"}}),
    ('SELECT u."NAME" FROM main."users" AS u', {"Users": {"name"}}),
    ("SELECT 1", {}),
    ("VALUES (1), (2)", {}),
    ("VALUES ((SELECT count(*) FROM notes))", {"notes": set()}),
    ("SELECT count(*) FROM users", {"Users": set()}),
    ("SELECT name FROM rich_users", {"Users": {"name", "id"}, "orders": {"user_id", "total", "id"}}),
    ("WITH users AS (SELECT total FROM orders) SELECT * FROM users", {"orders": {"total"}}),
    ("WITH x AS (SELECT * FROM orders) SELECT note FROM x", {"orders": {"note"}}),
    ("SELECT org FROM users UNION ALL SELECT total FROM orders", {"Users": {"org"}, "orders": {"total"}}),
    ("SELECT p FROM (SELECT org AS p, bio FROM users UNION ALL SELECT total, note FROM orders)",
     {"Users": {"org"}, "orders": {"total"}}),
    ("SELECT name FROM users WHERE id IN (SELECT user_id FROM orders)", {"Users": {"name", "id"},
     "orders": {"user_id"}}),
    ("SELECT name FROM users JOIN tags ON users.id = tags.user_id", {"Users": {"name", "id"}, "tags": {"user_id"}}),
    ("SELECT note FROM orders JOIN tags USING (user_id)", {"orders": {"note", "user_id"}, "tags": {"user_id"}}),
    ("SELECT 1 FROM orders NATURAL JOIN tags", {"orders": {"user_id"}, "tags": {"user_id"}}),
    ("SELECT name, (SELECT max(total) FROM orders WHERE user_id = users.id) FROM users",
     {"Users": {"name", "id"}, "orders": {"total", "user_id", "id"}}),
    ("SELECT name FROM users ORDER BY org LIMIT 3", {"Users": {"name", "org", "id"}}),
    ("SELECT a.name FROM (users AS a JOIN orders AS o ON o.user_id = a.id) LEFT JOIN tags AS t ON t.user_id = a.id",
     {"Users": {"name", "id"}, "orders": {"user_id"}, "tags": {"user_id"}}),
    ("SELECT s.a FROM (SELECT * FROM (SELECT name AS a, bio AS b FROM users)) AS s", {"Users": {"name"}}),
    ("SELECT \"no such column\" FROM users", {"Users": set()}),
]  # fmt: skip


@pytest.mark.parametrize(("sql", "expected"), READS, ids=[case[0] for case in READS])
def test_the_columns_that_a_query_reads(sql, expected):
    assert reads(sql) == expected
    assert reads(sql, blind=False) == expected


VOLATILE = [
    ("SELECT random()", "random"),
    ("SELECT current_timestamp FROM users", "current_timestamp"),
    ("SELECT name FROM users WHERE id > strftime('%s', name)", "strftime"),
    ("SELECT last_insert_rowid()", "last_insert_rowid"),
    ("SELECT * FROM users, json_each(users.bio)", "json_each"),
    ("SELECT id FROM now_view", "date"),
    ("SELECT rowid FROM notes", "row numbers"),
    ("SELECT code FROM codes WHERE oid = 1", "row numbers"),
]


@pytest.mark.parametrize(("sql", "reason"), VOLATILE, ids=[case[0] for case in VOLATILE])
def test_what_may_change_while_no_row_does_is_volatile(sql, reason):
    assert reason in analysed(sql).volatile
    assert analysed(sql, blind=False).volatile


def test_a_table_whose_changes_are_not_captured_makes_a_query_volatile():
    schema = (*SCHEMA, "CREATE VIRTUAL TABLE search USING fts5 (body)")
    assert "not captured" in analysed("SELECT body FROM search", schema=schema).volatile
    assert analysed("SELECT name FROM users", schema=schema).volatile == ""


REFUSED = [
    ("SELECT * FROM nowhere", "nowhere"),
    ("SELECT * FROM other.users", "other"),
    ("SELECT * FROM temp.users", "temp"),
    ("SELECT * FROM sqlite_schema", "sqlite_"),
    ("SELECT * FROM pragma_table_info('users')", "pragma"),
    ("SELECT * FROM pragma_table_list", "pragma"),
]


@pytest.mark.parametrize(("sql", "problem"), REFUSED, ids=[case[0] for case in REFUSED])
def test_what_lies_outside_the_main_schema_is_refused(sql, problem):
    for blind in (True, False):
        with pytest.raises(InvalidRequestError, match=problem):
            analysed(sql, blind=blind)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT nothing FROM users",
        "SELECT name FROM users WHERE",
        "SELECT abs(1, 2) FROM users",
        "WITH c AS (SELECT * FROM c) SELECT * FROM c",
    ],
)
def test_what_the_database_does_not_take_is_refused_in_its_words(sql):
    with pytest.raises(InvalidRequestError, match="the database rejected"):
        analysed(sql, blind=False)


NOT_UNDERSTOOD = [
    "SELECT * FROM users, json_each(users.bio)",
    "SELECT x.name FROM (users JOIN tags ON 1) AS x",
    "SELECT " + " + ".join(["id"] * 3000) + " FROM users",
    "WITH a AS (SELECT 1), " + ", ".join(
        f"{chr(98 + n)} AS (SELECT * FROM {chr(97 + n)} AS p, {chr(97 + n)} AS q)" for n in range(12)
    ) + " SELECT 1 FROM m",
    "SELECT 1 FROM " + ", ".join(f"notes AS n{number}" for number in range(200)),
]  # fmt: skip


@pytest.mark.parametrize("sql", NOT_UNDERSTOOD, ids=range(len(NOT_UNDERSTOOD)))
def test_a_query_that_is_not_understood_depends_on_every_table(sql):
    found = analysed(sql)
    assert not found.understood
    assert found.tables == ("Users", "codes", "notes", "orders", "tags")
    assert all(item.every_update and not item.conditions for item in found.dependencies)
    assert found.volatile


def test_a_query_that_sqlglot_cannot_read_is_left_to_the_database():
    sql = "SELECT name FROM users WHERE name NOT NULL AND id NOT MATERIALIZED"
    with pytest.raises(InvalidRequestError, match="cannot be read"):
        analysed(sql)
    with pytest.raises(InvalidRequestError, match="rejected"):
        analysed(sql, blind=False)


def test_a_table_that_only_the_database_saw_is_a_dependency_as_a_whole():
    connection = database(*SCHEMA)

    class Catalog:
        def __init__(self, catalog):
            self._catalog = catalog
            self.version = "1"

        def __getattr__(self, name):
            return getattr(self._catalog, name)

        def footprint(self, sql, arguments):
            return self._catalog.footprint("SELECT * FROM notes", 0)

    found = analyse(parse("SELECT name FROM users"), Catalog(QueryCatalog(connection)))
    assert found.tables == ("Users", "notes")


def test_the_width_of_a_star_is_that_of_sqlite():
    joins = [
        "orders JOIN tags USING (user_id)",
        "orders NATURAL LEFT JOIN tags",
        "orders FULL JOIN tags USING (user_id)",
    ]
    joins += ["orders JOIN tags ON 1", "tags, orders", "orders JOIN (tags JOIN notes ON 1) USING (user_id)"]
    for join in joins:
        connection = database(*SCHEMA)
        width = len(apsw.ext.query_info(connection, f"SELECT * FROM {join}").description)
        names = ", ".join(f"c{number}" for number in range(width))
        assert dependencies(connection, f"WITH w ({names}) AS (SELECT * FROM {join}) SELECT c0 FROM w").understood
        with pytest.raises(InvalidRequestError):
            dependencies(connection, f"WITH w ({names}, more) AS (SELECT * FROM {join}) SELECT c0 FROM w", blind=False)


def test_the_same_query_always_has_the_same_dependencies():
    sql = (
        "SELECT a.name FROM users AS a WHERE a.org NOT IN (SELECT DISTINCT total FROM orders AS o WHERE o.note = a.bio)"
    )
    connection = database(*SCHEMA)
    found = {repr(sorted(map(repr, dependencies(connection, sql).dependencies))) for _ in range(100)}
    assert len(found) == 1
