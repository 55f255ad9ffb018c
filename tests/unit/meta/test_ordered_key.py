"""Keys as bytes that compare as the keys do."""

import contextlib
import math
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kind_samples import SAMPLES
from strategies import COLUMNS, TEXT_VALUES, TEXTS, arrays
from tailrace.meta.ordered_key import decode_ordered, encode_ordered, table_prefix
from tailrace.model.errors import InvalidValueError
from tailrace.model.key import order_of_key
from tailrace.model.table import ANY_COLUMN, Column, Kind
from tailrace.model.value import Array, Text

NUMBERS = st.one_of(
    st.integers(-(2**64), 2**64),
    st.floats(allow_nan=False),
    st.decimals(allow_nan=False, allow_infinity=False, places=3),
    st.sampled_from([2**53, 2**53 + 1, float(2**53), 0.1, Decimal("0.1"), 5e-324, 1.7e308]),
)
NUL = st.text("\0\1a\xff", max_size=4)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    NUMBERS,
    TEXTS,
    NUL,
    st.binary(max_size=6),
    TEXT_VALUES,
    st.builds(Text, st.just(Kind.FOREIGN), st.text("\0\x7fa", max_size=3), st.text("\0a", max_size=2)),
)
VALUES = SCALARS | arrays(SCALARS) | arrays(arrays(SCALARS))
KEYS = st.lists(VALUES, min_size=1, max_size=3)


DECIMAL = Column("c", Kind.DEC)
ARRAY = Column("c", Kind.ARRAY, element=DECIMAL)
ARRAYS = Column("c", Kind.ARRAY, element=ARRAY)


def holds_arrays(items):
    """Tell whether an item is an array itself; tuples are the further dimensions of the same array."""
    return any(holds_arrays(item) if isinstance(item, tuple) else isinstance(item, Array) for item in items)


def column_of(value):
    """Return the column that a value is of: decimals must come back as decimals, wherever they are."""
    if isinstance(value, Array):
        return ARRAYS if holds_arrays(value.items) else ARRAY
    return DECIMAL if isinstance(value, Decimal) else ARRAY


def has_bytes(value):
    """Tell whether a value is bytes, or an array with bytes in it."""
    if isinstance(value, Array):
        return has_bytes(value.items)
    return any(map(has_bytes, value)) if isinstance(value, tuple) else isinstance(value, bytes)


@given(st.integers(1, 3).flatmap(lambda size: st.tuples(*[st.lists(VALUES, min_size=size, max_size=size)] * 2)))
def test_bytes_compare_as_the_keys_do(pair):
    one, other = pair
    orders = order_of_key(one), order_of_key(other)
    encoded = encode_ordered(7, one), encode_ordered(7, other)
    assert (encoded[0] < encoded[1], encoded[0] == encoded[1]) == (orders[0] < orders[1], orders[0] == orders[1])


@given(KEYS)
def test_a_key_comes_back_as_an_equal_one(values):
    back = decode_ordered(encode_ordered(7, values), [column_of(value) for value in values])
    assert order_of_key(back) == order_of_key(values)
    assert encode_ordered(7, back) == encode_ordered(7, values)


@given(st.integers(-(2**63), 2**64 - 1))
def test_integers_come_back_as_integers(number):
    for kind in (Kind.I64, Kind.U64, Kind.ANY):
        (back,) = decode_ordered(encode_ordered(1, [number]), [Column("c", kind)])
        assert (back, type(back)) == (number, int)


@given(st.floats(allow_nan=False))
def test_floats_come_back_as_floats_in_a_column_of_floats(number):
    (back,) = decode_ordered(encode_ordered(1, [number]), [Column("c", Kind.F64)])
    assert (back, type(back)) == (number, float)


@given(st.lists(VALUES.filter(lambda value: not has_bytes(value)), min_size=1, max_size=3))
def test_a_key_without_bytes_is_text(values):
    encode_ordered(127, values).decode()


@given(st.binary(max_size=24), st.lists(COLUMNS, min_size=1, max_size=3))
def test_any_bytes_are_a_key_or_refused(data, columns):
    with contextlib.suppress(InvalidValueError):
        assert len(decode_ordered(b"\0\0\0\1" + data, columns)) == len(columns)


def test_arrays_without_an_end_are_refused():
    with pytest.raises(InvalidValueError):
        decode_ordered(table_prefix(1) + b"\x60" * 100_000, [ANY_COLUMN])


@pytest.mark.parametrize("sample", SAMPLES)
def test_a_key_of_each_kind_comes_back_as_it_was(sample):
    assert decode_ordered(encode_ordered(1, [sample.value]), [sample.column]) == (sample.value,)


def test_a_number_that_no_column_can_hold_is_refused_at_once():
    huge = table_prefix(1) + b"\x23\x7f\x7f\x7f\x0b\x00"
    with pytest.raises(InvalidValueError):
        decode_ordered(huge, [ANY_COLUMN])


EXAMPLES = [
    ([1], "23 40 00 01 0b 00"),
    ([-1], "21 3f 7f 7e 74 7f"),
    ([10], "23 40 00 02 0b 00"),
    ([123], "23 40 00 03 0d 1f 00"),
    ([0], "22"),
    ([-1.5], "21 3f 7f 7e 6f 7f"),
    ([Decimal("0.0012")], "23 3f 7f 7e 0d 00"),
    ([None], "05"),
    ([True, False], "11 10"),
    (["a", 10], "30 61 00 23 40 00 02 0b 00"),
    (["a\0b"], "30 61 00 7f 62 00"),
    ([b"\0"], "31 00 7f 00"),
    ([math.inf, -math.inf, math.nan], "24 20 25"),
    ([Text(Kind.DATE, "2024-01-31")], "40 323032342d30312d3331 00"),
    ([Text(Kind.JSON, "{}")], "44 7b7d 00"),
    ([Text(Kind.INTERVAL, "1")], "45 31 00"),
    ([Text(Kind.COMPOSITE, "1")], "4a 31 00"),
    ([Text(Kind.FOREIGN, "a", "t")], "4b 74 00 30 61 00"),
    ([Array((None, "a"))], "60 05 30 61 00 01 01"),
    ([Array(((0,), (0,)), (0, 1))], "60 61 22 01 61 22 01 01 22 23 40 00 01 0b 00 01"),
]


@pytest.mark.parametrize(("values", "shown"), EXAMPLES, ids=lambda one: str(one))
def test_the_bytes_are_those_of_the_documents(values, shown):
    assert encode_ordered(7, values) == b"\0\0\0\7" + bytes.fromhex(shown)
