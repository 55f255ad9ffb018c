"""The segments of a shard, read: find the block that holds a change, and turn blocks into chunks."""

import threading
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import partial
from typing import TypeVar

import pyarrow as pa
from msgspec import Struct

from tailrace.log.batch import gather
from tailrace.log.decode import decode
from tailrace.log.files import File, Files
from tailrace.log.frame import FRAME_HEADER_BYTES, BadFrameError, FrameHeader, scan, walk
from tailrace.log.memory import Memory, borrowed
from tailrace.log.pick import Batches, Frames, Looked, Picking
from tailrace.log.segment import (
    Segment,
    index_name,
    read_identity,
    read_segment_header,
    segment_index,
    segment_name,
)
from tailrace.log.sparse import SparseIndex
from tailrace.model.chunk import ENVELOPE, Chunk, PickedChunk
from tailrace.model.errors import CorruptSegmentError
from tailrace.model.number import Index, Offset, SchemaId
from tailrace.model.table import TableSchema
from tailrace.model.wanted import Wanted

__all__ = ["Block", "SegmentSummary", "Segments", "index_segment", "list_segments"]

_T = TypeVar("_T")

_INDEXES_KEPT_MAX = 64

_LENT_BYTES_MAX = 4 * 1024 * 1024
"""Largest block that is read for one reader alone."""


class SegmentSummary(Struct, frozen=True, kw_only=True):
    """One segment for people. `last_offset` is `first_offset` - 1 while it has no frames."""

    name: str
    first_index: Index
    first_offset: Offset
    last_offset: Offset
    size_bytes: int
    sealed: bool
    first_time_us: int
    last_time_us: int


class Block(Struct, frozen=True):
    """What is read at once: frames from byte `begin` to `end`, the first of which begins with `first_offset`.

    It is a block of the index; a few of them where frames are so small that one has few changes.
    """

    segment: Segment
    begin: int
    end: int
    first_offset: Offset


class _View(Struct, frozen=True):
    """A snapshot of the list, swapped at once."""

    entries: tuple[Segment, ...]
    active: SparseIndex
    end: int


class Segments:
    """All segments, oldest first, the last one active. Any thread may read; one thread changes the list.

    What is read is a snapshot: `end` is how much of the active segment is synced and may be shown. `schemas` is the
    live mapping that chunks refer to.

    A sealed segment may be replaced by its compacted form at any time, also by another process. So what is known of a
    file is used for that very file alone: each read opens it, looks who it is, and keeps to the file that it opened.
    """

    def __init__(self, files: Files, schemas: Mapping[SchemaId, TableSchema]) -> None:
        self._files = files
        self._schemas = schemas
        self._lock = threading.Lock()
        self._indexes: OrderedDict[Index, tuple[Segment, SparseIndex, int]] = OrderedDict()
        self._view = _View((), SparseIndex(), 0)

    @property
    def entries(self) -> tuple[Segment, ...]:
        """Return all segments, oldest first."""
        return self._view.entries

    @property
    def end(self) -> int:
        """Return how many bytes of the active segment are synced."""
        return self._view.end

    def replace(self, entries: Sequence[Segment], active: SparseIndex, end: int) -> None:
        """Take another list, whose last segment has this index and is synced up to byte `end`."""
        self._view = _View(tuple(entries), active, end)

    def advance(self, segment: Segment, active: SparseIndex, end: int) -> None:
        """Note how far the active segment is synced; a segment that was not there before follows the last one."""
        entries = self._view.entries
        if entries and entries[-1].first_index == segment.first_index:
            entries = entries[:-1]
        self._view = _View((*entries, segment), active, end)

    def drop(self, count: int) -> None:
        """Forget the oldest segments. The active one stays."""
        view = self._view
        assert count < len(view.entries)
        self._view = _View(view.entries[count:], view.active, view.end)

    def renew(self, segment: Segment) -> None:
        """Take another header for a sealed segment, which was compacted."""
        view = self._view
        entries = [segment if entry.first_index == segment.first_index else entry for entry in view.entries]
        self._view = _View(tuple(entries), view.active, view.end)

    def find(self, offset: Offset) -> Block:
        """Return the block that holds a change, which must be in the log.

        Raises:
            CorruptSegmentError: The segment is damaged.
            FileNotFoundError: Retention has just removed it.
        """
        view = self._view
        with self._open(_segment_of(offset, view), view) as opened:
            try:
                return opened.block_of(offset)
            except CorruptSegmentError:
                if opened.active:
                    raise
                return self._rebuilt(opened).block_of(offset)

    def load(self, offset: Offset) -> list[Chunk]:
        """Return the chunks of the block that holds a change. A sparse index that misleads is thrown away and rebuilt.

        Raises:
            CorruptSegmentError: The segment is damaged.
            FileNotFoundError: Retention has just removed it.
        """
        view = self._view
        with self._open(_segment_of(offset, view), view) as opened, borrowed() as memory:
            return self._chunks(self._read_at(opened, offset, memory, _decoded).batches)

    def load_run(self, offset: Offset, through: Offset, bytes_max: int) -> Chunk:
        """Return the changes of the block that holds one and of those behind it in its segment, copied once.

        They go up to the block with the change `through`, or have at most this many bytes, or are of one block.

        Raises:
            CorruptSegmentError: The segment is damaged.
            FileNotFoundError: Retention has just removed it.
        """
        view = self._view
        with self._open(_segment_of(offset, view), view) as opened, borrowed() as memory:
            looked = self._read_at(opened, offset, memory, _decoded, through, bytes_max)
            return Chunk(pa.concat_batches([batch for batch, _ in looked.batches]), self._schemas)

    def _chunks(self, batches: Batches) -> list[Chunk]:
        return [Chunk(batch, self._schemas) for batch in gather(batches)]

    def _read_at(
        self,
        opened: "_Opened",
        offset: Offset,
        memory: Memory,
        look: "_Look",
        through: Offset | None = None,
        bytes_max: int = 0,
    ) -> Looked:
        """Return what `look` makes of the block of an open segment that holds a change, whose bytes are in `memory`.

        Together with blocks behind it up to `through`, as far as all have no more bytes than may be read at once.

        Raises:
            CorruptSegmentError: The segment is damaged.
        """
        try:
            block = opened.block_of(offset, through, bytes_max)
            looked = self._read(opened, block, memory, look)
        except CorruptSegmentError:
            # A sparse index is advisory and may mislead: it is not synced with its segment. Only what fails by a fresh
            # index, too, is damage of the segment itself. The index of the active one is the writer's own.
            if opened.active:
                raise
            rebuilt = self._rebuilt(opened)
            block = rebuilt.block_of(offset, through, bytes_max)
            looked = self._read(rebuilt, block, memory, look)
        if not block.first_offset <= offset <= looked.last:
            raise CorruptSegmentError(block.segment.name, place=block.begin, reason=f"change {offset} is missing")
        return looked

    def _read(self, opened: "_Opened", block: Block, memory: Memory, look: "_Look") -> Looked:
        """Return what `look` makes of a block of an open segment.

        Raises:
            CorruptSegmentError: It is damaged.
        """
        name = block.segment.name
        data = memory.read(opened.file, block.begin, max(0, block.end - block.begin))
        if not data or len(data) != block.end - block.begin:
            raise CorruptSegmentError(name, place=block.begin + len(data), reason="the segment is cut short")
        looked = look(data, block)
        if looked.newest > len(self._schemas):
            reason = f"it refers to schema {looked.newest}, which the log does not have"
            raise CorruptSegmentError(name, place=block.begin, reason=reason)
        if looked.first != block.first_offset:
            reason = f"change {block.first_offset} is expected here, not {looked.first}"
            raise CorruptSegmentError(name, place=block.begin, reason=reason)
        return looked

    def pick_run(
        self, offset: Offset, through: Offset, wanted: Wanted, skip: Callable[[Offset], Offset]
    ) -> PickedChunk | list[Chunk]:
        """Return the changes from one on that may be wanted, of as many blocks as it takes to find a good number.

        `skip` gives the first change from another on that may be wanted, as far as it is known without reading. Where
        the first block is wanted for the most part, its chunks are returned whole, as `load` does: then others may use
        them, too.

        Raises:
            CorruptSegmentError: A segment is damaged.
            FileNotFoundError: Retention has just removed one.
        """
        picking = Picking(wanted)
        look = partial(_found, picking) if picking.can_find else _decoded
        place = offset
        try:
            while place <= through and not picking.is_full():
                view = self._view
                segment = _segment_of(place, view)
                with self._open(segment, view) as opened, borrowed() as memory:
                    while place <= through and not picking.is_full() and _segment_of(place, view) is segment:
                        looked = self._read_at(opened, place, memory, look)
                        if not picking.add(looked):
                            if not picking.blocks:
                                return self._chunks(looked.batches)
                            return picking.made(self._schemas, place)
                        place = skip(Offset(looked.last + 1))
        except (CorruptSegmentError, FileNotFoundError):
            if not picking.blocks:
                raise  # otherwise what lies before it goes out first, and the next call meets it again
        return picking.made(self._schemas, place)

    def take_run(
        self, offset: Offset, through: Offset, bytes_max: int, take: Callable[[Sequence[Chunk]], _T]
    ) -> tuple[_T] | None:
        """Return what `take` makes of the chunks of the block that holds a change and of those behind it.

        They go up to the block with the change `through`, or have at most this many bytes. None where the first block
        alone has more: it is better read once for all who want it.

        Raises:
            CorruptSegmentError: A segment is damaged.
            FileNotFoundError: Retention has just removed one.
        """
        chunks: list[Chunk] = []
        while offset <= through:
            block = self.find(offset)
            bytes_max -= block.end - block.begin
            if bytes_max < 0:
                break
            chunks += [chunk for chunk in self.load(offset) if chunk.last >= offset]
            offset = Offset(chunks[-1].last + 1)
        return (take(chunks),) if chunks else None

    def lend_run(
        self, offset: Offset, through: Offset, bytes_max: int, take: Callable[[Sequence[Chunk]], _T]
    ) -> list[_T] | None:
        """Return what `take` makes of the chunks of each block, from that which holds a change, up to another change.

        The chunks show memory that is used for the next block: nothing of them may be kept. Blocks have this many bytes
        together at most, or there is one; all are of one segment. None where the first alone is very large: it is
        better read once for all who want it.

        Raises:
            CorruptSegmentError: The segment is damaged.
            FileNotFoundError: Retention has just removed it.
        """
        made: list[_T] = []
        view = self._view
        segment = _segment_of(offset, view)
        with self._open(segment, view) as opened, borrowed() as memory:
            while offset <= through and _segment_of(offset, view) is segment:
                size = opened.size_of(offset)
                if size > (bytes_max if made else max(bytes_max, _LENT_BYTES_MAX)):
                    break
                bytes_max -= size
                try:
                    looked = self._read_at(opened, offset, memory, _decoded)
                except CorruptSegmentError:
                    if not made:
                        raise
                    break  # what lies before it goes out first, and the next call meets it again
                chunks = [Chunk(batch, self._schemas) for batch in gather(looked.batches, lent=True)]
                made.append(
                    take(
                        [_up_to(through, chunk) for chunk in chunks if offset <= chunk.last and chunk.first <= through]
                    )
                )
                offset = Offset(chunks[-1].last + 1)
        return made or None

    def run_behind(self, offset: Offset, bytes_max: int) -> Offset | None:
        """Return the last change of what `lend_run` reads, by an index that is in memory; None where it is not known.

        It may be wrong where a segment is being compacted.
        """
        view = self._view
        try:
            segment = _segment_of(offset, view)
        except FileNotFoundError:
            return None  # retention has just removed it
        sparse = view.active
        if segment is not view.entries[-1]:
            with self._lock:
                known = self._indexes.get(segment.first_index)
            if known is None:
                return None
            sparse = known[1]
        behind = sparse.run_behind(offset, bytes_max, _LENT_BYTES_MAX)
        return None if behind is None else Offset(behind - 1)

    def frames(self, segment: Segment, block: int) -> list[tuple[int, FrameHeader]]:
        """Return place and header of each frame in a block, by its number; a negative number counts from the last.

        Raises:
            CorruptSegmentError: The segment is damaged, or its index misled; that is thrown away.
            FileNotFoundError: Retention has just removed it.
        """
        with self._open(segment, self._view) as opened:
            if not len(opened.sparse):
                return []
            try:
                return opened.frames(block)
            except CorruptSegmentError:
                if opened.active:
                    raise
                rebuilt = self._rebuilt(opened)
                if block >= 0:  # the number was that of another index
                    raise
                return rebuilt.frames(block)

    def size(self, segment: Segment) -> int:
        """Return the length of a segment in bytes; of the active one, what is synced."""
        view = self._view
        if segment is view.entries[-1]:
            return view.end
        with closing(self._files.open(segment.name)) as file:
            return file.size()

    def index(self, segment: Segment) -> tuple[SparseIndex, int]:
        """Return a segment's sparse index and its length in bytes.

        Raises:
            CorruptSegmentError: The segment is damaged.
            FileNotFoundError: Retention has just removed it.
        """
        with self._open(segment, self._view) as opened:
            return opened.sparse, opened.end

    def summaries(self) -> list[SegmentSummary]:
        """Return a line for each segment, oldest first."""
        return [self._summary(segment) for segment in self.entries]

    def _summary(self, segment: Segment) -> SegmentSummary:
        last = [header for _, header in self.frames(segment, -1)[-1:]]
        return SegmentSummary(
            name=segment.name,
            first_index=segment.first_index,
            first_offset=segment.first_offset,
            last_offset=last[0].last_offset if last else Offset(segment.first_offset - 1),
            size_bytes=self.size(segment),
            sealed=segment is not self.entries[-1],
            first_time_us=segment.created_us,
            last_time_us=last[0].append_time_us if last else segment.created_us,
        )

    @contextmanager
    def _open(self, segment: Segment, view: _View) -> "Iterator[_Opened]":
        """Open a segment together with the index that belongs to the file which is there now.

        Of the segment that is active in the view, only what is synced is shown; unless it was sealed and compacted
        since: then all of it was synced.
        """
        with closing(self._files.open(segment.name)) as file:
            identity = read_identity(file)
            if segment is view.entries[-1] and identity == segment.identity:
                yield _Opened(file, segment, view.active, view.end, active=True)
            else:
                yield self._sealed(file, segment, identity)

    def _sealed(self, file: File, segment: Segment, identity: int) -> "_Opened":
        """Return an open sealed segment with its index: from memory, from its sidecar, or by walking it."""
        with self._lock:
            known = self._indexes.get(segment.first_index)
        if known is not None and known[0].identity == identity:
            return _Opened(file, *known)
        if identity != segment.identity:
            segment = read_segment_header(file, segment.name)
        size = file.size()
        sparse = self._read_index(segment, size) or index_segment(file, segment, SparseIndex(), size)
        return self._kept(_Opened(file, segment, sparse, size))

    def _read_index(self, segment: Segment, size: int) -> SparseIndex | None:
        try:
            file = self._files.open(index_name(segment.first_index))
        except FileNotFoundError:
            return None
        with closing(file):
            salt = segment.identity if segment.compacted else 0
            return SparseIndex.unpack(file.read_at(0, file.size()), segment.first_index, size, salt)

    def _rebuilt(self, opened: "_Opened") -> "_Opened":
        """Walk a sealed segment and keep the index found."""
        size = opened.file.size()
        sparse = index_segment(opened.file, opened.segment, SparseIndex(), size)
        return self._kept(_Opened(opened.file, opened.segment, sparse, size))

    def _kept(self, opened: "_Opened") -> "_Opened":
        """Keep what is known of a sealed segment, which does not change but by compaction."""
        first_index = opened.segment.first_index
        with self._lock:
            self._indexes[first_index] = opened.segment, opened.sparse, opened.end
            self._indexes.move_to_end(first_index)
            while len(self._indexes) > _INDEXES_KEPT_MAX:
                self._indexes.popitem(last=False)
        return opened


class _Opened(Struct, frozen=True):
    """An open segment, the index of this very file, and how much of it may be shown."""

    file: File
    segment: Segment
    sparse: SparseIndex
    end: int
    active: bool = False

    def block_of(self, offset: Offset, through: Offset | None = None, bytes_max: int = 0) -> Block:
        """Return the block that holds a change, joined with those behind it up to `through`, within a number of bytes.

        Raises:
            CorruptSegmentError: There are no blocks.
        """
        number = self.sparse.block_of(offset)
        if number < 0:
            raise CorruptSegmentError(self.segment.name, place=self.segment.header_bytes, reason="it has no frames")
        first, behind = self.sparse.worth_reading(number)
        begin = self.sparse.place(first)
        assert begin is not None
        end = min(self.sparse.place(behind) or self.end, self.end)
        while through is not None and behind < len(self.sparse) and self.sparse.first_offset(behind) <= through:
            behind += 1
            further = min(self.sparse.place(behind) or self.end, self.end)
            if further - begin > bytes_max:
                break
            end = further
        return Block(self.segment, begin, end, self.sparse.first_offset(first))

    def size_of(self, offset: Offset) -> int:
        """Return how many bytes the block of a change has, by the index; 0 where that has no blocks."""
        try:
            block = self.block_of(offset)
        except CorruptSegmentError:
            return 0
        return block.end - block.begin

    def frames(self, block: int) -> list[tuple[int, FrameHeader]]:
        """Return place and header of each frame in a block.

        Raises:
            CorruptSegmentError: It does not hold what the index says.
        """
        number = block % len(self.sparse)
        begin, until = self.sparse.place(number), self.sparse.place(number + 1) or self.end
        assert begin is not None
        try:
            frames = list(scan(self.file.read_at, begin, min(until, self.end)))
        except BadFrameError as error:
            raise CorruptSegmentError(self.segment.name, place=error.place, reason=error.reason) from error
        if frames and frames[0][1].first_offset != self.sparse.first_offset(number):
            reason = f"change {self.sparse.first_offset(number)} is expected here, not {frames[0][1].first_offset}"
            raise CorruptSegmentError(self.segment.name, place=begin, reason=reason)
        return frames


_Look = Callable[[memoryview, Block], Looked]


def _decoded(data: memoryview, block: Block) -> Looked:
    """Return all of a block.

    Raises:
        CorruptSegmentError: It is damaged.
    """
    return Looked.at(decode(data, block.begin, block.segment))


def _found(picking: Picking, data: memoryview, block: Block) -> Looked:
    """Return what is wanted of a block, or all of it. All checksums are checked in either case.

    Raises:
        CorruptSegmentError: It is damaged.
    """
    segment = block.segment
    found = None
    if segment.schema.equals(ENVELOPE):
        frames: Frames = []
        changes = 0
        try:
            for at, header in walk(data, block.begin):
                frames.append((at + FRAME_HEADER_BYTES, header.payload_bytes))
                changes += header.change_count
        except BadFrameError as error:
            raise CorruptSegmentError(segment.name, place=error.place, reason=error.reason) from error
        found = picking.find(data, frames, changes)
    return _decoded(data, block) if found is None else found


def _up_to(through: Offset, chunk: Chunk) -> Chunk:
    """Return the changes of a chunk up to an offset."""
    return chunk if chunk.last <= through else chunk.part(0, through - chunk.first + 1)


def _segment_of(offset: Offset, view: _View) -> Segment:
    """Return the segment in which a change belongs."""
    number = bisect_right(view.entries, offset, key=lambda segment: segment.first_offset) - 1
    if number < 0:
        raise FileNotFoundError(f"no segment holds change {offset}")
    return view.entries[number]


def list_segments(files: Files, through: Index | None = None) -> list[Segment]:
    """Return the segments of a directory, oldest first, after checking that none is missing between two others.

    Beside a running writer, name the newest that was there before the call in `through`: a listing may show one that is
    made meanwhile and lack the one before it.

    Raises:
        FileNotFoundError: Retention has just removed one that was listed; call again.
        CorruptSegmentError: A header is damaged, or a segment is missing.
        FormatVersionError: A newer version wrote one.
    """
    segments: list[Segment] = []
    for name in files.names():
        index = segment_index(name)
        if index is None or (through is not None and index > through):
            continue
        with closing(files.open(name)) as file:
            segment = read_segment_header(file, name)
        # Each header names the segment before it. A file that is missing in the middle is found this way; retention
        # removes only from the oldest end.
        if segments and segment.previous_index != segments[-1].first_index:
            raise CorruptSegmentError(segment_name(segment.previous_index), place=0, reason="the file is missing")
        segments.append(segment)
    return segments


def index_segment(file: File, segment: Segment, sparse: SparseIndex, end: int) -> SparseIndex:
    """Add all frames up to byte `end` to an index, from where it ends, reading little but headers.

    Raises:
        CorruptSegmentError: Something else than whole frames is in the way.
    """
    begin = sparse.place(len(sparse) - 1) if len(sparse) else segment.header_bytes
    assert begin is not None
    try:
        for place, header in scan(file.read_at, begin, end):
            sparse.add(header, place)
    except BadFrameError as error:
        raise CorruptSegmentError(segment.name, place=error.place, reason=error.reason) from error
    return sparse
