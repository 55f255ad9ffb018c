"""Facts about numbers and lengths as protobuf writes them."""

import pyarrow as pa
import pytest
from google.protobuf.internal import decoder, encoder
from hypothesis import given
from hypothesis import strategies as st

from tailrace.interface.sochdb.varint import field_array, field_of, prefix_array, prefix_of, varint_array, varint_of

NUMBERS = st.one_of(st.integers(0, 2**63 - 1), st.sampled_from([0, 127, 128, 2**14 - 1, 2**14, 2**21, 2**63 - 1]))


@given(NUMBERS)
def test_a_number_is_written_as_protobuf_writes_it(number):
    written = varint_of(number)
    assert written == encoder._VarintBytes(number)
    assert decoder._DecodeVarint(written, 0) == (number, len(written))


@given(st.lists(NUMBERS, min_size=1))
def test_a_column_of_numbers_is_each_of_them(numbers):
    assert varint_array(pa.array(numbers, pa.int64())).to_pylist() == [varint_of(number) for number in numbers]


@given(st.lists(st.one_of(st.none(), st.binary(max_size=300)), min_size=1), st.integers(1, 15))
def test_a_column_of_fields_is_each_of_them(values, number):
    tag = number << 3 | 2
    befores, same = field_array(tag, pa.array(values, pa.binary()))
    joined = [before + (value or b"") for before, value in zip(befores.to_pylist(), same.to_pylist(), strict=True)]
    assert joined == [field_of(tag, value or b"") for value in values]


@pytest.mark.parametrize("length", [0, 1, 127, 128, 2**14 - 1, 2**14, 2**21])
def test_a_long_field_is_written_like_a_short_one(length):
    value = bytes(length)
    befores, _ = field_array(0x2A, pa.array([value, b"x"], pa.binary()))
    assert befores.to_pylist() == [b"\x2a" + varint_of(length) if length else b"", b"\x2a\x01"]


@given(st.lists(st.integers(0, 2**31 - 1), min_size=1))
def test_a_message_begins_with_its_length(lengths):
    made = prefix_array(pa.array(lengths, pa.int32())).to_pylist()
    assert made == [prefix_of(length) for length in lengths]
    assert [(prefix[0], int.from_bytes(prefix[1:], "big")) for prefix in made] == [(0, length) for length in lengths]
