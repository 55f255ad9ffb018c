"""Versions of captured tables, as the database keeps them."""

import apsw
import msgspec
import pytest

from tailrace.source.sqlite.schema import read_schema
from tailrace.source.sqlite.table_version import decode_version, encode_version, version_of

DDL = [
    "CREATE TABLE t (id INTEGER PRIMARY KEY, a TEXT)",
    "CREATE TABLE t (id INTEGER PRIMARY KEY, a TEXT COLLATE NOCASE, b TEXT COLLATE BINARY, c TEXT COLLATE rtrim)",
    "CREATE TABLE t (id INTEGER PRIMARY KEY, a ANY, b TEXT COLLATE NOCASE) STRICT",
    "CREATE TABLE t (a TEXT CHECK (a COLLATE NOCASE <> ''), PRIMARY KEY (a COLLATE RTRIM)) WITHOUT ROWID",
]


def current(ddl):
    connection = apsw.Connection(":memory:")
    connection.execute(ddl)
    return version_of(read_schema(connection).tables["t"], 1, 1)


@pytest.mark.parametrize("ddl", DDL)
def test_a_version_comes_back_as_it_was_kept(ddl):
    assert decode_version(encode_version(current(ddl))) == current(ddl)


@pytest.mark.parametrize("ddl", DDL)
def test_a_version_that_was_kept_without_collations_is_no_other_shape(ddl):
    kept = msgspec.json.decode(encode_version(current(ddl)))
    del kept["facts"]
    for column in kept["columns"]:
        column.pop("collation", None)
        column.pop("strict", None)
    assert decode_version(msgspec.json.encode(kept).decode()).same_shape(current(ddl))


def test_columns_tell_what_predicates_need():
    columns = current(DDL[2]).columns
    assert [(column.name, column.collation, column.strict) for column in columns] == [
        ("id", "", True),
        ("a", "", True),
        ("b", "NOCASE", True),
    ]
