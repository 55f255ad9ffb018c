"""Ranges in bytes and intervals of keys."""

import pytest

from tailrace.interface.jimdb.bounds import cut_of, interval_after, key_of, ordered_of
from tailrace.interface.jimdb.errors import OutOfBoundError
from tailrace.meta.key_range import KeyRange, RangedTable
from tailrace.meta.ordered_key import encode_ordered, table_prefix
from tailrace.model.key_interval import KeyInterval
from tailrace.model.table import Column, Kind, TableName, TableSchema

NAME = TableName("s", "t")
TABLE = RangedTable(3, NAME, ("a", "b"))
SCHEMA = TableSchema(NAME, 1, (Column("a", Kind.STR), Column("b", Kind.I64), Column("c")), ("a", "b"))


def key(*values):
    return encode_ordered(3, values)


WHOLE = KeyRange(1, 3, table_prefix(3), table_prefix(4))
MIDDLE = KeyRange(2, 3, key("f", 1) + b"\0", key("m", -5) + b"\0")


@pytest.mark.parametrize(
    ("within", "last", "interval"),
    [
        (WHOLE, b"", KeyInterval()),
        (WHOLE, key("x", 2), KeyInterval('["x",2]')),
        (MIDDLE, b"", KeyInterval('["f",1]', '["m",-5]')),
        (MIDDLE, key("m", -5), KeyInterval('["m",-5]', '["m",-5]')),
    ],
)
def test_an_interval_has_the_keys_that_are_left_of_a_range(within, last, interval):
    assert interval_after(within, TABLE, last, SCHEMA) == interval


@pytest.mark.parametrize(
    "last",
    [key("f", 1), key("m", -4), key("a", 1), table_prefix(4), key("g"), key("g", 1, 2), b"?", key("g", 1) + b"\0"],
)
def test_a_key_that_is_none_of_the_range_is_refused(last):
    with pytest.raises(OutOfBoundError) as refused:
        interval_after(MIDDLE, TABLE, last, SCHEMA)
    assert (refused.value.key, refused.value.within) == (last, MIDDLE)


def test_keys_of_the_log_and_cuts_have_the_same_bytes():
    assert ordered_of(3, b'["m",-5]', SCHEMA) == key("m", -5) == table_prefix(3) + cut_of('["m",-5]', SCHEMA)


def test_the_values_of_a_key_come_back_from_its_bytes():
    assert list(key_of(key("m", -5), SCHEMA)) == ["m", -5]
