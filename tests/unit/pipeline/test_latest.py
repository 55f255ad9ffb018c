"""Changes that a later one of the same row makes void."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.model.op import Op
from tailrace.model.table import Column, Identity, Kind, TableName, TableSchema
from tailrace.pipeline.change_rows import change_rows, table_changes
from tailrace.pipeline.fold import fold_current
from tailrace.pipeline.latest import latest
from tailrace.subscription.bulk import BULK_SCHEMA

COLUMNS = (Column("part", Kind.STR), Column("id", Kind.I64), Column("n", Kind.I64))
SCHEMAS = {
    2: TableSchema(TableName("app", "lines"), 1, COLUMNS, ("id", "part")),
    3: TableSchema(TableName("app", "parts"), 1, COLUMNS, ("id", "part")),
    7: TableSchema(TableName("app", "lines"), 2, (*COLUMNS, Column("more", Kind.I64)), ("id", "part")),
}


def batch_of(changes):
    """Return changes given as op, number of the schema, and key."""
    rows = []
    for offset, (op, schema, key) in enumerate(changes, start=1):
        before, after = (b'{"part":"a","id":%d,"n":%d}' % (key, offset + shift) for shift in (0, 1))
        images = (None if op in (Op.INSERT, Op.SCHEMA) else before, None if op is Op.DELETE else after)
        rows.append((offset, 1, 1_000_000, 0, op, schema, b"[]" if op is Op.SCHEMA else b'[%d,"a"]' % key, *images))
    columns = zip(*rows, strict=True) if rows else [[]] * len(BULK_SCHEMA)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, BULK_SCHEMA, strict=True)]
    return pa.record_batch(arrays, schema=BULK_SCHEMA)


def offsets(batch):
    return batch.column("offset").to_pylist()


def test_the_last_change_of_each_row_of_a_table_stays():
    batch = batch_of(
        [
            (Op.INSERT, 2, 1),
            (Op.INSERT, 3, 1),
            (Op.UPDATE, 2, 1),
            (Op.SCHEMA, 7, 0),
            (Op.DELETE, 2, 2),
            (Op.INSERT, 7, 2),
            (Op.UPDATE, 3, 5),
        ]
    )
    kept = latest(batch, SCHEMAS)
    assert offsets(kept) == [2, 3, 6, 7]
    assert kept.column("before").null_count == 4


def test_a_row_that_is_gone_is_told():
    kept = latest(batch_of([(Op.UPDATE, 2, 1), (Op.DELETE, 2, 1)]), SCHEMAS)
    assert offsets(kept) == [2]
    assert kept.column("before").null_count == 0


def test_where_there_is_nothing_nothing_is_left():
    assert latest(batch_of([]), SCHEMAS).num_rows == 0
    assert latest(batch_of([(Op.SCHEMA, 2, 0)]), SCHEMAS).num_rows == 0


row_changes = st.tuples(st.sampled_from([Op.INSERT, Op.UPDATE, Op.DELETE]), st.sampled_from([2, 3]), st.integers(0, 4))
any_changes = st.one_of(row_changes, st.just((Op.SCHEMA, 2, 0)))


@given(st.lists(any_changes, max_size=40))
def test_what_is_left_comes_to_the_same_state(changes):
    batch = batch_of(changes)
    kept = latest(batch, SCHEMAS)
    assert change_rows(kept, SCHEMAS).changes.num_rows == kept.num_rows, "each change is one row"
    assert states(kept) == states(batch)


def states(batch):
    rows = batch.filter(pa.array([op != Op.SCHEMA for op in batch.column("op").to_pylist()], pa.bool_()))
    tables = table_changes([rows], SCHEMAS)
    return {one.schema.table: fold_current(one.changes, ["id", "part"]).to_pylist() for one in tables}


ROW = b'{"part":"a","id":1,"n":1}'


@pytest.mark.parametrize(
    ("after", "kept"),
    [
        (b'{"part":"a","id":1,"n":2}', [3]),
        (b'{"part":"a","id":1,"n":{"t":"f64","v":"NaN"}}', [3]),
        (b'{"part":"\\":\\":","id":1,"n":2}', [3]),
        (b'{"part":"a","id":1}', [1, 2, 3]),
        (b'{"part":"\\":","id":1}', [1, 2, 3]),
        (b'{"part":"a","id":{"t":"i64","v":1}}', [1, 2, 3]),
    ],
)
def test_an_update_that_does_not_send_the_whole_row_makes_nothing_void(after, kept):
    rows = [
        (1, 1, 1, 0, Op.INSERT, 2, b'[1,"a"]', None, ROW),
        (2, 1, 1, 0, Op.UPDATE, 2, b'[1,"a"]', ROW, ROW),
        (3, 1, 1, 0, Op.UPDATE, 2, b'[1,"a"]', None, after),
    ]
    columns = zip(*rows, strict=True)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, BULK_SCHEMA, strict=True)]
    assert offsets(latest(pa.record_batch(arrays, schema=BULK_SCHEMA), SCHEMAS)) == kept


@pytest.mark.parametrize("identity", [Identity.WHOLE_ROW, Identity.NONE])
def test_nothing_is_void_in_a_table_whose_rows_no_key_tells_apart(identity):
    alike = {**SCHEMAS, 3: TableSchema(TableName("app", "parts"), 1, COLUMNS, identity=identity)}
    batch = batch_of([(Op.INSERT, 3, 1), (Op.INSERT, 2, 1), (Op.INSERT, 3, 1), (Op.UPDATE, 2, 1)])
    assert offsets(latest(batch, alike)) == [1, 3, 4]
