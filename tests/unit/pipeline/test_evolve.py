"""Types that hold the values of two, and tables that follow them."""

import itertools
from datetime import date
from decimal import Decimal

import pyarrow as pa
import pytest

from tailrace.pipeline.evolve import aligned, fitted, united, widened

TYPES = [
    pa.bool_(),
    pa.int64(),
    pa.float64(),
    pa.decimal128(10, 2),
    pa.decimal128(20, 0),
    pa.decimal128(38, 10),
    pa.string(),
    pa.binary(),
    pa.date32(),
    pa.timestamp("us"),
    pa.timestamp("us", tz="UTC"),
    pa.list_(pa.int64()),
    pa.list_(pa.string()),
]


@pytest.mark.parametrize(
    ("one", "other", "wide"),
    [
        (pa.bool_(), pa.int64(), pa.int64()),
        (pa.int64(), pa.float64(), pa.float64()),
        (pa.int64(), pa.decimal128(10, 2), pa.decimal128(21, 2)),
        (pa.int64(), pa.decimal128(20, 0), pa.decimal128(20, 0)),
        (pa.decimal128(10, 2), pa.decimal128(8, 4), pa.decimal128(12, 4)),
        (pa.decimal128(38, 0), pa.decimal128(38, 10), pa.string()),
        (pa.date32(), pa.timestamp("us"), pa.timestamp("us")),
        (pa.date32(), pa.timestamp("us", tz="UTC"), pa.string()),
        (pa.float64(), pa.decimal128(10, 2), pa.string()),
        (pa.int64(), pa.string(), pa.string()),
        (pa.string(), pa.binary(), pa.binary()),
        (pa.null(), pa.date32(), pa.date32()),
        (pa.list_(pa.int64()), pa.list_(pa.float64()), pa.list_(pa.float64())),
        (pa.list_(pa.int64()), pa.list_(pa.string()), pa.string()),
        (pa.list_(pa.int64()), pa.list_(pa.list_(pa.int64())), pa.string()),
        (pa.list_(pa.int64()), pa.int64(), pa.string()),
        (pa.list_(pa.int64()), pa.binary(), pa.binary()),
    ],
)
def test_the_wider_type_holds_both(one, other, wide):
    assert widened(one, other) == widened(other, one) == wide


@pytest.mark.parametrize(("one", "other"), list(itertools.product(TYPES, TYPES)), ids=str)
def test_widening_ends(one, other):
    wide = widened(one, other)
    assert widened(wide, one) == widened(wide, other) == wide


SAMPLES = {
    pa.bool_(): [True, None],
    pa.int64(): [2**63 - 1, -1],
    pa.float64(): [0.1, None],
    pa.decimal128(10, 2): [Decimal("1.25"), None],
    pa.decimal128(20, 0): [Decimal(2**64 - 1)],
    pa.string(): ["ä", ""],
    pa.binary(): [b"\xff\x00"],
    pa.date32(): [date(2026, 2, 28)],
}


@pytest.mark.parametrize(("one", "other"), list(itertools.product(SAMPLES, SAMPLES)), ids=str)
def test_values_fit_the_wider_type_without_loss(one, other):
    if {one, other} == {pa.int64(), pa.float64()}:
        return  # the source itself has made floats of its whole numbers
    column = pa.table({"c": pa.array(SAMPLES[one], one)})
    wide = fitted(column, pa.schema([("c", widened(one, other))]))["c"]
    assert wide.null_count == column["c"].null_count
    back = wide.cast(pa.string()).cast(one) if pa.types.is_binary(wide.type) and one != pa.binary() else wide.cast(one)
    assert back.to_pylist() == SAMPLES[one]


def test_columns_are_added_kept_and_never_narrowed():
    target = pa.schema([("id", pa.int64()), ("old", pa.string()), ("n", pa.string())])
    incoming = pa.schema([("id", pa.int64()), ("n", pa.int64()), ("new", pa.bool_())])
    assert united(target, incoming) == pa.schema([*target, ("new", pa.bool_())])


def test_a_table_gets_nulls_for_what_it_has_not():
    table = pa.table({"id": [1, 2]})
    schema = pa.schema([("id", pa.string()), ("note", pa.string())])
    assert fitted(table, schema).to_pylist() == [{"id": "1", "note": None}, {"id": "2", "note": None}]
    assert aligned(table, schema).to_pylist() == [{"id": "1"}, {"id": "2"}]
