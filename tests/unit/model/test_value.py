"""Facts about values and their JSON forms."""

import math
from decimal import Decimal

import pytest
from hypothesis import given
from msgspec import json

from kind_samples import SAMPLES
from strategies import COLUMNS, VALUES, same
from tailrace.model.errors import InvalidValueError
from tailrace.model.table import ANY_COLUMN, Column, Kind
from tailrace.model.value import (
    Array,
    Text,
    from_literal,
    from_natural,
    literal_to_plain,
    to_literal,
    to_natural,
    to_plain,
)

LITERALS = [
    (None, {"t": "null"}, None),
    (True, {"t": "bool", "v": True}, True),
    (-1, {"t": "i64", "v": -1}, -1),
    (2**64 - 1, {"t": "u64", "v": 2**64 - 1}, 2**64 - 1),
    (1.5, {"t": "f64", "v": 1.5}, 1.5),
    (math.inf, {"t": "f64", "v": "Infinity"}, None),
    (-math.inf, {"t": "f64", "v": "-Infinity"}, None),
    (Decimal("1.10"), {"t": "dec", "v": "1.10"}, "1.10"),
    ("A", {"t": "str", "v": "A"}, "A"),
    (b"\x00\xff", {"t": "bytes", "b64": "AP8="}, "AP8="),
    (Text(Kind.JSON, '{"a":1}'), {"t": "json", "v": {"a": 1}}, {"a": 1}),
    (Text(Kind.JSON, '{"a": 1}'), {"t": "json", "v": {"a": 1}, "text": '{"a": 1}'}, {"a": 1}),
    (Text(Kind.DATE, "0000-00-00"), {"t": "date", "iso": "0000-00-00"}, "0000-00-00"),
    (Text(Kind.TIME, "24:00:00"), {"t": "time", "iso": "24:00:00"}, "24:00:00"),
    (Text(Kind.DATETIME, "infinity"), {"t": "datetime", "iso": "infinity"}, "infinity"),
    (Text(Kind.UUID, "0b0c"), {"t": "uuid", "v": "0b0c"}, "0b0c"),
]


@pytest.mark.parametrize(("value", "literal", "plain"), LITERALS, ids=[str(literal) for _, literal, _ in LITERALS])
def test_each_kind_of_value_has_its_literal_and_its_plain_form(value, literal, plain):
    assert to_literal(value) == literal
    assert from_literal(literal) == value
    assert to_plain(value) == plain
    assert literal_to_plain(literal) == plain


def test_an_integer_of_an_unsigned_column_is_an_unsigned_literal():
    assert to_literal(1, Column("c", Kind.U64)) == {"t": "u64", "v": 1}


@given(VALUES, COLUMNS)
def test_the_natural_form_loses_nothing(value, column):
    wire = json.encode(to_natural(value, column))
    assert same(from_natural(json.decode(wire), column), value)


@pytest.mark.parametrize("sample", SAMPLES)
def test_each_kind_has_its_forms_in_a_column_of_its_own(sample):
    value, column = sample.value, sample.column
    assert to_natural(value, column) == sample.natural
    assert from_natural(sample.natural, column) == value
    assert to_literal(value, column) == sample.literal
    assert from_literal(sample.literal) == value
    assert to_plain(value) == sample.plain
    assert literal_to_plain(sample.literal) == sample.plain


@pytest.mark.parametrize("sample", SAMPLES)
def test_a_value_in_a_column_of_another_kind_says_what_it_is(sample):
    for kind in Kind:
        column = Column("c", kind)
        assert from_natural(json.decode(json.encode(to_natural(sample.value, column))), column) == sample.value


def test_the_samples_have_all_kinds():
    assert {sample.column.kind for sample in SAMPLES} == set(Kind) - {Kind.ANY}


def test_bounds_that_are_all_one_are_none():
    assert Array((1,), (1,)) == Array((1,))


def test_a_foreign_value_of_another_type_than_its_column_says_so():
    column = Column("c", Kind.FOREIGN, "ltree")
    assert to_natural(Text(Kind.FOREIGN, "1", "money"), column) == {"t": "foreign", "type": "money", "v": "1"}


def test_an_array_in_an_array_is_a_literal_for_an_array_there_is_a_dimension():
    column = Column("c", Kind.ARRAY, element=Column("", Kind.ARRAY, element=Column("", Kind.I64)))
    inner = {"t": "array", "v": [{"t": "i64", "v": 1}]}
    assert to_natural(Array((Array((1,)),)), column) == [inner]
    assert to_natural(Array(((1,),)), column) == [[1]]


@given(VALUES)
def test_the_literal_form_loses_nothing(value):
    wire = json.encode(to_literal(value))
    assert same(from_literal(json.decode(wire)), value)


@given(VALUES)
def test_the_plain_form_is_json(value):
    json.encode(to_plain(value))


NATURAL = [
    (1, Kind.I64, b"1"),
    (1.0, Kind.I64, b"1.0"),
    ("1", Kind.I64, b'"1"'),
    ("a", Kind.STR, b'"a"'),
    (b"a", Kind.BYTES, b'"YQ=="'),
    ("a", Kind.BYTES, b'{"t":"str","v":"a"}'),
    (b"a", Kind.STR, b'{"t":"bytes","b64":"YQ=="}'),
    (Decimal("1.10"), Kind.DEC, b'"1.10"'),
    (math.nan, Kind.F64, b'{"t":"f64","v":"NaN"}'),
    (Text(Kind.JSON, '{"t":"i64"}'), Kind.JSON, b'"{\\"t\\":\\"i64\\"}"'),
]


@pytest.mark.parametrize(("value", "kind", "wire"), NATURAL)
def test_a_value_of_its_columns_kind_is_written_plainly_and_any_other_as_a_literal(value, kind, wire):
    assert json.encode(to_natural(value, Column("c", kind))) == wire


@pytest.mark.parametrize(
    "literal",
    [
        None,
        1,
        [],
        {},
        {"t": 1},
        {"t": "i32", "v": 1},
        {"t": "i64"},
        {"t": "i64", "v": "1"},
        {"t": "i64", "v": True},
        {"t": "bool", "v": 1},
        {"t": "f64", "v": "one"},
        {"t": "f64", "v": True},
        {"t": "dec", "v": "one"},
        {"t": "bytes", "b64": "!"},
        {"t": "str", "v": 1},
        {"t": "date", "v": "2026-01-01"},
        {"t": "foreign", "v": "a.b"},
        {"t": "foreign", "type": 1, "v": "a.b"},
        {"t": "geometry", "v": "AQ=="},
        {"t": "array", "v": 1},
        {"t": "array", "v": [1]},
        {"t": "array", "v": [], "lower": 0},
        {"t": "array", "v": [], "lower": ["0"]},
        {"t": "array", "v": [{"t": "i32", "v": 1}]},
    ],
)
def test_a_malformed_literal_is_refused(literal):
    with pytest.raises(InvalidValueError):
        from_literal(literal)


def test_a_json_array_is_no_cell_but_in_a_column_of_arrays():
    with pytest.raises(InvalidValueError):
        from_natural([1], ANY_COLUMN)


def test_a_literal_of_too_many_arrays_is_refused():
    nested = []
    for _ in range(10_000):
        nested = [nested]
    with pytest.raises(InvalidValueError):
        from_literal({"t": "array", "v": nested})
