"""Types that are declared for columns: what is made of values, and what does not fit."""

import datetime as dt
from decimal import Decimal

import msgspec
import pyarrow as pa
import pytest

from tailrace.client.bulk_rows import RowsPage
from tailrace.model.errors import ConfigError
from tailrace.model.table import Column, Kind, TableName, TableSchema
from tailrace.pipeline.declared import converted, declared, declared_type, kind_of, split_name
from tailrace.pipeline.decode import read_rows
from tailrace.pipeline.typed import MisfitError, arrow_type, decode_images, row_schema

UTC = dt.UTC
at = dt.datetime.fromisoformat


@pytest.mark.parametrize(
    ("text", "type_"),
    [
        ("boolean", pa.bool_()),
        ("int", pa.int64()),
        ("BIGINT", pa.int64()),
        ("double", pa.float64()),
        ("decimal(12, 2)", pa.decimal128(12, 2)),
        ("string", pa.string()),
        ("binary", pa.binary()),
        ("date", pa.date32()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("timestamp_ntz", pa.timestamp("us")),
    ],
)
def test_types_are_named_as_spark_names_them(text, type_):
    assert declared_type(text) == type_


@pytest.mark.parametrize("text", ["", "number", "decimal", "decimal(39,2)", "decimal(2,3)", "decimal(0,0)", "int(4)"])
def test_other_names_are_refused(text):
    with pytest.raises(ConfigError, match="type"):
        declared_type(text)


GOOD = [
    ("1", "boolean", True),
    ("FALSE", "boolean", False),
    ("-12", "bigint", -12),
    ("1e3", "double", 1000.0),
    ("19.9", "decimal(12,2)", Decimal("19.90")),
    ("1e3", "decimal(12,2)", Decimal(1000)),
    ("2026-01-02", "date", dt.date(2026, 1, 2)),
    ("2026-01-02 10:11:12.5", "timestamp_ntz", at("2026-01-02T10:11:12.500")),
    ("2026-01-02", "timestamp_ntz", at("2026-01-02")),
    ("2026-01-02 10:11:12", "timestamp", dt.datetime(2026, 1, 2, 10, 11, 12, tzinfo=UTC)),
    ("2026-01-02T10:11:12+02:00", "timestamp", dt.datetime(2026, 1, 2, 8, 11, 12, tzinfo=UTC)),
    ("2026-01-02T10:11:12Z", "timestamp", dt.datetime(2026, 1, 2, 10, 11, 12, tzinfo=UTC)),
    (1, "boolean", True),
    (5, "decimal(12,2)", Decimal(5)),
    (5, "double", 5.0),
    (2.0, "int", 2),
    (19.99, "decimal(12,2)", Decimal("19.99")),
    (True, "int", 1),
    (Decimal("2.00"), "int", 2),
    (Decimal("2.50"), "decimal(3,1)", Decimal("2.5")),
    (dt.date(2026, 1, 2), "timestamp", dt.datetime(2026, 1, 2, tzinfo=UTC)),
    (at("2026-01-02"), "date", dt.date(2026, 1, 2)),
    (at("2026-01-02T03:00"), "timestamp", dt.datetime(2026, 1, 2, 3, tzinfo=UTC)),
]


@pytest.mark.parametrize(("value", "type_", "result"), GOOD)
def test_a_value_that_fits_is_converted_and_null_stays(value, type_, result):
    values = pa.array([None, value, value])
    assert converted(values, declared_type(type_)).to_pylist() == [None, result, result]


@pytest.mark.parametrize(
    ("value", "type_"),
    [
        ("2", "boolean"),
        ("yes", "boolean"),
        ("0x10", "int"),
        ("1.5", "int"),
        ("", "int"),
        ("9223372036854775808", "bigint"),
        ("much", "double"),
        ("19.999", "decimal(12,2)"),
        ("12345678901.5", "decimal(12,2)"),
        ("2026-02-30", "date"),
        ("2026-01-02 10:00:00", "date"),
        ("2026-01-02T10:11:12Z", "timestamp_ntz"),
        ("2026-01-02 10:11:12.1234567", "timestamp"),
        (2, "boolean"),
        (2**53 + 1, "double"),
        (1.5, "int"),
        (0.1 + 0.2, "decimal(12,2)"),
        (1767312000, "timestamp"),
        (Decimal("2.55"), "decimal(3,1)"),
        (at("2026-01-02T03:00"), "date"),
        (b"1", "int"),
    ],
)
def test_a_value_that_does_not_fit_is_no_other_value(value, type_):
    with pytest.raises(pa.ArrowInvalid):
        converted(pa.array([None, value]), declared_type(type_))


def test_names_are_split_at_the_table_though_both_have_dots():
    tables = ("a", "a.b", "c")
    assert split_name("a.b.c", tables) == ("a.b", "c")
    assert split_name("c.x.y", tables) == ("c", "x.y")
    assert split_name("d.x", tables) is None
    assert split_name("a.", tables) is None


ORDERS = TableSchema(
    TableName("shop", "orders"),
    1,
    (Column("id", Kind.I64), Column("paid", Kind.ANY, "BOOLEAN"), Column("total", Kind.ANY, "DECIMAL(12,2)")),
    ("id",),
)
TYPES = {"orders.paid": "boolean", "orders.total": "decimal(12,2)", "other.id": "string"}


def test_a_schema_has_the_types_that_are_declared_for_its_columns():
    schema = declared(ORDERS, TYPES)
    assert row_schema(schema).types == [pa.int64(), pa.bool_(), pa.decimal128(12, 2)]
    assert [kind_of(column) for column in schema.columns] == [Kind.I64, Kind.BOOL, Kind.DEC]
    assert declared(ORDERS, {"other.id": "string"}) is ORDERS
    assert [arrow_type(column) for column in ORDERS.columns] == [pa.int64(), pa.string(), pa.string()]


def images(*rows):
    keys = pa.array([msgspec.json.encode([row["id"]]) for row in rows])
    return pa.array([msgspec.json.encode(row) for row in rows]), keys


def test_images_are_decoded_into_declared_types():
    schema = declared(ORDERS, TYPES)
    rows, keys = images({"id": 1, "paid": 1, "total": 19.9}, {"id": 2, "paid": None, "total": "7"})
    _, paid, total = decode_images(rows, keys, schema, row_schema(schema)).columns
    assert (paid.to_pylist(), total.to_pylist()) == ([True, None], [Decimal("19.90"), Decimal("7.00")])


def test_a_value_that_does_not_fit_is_named_by_table_key_and_column():
    schema = declared(ORDERS, TYPES)
    rows, keys = images({"id": 1, "paid": 1}, {"id": 2, "paid": "perhaps"}, {"id": 3, "paid": 9})
    with pytest.raises(MisfitError, match=r"'paid' in the row with key \[2\] of table orders is no bool.*--type"):
        decode_images(rows, keys, schema, row_schema(schema))


def page(schema, **columns):
    return RowsPage(7, 3, 0, schema, pa.record_batch(columns), typed=True)


def test_typed_pages_are_converted_alike():
    schema = TableSchema(ORDERS.table, 1, (Column("id", Kind.I64), Column("price", Kind.F64)), ("id",))
    types = {"orders.price": "decimal(12,2)"}
    rows = read_rows(page(schema, id=[1, 2], price=[19.99, None]), declared(schema, types))
    assert rows["price"].to_pylist() == [Decimal("19.99"), None]
    with pytest.raises(MisfitError, match=r"'price' in the row with key \[2\]"):
        read_rows(page(schema, id=[1, 2], price=[1.0, 0.1 + 0.2]), declared(schema, types))
