"""Checking a whole log: every checksum, every number, every border. Reads everything, changes nothing."""

from array import array
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from tailrace.log.batch import conform
from tailrace.log.files import Files
from tailrace.log.frame import FRAME_HEADER_BYTES, BadFrameError, FrameHeader, find_frame, scan, walk
from tailrace.log.recover import read_state
from tailrace.log.schemas import Schemas
from tailrace.log.segment import (
    PARTS_VERSION,
    Segment,
    read_identity,
    read_segment_header,
    segment_index,
    segment_name,
)
from tailrace.log.state import State
from tailrace.model.errors import LogError
from tailrace.model.number import Index, Offset
from tailrace.model.op import Op

__all__ = ["LogProblem", "LogVerification", "verify"]


class LogProblem(Struct, frozen=True):
    """One thing that is wrong, and where."""

    segment: str
    place: int
    reason: str

    def __str__(self) -> str:
        return f"{self.segment}, byte {self.place}: {self.reason}"


class LogVerification(Struct, frozen=True, kw_only=True):
    """What `verify` found. The log is good when there are no problems.

    A torn tail or an unfinished commit is none: the next open cuts it.
    """

    problems: tuple[LogProblem, ...]
    segments: int
    frames: int
    commits: int
    changes: int
    size_bytes: int
    head: Offset
    torn_bytes: int


def verify(files: Files) -> LogVerification:
    """Walk all frames of a log and return what was found.

    Checks checksums, that no segment is missing from the horizon to the newest, that offsets and indexes are dense over
    all segments, that commits are whole and carry their position, and that schemas are known. Blocking. May run beside
    the writer: then it looks at what is synced.
    """
    return _Check(files).run()


class _Check:
    def __init__(self, files: Files) -> None:
        self._files = files
        self._problems: list[LogProblem] = []
        self._segments: list[Segment] = []
        self._schema_count = 0
        self._frames = self._commits = self._changes = self._bytes = self._torn = 0
        self._pending = (0, 0, 0)
        """Frames, commits and changes since the last whole commit."""

        self._next: tuple[int, int] | None = None
        self._next_whole: tuple[int, int] | None = None
        self._open_hlc: int | None = None

    def run(self) -> LogVerification:
        state = read_state(self._files)
        self._list(state.active_index if state else None)
        self._check_ends(state)
        try:
            schemas = Schemas(self._files)
            schemas.load()
            self._schema_count = len(schemas.known)
        except LogError as error:
            self._note(error)
        for segment in self._segments:
            end = state.synced_bytes if state and state.active_index == segment.first_index else None
            try:
                self._segment(segment, end, newest=segment is self._segments[-1])
            except FileNotFoundError:
                self._gone(segment)
            except LogError as error:
                self._note(error)
        return LogVerification(
            problems=tuple(self._problems),
            segments=len(self._segments),
            frames=self._frames,
            commits=self._commits,
            changes=self._changes,
            size_bytes=self._bytes,
            head=Offset(self._next[0] - 1 if self._next else 0),
            torn_bytes=self._torn,
        )

    def _list(self, through: Index | None) -> None:
        """Find the segments, and whether one is missing between two others. Damaged ones are noted and left out."""
        skipped = False
        for name in self._files.names():
            index = segment_index(name)
            if index is None or (through is not None and index > through):
                continue
            try:
                with closing(self._files.open(name)) as file:
                    segment = read_segment_header(file, name)
            except FileNotFoundError:  # retention has just removed it, and those before it
                self._segments.clear()
                continue
            except LogError as error:
                self._note(error)
                skipped = True
                continue
            if self._segments and segment.previous_index != self._segments[-1].first_index and not skipped:
                self._problems.append(LogProblem(segment_name(segment.previous_index), 0, "the file is missing"))
            self._segments.append(segment)
            skipped = False

    def _check_ends(self, state: State | None) -> None:
        """Note segments that are missing before the oldest or behind the newest, which the chain cannot tell."""
        if state is None:
            return
        # Retention writes down the horizon before it removes files, so what is below it now explains what was listed.
        horizon = (read_state(self._files) or state).horizon
        noted = {problem.segment for problem in self._problems}
        active = segment_name(state.active_index)
        oldest, newest = (self._segments[0], self._segments[-1]) if self._segments else (None, None)
        if oldest is not None and oldest.previous_index and oldest.first_offset > horizon:
            before = segment_name(oldest.previous_index)
            if before not in noted:
                reason = f"the file is missing: changes {horizon} to {oldest.first_offset - 1} are gone"
                self._problems.append(LogProblem(before, 0, reason))
        if state.active_index > (newest.first_index if newest else 0) and active not in noted:
            self._problems.append(LogProblem(active, 0, "the file is missing"))

    def _gone(self, segment: Segment) -> None:
        """Note a segment that was listed and cannot be opened, unless retention has removed it."""
        number = self._segments.index(segment)
        following = self._segments[number + 1].first_offset if number + 1 < len(self._segments) else None
        state = read_state(self._files)
        if state is None or following is None or following > state.horizon:
            self._problem(segment, 0, "the file is missing")
        self._next = None

    def _segment(self, segment: Segment, end: int | None, *, newest: bool) -> None:
        """Check a segment frame by frame: one may be as large as the largest commit."""
        first = (segment.first_offset, segment.first_index)
        if self._next is not None and self._next != first and not self._is_behind_a_gap(segment):
            self._problem(segment, segment.header_bytes, "it does not begin where the segment before it ends")
        self._next = self._next_whole = first
        self._open_hlc = None
        good = whole = segment.header_bytes
        torn = False
        with closing(self._files.open(segment.name)) as file:
            if read_identity(file) != segment.identity:  # it was sealed and compacted since it was listed
                segment, end, newest = read_segment_header(file, segment.name), None, False
                good = whole = segment.header_bytes
            size = file.size() if end is None else end
            try:
                for place, header in scan(file.read_at, segment.header_bytes, size):
                    data = file.read_at(place, header.frame_bytes)
                    list(walk(data, place))
                    for reason in self._frame(segment, header, data):
                        self._problem(segment, place, reason)
                    good = place + header.frame_bytes
                    if not header.continues:
                        whole = good
                        self._count_whole()
            except BadFrameError as error:
                torn = newest and end is None and find_frame(file.read_at(error.place + 1, size), 0) is None
                if torn:
                    self._torn = size - whole if any(file.read_at(good, size)) else good - whole
                else:
                    self._problem(segment, error.place, error.reason)
        if end is not None and good < end and not self._problems:
            self._problem(segment, good, "changes that were synced are gone")
        if whole < good and not torn:
            if newest and end is None:
                self._torn = good - whole
            else:
                self._problem(segment, whole, "the last part of a commit is missing")
        self._next, self._pending = self._next_whole, (0, 0, 0)
        self._bytes += whole

    def _count_whole(self) -> None:
        """Count the frames since the last whole commit, and that commit."""
        frames, commits, changes = self._pending
        self._pending = (0, 0, 0)
        self._frames += frames
        self._commits += commits
        self._changes += changes
        self._next_whole = self._next
        self._open_hlc = None

    def _frame(self, segment: Segment, header: FrameHeader, data: bytes) -> Iterator[str]:
        if (header.first_offset, header.first_index) != self._next:
            yield "the frame does not follow the one before it"
        self._next = (header.last_offset + 1, header.last_index + 1)
        frames, commits, changes = self._pending
        self._pending = (frames + 1, commits + header.commit_count, changes + header.change_count)
        if header.continues and segment.version < PARTS_VERSION:
            yield "a part of a commit is in a segment that cannot hold parts"
        if frames and header.commit_count > 1:
            yield "the last part of a commit holds other commits, too"
        payload = pa.py_buffer(data).slice(FRAME_HEADER_BYTES, header.payload_bytes)
        try:
            batch = conform(pa.ipc.read_record_batch(payload, segment.schema))
            batch.validate(full=True)
        except pa.ArrowException:
            yield "the frame is no Arrow record batch"
            return
        yield from _check_batch(batch, header, self._schema_count)
        if batch.num_rows and (frames or header.continues):
            yield from self._check_part(batch)

    def _check_part(self, batch: pa.RecordBatch) -> Iterator[str]:
        """Check that the parts of a commit have one timestamp."""
        hlc = batch.column("hlc")[0].as_py()
        if self._open_hlc not in (None, hlc):
            yield "the parts of a commit have several timestamps"
        self._open_hlc = hlc

    def _is_behind_a_gap(self, segment: Segment) -> bool:
        """Tell whether the segment before this one is missing or damaged, which was noted already."""
        number = self._segments.index(segment)
        return number > 0 and segment.previous_index != self._segments[number - 1].first_index

    def _note(self, error: LogError) -> None:
        self._problems.append(
            LogProblem(getattr(error, "segment", ""), getattr(error, "place", 0), getattr(error, "reason", str(error)))
        )

    def _problem(self, segment: Segment, place: int, reason: str) -> None:
        self._problems.append(LogProblem(segment.name, place, reason))


def _check_batch(batch: pa.RecordBatch, header: FrameHeader, schema_count: int) -> Iterator[str]:
    rows = batch.num_rows
    if rows != header.change_count or not rows:
        yield f"the frame holds {rows} changes and says {header.change_count}"
        return
    numbers = pa.array(array("q", range(header.first_offset, header.first_offset + rows)), pa.int64())
    if not batch.column("offset").equals(numbers):
        yield "offsets are not dense"
    borders = pc.is_valid(batch.column("position"))
    indexes = batch.column("index")
    steps = pc.subtract(indexes.slice(1), indexes.slice(0, rows - 1))
    last_index = header.first_index if header.continues else header.last_index
    whole = (Index(indexes[0].as_py()), Index(indexes[-1].as_py())) == (header.first_index, last_index)
    ended = borders[-1].as_py() is not header.continues
    if not whole or not steps.equals(borders.slice(0, rows - 1).cast(pa.int64())) or not ended:
        yield "commits are not whole, or lack their position"
    elif not _rise(batch.column("hlc"), borders):
        yield "timestamps do not rise from commit to commit"
    if not pc.all(pc.is_in(batch.column("op"), pa.array(list(Op), pa.int8()))).as_py():
        yield "an op is unknown"
    lowest_highest = pc.min_max(batch.column("schema")).as_py()
    if lowest_highest["min"] < 1 or lowest_highest["max"] > schema_count:
        yield f"schema {lowest_highest['max']} is not known"


def _rise(stamps: Any, borders: Any) -> bool:
    """Tell whether timestamps, where there are any, change where commits do and rise there."""
    if stamps.null_count:
        return True
    rows = len(stamps)
    rising = pc.greater(pc.subtract(stamps.slice(1), stamps.slice(0, rows - 1)), 0)
    falling = pc.any(pc.less(stamps.slice(1), stamps.slice(0, rows - 1))).as_py()
    return not falling and bool(rising.equals(borders.slice(0, rows - 1)))
