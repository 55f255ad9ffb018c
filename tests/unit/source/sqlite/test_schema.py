import apsw
import pytest

from tailrace.model.errors import SourceStateError
from tailrace.model.table import Kind
from tailrace.source.sqlite.schema import Term, Unique, kind_of, read_schema


def schema_of(*statements):
    database = apsw.Connection(":memory:")
    for statement in statements:
        database.execute(statement)
    return read_schema(database)


@pytest.mark.parametrize(
    ("declared", "kind"),
    [
        ("INTEGER", Kind.I64),
        ("bigint unsigned", Kind.I64),
        ("POINT", Kind.I64),
        ("VARCHAR(20)", Kind.STR),
        ("clob", Kind.STR),
        ("BLOB", Kind.BYTES),
        ("DOUBLE PRECISION", Kind.F64),
        ("FLOATING POINT", Kind.I64),
        ("real", Kind.F64),
        ("NUMERIC(10,2)", Kind.ANY),
        ("DATETIME", Kind.ANY),
        ("BOOLEAN", Kind.ANY),
        ("ANY", Kind.ANY),
        ("", Kind.ANY),
    ],
)
def test_the_kind_of_a_column_follows_the_affinity_of_its_type(declared, kind):
    assert kind_of(declared) is kind


@pytest.mark.parametrize(
    ("sql", "key", "alias", "rowid"),
    [
        ("CREATE TABLE t(a INTEGER PRIMARY KEY)", ("a",), "a", '"a"'),
        ("CREATE TABLE t(a INTEGER PRIMARY KEY DESC, b)", ("a",), None, "rowid"),
        ("CREATE TABLE t(a INT PRIMARY KEY)", ("a",), None, "rowid"),
        ("CREATE TABLE t(a, b, c, PRIMARY KEY(c, a))", ("c", "a"), None, "rowid"),
        ("CREATE TABLE t(a INTEGER PRIMARY KEY) WITHOUT ROWID", ("a",), None, None),
        ("CREATE TABLE t(a, b)", (), None, "rowid"),
        ("CREATE TABLE t(rowid, b)", (), None, "_rowid_"),
        ("CREATE TABLE t(ROWID, _rowid_)", (), None, "oid"),
        ("CREATE TABLE t(rowid, _rowid_, oid, id INTEGER PRIMARY KEY)", ("id",), "id", '"id"'),
        ("CREATE TABLE t(rowid PRIMARY KEY, _rowid_, oid)", ("rowid",), None, None),
    ],
)
def test_the_key_and_the_row_number_are_found(sql, key, alias, rowid):
    table = schema_of(sql).tables["t"]
    assert (table.key, table.alias, table.rowid) == (key, alias, rowid)


def test_a_table_whose_row_number_cannot_be_named_is_refused():
    with pytest.raises(SourceStateError, match="add a primary key"):
        schema_of("CREATE TABLE t(rowid, _rowid_, oid)")


def test_unique_indexes_come_with_their_collations_and_conditions():
    table = schema_of(
        "CREATE TABLE t(a TEXT COLLATE NOCASE UNIQUE, b, c)", "CREATE UNIQUE INDEX i ON t(lower(b) DESC, c) WHERE c > 1"
    ).tables["t"]
    assert table.uniques == (
        Unique((Term("a", "NOCASE", column=True),)),
        Unique((Term("lower(b)", "BINARY", column=False), Term("c", "BINARY", column=True)), "c > 1"),
    )


def test_only_ordinary_tables_of_the_user_are_captured():
    schema = schema_of(
        "CREATE TABLE t(a)",
        "CREATE TABLE s(a INTEGER PRIMARY KEY AUTOINCREMENT)",
        "CREATE VIEW v AS SELECT * FROM t",
        "CREATE TEMP TABLE temporary(a)",
        "CREATE VIRTUAL TABLE search USING fts5(body)",
        "CREATE VIRTUAL TABLE area USING rtree(id, a, b)",
        "CREATE TABLE _tailrace_change(id)",
        "CREATE TABLE search_engine(id)",
    )
    assert set(schema.tables) == {"t", "s"}


def test_columns_are_described_with_type_nullability_and_generation():
    table = schema_of("CREATE TABLE t(a INTEGER PRIMARY KEY, b TEXT NOT NULL, c AS (a + 1), d AS (b) STORED)").tables[
        "t"
    ]
    assert [(c.name, c.kind, c.nullable, c.generated) for c in table.model_columns] == [
        ("a", Kind.I64, False, False),
        ("b", Kind.STR, False, False),
        ("c", Kind.ANY, True, True),
        ("d", Kind.ANY, True, True),
    ]
