"""Rows as pullers get them."""

import json

from tailrace.interface.jimdb.row import value_of
from tailrace.model.image import encode_image
from tailrace.model.table import Column, Kind, TableName, TableSchema
from tailrace.model.value import Text

COLUMNS = (
    Column("id", Kind.I64),
    Column("any"),
    Column("text", Kind.STR),
    Column("data", Kind.BYTES),
    Column("day", Kind.DATE),
    Column("price", Kind.DEC),
    Column("number", Kind.F64),
)
SCHEMA = TableSchema(TableName("s", "t"), 1, COLUMNS, ("id",))


def test_a_value_has_the_columns_that_are_not_of_the_key_and_tells_their_types():
    row = {"id": 1, "any": b"\1", "text": "x", "data": b"\2", "day": Text(Kind.DATE, "2024-01-31"), "number": 1.0}
    value = json.loads(value_of(encode_image(row, SCHEMA), SCHEMA))
    assert value == {
        "any": {"t": "bytes", "b64": "AQ=="},
        "text": "x",
        "data": {"t": "bytes", "b64": "Ag=="},
        "day": {"t": "date", "iso": "2024-01-31"},
        "number": 1.0,
    }


def test_text_in_a_column_of_bytes_is_text_and_nulls_are_null():
    value = json.loads(value_of(encode_image({"id": 1, "data": "AQ==", "price": None}, SCHEMA), SCHEMA))
    assert value == {"data": "AQ==", "price": None}


def test_a_table_without_a_key_has_all_columns_in_its_values():
    schema = TableSchema(TableName("s", "t"), 1, COLUMNS[:2])
    assert json.loads(value_of(encode_image({"id": 1, "any": 2}, schema), schema)) == {"id": 1, "any": 2}


def test_what_was_not_sent_is_taken_from_the_row_before_or_left_out_and_never_null():
    after = encode_image({"id": 1, "text": "new"}, SCHEMA)
    before = encode_image({"id": 1, "text": "old", "day": Text(Kind.DATE, "2024-01-31"), "price": None}, SCHEMA)
    assert json.loads(value_of(after, SCHEMA)) == {"text": "new"}
    assert json.loads(value_of(after, SCHEMA, before)) == {
        "text": "new",
        "day": {"t": "date", "iso": "2024-01-31"},
        "price": None,
    }
