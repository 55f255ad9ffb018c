import apsw
import pytest

from tailrace.model.errors import InvalidRequestError
from tailrace.source.sqlite.query_catalog import QueryCatalog
from tailrace.sql.sqlite.affinity import Affinity
from tailrace.sql.sqlite.catalog import Rowid


def connect(*statements):
    connection = apsw.Connection(":memory:")
    for statement in statements:
        connection.execute(statement)
    return connection


def table(ddl, name="t", *more):
    return QueryCatalog(connect(ddl, *more)).table(name)


@pytest.mark.parametrize(
    ("declared", "affinity"),
    [
        ("INTEGER", Affinity.INTEGER),
        ("bigint", Affinity.INTEGER),
        ("CHARINT", Affinity.INTEGER),
        ("VARCHAR(9)", Affinity.TEXT),
        ("CLOB", Affinity.TEXT),
        ("BLOB", Affinity.BLOB),
        ("", Affinity.BLOB),
        ("REAL", Affinity.REAL),
        ("DECIMAL(9, 2)", Affinity.NUMERIC),
        ("DATETIME", Affinity.NUMERIC),
        ("STRING", Affinity.NUMERIC),
    ],
)
def test_affinities_follow_the_declared_type(declared, affinity):
    assert table(f"CREATE TABLE t (a {declared})").columns[0].affinity is affinity


@pytest.mark.parametrize(
    ("ddl", "rowid", "column"),
    [
        ("CREATE TABLE t (id INTEGER PRIMARY KEY, a)", Rowid.COLUMN, "id"),
        ("CREATE TABLE t (a, id INTEGER, PRIMARY KEY (id))", Rowid.COLUMN, "id"),
        ("CREATE TABLE t (id INTEGER PRIMARY KEY DESC, a)", Rowid.HIDDEN, ""),
        ("CREATE TABLE t (id INT PRIMARY KEY, a)", Rowid.HIDDEN, ""),
        ("CREATE TABLE t (a INTEGER, b INTEGER, PRIMARY KEY (a, b))", Rowid.HIDDEN, ""),
        ("CREATE TABLE t (a, b)", Rowid.KEY, ""),
        ("CREATE TABLE t (id INTEGER PRIMARY KEY) WITHOUT ROWID", Rowid.NONE, ""),
    ],
)
def test_row_numbers(ddl, rowid, column):
    found = table(ddl)
    assert (found.rowid, found.rowid_column) == (rowid, column)


def test_columns_that_decide_the_order_are_those_of_the_indexes_and_the_key():
    index = "CREATE INDEX i ON t (b)"
    assert table("CREATE TABLE t (a TEXT PRIMARY KEY, b, c)", "t", index).ordering == {"a", "b"}
    assert table("CREATE TABLE t (a, b, c)", "t", "CREATE INDEX _tailrace_k ON t (b) WHERE 0").ordering == frozenset()
    assert table("CREATE TABLE t (a, b, c)", "t", "CREATE INDEX i ON t (lower(b))").ordering is None


def test_collations_and_generated_columns_are_told():
    found = table("CREATE TABLE t (a TEXT, b TEXT COLLATE NOCASE, c AS (a || b), d AS (a) STORED)")
    assert [column.binary for column in found.columns] == [True, False, True, True]
    assert [column.generated for column in found.columns] == [False, False, True, True]


def test_text_of_a_utf16_database_does_not_compare_by_code_points():
    assert not table("PRAGMA encoding = 'UTF-16le'", "t", "CREATE TABLE t (a TEXT)").columns[0].binary


def test_tables_of_sqlite_and_of_capture_are_left_out_and_virtual_ones_not_captured():
    catalog = QueryCatalog(
        connect(
            "CREATE TABLE t (id INTEGER PRIMARY KEY AUTOINCREMENT)",
            "CREATE TABLE _tailrace_change (id)",
            "CREATE VIRTUAL TABLE f USING fts5 (body)",
            "CREATE TABLE f_mine (a)",
        )
    )
    captured = {found.name: found.captured for found in catalog.tables()}
    assert captured.pop("t")
    assert "f" in captured
    assert "f_mine" in captured  # capture takes it for a part of f
    assert not any(captured.values())
    assert catalog.table("sqlite_sequence") is None
    assert catalog.table("_tailrace_change") is None


def test_the_version_follows_the_schema_and_nothing_else():
    connection = connect("CREATE TABLE t (a)")
    versions = [QueryCatalog(connection).version]
    for statement in (
        "CREATE VIEW v AS SELECT 1",
        "DROP VIEW v",
        "CREATE INDEX i ON t (a)",
        "ALTER TABLE t ADD COLUMN b",
    ):
        connection.execute(statement)
        versions.append(QueryCatalog(connection).version)
    assert versions[0] == versions[2]
    assert len(set(versions)) == 4
    for statement in ("INSERT INTO t VALUES (1, 2)", "CREATE TABLE _tailrace_x (a)", "ANALYZE", "VACUUM"):
        connection.execute(statement)
        assert QueryCatalog(connection).version == versions[-1]


def test_the_footprint_names_what_sqlite_opens_and_asks_for():
    catalog = QueryCatalog(
        connect(
            "CREATE TABLE a (id INTEGER PRIMARY KEY, k)",
            "CREATE TABLE b (id INTEGER PRIMARY KEY, k)",
            "CREATE INDEX bk ON b (k)",
            "CREATE VIEW v AS SELECT lower(k) FROM b",
        )
    )
    assert catalog.footprint("SELECT 1 FROM a NATURAL JOIN b", 0).tables == {"a", "b"}
    found = catalog.footprint("SELECT * FROM v WHERE ?1 > upper(?2)", 2)
    assert found.tables == {"b"}
    assert found.functions == {"lower", "upper"}


@pytest.mark.parametrize(
    ("sql", "problem"),
    [
        ("SELECT missing FROM t", "no such column: missing"),
        ("SELECT 1 FROM", "incomplete|syntax"),
        ("DELETE FROM t", "not authorized"),
        ("SELECT * FROM sqlite_master", "sqlite_master"),
        ("SELECT * FROM temp.sqlite_temp_master", "sqlite_temp_master"),
        ("SELECT * FROM pragma_table_info('t')", "pragma_table_info"),
        ("SELECT 1; SELECT 2", "one statement"),
        ("SELECT ?1", "bindings"),
    ],
)
def test_what_is_no_reading_of_tables_is_refused(sql, problem):
    with pytest.raises(InvalidRequestError, match=problem):
        QueryCatalog(connect("CREATE TABLE t (a)")).footprint(sql, 0)
