"""SQLite's dialect: what it promises of the keys of tables."""

import apsw
import pytest

from tailrace.model.table import Column, Kind, TableName, TableSchema
from tailrace.source.sqlite.query_catalog import QueryCatalog
from tailrace.sql.sqlite.dialect import SqliteDialect

DIALECT = SqliteDialect()


def catalog(ddl):
    connection = apsw.Connection(":memory:")
    connection.execute(ddl)
    return QueryCatalog(connection)


def schema(*columns, key=("a",)):
    return TableSchema(TableName("s", "t"), 1, columns, key)


FIRM = schema(Column("a", Kind.STR, nullable=False))


@pytest.mark.parametrize(
    ("ddl", "table", "ordered"),
    [
        ("CREATE TABLE t (a TEXT NOT NULL PRIMARY KEY)", FIRM, True),
        ("CREATE TABLE other (a TEXT NOT NULL PRIMARY KEY)", FIRM, False),
        ("CREATE TABLE t (a TEXT PRIMARY KEY)", schema(Column("a", Kind.STR)), False),
        ("CREATE TABLE t (a TEXT NOT NULL COLLATE NOCASE PRIMARY KEY)", FIRM, False),
        ("CREATE TABLE t (a)", schema(Column("a"), key=()), True),
    ],
    ids=["plain", "unknown", "nulls", "collation", "row numbers"],
)
def test_keys_are_in_the_order_of_their_bytes_where_text_is_compared_by_code_points(ddl, table, ordered):
    assert DIALECT.orders_as_bytes(table, catalog(ddl)) is ordered


@pytest.mark.parametrize(
    ("declared", "value", "kept"),
    [("TEXT", "1", True), ("TEXT", 1, False), ("INTEGER", 1, True), ("INTEGER", "1", False), ("INTEGER", "x", True)],
)
def test_a_key_is_kept_where_the_affinity_of_its_column_leaves_it_as_it_is(declared, value, kept):
    table = catalog(f"CREATE TABLE t (a {declared} NOT NULL PRIMARY KEY) WITHOUT ROWID")
    assert DIALECT.keeps([value], FIRM, table) is kept


def test_a_key_of_a_table_that_is_not_there_is_not_kept():
    assert not DIALECT.keeps(["x"], FIRM, catalog("CREATE TABLE other (a)"))
