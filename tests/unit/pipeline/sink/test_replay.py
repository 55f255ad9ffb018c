"""Changes that a sink has kept make its rows, in any order and in small gatherings."""

import pyarrow as pa
import pytest

from sink_changes import ChangingSource
from tailrace.pipeline.sink import replay


@pytest.mark.parametrize("gathered", [1, 3, 1_000_000])
@pytest.mark.parametrize("backwards", [False, True])
def test_all_changes_together_make_the_rows(monkeypatch, gathered, backwards):
    monkeypatch.setattr(replay, "_CHANGES_FOLDED_MIN", gathered)
    source = ChangingSource()
    orders = source.table()
    parts = []
    for number in range(10):
        orders.insert(number, "Ann", 1.0)
        if number % 3 == 2:
            orders.delete(number - 1)
            orders.update(number, total=2.0)
        if number == 5:
            orders.alter(add=[("note", pa.string())])
            for row in orders.rows.values():
                row["note"] = None
        parts.append(source.batch().tables[0].changes)
    found = replay.replayed(reversed(parts) if backwards else parts, orders.schema)
    rows = {row["id"]: row for batch in found for row in batch.to_pylist()}
    assert rows == {row["id"]: row for row in orders.rows.values()}


@pytest.mark.parametrize("gathered", [1, 1_000_000])
@pytest.mark.parametrize("backwards", [False, True])
def test_nothing_before_a_truncation_is_left(monkeypatch, gathered, backwards):
    monkeypatch.setattr(replay, "_CHANGES_FOLDED_MIN", gathered)
    source = ChangingSource()
    orders = source.table()
    parts = []
    for number in range(6):
        orders.insert(number, "Ann", 1.0)
        if number in (1, 3):
            orders.truncate()
            orders.insert(number, "Bob", 2.0)
        parts.append(source.batch().tables[0].changes)
    found = replay.replayed(reversed(parts) if backwards else parts, orders.schema)
    rows = {row["id"]: row for batch in found for row in batch.to_pylist()}
    assert rows == {row["id"]: row for row in orders.rows.values()}
    assert sorted(rows) == [3, 4, 5]


def test_a_row_that_was_read_at_the_offset_of_a_truncation_was_read_after_it():
    source = ChangingSource()
    orders = source.table()
    orders.insert(1, "Ann", 1.0)
    orders.truncate()
    truncated = source.batch().tables[0].changes
    orders.rows[2,] = {"id": 2, "customer": "Bob", "total": 1.0}
    orders.read()
    read = source.batch().tables[0].changes
    (batch,) = replay.replayed([read, truncated], orders.schema)
    assert [row["id"] for row in batch.to_pylist()] == [2]


def test_no_changes_make_no_rows():
    assert list(replay.replayed([], ChangingSource().table().schema)) == []
