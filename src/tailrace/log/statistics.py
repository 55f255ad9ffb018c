"""Statistics of the blocks of a sealed segment: which tables, ops, keys and times occur in each.

They are about changes by their offsets, not about places in a file: so they stay true when the segment is compacted.

0      8    12
magic  crc  blocks, as MessagePack
"""

import sys
import threading
from array import array
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Generator, Sequence
from contextlib import closing
from time import monotonic
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from isal import isal_zlib
from msgspec import Struct

from tailrace.log.files import Files
from tailrace.log.segment import Segment, read_identity, statistics_name
from tailrace.log.segments import Segments
from tailrace.model.chunk import Chunk
from tailrace.model.number import Index, Offset, SchemaId
from tailrace.model.wanted import AnyKey, KeyWanted, KeyWithin, OneOfKeys, Wanted

__all__ = ["BlockStatistics", "Skipper", "Statistics", "TableStatistics", "block_statistics", "survey"]

_MAGIC = b"TRSTATS1"
_HEAD_BYTES = 12
_KEYS_MAX = 8192
"""Of more keys in a block, nothing is noted."""

_KEPT_BYTES_MAX = 6 * 1024 * 1024
_ABSENT_S = 1.0
"""So long nobody looks again for statistics that are not there."""


class TableStatistics(Struct, frozen=True, array_like=True):
    """Changes of one schema version in a block.

    `lower` and `upper` are the smallest and the largest key where each is one integer. `hashes` are the sorted CRC-32
    of all keys, four bytes each; none where there are too many.
    """

    schema: SchemaId
    changes: int
    ops: tuple[int, ...]
    lower: int | None
    upper: int | None
    hashes: bytes

    def may_have(self, wanted: KeyWanted) -> bool:
        """Tell whether one of the keys may be wanted."""
        match wanted:
            case AnyKey():
                return True
            case OneOfKeys(keys):
                return not self.hashes or any(_has(self._hashes(), isal_zlib.crc32(key)) for key in keys)
            case KeyWithin(lower, upper):
                return self.lower is None or self.upper is None or (lower <= self.upper and self.lower <= upper)

    def _hashes(self) -> memoryview:
        return memoryview(self.hashes).cast("I") if sys.byteorder == "little" else memoryview(_swapped(self.hashes))


class BlockStatistics(Struct, frozen=True, array_like=True):
    """What is in one block: the changes from `first` to `last`, whose commits have these indexes and times."""

    first: Offset
    last: Offset
    first_index: Index
    last_index: Index
    commit_time_us_min: int
    commit_time_us_max: int
    tables: tuple[TableStatistics, ...]

    def may_have(self, wanted: Wanted) -> bool:
        """Tell whether one of the changes may be wanted."""
        for table in self.tables:
            if table.schema > wanted.known:
                return True
            key = wanted.schemas.get(table.schema)
            if key is not None and not wanted.ops.isdisjoint(table.ops) and table.may_have(key):
                return True
        return False


class Statistics:
    """The blocks of one segment, in order and without a gap."""

    __slots__ = ("blocks", "size_bytes")

    def __init__(self, blocks: Sequence[BlockStatistics], size_bytes: int) -> None:
        self.blocks = blocks
        self.size_bytes = size_bytes

    def skip(self, offset: Offset, wanted: Wanted) -> Offset:
        """Return the first change from `offset` on that may be wanted; that behind the last one where none is."""
        number = bisect_left(self.blocks, offset, key=lambda block: block.last)
        for block in self.blocks[number:]:
            if block.may_have(wanted):
                return max(offset, block.first)
        return max(offset, Offset(self.blocks[-1].last + 1))

    def pack(self, identity: int) -> bytes:
        """Return the bytes of the sidecar file of a segment. The checksum begins with the segment's identity."""
        encoded = msgspec.msgpack.encode(self.blocks)
        return _MAGIC + isal_zlib.crc32(encoded, identity).to_bytes(4, "little") + encoded

    @classmethod
    def unpack(cls, data: bytes, identity: int) -> "Statistics | None":
        """Return the statistics in a sidecar file; None when it is damaged or of another segment."""
        crc = int.from_bytes(data[len(_MAGIC) : _HEAD_BYTES], "little")
        if data[: len(_MAGIC)] != _MAGIC or isal_zlib.crc32(memoryview(data)[_HEAD_BYTES:], identity) != crc:
            return None
        try:
            blocks = _decoder.decode(memoryview(data)[_HEAD_BYTES:])
        except msgspec.DecodeError:
            return None
        return cls(blocks, len(data) + 256 * len(blocks)) if blocks else None


_decoder = msgspec.msgpack.Decoder(tuple[BlockStatistics, ...])


class Skipper:
    """Passes over blocks that a reader cannot want. For any thread. Keeps the statistics used last, within bounds."""

    def __init__(self, files: Files, segments: Segments) -> None:
        self._files = files
        self._segments = segments
        self._lock = threading.Lock()
        self._kept: OrderedDict[Index, Statistics] = OrderedDict()
        self._bytes = 0
        self._absent: dict[Index, float] = {}

    def segment_of(self, offset: Offset) -> Segment | None:
        """Return the sealed segment that holds a change; None where that is active, or gone."""
        entries = self._segments.entries
        number = bisect_right(entries, offset, key=lambda segment: segment.first_offset) - 1
        return entries[number] if 0 <= number < len(entries) - 1 else None

    def find(self, segment: Segment) -> Statistics | None:
        """Return statistics that are in memory."""
        with self._lock:
            found = self._kept.get(segment.first_index)
            if found is not None:
                self._kept.move_to_end(segment.first_index)
            return found

    def is_absent(self, segment: Segment) -> bool:
        """Tell whether there were none a moment ago."""
        until_s = self._absent.get(segment.first_index)
        return until_s is not None and monotonic() < until_s

    def look_again(self, segment: Segment) -> None:
        """Note that there are statistics of a segment now."""
        with self._lock:
            self._absent.pop(segment.first_index, None)

    def load(self, segment: Segment) -> Statistics | None:
        """Return the statistics of a sealed segment; None where there are none that are good. Blocking."""
        found = self.find(segment)
        if found is not None:
            return found
        if self.is_absent(segment):
            return None
        try:
            found = self._read(segment)
        except FileNotFoundError:
            found = None
        with self._lock:
            if found is None:
                now_s = monotonic()
                self._absent = {index: until_s for index, until_s in self._absent.items() if until_s > now_s}
                self._absent[segment.first_index] = now_s + _ABSENT_S
            elif segment.first_index not in self._kept:
                self._kept[segment.first_index] = found
                self._bytes += found.size_bytes
                while self._bytes > _KEPT_BYTES_MAX and len(self._kept) > 1:
                    self._bytes -= self._kept.popitem(last=False)[1].size_bytes
        return found

    def _read(self, segment: Segment) -> Statistics | None:
        with closing(self._files.open(statistics_name(segment.first_index))) as file:
            data = file.read_at(0, file.size())
        with closing(self._files.open(segment.name)) as file:
            return Statistics.unpack(data, read_identity(file))


def survey(files: Files, segments: Segments, segment: Segment) -> Generator[None, None, None]:
    """Write the statistics of a sealed segment, unless they are there; yields after each step. Blocking.

    Raises:
        CorruptSegmentError: The segment is damaged.
        OSError: The disk refused.
    """
    if Skipper(files, segments).load(segment) is not None:
        return
    sparse, _ = segments.index(segment)
    blocks = []
    for number in range(len(sparse)):
        chunks = segments.load(sparse.first_offset(number))
        yield
        blocks.append(block_statistics(chunks))
        yield
    if not blocks:
        return
    with closing(files.open(segment.name)) as file:
        identity = read_identity(file)
    with closing(files.create(statistics_name(segment.first_index))) as file:
        file.write_at(0, [Statistics(blocks, 0).pack(identity)])


def block_statistics(chunks: Sequence[Chunk]) -> BlockStatistics:
    """Return the statistics of the chunks of a block. Pure."""
    table = pa.Table.from_batches([chunk.batch.select(["commit_time_us", "op", "schema", "key"]) for chunk in chunks])
    times = pc.min_max(table.column("commit_time_us")).as_py()
    tables = []
    for schema in sorted(pc.unique(table.column("schema")).to_pylist()):
        mine = table.filter(pc.equal(table.column("schema"), pa.scalar(schema, pa.int32())))
        keys = pc.unique(mine.column("key"))
        lower, upper = _bounds(keys)
        hashes = (
            array("I", sorted({isal_zlib.crc32(key) for key in keys.to_pylist()}))
            if len(keys) <= _KEYS_MAX
            else array("I")
        )
        packed = hashes.tobytes() if sys.byteorder == "little" else _swapped(hashes.tobytes()).tobytes()
        ops = tuple(sorted(pc.unique(mine.column("op")).to_pylist()))
        tables.append(TableStatistics(SchemaId(schema), mine.num_rows, ops, lower, upper, packed))
    return BlockStatistics(
        chunks[0].first,
        chunks[-1].last,
        Index(chunks[0].batch.column("index")[0].as_py()),
        Index(chunks[-1].batch.column("index")[-1].as_py()),
        times["min"],
        times["max"],
        tuple(tables),
    )


def _bounds(keys: Any) -> tuple[int | None, int | None]:
    """Return the smallest and the largest of keys that are one integer each; None where one is something else."""
    try:
        bounds = pc.min_max(pc.binary_slice(keys, 1, -1).cast(pa.utf8()).cast(pa.int64())).as_py()
    except pa.ArrowInvalid:
        return None, None
    return bounds["min"], bounds["max"]


def _has(hashes: memoryview, wanted: int) -> bool:
    place = bisect_left(hashes, wanted)
    return place < len(hashes) and hashes[place] == wanted


def _swapped(data: bytes) -> "array[int]":
    numbers = array("I", data)
    numbers.byteswap()
    return numbers
