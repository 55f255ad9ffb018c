"""Rows that are refused are found and named."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sink_changes import ChangingSource
from tailrace.model.errors import SinkRefusedError
from tailrace.pipeline.sink.row import key_text, refuse_rows_without_key, refused_row


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
