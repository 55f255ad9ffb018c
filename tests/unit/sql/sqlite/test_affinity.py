"""SQLite's typing of columns: affinities and collations, as SQLite itself reports them."""

import apsw
import pytest

from tailrace.model.table import Column, Kind, TableName, TableSchema
from tailrace.sql.sqlite.affinity import Affinity, affinity_of_column, affinity_of_type, collations_of

STORED = {"integer": Affinity.INTEGER, "real": Affinity.REAL, "text": Affinity.TEXT}
TYPES = [
    "INTEGER",
    "int",
    "TINYINT(4)",
    "POINT",
    "TEXT",
    "VARCHAR(255)",
    "CLOB",
    "BLOB",
    "",
    "REAL",
    "DOUBLE PRECISION",
]
TYPES += ["FLOAT", "NUMERIC", "DECIMAL(10,5)", "BOOLEAN", "DATE", "CHARINT", "FLOATING POINT", "STRING", "ANY"]


@pytest.mark.parametrize("declared", TYPES)
def test_a_declared_type_has_the_affinity_that_sqlite_gives_it(declared):
    database = apsw.Connection(":memory:")
    database.execute(f"CREATE TABLE t (c {declared})")
    database.execute("INSERT INTO t VALUES ('1'), ('1.5'), (2)")
    classes = [row[0] for row in database.execute("SELECT typeof(c) FROM t ORDER BY rowid")]
    expected = {
        ("integer", "real", "integer"): {Affinity.INTEGER, Affinity.NUMERIC},
        ("real", "real", "real"): {Affinity.REAL},
        ("text", "text", "text"): {Affinity.TEXT},
        ("text", "text", "integer"): {Affinity.BLOB},
    }[tuple(classes)]
    assert affinity_of_type(declared) in expected


def table(ddl: str = "", *columns: Column) -> TableSchema:
    return TableSchema(TableName("app", "t"), 1, columns, ddl=ddl)


def test_any_has_no_affinity_in_a_strict_table_only():
    column = Column("a", Kind.ANY, "ANY")
    assert affinity_of_column(column, table("CREATE TABLE t (a ANY)", column)) is Affinity.NUMERIC
    assert affinity_of_column(column, table("CREATE TABLE t (a ANY) STRICT", column)) is Affinity.BLOB
    assert affinity_of_column(column, table("CREATE TABLE strict (a ANY)", column)) is Affinity.NUMERIC
    without_rowid = "CREATE TABLE t (a ANY PRIMARY KEY) WITHOUT ROWID, strict"
    assert affinity_of_column(column, table(without_rowid, column)) is Affinity.BLOB


@pytest.mark.parametrize(
    ("kind", "affinity"),
    [(Kind.I64, Affinity.INTEGER), (Kind.F64, Affinity.REAL), (Kind.STR, Affinity.TEXT), (Kind.ANY, Affinity.BLOB)],
)
def test_a_column_without_declared_type_has_the_affinity_of_its_kind(kind, affinity):
    assert affinity_of_column(Column("a", kind), table()) is affinity


DDL = """CREATE TABLE "odd (name" (
    a TEXT COLLATE NOCASE NOT NULL, -- COLLATE RTRIM
    "b c" VARCHAR(10) DEFAULT ('x' COLLATE RTRIM) CHECK ("b c" COLLATE NOCASE <> ','),
    [d] text collate "rtrim", `e` TEXT CONSTRAINT n UNIQUE COLLATE binary, f COLLATE mine,
    collate TEXT, g NUMERIC(3, 2) COLLATE NOCASE,
    PRIMARY KEY (a COLLATE RTRIM, d), CHECK (a COLLATE RTRIM > ''))"""


def test_the_collations_of_columns_are_read_from_the_ddl():
    found = collations_of(table(DDL.replace("collate TEXT, ", "")))
    assert found == {"a": "NOCASE", "d": "RTRIM", "e": "BINARY", "f": None, "g": "NOCASE"}


def test_the_collations_are_those_that_sqlite_reports():
    ddl = DDL.replace("collate TEXT, ", "").replace("f COLLATE mine,", "f,")
    database = apsw.Connection(":memory:")
    database.execute(ddl)
    for name in ("a", "b c", "d", "e", "f", "g"):
        collation = database.column_metadata(None, "odd (name", name)[1]
        found = collations_of(table(ddl))
        assert found is not None
        assert found.get(name, "BINARY") == collation.upper()


def test_a_ddl_that_cannot_be_read_tells_no_collation():
    assert collations_of(table("CREATE TABLE t (a TEXT COLLATE NOCASE DEFAULT 'x")) is None
    assert collations_of(table("CREATE TABLE t (a TEXT DEFAULT 'x")) == {}
