"""Rows before updates that nobody needs."""

import pyarrow as pa
import pytest

from tailrace.model.errors import ConfigError
from tailrace.pipeline.preimages import moved_alone

INSERT, BEFORE, AFTER, DELETE = "insert", "update_preimage", "update_postimage", "delete"


def rows(*told):
    kinds, keys, others = zip(*told, strict=True)
    columns = {"_change_type": list(kinds), "id": pa.array(keys, pa.int64()), "part": list(others)}
    return pa.record_batch(columns)


@pytest.mark.parametrize(
    ("told", "kept"),
    [
        ([(INSERT, 1, "a")], [0]),
        ([(BEFORE, 1, "a"), (AFTER, 1, "a")], [1]),
        ([(BEFORE, 1, "a"), (AFTER, 2, "a")], [0, 1]),
        ([(BEFORE, 1, "a"), (AFTER, 1, "b")], [0, 1]),
        ([(BEFORE, None, "a"), (AFTER, None, "a")], [0, 1]),
        ([(INSERT, 1, "a"), (DELETE, 1, "a"), (BEFORE, 2, "a"), (AFTER, 2, "a"), (DELETE, 2, "a")], [0, 1, 3, 4]),
    ],
)
def test_a_row_before_an_update_stays_where_its_key_is_gone(told, kept):
    whole = rows(*told)
    assert moved_alone(whole, ["id", "part"]).to_pylist() == whole.take(kept).to_pylist()


def test_a_batch_without_rows_stays_so():
    assert moved_alone(rows((INSERT, 1, "a")).slice(0, 0), ["id"]).num_rows == 0


def test_a_key_that_is_not_read_is_named():
    with pytest.raises(ConfigError, match="option preimages needs the column 'number'"):
        moved_alone(rows((INSERT, 1, "a")), ["number"])
