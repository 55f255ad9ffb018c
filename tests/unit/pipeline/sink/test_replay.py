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


def test_no_changes_make_no_rows():
    assert list(replay.replayed([], ChangingSource().table().schema)) == []
