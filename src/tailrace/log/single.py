"""Frames of one change each, decoded many at once. Pure.

A log that is written commit by commit is made of such frames, and Arrow takes ten microseconds to read each as a batch
of its own: it checks a description of 28 buffers for one row. The descriptions of such frames are alike but for the
lengths of key, images and position. So Arrow reads the first frame of a kind; from others that say the same, the cells
are taken out of their places, and a whole run becomes one batch.

    payload:      marks, length of the description | description | body
    description:  alike | length of the body | alike | buffers: place and length of each, those behind the key's | alike
"""

import struct
from array import array
from typing import Any

import pyarrow as pa

from tailrace.model.chunk import ENVELOPE

__all__ = ["SingleFrames"]

_KINDS_MAX = 64
"""More kinds are not remembered: there are as many as combinations of cells that may be null."""

_MARKS = struct.Struct("<Ii")
_NUMBER = struct.Struct("<q")
_ENDS = struct.Struct("<ii")
_HEAD = struct.Struct("<qqqqb7xi4x")
"""The first six cells, which always lie in the same places of the body."""

_HEAD_COLUMNS = 6
_KEY_ENDS = 48
_ALIKE = struct.Struct("<28q")
"""The first buffers, up to the ends of the key, lie in the same places, too."""

_BEHIND = struct.Struct("<28q")
"""The buffers behind those: place and length of the key, then of validity, ends and bytes of before, after and
position, and of validity and value of hlc and migration."""


class SingleFrames:
    """A run of frames of one change, in order, that becomes one batch. For segments with today's columns alone."""

    def __init__(self) -> None:
        self._rows: list[tuple[Any, ...]] = []
        self._kinds: dict[bytes, tuple[bool, bool, bool, bool]] = {}
        """Whether before, after, position and migration are null, by what descriptions of a kind have in common."""

        self._description_bytes = self._length_place = self._buffers_place = 0

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, data: bytes, place: int, size: int) -> bool:
        """Take the change of a frame, whose payload of this size is at a place; False where its kind is not known."""
        body = place + self._description_bytes
        description = data[place:body]
        nulls = self._kinds.get(self._common(description))
        if nulls is None:
            return False
        buffers = _BEHIND.unpack_from(description, self._buffers_place + _ALIKE.size)
        end = place + size
        key = _cell(data, body, _KEY_ENDS, buffers[0], end)
        before = None if nulls[0] else _cell(data, body, buffers[4], buffers[6], end)
        after = None if nulls[1] else _cell(data, body, buffers[10], buffers[12], end)
        position = None if nulls[2] else _cell(data, body, buffers[16], buffers[18], end)
        (hlc,) = _NUMBER.unpack_from(data, body + buffers[22])
        migration = None if nulls[3] else bool(data[body + buffers[26]] & 1)
        self._rows.append((*_HEAD.unpack_from(data, body), key, before, after, position, hlc, migration))
        return True

    def learn(self, data: bytes, place: int, size: int, batch: pa.RecordBatch) -> None:
        """Remember the kind of a payload, given what Arrow has made of it. Where it is a strange one, do not."""
        if batch.num_rows != 1 or not batch.schema.equals(ENVELOPE) or len(self._kinds) >= _KINDS_MAX:
            return
        columns = {name: batch.column(name) for name in ENVELOPE.names}
        if columns["hlc"].null_count:
            return
        description_bytes = _MARKS.size + _MARKS.unpack_from(data, place)[1]
        description = data[place : place + description_bytes]
        length = _NUMBER.pack(size - description_bytes)
        alike = description.find(_ALIKE.pack(*_alike()))
        if alike < 0 or description.count(length, 0, alike) != 1:
            return
        self._forget(description_bytes, description.find(length), alike)
        nulls = [bool(columns[name].null_count) for name in ("before", "after", "position", "migration")]
        self._kinds[self._common(description)] = (nulls[0], nulls[1], nulls[2], nulls[3])
        known = len(self._rows)
        if not self.add(data, place, size) or self._batch(self._rows[known:]) != batch:
            del self._kinds[self._common(description)]
        del self._rows[known:]

    def taken(self) -> pa.RecordBatch:
        """Return the changes as one batch, at least one, and begin the next run."""
        rows, self._rows = self._rows, []
        return self._batch(rows)

    def _forget(self, *places: int) -> None:
        """Forget all kinds where descriptions are built otherwise now."""
        if places != (self._description_bytes, self._length_place, self._buffers_place):
            self._kinds.clear()
            self._description_bytes, self._length_place, self._buffers_place = places

    def _common(self, description: bytes) -> bytes:
        """Return a description without what differs from frame to frame."""
        length, behind = self._length_place, self._buffers_place + _ALIKE.size
        return description[:length] + description[length + 8 : behind] + description[behind + _BEHIND.size :]

    @staticmethod
    def _batch(rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
        cells = list(zip(*rows, strict=True))
        columns = [
            _numbers(field.type, values)
            if place < _HEAD_COLUMNS or field.name == "hlc"
            else pa.array(values, field.type)
            for place, (field, values) in enumerate(zip(ENVELOPE, cells, strict=True))
        ]
        return pa.RecordBatch.from_arrays(columns, schema=ENVELOPE)


def _cell(data: bytes, body: int, ends: int, begin: int, limit: int) -> bytes:
    """Return a cell of variable length, given where in the body its ends and its bytes are.

    Raises:
        pa.ArrowInvalid: It is not in the frame.
    """
    first, last = _ENDS.unpack_from(data, body + ends)
    begin += body
    if not 0 <= first <= last or begin + last > limit:
        raise pa.ArrowInvalid("a cell lies outside of its frame")
    return data[begin + first : begin + last]


_CODES = {pa.int64(): "q", pa.int32(): "i", pa.int8(): "b"}


def _numbers(kind: pa.DataType, values: tuple[int, ...]) -> pa.Array:
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(array(_CODES[kind], values))])


def _alike() -> list[int]:
    """Return place and length of each buffer up to the ends of the key, as Arrow lays out one row."""
    lengths = (8, 8, 8, 8, 1, 4)
    numbers: list[int] = []
    for column, length in enumerate(lengths):
        numbers += [8 * column, 0, 8 * column, length]
    return [*numbers, 48, 0, 48, 8]
