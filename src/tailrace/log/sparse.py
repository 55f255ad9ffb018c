"""The sparse index of a segment: where its blocks begin. Pure.

0      8    12     16           24             32
magic  crc  count  first index  segment bytes  entries: first offset, first index, place, append time µs
"""

import struct
import sys
import zlib
from array import array
from bisect import bisect_left, bisect_right

from tailrace.log.frame import FrameHeader
from tailrace.model.number import Index, Offset

__all__ = ["BLOCK_BYTES", "SparseIndex"]

BLOCK_BYTES = 256 * 1024
"""A block is the frames from one entry to the next; a new one begins when this much has come since the last."""

_TOGETHER = 4
_TOGETHER_CHANGES_MAX = 2048
_TOGETHER_CHANGE_BYTES_MAX = 2048

_MAGIC = b"TRINDEX1"
_LAYOUT = struct.Struct("<8sIIQQ")
_ENTRY_BYTES = 32


class SparseIndex:
    """Entries in order, one per block. One thread may add while others look up."""

    __slots__ = ("_indexes", "_offsets", "_places", "_times")

    def __init__(self) -> None:
        self._offsets = array("q")
        self._indexes = array("q")
        self._places = array("q")
        self._times = array("q")

    def __len__(self) -> int:
        return len(self._offsets)

    def add(self, header: FrameHeader, place: int) -> None:
        """Note the next frame and where it begins."""
        if len(self) and place < self._places[-1] + BLOCK_BYTES:
            return
        self._places.append(place)
        self._times.append(header.append_time_us)
        self._indexes.append(header.first_index)
        self._offsets.append(header.first_offset)  # last: lookups count these

    def block_of(self, offset: Offset) -> int:
        """Return the number of the block that holds this change, if the segment does."""
        return bisect_right(self._offsets, offset) - 1

    def block_before_index(self, index: Index) -> int:
        """Return the number of the last block that begins before this commit, or the first one.

        If the segment holds the commit, it begins there, or with the next block.
        """
        return max(0, bisect_left(self._indexes, index, 0, len(self)) - 1)

    def block_at(self, place: int) -> int:
        """Return the number of the last block that begins at or before this byte; -1 before the first."""
        return bisect_right(self._places, place, 0, len(self)) - 1

    def block_before_time(self, time_us: int) -> int:
        """Return the number of the last block that begins with a frame appended before this time; -1 for none."""
        return bisect_left(self._times, time_us, 0, len(self)) - 1

    def worth_reading(self, block: int) -> tuple[int, int]:
        """Return which blocks to read together for one of them: the first, and that behind the last.

        Four that lie together, everybody the same four, where their changes are small and yet few: frames of one change
        are mostly description. All others alone.
        """
        first = block - block % _TOGETHER
        behind = first + _TOGETHER
        if behind < len(self):
            changes = self._offsets[behind] - self._offsets[first]
            size_bytes = self._places[behind] - self._places[first]
            if changes <= _TOGETHER_CHANGES_MAX and size_bytes <= changes * _TOGETHER_CHANGE_BYTES_MAX:
                return first, behind
        return block, block + 1

    def run_behind(self, offset: Offset, bytes_max: int, first_bytes_max: int) -> Offset | None:
        """Return the first change behind the blocks from that of a change on that have this many bytes together.

        The first may have more, up to another bound. None where that is exceeded, or nothing follows.
        """
        block = self.block_of(offset)
        if block < 0:
            return None
        first, behind = self.worth_reading(block)
        begin = self._places[first]
        if behind >= len(self) or self._places[behind] - begin > max(bytes_max, first_bytes_max):
            return None
        while behind < len(self):
            first, behind = self.worth_reading(behind)
            if behind < len(self) and self._places[behind] - begin > bytes_max:
                return self.first_offset(first)
        return None

    def place(self, block: int) -> int | None:
        """Return where a block begins; None behind the last."""
        return self._places[block] if block < len(self) else None

    def first_offset(self, block: int) -> Offset:
        """Return the first change of a block."""
        return Offset(self._offsets[block])

    def pack(self, first_index: Index, segment_bytes: int, salt: int = 0) -> bytes:
        """Return the bytes of the sidecar file of a sealed segment. `salt` is the identity of a compacted one.

        The checksum begins with it, so that the index of one file is never taken for that of the other.
        """
        columns = (self._offsets, self._indexes, self._places, self._times)
        flat = array("q", (value for entry in zip(*columns, strict=True) for value in entry))
        if sys.byteorder == "big":
            flat.byteswap()
        rest = _LAYOUT.pack(_MAGIC, 0, len(self), first_index, segment_bytes)[12:] + flat.tobytes()
        return _MAGIC + zlib.crc32(rest, salt).to_bytes(4, "little") + rest

    @classmethod
    def unpack(cls, data: bytes, first_index: Index, segment_bytes: int, salt: int = 0) -> "SparseIndex | None":
        """Return the index in a sidecar file; None when it is damaged or describes another file."""
        if len(data) < _LAYOUT.size:
            return None
        magic, crc, count, index, size = _LAYOUT.unpack_from(data)
        whole = len(data) == _LAYOUT.size + count * _ENTRY_BYTES
        if magic != _MAGIC or not whole or zlib.crc32(memoryview(data)[12:], salt) != crc:
            return None
        if (index, size) != (first_index, segment_bytes) or not count:
            return None
        flat = array("q", data[_LAYOUT.size :])
        if sys.byteorder == "big":
            flat.byteswap()
        sparse = cls()
        sparse._offsets, sparse._indexes = flat[0::4], flat[1::4]
        sparse._places, sparse._times = flat[2::4], flat[3::4]
        return sparse
