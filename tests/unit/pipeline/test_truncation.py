"""Truncations as the deletions of the rows that are gone."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sink_changes import ChangingSource
from tailrace.meta.pipeline import OnDrop
from tailrace.model.op import Op
from tailrace.model.table import Column, Kind, TableName, TableSchema
from tailrace.pipeline.batch_writer import changes_of_packed
from tailrace.pipeline.errors import TableDroppedError
from tailrace.pipeline.fold import fold_current
from tailrace.pipeline.layout import rows_of
from tailrace.pipeline.sink.base import Mode
from tailrace.pipeline.source_options import Layout
from tailrace.pipeline.truncation import TruncationMetError, has_truncation, spelled_out, without_drops
from tailrace.subscription.bulk import BULK_SCHEMA

STEPS = st.lists(st.one_of(st.integers(0, 4), st.sampled_from(["truncate", "commit", "batch"])), max_size=30)


def never():
    raise AssertionError("nobody asks what the target has")


def test_changes_without_a_truncation_and_appended_ones_stay_as_they_are():
    source = ChangingSource()
    orders = source.table()
    orders.insert(1, "Ann", 1.0)
    plain = source.batch().tables[0]
    assert spelled_out(plain, Mode.CURRENT, never) is plain
    orders.truncate()
    truncated = source.batch().tables[0]
    assert spelled_out(truncated, Mode.APPEND, never) is truncated


def test_each_row_of_the_target_and_of_the_batch_is_deleted_once_at_the_offset_of_the_truncation():
    source = ChangingSource()
    orders = source.table()
    for number in (1, 2):
        orders.insert(number, "Ann", 1.0)
    held = source.batch().tables[0].changes.select(["id", "customer", "total"])
    orders.update(2, total=2.0)
    orders.insert(3, "Bob", 1.0)
    orders.truncate()
    orders.insert(1, "Cleo", 1.0)
    made = spelled_out(source.batch().tables[0], Mode.CURRENT, held.to_batches).changes.to_pylist()
    deleted = [(row["id"], row["_offset"]) for row in made if row["_change_type"] == "delete"]
    assert sorted(deleted) == [(1, 5), (2, 5), (3, 5)]
    assert (made[-1]["_change_type"], made[-1]["id"], made[-1]["_offset"]) == ("insert", 1, 6)


@given(STEPS)
def test_folding_what_is_spelled_out_gives_the_rows_of_the_source(steps):
    source = ChangingSource()
    orders = source.table()
    target = {}

    def apply():
        batch = source.batch()
        for one in batch.tables:
            held = one.changes.schema.empty_table().select(["id"]) if not target else None
            rows = [] if held is not None else [orders.table_changes(list(target.values())).changes.to_batches()[0]]
            made = spelled_out(one, Mode.CURRENT, lambda rows=rows: rows)
            assert not has_truncation(made.changes)
            for row in fold_current(made.changes, ["id"]).to_pylist():
                gone = row.pop("_deleted")
                del row["_offset"]
                target.pop(row["id"], None) if gone else target.update({row["id"]: row})

    for step in steps:
        if step == "truncate":
            orders.truncate()
        elif step == "commit":
            source.commit()
        elif step == "batch":
            apply()
        elif (step,) in orders.rows:
            orders.update(step, total=2.0)
        else:
            orders.insert(step, "Ann", 1.0)
    apply()
    assert target == {key[0]: row for key, row in orders.rows.items()}


def test_tasks_that_meet_a_truncation_leave_the_batch_to_the_driver_unless_it_is_appended():
    schema = TableSchema(TableName("app", "users"), 1, (Column("id", Kind.I64),), ("id",))
    values = [[1, 2], [1, 1], [0, 0], [0, 0], [Op.INSERT, Op.TRUNCATE], [1, 1], [b"[1]", b"[]"], [None, None]]
    columns = [pa.array(one, f.type) for one, f in zip([*values, [b'{"id":1}', None]], BULK_SCHEMA, strict=True)]
    batch = pa.record_batch(columns, schema=BULK_SCHEMA)
    packed = pa.Table.from_batches([rows_of(batch, {1: schema}, Layout.PACKED, pa.schema([]))])
    versions = {("users", 1): schema}
    ((tally, tables),) = changes_of_packed(packed, versions, mode=Mode.APPEND)
    assert tally.rows == 2
    assert tables[0].changes["_change_type"].to_pylist() == ["insert", "truncate"]
    with pytest.raises(TruncationMetError):
        list(changes_of_packed(packed, versions, mode=Mode.CURRENT))
    ((_, tables),) = changes_of_packed(packed.slice(0, 1), versions, after=1, mode=Mode.APPEND)
    assert tables[0].changes["_offset"].to_pylist() == [2]


def changes_of(*changes):
    """Return changes of the table `users` as a task reads them: op, key and image of each."""
    schema = TableSchema(TableName("app", "users"), 1, (Column("id", Kind.I64), Column("ddl", Kind.STR)), ("id",))
    ops, keys, images = zip(*changes, strict=True)
    count = len(changes)
    numbers = list(range(1, count + 1))
    values = [numbers, numbers, [0] * count, [0] * count, ops, [1] * count, keys, [None] * count, images]
    columns = [pa.array(one, f.type) for one, f in zip(values, BULK_SCHEMA, strict=True)]
    return pa.record_batch(columns, schema=BULK_SCHEMA), {1: schema}


DROPPED = (
    (Op.INSERT, b"[1]", b'{"id":1,"ddl":"x"}'),
    (Op.SCHEMA, b"[]", b'{"ddl":"DROP TABLE \\"users\\""}'),
    (Op.SCHEMA, b"[]", b'{"ddl":"CREATE TABLE users (id)"}'),
    (Op.INSERT, b"[2]", b'{"id":2,"ddl":"y"}'),
)


@pytest.mark.parametrize("layout", [Layout.PACKED, Layout.LATEST])
def test_a_table_that_is_dropped_is_a_row_and_other_schema_changes_are_none(layout):
    batch, schemas = changes_of(*DROPPED)
    packed = pa.Table.from_batches([rows_of(batch, schemas, layout, pa.schema([]))])
    ((tally, (one,)),) = changes_of_packed(packed, {("users", 1): schemas[1]})
    assert tally.rows == 3
    assert one.changes["_change_type"].to_pylist() == ["insert", "drop", "insert"]
    assert one.changes["id"].to_pylist() == [1, None, 2]
    assert one.changes["ddl"].to_pylist() == ["x", None, "y"]
    assert has_truncation(one.changes)


def test_a_table_that_is_dropped_is_a_row_by_itself():
    batch, schemas = changes_of(DROPPED[1])
    wanted = pa.schema([("_change_type", pa.string()), ("id", pa.int64())])
    assert rows_of(batch, schemas, Layout.TYPED, wanted).to_pylist() == [{"_change_type": "drop", "id": None}]


@pytest.mark.parametrize(
    ("on_drop", "kinds"), [(OnDrop.MIRROR, ["insert", "drop", "insert"]), (OnDrop.KEEP, ["insert", "insert"])]
)
def test_what_a_pipeline_sees_of_a_dropped_table_is_its_policy(on_drop, kinds):
    rows = pa.table({"_change_type": ["insert", "drop", "insert"], "_table": ["users"] * 3, "_offset": [5, 6, 7]})
    assert without_drops(rows, on_drop, "lake")["_change_type"].to_pylist() == kinds


def test_a_pipeline_that_is_to_stop_at_a_drop_names_the_table_and_says_what_to_do():
    rows = pa.table({"_change_type": ["insert", "drop"], "_table": ["users", "orders"], "_offset": [5, 6]})
    with pytest.raises(TableDroppedError, match=r"orders was dropped at offset 6.*alter lake --on-drop mirror"):
        without_drops(rows, OnDrop.STOP, "lake")
    assert without_drops(rows.slice(0, 1), OnDrop.STOP, "lake").num_rows == 1
