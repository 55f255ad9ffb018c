"""Statistics of the blocks of a sealed segment: which tables, ops, keys and times occur in each.

They are about changes by their offsets, not about places in a file: so they stay true when the segment is compacted.

0      8    12            16
magic  crc  length of it  blocks, as MessagePack | key hashes of each table in each block

A reader keeps what is said of blocks, which is little. Key hashes are read where the rest does not tell.
"""

import struct
import sys
import threading
from array import array
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, closing
from functools import lru_cache
from time import monotonic
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from isal import isal_zlib
from msgspec import Struct

from tailrace.log.files import File, Files
from tailrace.log.pick import integer_keys
from tailrace.log.segment import Segment, read_identity, statistics_name
from tailrace.log.segments import Segments
from tailrace.model.chunk import Chunk
from tailrace.model.number import Index, Offset, SchemaId
from tailrace.model.wanted import AnyKey, KeyWanted, KeyWithin, OneOfKeys, Wanted

__all__ = ["BlockStatistics", "Hashes", "Skipper", "Statistics", "Survey", "TableStatistics", "survey"]

_MAGIC = b"TRSTATS2"
_HEAD_BYTES = 16
_READ_BYTES = 16 * 1024
"""What is read at first: mostly all that is said of the blocks."""

_KEYS_MAX = 8192
"""Of more keys in a block, nothing is noted."""

_KEPT_BYTES_MAX = 6 * 1024 * 1024
_ABSENT_S = 1.0
"""So long nobody looks again for statistics that are not there."""


class TableStatistics(Struct, frozen=True, array_like=True):
    """Changes of one schema version in a block.

    `lower` and `upper` are the smallest and the largest key where each is one integer. The sorted CRC-32 of all keys,
    four bytes each, are `hashes_count` from the byte `hashes_place` behind the blocks on, with a checksum; none where
    there are too many keys.
    """

    schema: SchemaId
    changes: int
    ops: tuple[int, ...]
    lower: int | None
    upper: int | None
    hashes_place: int
    hashes_count: int
    hashes_crc: int

    def may_have(self, wanted: KeyWanted, hashes: "Hashes | None" = None) -> bool:
        """Tell whether one of the keys may be wanted. More is known where `hashes` gives those of the keys."""
        match wanted:
            case AnyKey():
                return True
            case OneOfKeys(keys):
                left = [key for key in keys if self._is_within(key)]
                decided = not left or not self.hashes_count or (self.lower is not None and self.lower == self.upper)
                found = None if decided or hashes is None else hashes(self)
                return bool(left) if found is None else any(_has(found, isal_zlib.crc32(key)) for key in left)
            case KeyWithin(lower, upper):
                return self.lower is None or self.upper is None or (lower <= self.upper and self.lower <= upper)

    def _is_within(self, key: bytes) -> bool:
        """Tell whether a key may lie between the smallest and the largest; only one integer does, where those are."""
        if self.lower is None or self.upper is None:
            return True
        number = _integer(key)
        return number is not None and self.lower <= number <= self.upper


Hashes = Callable[[TableStatistics], memoryview | None]
"""Gives the hashes of a table in a block; None where they cannot be had."""


class BlockStatistics(Struct, frozen=True, array_like=True):
    """What is in one block: the changes from `first` to `last`, whose commits have these indexes and times."""

    first: Offset
    last: Offset
    first_index: Index
    last_index: Index
    commit_time_us_min: int
    commit_time_us_max: int
    tables: tuple[TableStatistics, ...]

    def may_have(self, wanted: Wanted, hashes: Hashes | None = None) -> bool:
        """Tell whether one of the changes may be wanted. More is known where `hashes` gives those of keys."""
        if self.commit_time_us_max < wanted.time_us_min or wanted.time_us_max < self.commit_time_us_min:
            return False
        for table in self.tables:
            if table.schema > wanted.known:
                return True
            key = wanted.schemas.get(table.schema)
            if key is not None and not wanted.ops.isdisjoint(table.ops) and table.may_have(key, hashes):
                return True
        return False


class Statistics:
    """The blocks of one segment, in order and without a gap."""

    __slots__ = ("_begin", "_identity", "blocks", "size_bytes")

    def __init__(self, blocks: Sequence[BlockStatistics], identity: int, begin: int) -> None:
        """Take what is said of the blocks of a segment, and where in the file the hashes begin."""
        self.blocks = blocks
        self.size_bytes = 2 * begin + 256 * len(blocks)
        self._identity = identity
        self._begin = begin

    def skip(self, offset: Offset, wanted: Wanted, hashes: Hashes | None = None) -> Offset:
        """Return the first change from `offset` on that may be wanted; that behind the last one where none is."""
        number = bisect_left(self.blocks, offset, key=lambda block: block.last)
        for block in self.blocks[number:]:
            if block.may_have(wanted, hashes):
                return max(offset, block.first)
        return max(offset, Offset(self.blocks[-1].last + 1))

    def skip_in_memory(self, offset: Offset, wanted: Wanted) -> tuple[Offset, bool]:
        """Return what `skip` does without hashes of keys, and whether those could tell more of that change."""
        asked = False

        def ask(_: TableStatistics) -> None:
            nonlocal asked
            asked = True

        return self.skip(offset, wanted, ask), asked

    def hashes(self, table: TableStatistics, file: File) -> memoryview | None:
        """Return the hashes of keys of a table, read from the file that these statistics are from. Blocking.

        None where they are damaged, or where that is another file by now.
        """
        data = file.read_at(self._begin + table.hashes_place, 4 * table.hashes_count)
        return _native(data) if isal_zlib.crc32(data, self._identity) == table.hashes_crc else None

    @classmethod
    def read(cls, file: File, identity: int) -> "Statistics | None":
        """Return the statistics in a sidecar file; None when it is damaged or of another segment."""
        data = file.read_at(0, _READ_BYTES)
        if data[: len(_MAGIC)] != _MAGIC or len(data) < _HEAD_BYTES:
            return None
        crc, size = _HEAD.unpack_from(data, len(_MAGIC))
        if size > file.size():
            return None
        encoded = data[_HEAD_BYTES : _HEAD_BYTES + size]
        if len(encoded) < size:
            encoded = file.read_at(_HEAD_BYTES, size)
        if isal_zlib.crc32(encoded, identity) != crc:
            return None
        try:
            blocks = _decoder.decode(encoded)
        except msgspec.DecodeError:
            return None
        return cls(blocks, identity, _HEAD_BYTES + size) if blocks else None


_HEAD = struct.Struct("<II")
_decoder = msgspec.msgpack.Decoder(tuple[BlockStatistics, ...])


class Survey:
    """Collects the statistics of a segment, block by block, as they are written."""

    def __init__(self, identity: int) -> None:
        self._identity = identity
        self._blocks: list[BlockStatistics] = []
        self._hashes: list[bytes] = []
        self._hashes_bytes = 0

    def add(self, chunks: Sequence[Chunk]) -> BlockStatistics:
        """Add the next block, given its chunks."""
        block = self._block(chunks)
        self._blocks.append(block)
        return block

    def pack(self) -> bytes:
        """Return the bytes of the sidecar file. Its checksums begin with the segment's identity."""
        encoded = msgspec.msgpack.encode(self._blocks)
        head = _HEAD.pack(isal_zlib.crc32(encoded, self._identity), len(encoded))
        return b"".join([_MAGIC, head, encoded, *self._hashes])

    def _block(self, chunks: Sequence[Chunk]) -> BlockStatistics:
        names = ["commit_time_us", "op", "schema", "key"]
        table = pa.Table.from_batches([chunk.batch.select(names) for chunk in chunks])
        times = pc.min_max(table.column("commit_time_us")).as_py()
        tables = []
        for schema in sorted(pc.unique(table.column("schema")).to_pylist()):
            mine = table.filter(pc.equal(table.column("schema"), pa.scalar(schema, pa.int32())))
            keys = pc.unique(mine.column("key"))
            ops = tuple(sorted(pc.unique(mine.column("op")).to_pylist()))
            stored = self._stored(keys.to_pylist() if len(keys) <= _KEYS_MAX else [])
            tables.append(TableStatistics(SchemaId(schema), mine.num_rows, ops, *_bounds(keys), *stored))
        return BlockStatistics(
            chunks[0].first,
            chunks[-1].last,
            Index(chunks[0].batch.column("index")[0].as_py()),
            Index(chunks[-1].batch.column("index")[-1].as_py()),
            times["min"],
            times["max"],
            tuple(tables),
        )

    def _stored(self, keys: Sequence[bytes]) -> tuple[int, int, int]:
        """Keep the hashes of keys; return their place and count, and their checksum."""
        hashes = array("I", sorted({isal_zlib.crc32(key) for key in keys}))
        data = bytes(_native(hashes.tobytes()))
        place, self._hashes_bytes = self._hashes_bytes, self._hashes_bytes + len(data)
        self._hashes.append(data)
        return place, len(hashes), isal_zlib.crc32(data, self._identity)


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

    def skip(self, offset: Offset, wanted: Wanted) -> Offset:
        """Return the first change from `offset` on that may be wanted, which may be the one to come next. Blocking."""
        while True:
            segment = self.segment_of(offset)
            found = None if segment is None else self.load(segment)
            if segment is None or found is None:
                return offset
            further, more_known = found.skip_in_memory(offset, wanted)
            if more_known:
                further = self._skip(segment, found, further, wanted)
            if further == offset:
                return offset
            offset = further

    def _skip(self, segment: Segment, found: Statistics, offset: Offset, wanted: Wanted) -> Offset:
        with ExitStack() as opened:
            file: File | None = None

            def hashes(table: TableStatistics) -> memoryview | None:
                nonlocal file
                if file is None:
                    file = opened.enter_context(closing(self._files.open(statistics_name(segment.first_index))))
                return found.hashes(table, file)

            try:
                return found.skip(offset, wanted, hashes)
            except FileNotFoundError:
                return found.skip(offset, wanted)

    def _read(self, segment: Segment) -> Statistics | None:
        with closing(self._files.open(segment.name)) as file:
            identity = read_identity(file)
        with closing(self._files.open(statistics_name(segment.first_index))) as file:
            return Statistics.read(file, identity)


def survey(files: Files, segments: Segments, segment: Segment) -> Generator[None, None, None]:
    """Write the statistics of a sealed segment, unless they are there; yields after each step. Blocking.

    Raises:
        CorruptSegmentError: The segment is damaged.
        OSError: The disk refused.
    """
    if Skipper(files, segments).load(segment) is not None:
        return
    sparse, _ = segments.index(segment)
    if not len(sparse):
        return
    with closing(files.open(segment.name)) as file:
        found = Survey(read_identity(file))
    for number in range(len(sparse)):
        chunks = segments.load(sparse.first_offset(number))
        yield
        found.add(chunks)
        yield
    with closing(files.create(statistics_name(segment.first_index))) as file:
        file.write_at(0, [found.pack()])


def _bounds(keys: Any) -> tuple[int | None, int | None]:
    """Return the smallest and the largest of keys that are one integer each; None where one is something else."""
    numbers = integer_keys(keys)
    if numbers is None:
        return None, None
    bounds = pc.min_max(numbers).as_py()
    return bounds["min"], bounds["max"]


@lru_cache(maxsize=1024)
def _integer(key: bytes) -> int | None:
    """Return the number that a key is; None where it is none. The same few keys are looked for in many blocks."""
    try:
        return int(key[1:-1])
    except ValueError:
        return None


def _has(hashes: memoryview, wanted: int) -> bool:
    place = bisect_left(hashes, wanted)
    return place < len(hashes) and hashes[place] == wanted


def _native(data: bytes) -> memoryview:
    """Return numbers that are written in little-endian order as this machine has them; and the other way round."""
    if sys.byteorder == "little":
        return memoryview(data).cast("I")
    numbers = array("I", data)
    numbers.byteswap()
    return memoryview(numbers)
