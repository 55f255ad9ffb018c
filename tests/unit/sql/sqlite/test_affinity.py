"""SQLite's typing of columns: affinities and collations, as SQLite itself reports them."""

import apsw
import pytest

from tailrace.model.table import Column, Kind, TableName, TableSchema
from tailrace.sql.sqlite.affinity import Affinity, affinity_of_column, affinity_of_type, with_facts

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
    assert affinity_of_column(Column("a", Kind.ANY, "ANY")) is Affinity.NUMERIC
    assert affinity_of_column(Column("a", Kind.ANY, "ANY", strict=True)) is Affinity.BLOB


@pytest.mark.parametrize(
    ("ddl", "strict"),
    [
        ("CREATE TABLE t (a ANY)", False),
        ("CREATE TABLE t (a ANY) STRICT", True),
        ("CREATE TABLE strict (a ANY)", False),
        ("CREATE TABLE t (a ANY PRIMARY KEY) WITHOUT ROWID, strict", True),
    ],
)
def test_an_older_schema_tells_by_its_ddl_whether_it_is_strict(ddl, strict):
    (column,) = with_facts(table(ddl, Column("a", Kind.ANY, "ANY"))).columns
    assert column.strict is strict


@pytest.mark.parametrize(
    ("kind", "affinity"),
    [(Kind.I64, Affinity.INTEGER), (Kind.F64, Affinity.REAL), (Kind.STR, Affinity.TEXT), (Kind.ANY, Affinity.BLOB)],
)
def test_a_column_without_declared_type_has_the_affinity_of_its_kind(kind, affinity):
    assert affinity_of_column(Column("a", kind)) is affinity


DDL = """CREATE TABLE "odd (name" (
    a TEXT COLLATE NOCASE NOT NULL, -- COLLATE RTRIM
    "b c" VARCHAR(10) DEFAULT ('x' COLLATE RTRIM) CHECK ("b c" COLLATE NOCASE <> ','),
    [d] text collate "rtrim", `e` TEXT CONSTRAINT n UNIQUE COLLATE binary, f COLLATE mine,
    collate TEXT, g NUMERIC(3, 2) COLLATE NOCASE,
    PRIMARY KEY (a COLLATE RTRIM, d), CHECK (a COLLATE RTRIM > ''))"""


NAMES = ("a", "b c", "d", "e", "f", "g")
COLUMNS = tuple(map(Column, NAMES))


def collations(ddl):
    return {column.name: column.collation for column in with_facts(table(ddl, *COLUMNS)).columns}


def test_an_older_schema_tells_by_its_ddl_how_columns_are_compared():
    found = collations(DDL.replace("collate TEXT, ", ""))
    assert found == {"a": "NOCASE", "b c": "", "d": "RTRIM", "e": "", "f": "MINE", "g": "NOCASE"}


def test_the_collations_are_those_that_sqlite_reports():
    ddl = DDL.replace("collate TEXT, ", "").replace("f COLLATE mine,", "f,")
    database = apsw.Connection(":memory:")
    database.execute(ddl)
    reported = {name: database.column_metadata(None, "odd (name", name)[1].upper() for name in NAMES}
    assert {name: collation or "BINARY" for name, collation in collations(ddl).items()} == reported


def test_a_ddl_that_cannot_be_read_tells_no_collation():
    assert collations("CREATE TABLE t (a TEXT COLLATE NOCASE DEFAULT 'x") == dict.fromkeys(NAMES, "?")
    assert collations("CREATE TABLE t (a TEXT DEFAULT 'x") == dict.fromkeys(NAMES, "")


def test_a_schema_whose_columns_tell_is_taken_at_its_word():
    told = table("CREATE TABLE t (a COLLATE NOCASE, b COLLATE RTRIM)", Column("a", collation="NOCASE"), Column("b"))
    assert with_facts(told) is told
