"""The statements of a catalog sink, as they are written. What they do is in `tests/contract/test_catalog_sink.py`."""

from pathlib import Path

import pyarrow as pa
import pytest

from tailrace.pipeline.fold import CHANGE_COLUMNS, VALIDITY
from tailrace.pipeline.sink import catalog_statements as statements
from tailrace.pipeline.sink.catalog_statements import CatalogTarget

GOLDEN = Path(__file__).parents[3] / "golden" / "catalog"
ORDERS = ("lake", "shop", "orders")
CURRENT = CatalogTarget(ORDERS, ("id", "note", "old", "_offset"), ("id",), "v", (*CHANGE_COLUMNS, "id", "note"))
LINES = CatalogTarget(
    ("lake", "shop", "two words"), (*CHANGE_COLUMNS, "a", "b`c"), ("a", "b`c"), "v", (*CHANGE_COLUMNS, "a", "b`c")
)
HISTORY = CatalogTarget(ORDERS, ("id", "note", *VALIDITY.names), ("id",), "v", (*CHANGE_COLUMNS, "id", "note"))
COLUMNS = pa.schema([("id", pa.int64()), ("note", pa.string())])
WIDER = pa.schema([("id", pa.string()), ("note", pa.binary())])

STATEMENTS = {
    "merge_current": statements.merge_current(CURRENT),
    "insert_current": statements.insert_current(CURRENT),
    "append": statements.append(LINES, None),
    "append_again": statements.append(LINES, (3, 9)),
    "merge_history": statements.merge_history(HISTORY, late=False),
    "merge_history_late": statements.merge_history(HISTORY, late=True),
    "insert_history": statements.insert_history(HISTORY),
    "create": statements.create(ORDERS, COLUMNS, "iceberg"),
    "create_usual": statements.create(ORDERS, COLUMNS, ""),
    "add_columns": statements.add_columns(ORDERS, [pa.field("at", pa.timestamp("us")), pa.field("n", pa.float64())]),
    "retyped": statements.retyped(ORDERS, COLUMNS, WIDER, "delta"),
    "select": statements.select(ORDERS, ["id", "note"]),
    "select_open": statements.select(ORDERS, ["id"], open_versions=True),
    "last_batch": statements.last_batch(("lake", "_tailrace_batches"), "it's\\"),
    "note_batch": statements.note_batch(("lake", "_tailrace_batches"), "v"),
    "forget_batches": statements.forget_batches(("lake", "_tailrace_batches"), "copy", 17),
}


@pytest.mark.parametrize("name", STATEMENTS)
def test_statements_are_these(name):
    assert STATEMENTS[name] == (GOLDEN / f"{name}.sql").read_text().rstrip("\n")


def test_no_golden_file_is_left_over():
    assert {path.stem for path in GOLDEN.iterdir()} == set(STATEMENTS)


@pytest.mark.parametrize(
    ("type_", "name"),
    [
        (pa.bool_(), "BOOLEAN"),
        (pa.int64(), "BIGINT"),
        (pa.decimal128(20, 4), "DECIMAL(20,4)"),
        (pa.timestamp("us"), "TIMESTAMP_NTZ"),
        (pa.timestamp("us", tz="UTC"), "TIMESTAMP"),
    ],
)
def test_types_have_their_names_in_spark(type_, name):
    assert statements.sql_type(type_) == name


def test_a_type_that_changes_never_have_is_none_of_ours():
    with pytest.raises(KeyError):
        statements.sql_type(pa.int32())


def test_lists_are_arrays_and_become_json_where_the_column_is_text_now():
    columns = pa.schema([("id", pa.int64()), ("tags", pa.list_(pa.list_(pa.decimal128(9, 2))))])
    assert "`tags` ARRAY<ARRAY<DECIMAL(9,2)>>" in statements.create(ORDERS, columns, "")
    wider = pa.schema([("id", pa.int64()), ("tags", pa.string())])
    assert "CAST(to_json(`tags`) AS STRING) AS `tags`" in statements.retyped(ORDERS, columns, wider, "")
