"""Filters that Spark hands down."""

import pyarrow as pa
import pytest
from pyspark.sql.datasource import (
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
)
from pyspark.sql.types import DoubleType, LongType, StringType, StructField, StructType

from tailrace.pipeline.push_down import PushDown

SCHEMA = StructType(
    [
        StructField("_offset", LongType()),
        StructField("id", LongType()),
        StructField("name", StringType()),
        StructField("price", DoubleType()),
    ]
)


@pytest.mark.parametrize(
    ("filters", "interval"),
    [
        ([GreaterThan(("_offset",), 3)], (3, 10)),
        ([GreaterThanOrEqual(("_offset",), 3)], (2, 10)),
        ([LessThan(("_offset",), 7)], (0, 6)),
        ([LessThanOrEqual(("_offset",), 7)], (0, 7)),
        ([EqualTo(("_offset",), 5)], (4, 5)),
        ([GreaterThan(("_offset",), 3), GreaterThan(("_offset",), 1), LessThan(("_offset",), 6)], (3, 5)),
        ([LessThan(("_offset",), 0)], (0, 0)),
    ],
)
def test_bounds_of_offsets_narrow_the_interval(filters, interval):
    pushed = PushDown()
    assert all(pushed.take(one, SCHEMA) for one in filters)
    assert pushed.narrowed(0, 10) == interval


def test_whole_numbers_and_texts_are_compared_before_rows_leave():
    pushed = PushDown()
    assert pushed.take(EqualTo(("name",), "a"), SCHEMA)
    assert pushed.take(In(("id",), (1, 2)), SCHEMA)
    batch = pa.record_batch({"id": [1, 2, 3, None], "name": ["a", "b", "a", "a"]})
    assert pushed.filter(batch).to_pydict() == {"id": [1], "name": ["a"]}


@pytest.mark.parametrize(
    "one",
    [
        EqualTo(("price",), 1.0),
        EqualTo(("name",), None),
        EqualTo(("name", "first"), "a"),
        EqualTo(("unknown",), "a"),
        In(("id",), (1, None)),
        IsNotNull(("name",)),
        Not(EqualTo(("name",), "a")),
        GreaterThan(("id",), 1),
        In(("_offset",), (1, 2)),
    ],
    ids=repr,
)
def test_what_cannot_be_done_exactly_is_left_to_spark(one):
    pushed = PushDown()
    assert not pushed.take(one, SCHEMA)
    assert pushed == PushDown()
