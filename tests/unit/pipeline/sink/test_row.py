"""Rows that are refused are found and named."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sink_changes import ChangingSource
from tailrace.meta.pipeline import Mode
from tailrace.model.errors import SinkRefusedError
from tailrace.model.table import Column, Identity, TableName, TableSchema
from tailrace.pipeline.sink.row import key_names, key_text, refuse_rows_without_key, refuse_unidentified, refused_row


@given(st.lists(st.booleans(), min_size=1, max_size=60))
def test_the_first_bad_row_is_found(good):
    rows = pa.table({"good": good})
    found = refused_row(rows, lambda some: all(some["good"].to_pylist()))
    assert found == (good.index(False) if False in good else None)


def test_where_nothing_is_taken_it_is_no_single_row():
    assert refused_row(pa.table({"n": [1, 2, 3]}), lambda _: False) is None


def test_few_tries_find_a_row_among_many():
    tries = []

    def takes(some):
        tries.append(some.num_rows)
        return 654_321 not in some["n"].to_pylist()

    assert refused_row(pa.table({"n": range(1_000_000)}), takes) == 654_321
    assert len(tries) < 30


def test_a_long_key_is_shortened():
    orders = ChangingSource().table("orders", (("id", pa.string()),))
    rows = pa.table({"id": ["x" * 10_000]})
    assert len(key_text(rows, orders.schema, 0)) < 250


def test_a_row_without_a_whole_key_is_named():
    source = ChangingSource()
    orders = source.table("orders", (("a", pa.int64()), ("b", pa.string())), ("a", "b"))
    orders.insert(1, "x")
    orders.insert(2, None)
    with pytest.raises(SinkRefusedError) as refused:
        refuse_rows_without_key(source.batch().tables[0])
    assert str(refused.value).startswith("the row with key [2,null] of table orders: column 'b' of the key is null")


@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize("identity", list(Identity))
def test_rows_that_no_key_tells_apart_can_only_be_appended(identity, mode):
    key = ("a",) if identity in (Identity.PRIMARY_KEY, Identity.UNIQUE_INDEX) else ()
    schema = TableSchema(TableName("app", "t"), 1, (Column("a"),), key, identity=identity)
    if mode is Mode.APPEND or identity not in (Identity.WHOLE_ROW, Identity.NONE):
        refuse_unidentified([schema], mode)
    else:
        with pytest.raises(SinkRefusedError, match="primary key or a unique index, or use mode append") as refused:
            refuse_unidentified([schema], mode)
        assert refused.value.table == "t"


def test_only_a_row_number_has_a_hidden_column():
    names = {
        identity: key_names(TableSchema(TableName("app", "t"), 1, (Column("a"),), identity=identity))
        for identity in (Identity.ROW_NUMBER, Identity.WHOLE_ROW, Identity.NONE)
    }
    assert names == {Identity.ROW_NUMBER: ["rowid"], Identity.WHOLE_ROW: [], Identity.NONE: []}
