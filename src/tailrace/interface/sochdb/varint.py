"""Numbers and lengths as protobuf writes them, one by one and a column at once. Pure.

A varint has seven bits of the number in each byte, the lowest first; the upper bit says that more follow.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["field_array", "field_of", "prefix_array", "prefix_of", "varint_array", "varint_of"]

_LOW_BITS = 14
"""This many bits of a number are looked up in a table; what is above them is mostly the same for a whole column."""

_LENGTHS_KEPT = 1 << 14
"""Lengths below this one are looked up."""

# As Arrow scalars: handed a Python number, Arrow looks for packages that may not be there, each time again.
_SHIFT = pa.scalar(_LOW_BITS, pa.int64())
_MASK = pa.scalar((1 << _LOW_BITS) - 1, pa.int64())
_NOTHING = pa.scalar(b"", pa.binary())


def varint_of(number: int) -> bytes:
    """Return one number that is not negative."""
    if number < 0x80:
        return bytes((number,))
    pieces = bytearray()
    while number >= 0x80:
        pieces.append(number & 0x7F | 0x80)
        number >>= 7
    pieces.append(number)
    return bytes(pieces)


def varint_array(numbers: Any) -> Any:
    """Return a column of 64-bit numbers, none of them negative."""
    high = pc.shift_right(numbers, _SHIFT)
    if pc.min(high).as_py() == 0:
        return _each(numbers, varint_of)
    low = _low_varints().take(pc.bit_wise_and(numbers, _MASK))
    return pc.binary_join_element_wise(low, _each(high, varint_of), _NOTHING)


def field_of(tag: int, value: bytes) -> bytes:
    """Return a field of bytes or text; nothing where it is empty."""
    return b"%c%s%s" % (tag, varint_of(len(value)), value) if value else b""


def field_array(tag: int, values: Any) -> tuple[Any, Any]:
    """Return a column of fields as two: what stands before each value, and the values. Both empty for none."""
    lengths = pc.fill_null(pc.binary_length(values), _ZERO)
    return _looked_up(lengths, lambda length: _before(tag, length), _befores(tag)), values


def prefix_of(length: int) -> bytes:
    """Return what stands before a gRPC message of that length: not compressed, and the length."""
    return b"\x00" + length.to_bytes(4, "big")


def prefix_array(lengths: Any) -> Any:
    """Return what stands before gRPC messages of these lengths."""
    return _looked_up(lengths, prefix_of, _prefixes())


_ZERO = pa.scalar(0, pa.int32())


def _before(tag: int, length: int) -> bytes:
    return b"%c%s" % (tag, varint_of(length)) if length else b""


def _looked_up(lengths: Any, make: Callable[[int], bytes], table: Any) -> Any:
    if (pc.max(lengths).as_py() or 0) >= _LENGTHS_KEPT:
        return _each(lengths, make)
    return table.take(lengths)


def _each(numbers: Any, make: Callable[[int], bytes]) -> Any:
    """Make the bytes of each different number once."""
    distinct = pc.unique(numbers)
    encoded = pa.array([make(number) for number in distinct.to_pylist()], pa.binary())
    return encoded.take(pc.index_in(numbers, value_set=distinct))


@cache
def _low_varints() -> Any:
    """Return two bytes that more follow, for all values of the low bits."""
    return pa.array([bytes((n & 0x7F | 0x80, n >> 7 | 0x80)) for n in range(1 << _LOW_BITS)], pa.binary())


@cache
def _befores(tag: int) -> Any:
    return pa.array([_before(tag, length) for length in range(_LENGTHS_KEPT)], pa.binary())


@cache
def _prefixes() -> Any:
    return pa.array([prefix_of(length) for length in range(_LENGTHS_KEPT)], pa.binary())
