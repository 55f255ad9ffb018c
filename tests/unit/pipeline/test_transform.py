"""What a transformation may make of a table."""

import re
import sys

import pyarrow as pa
import pytest

from tailrace.meta.pipeline import Definition
from tailrace.model.table import Column, Kind, TableName, TableSchema
from tailrace.pipeline.change_rows import CHANGE_COLUMNS
from tailrace.pipeline.errors import TransformError
from tailrace.pipeline.sink.base import TableChanges
from tailrace.pipeline.transform import schema_of, transformed, transformed_frame
from tailrace.pipeline.transform_function import find_function

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


class Frame:
    """Stands for a DataFrame of Spark: its SQL leaves out all rows that have no item."""

    def __init__(self, rows=None):
        self.rows = rows
        self.sparkSession = self

    def createDataFrame(self, rows, _schema):  # noqa: N802 - Spark's name
        return Frame(rows)

    def sql(self, text, *, tailrace_given):
        self.text = text
        return tailrace_given

    def toArrow(self):  # noqa: N802 - Spark's name
        return self.rows.filter(self.rows["item"].is_valid()).append_column("more", pa.array(["x"]))


def pipeline(**members):
    return Definition(name="p", source="shop", tables=("orders",), sink="console:", **members)


def test_a_truncation_passes_a_transformation_by():
    rows = [
        {"_change_type": "insert", "_offset": 1, "id": 1, "item": "a"},
        {"_change_type": "truncate", "_offset": 2},
        {"_change_type": "insert", "_offset": 3, "id": 2},
    ]
    given = TableChanges(ORDERS, pa.Table.from_pylist(rows, made(("item", pa.string()))))
    found = transformed(given, pipeline(transform="SELECT …"), Frame()).changes.to_pylist()
    assert [(row["_change_type"], row["_offset"], row["id"], row["more"]) for row in found] == [
        ("insert", 1, 1, "x"),
        ("truncate", 2, None, None),
    ]


@pytest.mark.parametrize(
    ("table", "names"), [("orders", "changes AS .*, orders AS"), ("Changes", "changes AS"), ("a b", "changes AS")]
)
def test_sql_reads_the_changes_by_two_names_and_may_have_braces_and_comments(table, names):
    frame = Frame()
    transformed_frame(frame, pipeline(transform="SELECT '{' -- all\n;"), TableName("shop", table))
    assert re.fullmatch(f"WITH {names} [^,]* SELECT \\* FROM \\(\nSELECT '{{{{' -- all\n\n\\)", frame.text), frame.text


@pytest.fixture
def rules(tmp_path, monkeypatch):
    """Give what writes a module of functions, and have Python forget it."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    find_function.cache_clear()

    def write(text, name="rules_of_a_test"):
        (tmp_path / f"{name}.py").write_text(text)
        monkeypatch.delitem(sys.modules, name, raising=False)
        return pipeline(transform_function=f"{name}:totals", py_files=(str(tmp_path / f"{name}.py"),))

    yield write
    find_function.cache_clear()
    sys.modules.pop("rules_of_a_test", None)


def test_a_function_gets_the_changes_and_the_tables_name_where_it_wants_that(rules):
    frame = Frame()
    plain = rules("def totals(changes):\n    return changes")
    assert transformed_frame(frame, plain, ORDERS.table) is frame
    find_function.cache_clear()
    named = rules("def totals(changes, *, table):\n    changes.seen = table\n    return changes")
    assert transformed_frame(frame, named, TableName("shop", "orders", "eu")).seen == "eu.orders"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("def other(changes): ...", "has no function totals"),
        ("import nowhere_at_all", "cannot import rules_of_a_test.*nowhere_at_all.*--py-files"),
        ("1 / 0", "cannot import rules_of_a_test.*ZeroDivisionError"),
        ("def totals(changes):\n    return None", "returned NoneType for table orders: return a DataFrame"),
        ("def totals(changes):\n    raise KeyError('qty')", "of table orders raised KeyError in line 2$"),
    ],
)
def test_a_function_that_cannot_be_used_is_told_with_the_reason(rules, text, says):
    with pytest.raises(TransformError, match=says):
        transformed_frame(Frame(), rules(text), ORDERS.table)


@pytest.mark.parametrize("name", CHANGE_COLUMNS.names)
def test_columns_of_changes_keep_their_types(name):
    changed = made()
    changed = changed.set(changed.get_field_index(name), pa.field(name, pa.binary()))
    with pytest.raises(TransformError, match="leave them unchanged"):
        schema_of(changed, ORDERS)
