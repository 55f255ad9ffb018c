"""Events joined from their parts, one event for each row of some columns. Pure.

Two ways lead to the same bytes. One has Arrow join columns; it is always there. The compiled helper reads the columns'
buffers and writes the events in one pass, and lets other threads run meanwhile; it is there where a compiler was when
Tailrace was installed. See docs/decisions/compiled-helper.md.
"""

from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from tailrace.compiled import find_compiled
from tailrace.delivery.frame import frame_array

__all__ = ["Chosen", "Digits", "Joined", "Part", "Text", "contains", "join"]

_LAYOUT = "same chosen digits text"
"""The kinds of parts, by number, as the compiled helper must know them."""

_SAME, _CHOSEN, _DIGITS, _TEXT = range(4)
_NOTHING = pa.scalar(b"", pa.binary())
_EMPTY = pa.py_buffer(b"")

compiled = find_compiled("tailrace.delivery._join", _LAYOUT)
"""The compiled helper; None where it was not built or is switched off."""


class Chosen(Struct, frozen=True):
    """One of some values: `codes` is a column of 8- or 32-bit numbers that says which."""

    codes: Any
    values: list[bytes]


class Digits(Struct, frozen=True):
    """A column of 64-bit numbers in decimal, each divided first, towards zero."""

    numbers: Any
    divisor: int = 1


class Text(Struct, frozen=True):
    """A column of bytes, each value with some more before it; nothing at all where it is null."""

    column: Any
    front: bytes = b""


Part = bytes | Chosen | Digits | Text
"""A part of each event; plain bytes are the same in all."""


class Joined(Struct, frozen=True):
    """Events back to back: event `n` lies between `ends[n]` and `ends[n + 1]` of `data`."""

    data: memoryview
    ends: Sequence[int]

    @classmethod
    def of_array(cls, events: Any) -> "Joined":
        """Take over the memory of an Arrow binary array that is not empty, all of it where the array shows a part."""
        _, ends, data = events.buffers()
        view = memoryview(ends).cast("B")
        places = view.cast("q") if pa.types.is_large_binary(events.type) else view.cast("i")
        return cls(
            memoryview(_EMPTY if data is None else data), places[events.offset : events.offset + len(events) + 1]
        )

    def events(self) -> list[bytes]:
        """Return the events one by one."""
        return [bytes(self.data[begin:end]) for begin, end in pairwise(self.ends)]


def join(count: int, parts: Sequence[Part], *, framed: bool = False) -> Joined:
    """Return `count` events, at least one; each as a WebSocket text frame where they are to be `framed`.

    One part at least is a column.
    """
    if compiled is not None:
        made = compiled.join(count, [_plain(part) for part in parts], framed)
        if made is not None:
            data, ends = made
            return Joined(memoryview(data), memoryview(ends).cast("i"))
    return _joined_by_arrow(parts, framed=framed)


def contains(column: Any, sought: bytes) -> bool:
    """Tell whether some bytes stand anywhere in the values of a binary array. Quick where the first of them is rare.

    Where values begin and end is not looked at.
    """
    _, ends, data = column.buffers()
    if data is None or not len(column):
        return False
    places = memoryview(ends).cast("B").cast("i")
    begin, end = places[column.offset], places[column.offset + len(column)]
    if compiled is not None:
        return bool(compiled.contains(data, begin, end, sought))
    return sought in data.slice(begin, end - begin).to_pybytes()


def _plain(part: Part) -> tuple[Any, ...]:
    """Return a part as the compiled helper takes it."""
    match part:
        case Chosen(codes, values):
            return _CHOSEN, codes.buffers()[1], codes.offset, codes.type.bit_width // 8, values
        case Digits(numbers, divisor):
            return _DIGITS, numbers.buffers()[1], numbers.offset, divisor
        case Text(column, front):
            validity, ends, data = column.buffers()
            return _TEXT, validity, ends, _EMPTY if data is None else data, column.offset, front
        case same:
            return _SAME, same


def _joined_by_arrow(parts: Sequence[Part], *, framed: bool) -> Joined:
    columns = [_column(part) for part in parts]
    events = pc.binary_join_element_wise(*columns, _NOTHING, null_handling="replace", null_replacement=b"")
    return Joined.of_array(frame_array(events) if framed else events)


def _column(part: Part) -> Any:
    match part:
        case Chosen(codes, values):
            return pa.array(values, pa.binary()).take(codes)
        case Digits(numbers, divisor):
            divided = numbers if divisor == 1 else pc.divide(numbers, pa.scalar(divisor, pa.int64()))
            return pc.cast(divided, pa.utf8()).view(pa.binary())
        case Text(column, front):
            # Null where there is no value, so that the join of all leaves the front out, too.
            return pc.binary_join_element_wise(_scalar(front), column, _NOTHING) if front else column
        case same:
            return _scalar(same)


@cache
def _scalar(value: bytes) -> Any:
    return pa.scalar(value, pa.binary())
