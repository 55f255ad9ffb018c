import pytest
from msgspec import Struct

from tailrace.model.table import Column, Kind, TableName, TableSchema
from tailrace.model.value import Text
from tailrace.sql.dialect import dialect_of


class Version(Struct):
    version: str = "1"


DIALECT = dialect_of("postgresql")
TEXT = Column("k", Kind.STR, "text", nullable=False)
UUID = "7f3c9a52-1b1e-4d6a-9c7f-0a1b2c3d4e5f"


def schema_of(*columns):
    return TableSchema(TableName("app", "t"), 1, columns, tuple(one.name for one in columns), dialect="postgresql")


@pytest.mark.parametrize(
    ("column", "found"),
    [
        (Column("k", Kind.I64, "integer"), True),
        (Column("k", Kind.I64, "positive", base="integer"), True),
        (Column("k", Kind.I64, "oid"), False),
        (TEXT, True),
        (Column("k", Kind.STR, "character varying(20)"), True),
        (Column("k", Kind.STR, "text", collation="de_DE"), False),
        (Column("k", Kind.STR, "character(5)"), False),
        (Column("k", Kind.STR, "citext"), False),
        (Column("k", Kind.BYTES, "bytea"), True),
        (Column("k", Kind.UUID, "uuid"), True),
        (Column("k", Kind.DEC, "numeric"), False),
        (Column("k", Kind.DATE, "date"), False),
    ],
)
def test_keys_are_in_the_order_of_their_bytes_where_the_type_says_so(column, found):
    assert DIALECT.orders_as_bytes(schema_of(column), Version()) is found


def test_one_column_in_another_order_is_enough():
    assert DIALECT.orders_as_bytes(schema_of(TEXT, Column("n", Kind.I64, "bigint")), Version())
    assert not DIALECT.orders_as_bytes(schema_of(TEXT, Column("n", Kind.DEC, "numeric")), Version())


@pytest.mark.parametrize(
    ("value", "column", "found"),
    [
        (5, Column("k", Kind.I64, "integer"), True),
        (2**31, Column("k", Kind.I64, "integer"), False),
        (-(2**63), Column("k", Kind.I64, "bigint"), True),
        (True, Column("k", Kind.I64, "bigint"), False),
        ("x", Column("k", Kind.I64, "bigint"), False),
        ("x", TEXT, True),
        ("x\0", TEXT, False),
        (b"x", Column("k", Kind.BYTES, "bytea"), True),
        (Text(Kind.UUID, UUID), Column("k", Kind.UUID, "uuid"), True),
        (Text(Kind.UUID, UUID.upper()), Column("k", Kind.UUID, "uuid"), False),
        (None, TEXT, False),
    ],
)
def test_values_that_a_column_would_convert_are_not_kept(value, column, found):
    assert DIALECT.keeps([value], schema_of(column), Version()) is found
    assert not DIALECT.keeps([value, value], schema_of(column), Version())
