"""Filters that Spark hands down."""

import pickle
from datetime import UTC, date, datetime

import pyarrow as pa
import pytest
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)
from pyspark.sql.types import (
    BooleanType,
    DateType,
    DoubleType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from tailrace.model.op import Op
from tailrace.model.table import Column, Kind, TableName, TableSchema
from tailrace.model.wanted import Conditions
from tailrace.pipeline.declared import declared
from tailrace.pipeline.push_down import PushDown

SCHEMA = StructType(
    [
        StructField("_offset", LongType()),
        StructField("_change_type", StringType()),
        StructField("_table", StringType()),
        StructField("_commit_timestamp", TimestampType()),
        StructField("id", LongType()),
        StructField("name", StringType()),
        StructField("day", DateType()),
        StructField("paid", BooleanType()),
        StructField("price", DoubleType()),
    ]
)
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("filters", "interval"),
    [
        ([GreaterThan(("_offset",), 3)], (3, 10)),
        ([GreaterThanOrEqual(("_offset",), 3)], (2, 10)),
        ([LessThan(("_offset",), 7)], (0, 6)),
        ([LessThanOrEqual(("_offset",), 7)], (0, 7)),
        ([EqualTo(("_offset",), 5)], (4, 5)),
        ([In(("_offset",), (7, 3))], (2, 7)),
        ([GreaterThan(("_offset",), 3), GreaterThan(("_offset",), 1), LessThan(("_offset",), 6)], (3, 5)),
        ([LessThan(("_offset",), 0)], (0, 0)),
        ([IsNotNull(("_offset",))], (0, 10)),
        ([Not(EqualTo(("_offset",), 5))], (0, 10)),
    ],
)
def test_bounds_of_offsets_narrow_the_interval(filters, interval):
    pushed = PushDown()
    assert all(pushed.take(one, SCHEMA) for one in filters)
    assert pushed.narrowed(0, 10) == interval


NOON_US = 1_767_268_800_000_000
USERS = TableSchema(TableName("app", "users"), 1, (Column("id", Kind.I64), Column("name", Kind.STR)), ("id",))
OTHER_KEY = TableSchema(USERS.table, 2, USERS.columns, ("name",))


@pytest.mark.parametrize(
    ("filters", "conditions"),
    [
        ([], None),
        ([IsNotNull(("id",)), EqualTo(("name",), "a")], None),
        ([LessThan(("id",), 10), GreaterThan(("id",), 3)], Conditions(key="id", key_min=3, key_max=10)),
        ([EqualTo(("id",), 7)], Conditions(key="id", key_min=7, key_max=7)),
        ([In(("id",), (7, 3))], Conditions(key="id", key_min=3, key_max=7)),
        ([Not(EqualTo(("id",), 7))], None),
        ([GreaterThan(("_commit_timestamp",), NOON)], Conditions(time_us_min=NOON_US)),
        ([LessThanOrEqual(("_commit_timestamp",), NOON)], Conditions(time_us_max=NOON_US)),
        ([EqualTo(("_change_type",), "delete")], Conditions(frozenset({Op.DELETE}))),
        ([In(("_change_type",), ("update_preimage", "drop"))], Conditions(frozenset({Op.UPDATE, Op.SCHEMA}))),
        ([EqualTo(("_change_type",), "nothing")], Conditions(frozenset())),
    ],
)
def test_kinds_times_and_keys_are_handed_on_to_the_log(filters, conditions):
    pushed = PushDown()
    assert all(pushed.take(one, SCHEMA) for one in filters)
    assert pushed.conditions([USERS, OTHER_KEY]) == conditions


def test_only_a_column_that_is_the_whole_key_is_bounded():
    pushed = PushDown()
    pushed.take(LessThan(("id",), 10), SCHEMA)
    pair = TableSchema(USERS.table, 1, USERS.columns, ("id", "name"))
    assert pushed.conditions([OTHER_KEY, pair]) is None


@pytest.mark.parametrize("kind", [Kind.DATETIME, Kind.STR, Kind.ANY])
def test_a_key_that_is_no_integer_in_every_version_is_not_bounded_in_the_log(kind):
    pushed = PushDown()
    schema = StructType([StructField("seen", TimestampType()), StructField("id", LongType())])
    pushed.take(EqualTo(("seen",), NOON), schema)
    pushed.take(EqualTo(("id",), 7), schema)
    seen = TableSchema(USERS.table, 3, (Column("seen", Kind.DATETIME),), ("seen",))
    assert pushed.conditions([seen]) is None
    earlier = TableSchema(USERS.table, 1, (Column("id", kind),), ("id",))
    assert pushed.conditions([earlier, USERS]) is None


def test_a_key_of_a_declared_type_is_not_bounded_in_the_log():
    pushed = PushDown()
    pushed.take(LessThan(("id",), 10), SCHEMA)
    assert pushed.conditions([USERS]) is not None
    assert pushed.conditions([declared(USERS, {f"{USERS.table.wire}.id": "bigint"})]) is None


def rows():
    """Return rows, one of them null throughout."""
    ids, names = [1, 2, 3, None], ["ann", "bob", "anna", None]
    times = [NOON.replace(hour=hour) for hour in (11, 12, 13)]
    return pa.record_batch(
        {
            "_offset": [1, 2, 3, 4],
            "_change_type": ["insert", "delete", "update_postimage", "truncate"],
            "_table": ["a", "b", "a", "a"],
            "_commit_timestamp": pa.array([*times, None], pa.timestamp("us", tz="UTC")),
            "id": ids,
            "name": names,
            "day": pa.array([date(2026, 1, 1), date(2026, 1, 2), None, None]),
            "paid": [True, False, None, None],
            "price": [0.0, 1.0, 2.0, None],
        }
    )


@pytest.mark.parametrize(
    ("one", "passing"),
    [
        (EqualTo(("name",), "ann"), [1]),
        (Not(EqualTo(("name",), "ann")), [2, 3]),
        (In(("id",), (1, 2)), [1, 2]),
        (Not(In(("id",), (1, 2))), [3]),
        (In(("_offset",), (1, 3)), [1, 3]),
        (Not(EqualTo(("_offset",), 2)), [1, 3, 4]),
        (GreaterThan(("id",), 1), [2, 3]),
        (LessThanOrEqual(("name",), "anna"), [1, 3]),
        (Not(LessThan(("id",), 2)), [2, 3]),
        (GreaterThanOrEqual(("_commit_timestamp",), NOON), [2, 3]),
        (LessThan(("_commit_timestamp",), NOON), [1]),
        (EqualTo(("day",), date(2026, 1, 2)), [2]),
        (EqualTo(("paid",), value=True), [1]),
        (EqualNullSafe(("name",), None), [4]),
        (EqualNullSafe(("id",), 2), [2]),
        (Not(EqualNullSafe(("id",), 2)), [1, 3, 4]),
        (IsNull(("price",)), [4]),
        (IsNotNull(("name",)), [1, 2, 3]),
        (StringStartsWith(("name",), "ann"), [1, 3]),
        (StringEndsWith(("name",), "a"), [3]),
        (StringContains(("name",), "o"), [2]),
        (Not(StringContains(("name",), "o")), [1, 3]),
    ],
    ids=repr,
)
def test_rows_are_compared_as_sql_does_before_they_leave(one, passing):
    pushed = PushDown()
    assert pushed.take(one, SCHEMA)
    sent = pickle.loads(pickle.dumps(pushed))  # to the tasks
    assert sent.filter(rows())["_offset"].to_pylist() == passing


@pytest.mark.parametrize(
    ("filters", "asked", "chosen"),
    [
        ([], (), ()),
        ([], ("a", "b"), ()),
        ([EqualTo(("_table",), "a")], (), ("a",)),
        ([In(("_table",), ("c", "b", "x"))], (), ("b", "c")),
        ([In(("_table",), ("a", "b")), EqualTo(("_table",), "b")], ("a", "b"), ("b",)),
        ([EqualTo(("_table",), "c")], ("a", "b"), None),
        ([EqualTo(("_table",), "x")], (), None),
        ([Not(EqualTo(("_table",), "a"))], (), ()),
    ],
)
def test_names_of_tables_leave_others_unread(filters, asked, chosen):
    pushed = PushDown()
    assert all(pushed.take(one, SCHEMA) for one in filters)
    assert pushed.chosen(asked, {"a", "b", "c"}) == chosen


@pytest.mark.parametrize(
    "one",
    [
        EqualTo(("price",), 1.0),
        EqualTo(("name",), None),
        EqualTo(("name", "first"), "a"),
        EqualTo(("unknown",), "a"),
        EqualTo(("id",), value=True),
        EqualTo(("_commit_timestamp",), NOON.replace(tzinfo=None)),
        In(("id",), (1, None)),
        Not(In(("id",), (1, None))),
        GreaterThan(("price",), 1.0),
        StringContains(("id",), "1"),
    ],
    ids=repr,
)
def test_what_cannot_be_done_exactly_is_left_to_spark(one):
    pushed = PushDown()
    assert not pushed.take(one, SCHEMA)
    assert pushed == PushDown()
