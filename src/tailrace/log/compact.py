"""Compaction: a sealed segment of small frames is written again in large ones. See "Compact" in docs/log-format.md.

Blocking, in small steps, so that whoever drives it decides how much of the disk and the processor it takes.
"""

import contextlib
from collections.abc import Generator, Sequence
from contextlib import closing

import pyarrow as pa
from msgspec import Struct

from tailrace.log.decode import decode
from tailrace.log.files import File, Files
from tailrace.log.frame import BadFrameError, FrameHeader, frame_header, pack_frame, scan
from tailrace.log.segment import Segment, index_name, pack_segment_header, read_segment_header
from tailrace.log.sparse import SparseIndex
from tailrace.model.chunk import ENVELOPE
from tailrace.model.errors import CorruptSegmentError

__all__ = ["Compacted", "Run", "compact", "may_compact", "plan", "put_in_place"]

_FRAME_CHANGES_MAX = 4096
_FRAME_BYTES_MAX = 1024 * 1024
_SMALL_BYTES_MAX = 128 * 1024
_DESCRIPTION_BYTES = 736
"""What a frame takes besides its changes, about: where its columns are."""

_SPAN_US_MAX = 600_000_000
"""A frame has one time of append, the newest of its changes. So retention by age is late by this much at most."""

_SHRINK_MIN = 4
"""A segment that would not have this many times fewer frames is left as it is."""

_STEP_BYTES = 64 * 1024
_STEP_FRAMES = 256
"""How much is taken apart, or looked through, in one step: half a millisecond of work under Python's lock, for which a
commit on its way may have to wait."""

_SYNC_BYTES = 1024 * 1024
"""After this many bytes the new file is synced. All of it at once would keep the disk from the syncs of commits."""


class Run(Struct):
    """Neighbouring frames from byte `begin` to `end` that become one; or one frame that stays as it is."""

    begin: int
    end: int
    first: FrameHeader
    changes: int
    commits: int
    size_bytes: int
    append_time_us: int
    frames: int = 1
    part: bool = False
    """Whether it is a part of a commit, which stays alone; the last part, too: parts are counted by frames."""

    def takes(self, header: FrameHeader) -> bool:
        """Tell whether the next frame may be joined: whole commits, few in bytes, changes and time."""
        return (
            not self.part
            and _is_small(header)
            and _is_small(self.first)
            and self.changes + header.change_count <= _FRAME_CHANGES_MAX
            and self.size_bytes + _body_bytes(header) <= _FRAME_BYTES_MAX
            and header.append_time_us - self.first.append_time_us <= _SPAN_US_MAX
        )

    def add(self, header: FrameHeader) -> None:
        """Join the next frame."""
        self.end += header.frame_bytes
        self.changes += header.change_count
        self.commits += header.commit_count
        self.size_bytes += _body_bytes(header)
        self.append_time_us = header.append_time_us
        self.frames += 1


class Compacted(Struct, frozen=True):
    """The compacted form of a segment, in a temporary file: its header, its index and its length."""

    segment: Segment
    sparse: SparseIndex
    size_bytes: int


def may_compact(segment: Segment) -> bool:
    """Tell whether all that a segment holds can be written again: a newer version may have columns of its own."""
    return not segment.compacted and set(segment.schema.names) <= set(ENVELOPE.names)


def compact(files: Files, segment: Segment) -> Generator[None, None, Compacted | None]:
    """Write the compacted form of a sealed segment to a temporary file, synced; None where it is not worth it.

    Yields after each step, which takes a millisecond or less besides what the disk takes. Whoever does not finish it
    closes it; then the file is gone again. The segment itself is not touched.

    Raises:
        CorruptSegmentError: The segment is damaged.
        OSError: The disk refused.
    """
    with closing(files.open(segment.name)) as file:
        segment = read_segment_header(file, segment.name)
        if not may_compact(segment):
            return None
        runs: list[Run] = []
        count, in_parts = 0, False
        try:
            for count, (place, header) in enumerate(scan(file.read_at, segment.header_bytes, file.size()), 1):
                in_parts = plan(runs, place, header, in_parts=in_parts)
                if count % _STEP_FRAMES == 0:
                    yield
        except BadFrameError as error:
            raise CorruptSegmentError(segment.name, place=error.place, reason=error.reason) from error
        if count < _SHRINK_MIN * len(runs) or not runs:
            return None
        name = f"{segment.name}.tmp"
        try:
            with closing(files.create(name)) as made:
                return (yield from _write(file, segment, runs, made))
        except BaseException:
            with contextlib.suppress(OSError):
                files.remove(name)
            raise


def plan(runs: list[Run], place: int, header: FrameHeader, *, in_parts: bool) -> bool:
    """Add the next frame to the last run, or begin another with it; return whether its commit continues."""
    part = in_parts or header.continues
    if runs and not part and runs[-1].takes(header):
        runs[-1].add(header)
    else:
        counts = (header.change_count, header.commit_count, _body_bytes(header))
        runs.append(Run(place, place + header.frame_bytes, header, *counts, header.append_time_us, part=part))
    return header.continues


def put_in_place(files: Files, compacted: Compacted) -> None:
    """Replace a segment by its compacted form. On return it is durable; a crash leaves the one or the other.

    The index of the old one goes first: then none is ever beside a segment that it does not belong to.

    Raises:
        OSError: The disk refused; the segment is the old one or the new one.
    """
    segment = compacted.segment
    sidecar = index_name(segment.first_index)
    try:
        files.remove(sidecar)
        files.sync_names()
        files.rename(f"{segment.name}.tmp", segment.name)
        files.sync_names()
    except OSError:
        with contextlib.suppress(OSError):
            files.remove(f"{segment.name}.tmp")
        raise
    packed = compacted.sparse.pack(segment.first_index, compacted.size_bytes, segment.identity)
    with contextlib.suppress(OSError), closing(files.create(sidecar)) as index:  # it is advisory
        index.write_at(0, [packed])


def _write(file: File, segment: Segment, runs: Sequence[Run], made: File) -> Generator[None, None, Compacted]:
    head = pack_segment_header(
        first_offset=segment.first_offset,
        first_index=segment.first_index,
        previous_index=segment.previous_index,
        created_us=segment.created_us,
        schema=ENVELOPE,
        version=segment.version,
        compacted=True,
    )
    made.write_at(0, [head])
    place, sparse = len(head), SparseIndex()
    synced = 0
    verbatim = segment.schema.equals(ENVELOPE)
    for run in runs:
        frame: list[bytes | memoryview]
        if run.frames == 1 and verbatim:
            frame = [file.read_at(run.begin, run.end - run.begin)]
            decode(bytes(frame[0]), run.begin, segment)  # which checks it
            yield
        else:
            frame = yield from _joined(file, segment, run)
        sparse.add(frame_header(frame[0], 0, place), place)
        made.write_at(place, frame)
        place += sum(map(len, frame))
        yield
        if place - synced >= _SYNC_BYTES:
            made.sync()
            synced = place
            yield
    made.sync()
    return Compacted(read_segment_header(made, segment.name), sparse, place)


def _joined(file: File, segment: Segment, run: Run) -> Generator[None, None, list[bytes | memoryview]]:
    """Return header and payload of the frame that a run becomes."""
    batches: list[pa.RecordBatch] = []
    begin = end = run.begin
    for place, header in scan(file.read_at, run.begin, run.end):
        end = place + header.frame_bytes
        if end - begin >= _STEP_BYTES or end == run.end:
            batches += [batch for batch, _ in decode(file.read_at(begin, end - begin), begin, segment)]
            begin = end
            yield
    batch = pa.concat_batches(batches)
    first, last = batch.column("offset")[0].as_py(), batch.column("offset")[-1].as_py()
    expected = (run.first.first_offset, run.first.first_offset + run.changes - 1)
    if (first, last) != expected or batch.num_rows != run.changes:
        raise CorruptSegmentError(segment.name, place=run.begin, reason="frames do not hold what their headers say")
    payload = memoryview(batch.serialize())
    head = pack_frame(
        payload,
        change_count=run.changes,
        commit_count=run.commits,
        first_offset=run.first.first_offset,
        first_index=run.first.first_index,
        append_time_us=run.append_time_us,
    )
    return [head, payload]


def _is_small(header: FrameHeader) -> bool:
    return header.change_count <= _FRAME_CHANGES_MAX // 2 and _body_bytes(header) <= _SMALL_BYTES_MAX


def _body_bytes(header: FrameHeader) -> int:
    return max(0, header.payload_bytes - _DESCRIPTION_BYTES)
