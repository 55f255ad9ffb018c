"""Cells out of images: every natural form becomes SQLite's value of it."""

import pytest
from msgspec import json as msgspec_json

from tailrace.model.errors import PredicateError
from tailrace.model.image import encode_image
from tailrace.model.table import Column, Kind, TableName, TableSchema
from tailrace.model.value import Text
from tailrace.sql.sqlite.predicate.cells import cell_reader, sql_value

SCHEMA = TableSchema(
    TableName("app", "t"),
    1,
    (
        Column("i", Kind.I64, "INTEGER"),
        Column("s", Kind.STR, "TEXT"),
        Column("b", Kind.BYTES, "BLOB"),
        Column("x", Kind.ANY, ""),
        Column("j", Kind.JSON, "JSON"),
        Column('o"d', Kind.I64, "INTEGER"),
    ),
)


@pytest.mark.parametrize(
    ("column", "value", "expected"),
    [
        ("i", 5, 5),
        ("i", 5.5, 5.5),
        ("i", "5", 5),
        ("i", "x", "x"),
        ("i", b"5", b"5"),
        ("i", True, 1),
        ("i", float("inf"), float("inf")),
        ("i", float("nan"), None),
        ("i", None, None),
        ("s", "5", "5"),
        ("s", b"5", b"5"),
        ("b", b"\xff", b"\xff"),
        ("b", "text", "text"),
        ("x", "5", "5"),
        ("x", 5, 5),
        ("x", b"5", b"5"),
        ("j", Text(Kind.JSON, "{}"), "{}"),
        ('o"d', 5, 5),
    ],
)
def test_a_cell_is_read_as_sqlite_would_compare_it(column, value, expected):
    read = cell_reader([column, "missing"], SCHEMA)
    found = read(encode_image({column: value}, SCHEMA))
    assert found == {column: expected, "missing": None}
    assert type(found[column]) is type(expected)


@pytest.mark.parametrize("image", [b"{", b"[1]", b'{"i":[1]}', b'{"i":{"t":"what"}}', b'{"i":{"t":"dec","v":"1"}}'])
def test_what_is_no_cell_is_an_error(image):
    with pytest.raises(PredicateError):
        cell_reader(["i"], SCHEMA)(image)


def test_a_value_that_sqlite_has_not_is_an_error():
    with pytest.raises(PredicateError, match="no decimal"):
        sql_value("1.5", Column("c", Kind.DEC))
    assert sql_value(msgspec_json.decode(b'"2000-01-01"'), Column("c", Kind.DATE)) == "2000-01-01"
