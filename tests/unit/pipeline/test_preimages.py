"""Rows before updates that nobody needs."""

import pyarrow as pa
import pytest

from tailrace.model.errors import ConfigError
from tailrace.model.table import Column, Kind, TableName, TableSchema
from tailrace.pipeline.preimages import moved_alone, surely_kept_left_out

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


JSON_ROWS = [
    ("update_preimage", 1, "orders", "[7]", '{"id":7,"qty":1}', False),
    ("update_postimage", 1, "orders", "[7]", '{"id":7,"qty":2}', True),
    ("update_preimage", 2, "orders", "[9]", '{"id":7,"qty":2}', True),
    ("update_postimage", 2, "orders", "[9]", '{"id":9,"qty":2}', True),
    ("update_preimage", 3, "orders", "[9]", '{"id":9,"qty":2}', True),
    ("update_postimage", 3, "orders", "[9]", '{"id":99,"qty":2}', True),
    ("update_preimage", 4, "lines", "[1,2]", '{"id":1,"customer":2}', True),
    ("update_postimage", 4, "lines", "[1,2]", '{"id":1,"customer":2}', True),
    ("update_preimage", 5, "it's", '["a,\\"b"]', '{"the \\"key\\"":"a,\\"b","x":1}', False),
    ("update_postimage", 5, "it's", '["a,\\"b"]', '{"the \\"key\\"":"a,\\"b","x":2}', True),
    ("delete", 6, "orders", "[9]", '{"id":9,"qty":2}', True),
    ("insert", 7, "orders", "[9]", '{"id":9,"qty":3}', True),
]


def test_rows_before_updates_are_left_out_only_where_the_key_is_surely_kept():
    def table(name, columns, key):
        return TableSchema(TableName("app", name), 1, tuple(Column(one, Kind.ANY) for one in columns), key)

    versions = [
        table("orders", ("id", "qty"), ("id",)),
        table("lines", ("id", "customer"), ("id", "customer")),
        table("it's", ('the "key"', "x"), ('the "key"',)),
    ]
    names = ["_change_type", "_offset", "_table", "_key", "_row", "kept"]
    rows = pa.table([pa.array(column) for column in zip(*JSON_ROWS, strict=True)], names=names)
    assert surely_kept_left_out(rows, versions).to_pylist() == rows.filter(rows["kept"]).to_pylist()
    assert surely_kept_left_out(rows.slice(0, 1), versions).num_rows == 1
    assert surely_kept_left_out(rows.slice(10), versions).num_rows == 2
