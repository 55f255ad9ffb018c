"""What a transformation may make of a table."""

import pyarrow as pa
import pytest

from tailrace.model.table import Column, Kind, TableName, TableSchema
from tailrace.pipeline.change_rows import CHANGE_COLUMNS
from tailrace.pipeline.errors import TransformError
from tailrace.pipeline.sink.base import TableChanges
from tailrace.pipeline.transform import schema_of, transformed

ORDERS = TableSchema(TableName("shop", "orders"), 1, (Column("id", Kind.I64), Column("item", Kind.STR)), ("id",))


def made(*fields):
    return pa.schema([*CHANGE_COLUMNS, ("id", pa.int64()), *fields])


def test_columns_keep_their_kind_and_new_ones_have_that_of_their_type():
    schema = schema_of(made(("item", pa.string()), ("total", pa.decimal128(9, 2)), ("none", pa.null())), ORDERS)
    kinds = [(column.name, column.kind) for column in schema.columns]
    assert kinds == [("id", Kind.I64), ("item", Kind.STR), ("total", Kind.DEC), ("none", Kind.STR)]


def test_a_list_is_an_array_of_its_items():
    (*_, tags) = schema_of(made(("tags", pa.list_(pa.list_(pa.int32())))), ORDERS).columns
    assert tags == Column("tags", Kind.ARRAY, element=Column("", Kind.I64), dimensions=2)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ([("item", pa.string()), ("item", pa.string())], "several columns 'item'"),
        ([("spans", pa.list_(pa.duration("us")))], "column 'spans' of type list<.*>, which sinks do not take.*to_json"),
        ([("pair", pa.struct([("a", pa.int32())]))], "column 'pair' of type struct"),
        ([("since", pa.duration("us"))], "column 'since' of type duration"),
    ],
)
def test_columns_that_sinks_do_not_take_are_named(fields, says):
    with pytest.raises(TransformError, match=says):
        schema_of(made(*fields), ORDERS)


def test_a_column_that_is_left_out_and_needed_is_named():
    with pytest.raises(TransformError, match="leaves out column 'id'"):
        schema_of(CHANGE_COLUMNS, ORDERS)


class Session:
    """Stands for Spark: its SQL leaves out all rows of the view that have no item."""

    def __init__(self):
        self.catalog = self

    def createDataFrame(self, rows):  # noqa: N802 - Spark's name
        self.rows = rows
        return self

    def createOrReplaceTempView(self, _name):  # noqa: N802 - Spark's name
        pass

    def dropTempView(self, _name):  # noqa: N802 - Spark's name
        pass

    def sql(self, _text):
        return self

    def toArrow(self):  # noqa: N802 - Spark's name
        return self.rows.filter(self.rows["item"].is_valid()).append_column("more", pa.array(["x"]))


def test_a_truncation_passes_a_transformation_by():
    rows = [
        {"_change_type": "insert", "_offset": 1, "id": 1, "item": "a"},
        {"_change_type": "truncate", "_offset": 2},
        {"_change_type": "insert", "_offset": 3, "id": 2},
    ]
    given = TableChanges(ORDERS, pa.Table.from_pylist(rows, made(("item", pa.string()))))
    found = transformed(given, "SELECT …", Session()).changes.to_pylist()
    assert [(row["_change_type"], row["_offset"], row["id"], row["more"]) for row in found] == [
        ("insert", 1, 1, "x"),
        ("truncate", 2, None, None),
    ]
