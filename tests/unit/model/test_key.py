"""Keys: their order, and the bytes of a key that is given as literals."""

import math
from decimal import Decimal
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strategies import VALUES, table_schemas
from tailrace.model.errors import InvalidValueError
from tailrace.model.image import decode_key, encode_key
from tailrace.model.key import are_comparable, key_bytes, order_of, order_of_key
from tailrace.model.table import Column, Kind, TableName, TableSchema
from tailrace.model.value import Text, to_literal

RISING = [
    None,
    False,
    True,
    -math.inf,
    -(2**63),
    -1,
    -0.5,
    0,
    Decimal("0.1"),
    0.1,
    1,
    2**53,
    2**53 + 1,
    float(2**53 + 2),
    2**64 - 1,
    Decimal("1e400"),
    math.inf,
    math.nan,
    "",
    "A",
    "a",
    "aa",
    "é",
    "\uffff",
    "\U00010000",
    b"",
    b"\x00",
    b"a",
    Text(Kind.DATE, "2000-01-01"),
    Text(Kind.DATETIME, "1999-01-01"),
]


def test_values_of_all_classes_stand_in_one_order():
    for one, other in pairwise(RISING):
        assert order_of(one) < order_of(other), (one, other)


@pytest.mark.parametrize(("one", "other"), [(1, 1.0), (Decimal("1.50"), 1.5), (0.0, -0.0), (math.nan, Decimal("NaN"))])
def test_numbers_of_different_types_may_stand_together(one, other):
    assert order_of(one) == order_of(other)


@settings(deadline=None)
@given(st.lists(VALUES, max_size=12))
def test_any_values_can_be_sorted(values):
    ordered = sorted(values, key=order_of)
    assert all(order_of(one) <= order_of(other) for one, other in pairwise(ordered))


@settings(deadline=None)
@given(st.text(), st.text())
def test_text_is_ordered_by_its_bytes(one, other):
    assert (order_of(one) < order_of(other)) == (one.encode() < other.encode())


def test_keys_are_ordered_column_by_column_and_a_shorter_one_first():
    keys = [(1,), (1, "a"), (1, "b"), (2, ""), ("a",)]
    assert sorted(keys, key=order_of_key) == keys


def test_only_values_of_one_class_are_comparable():
    assert are_comparable(1, 2.5)
    assert are_comparable("a", "b")
    assert not are_comparable(1, "1")
    assert not are_comparable(1, True)
    assert not are_comparable(None, 1)
    assert not are_comparable("a", b"a")
    assert not are_comparable(Text(Kind.DATE, "2000-01-01"), "2000-01-01")


def table(*kinds: Kind) -> TableSchema:
    columns = tuple(Column(f"k{number}", kind) for number, kind in enumerate(kinds))
    return TableSchema(TableName("app", "t"), 1, columns, tuple(column.name for column in columns))


@pytest.mark.parametrize(
    ("kind", "literal", "expected"),
    [
        (Kind.I64, {"t": "i64", "v": 1}, b"[1]"),
        (Kind.I64, {"t": "u64", "v": 1}, b"[1]"),
        (Kind.U64, {"t": "i64", "v": 1}, b"[1]"),
        (Kind.ANY, {"t": "i64", "v": 1}, b"[1]"),
        (Kind.ANY, {"t": "u64", "v": 1}, None),
        (Kind.ANY, {"t": "u64", "v": 2**63}, b"[9223372036854775808]"),
        (Kind.I64, {"t": "f64", "v": 1.0}, b"[1.0]"),
        (Kind.I64, {"t": "str", "v": "1"}, b'["1"]'),
        (Kind.STR, {"t": "str", "v": 'a"b'}, b'["a\\"b"]'),
        (Kind.STR, {"t": "i64", "v": 1}, b"[1]"),
        (Kind.BYTES, {"t": "bytes", "b64": "YWI="}, b'["YWI="]'),
        (Kind.I64, {"t": "null"}, b"[null]"),
        (Kind.BOOL, {"t": "bool", "v": True}, b"[true]"),
    ],
)
def test_a_key_of_literals_has_the_bytes_of_the_log(kind, literal, expected):
    assert key_bytes([literal], table(kind)) == expected


@settings(deadline=None)
@given(table_schemas(), st.data())
def test_the_literals_of_a_key_give_back_its_bytes(schema, data):
    values = tuple(data.draw(VALUES) for _ in schema.key_columns)
    stored = encode_key(values, schema)
    literals = [to_literal(value, column) for value, column in zip(values, schema.key_columns, strict=True)]
    assert key_bytes(literals, schema) == stored
    assert len(decode_key(stored, schema)) == len(values)


@pytest.mark.parametrize("literals", [[], [{"t": "i64", "v": 1}] * 2, ["x"], [{"t": "what"}], [{"t": "i64", "v": "1"}]])
def test_what_is_no_key_of_the_table_is_refused(literals):
    with pytest.raises(InvalidValueError):
        key_bytes(literals, table(Kind.I64))
