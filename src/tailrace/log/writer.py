"""The one writer of a shard, blocking: encode a frame, write it, sync it. Failures leave the log as it was before."""

import contextlib
import errno
import logging
import threading
from collections.abc import Sequence
from enum import Enum

import pyarrow as pa
from msgspec import Struct
from msgspec.structs import replace

from tailrace.clock import Clock
from tailrace.log.files import File, Files
from tailrace.log.frame import FrameHeader, seal_frame
from tailrace.log.options import LogOptions
from tailrace.log.payload import encode_payload
from tailrace.log.recover import RecoveredLog
from tailrace.log.retention import at_most, horizon_by_changes
from tailrace.log.segment import (
    PARTS_VERSION,
    PLAIN_VERSION,
    Segment,
    index_name,
    pack_segment_header,
    read_segment_header,
    segment_name,
)
from tailrace.log.sparse import SparseIndex
from tailrace.log.state import STATE_BYTES, STATE_NAME, State, pack_state
from tailrace.model.chunk import ENVELOPE, Known
from tailrace.model.commit import CommitId, Draft
from tailrace.model.errors import LogError, LogFullError, LogWriteError
from tailrace.model.number import Index, Offset

__all__ = ["EncodedFrame", "Stored", "Writer", "disk_error", "encode_frame"]

logger = logging.getLogger(__name__)

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_TOO_MANY = frozenset({errno.EMFILE, errno.ENFILE})

_ZEROS_PER_FRAME = 16
"""Zeros are written for at least this many frames: to write a larger frame twice costs more than a sync saves."""


class EncodedFrame(Struct, frozen=True):
    """A frame in memory: its batch, for readers, and its bytes, for the disk. `part` is that of its commit, if any."""

    header: FrameHeader
    batch: pa.RecordBatch
    parts: Sequence[bytes | memoryview]
    last_commit: CommitId
    part: int = 0
    known: Known | None = None


class Stored(Struct, frozen=True):
    """A frame that is on disk: the segment it is in, that segment's index and synced length, and the horizon now.

    Where its commit continues, index, length and horizon are those before the commit.
    """

    frame: EncodedFrame
    segment: Segment
    sparse: SparseIndex
    end: int
    horizon: Offset


class _Health(Enum):
    """What must be done before the next frame. After a failed sync, the segment is not written again."""

    GOOD = "continue"
    WRITE_FAILED = "cut the segment"
    SYNC_FAILED = "cut the segment, then begin another"


class Writer:
    """Appends frames to the active segment and begins new ones.

    `store` is called by one thread at a time, `move_horizon` by any. Numbers are those of the next commit and change.

    A commit in parts lies wholly in one segment. Until its last part is synced, nothing outside knows of it: state and
    index end before it. A failure, or another commit that begins, drops all of its parts.
    """

    def __init__(self, files: Files, options: LogOptions, clock: Clock, found: RecoveredLog) -> None:
        self._files = files
        self._options = options
        self._clock = clock
        self._segment = found.segments[-1] if found.segments else None
        self._outdated = self._segment is not None and self._segment.schema != ENVELOPE
        self._sparse = found.sparse
        self._end = self._length = self._whole_end = found.end
        self._parts: list[tuple[FrameHeader, int]] = []
        """Frames of the commit that is not whole yet, and where they are."""

        self._file: File | None = files.open(self._segment.name, write=True) if self._segment else None
        self._zeros = bytes(options.zero_ahead_bytes)
        self._health = _Health.GOOD
        self.floor: Offset | None = None
        self.next_offset = Offset(found.head + 1)
        self.next_index = Index(found.last_index + 1)
        self._state_lock = threading.Lock()
        self._state_file = _open_state(files)
        self._state = State(
            head=found.head,
            last_index=found.last_index,
            horizon=found.horizon,
            active_index=self._segment.first_index if self._segment else Index(0),
            synced_bytes=found.end,
            time_us=clock.now_us(),
        )
        self._write_state(self._state)

    def store(self, frame: EncodedFrame) -> Stored:
        """Write a frame and sync it; on return it is on disk, and in `state` unless its commit continues.

        Raises:
            OSError: The disk refused, and nothing of the frame counts, nor of the parts before it.
        """
        header = frame.header
        # Another commit begins before the open one has ended: the source broke off. Its parts are cut first, because
        # nothing may lie between the parts of a commit.
        if self._parts and not frame.part:
            self._drop_parts()
        assert (header.first_offset, header.first_index) == (self.next_offset, self.next_index)
        assert frame.part == len(self._parts)
        self._heal()
        if not self._parts and (self._file is None or self._segment is None or self._is_full(self._segment, header)):
            self._begin_segment(header)
        assert self._segment is not None
        assert self._file is not None
        try:
            self._write(self._file, frame)
        except OSError:
            self._drop_parts()
            # Give the space back at once: on a full disk it may be all that is left, and others wait for it.
            with contextlib.suppress(OSError):  # then the next frame tries again, before it is written
                self._heal()
            raise
        self._parts.append((header, self._end))
        self._end += header.frame_bytes
        self.next_offset = Offset(header.last_offset + 1)
        self.next_index = Index(header.last_index + 1)
        if header.continues:
            return Stored(frame, self._segment, self._sparse, self._whole_end, self._state.horizon)
        for part, place in self._parts:
            self._sparse.add(part, place)
        self._parts.clear()
        self._whole_end = self._end
        with self._state_lock:
            head = header.last_offset
            horizon = at_most(self.floor, horizon_by_changes(head, self._options.retention_changes))
            state = State(
                head=head,
                last_index=header.last_index,
                horizon=max(self._state.horizon, horizon),
                active_index=self._segment.first_index,
                synced_bytes=self._end,
                time_us=header.append_time_us,
            )
            self._write_state(state)
        return Stored(frame, self._segment, self._sparse, self._end, state.horizon)

    def move_horizon(self, horizon: Offset, *, durable: bool = False) -> None:
        """Move the horizon, never back, and write it down.

        `durable` before files below it are removed: a file that is missing above the horizon was lost.

        Raises:
            OSError: It was to be durable, and the disk refused.
        """
        with self._state_lock:
            self._write_state(replace(self._state, horizon=max(self._state.horizon, horizon)))
            if durable:
                self._state_file.write_at(0, [pack_state(self._state)])
                self._state_file.sync()

    @property
    def whole_offset(self) -> Offset:
        """Return the number of the next change if the commit that is not whole yet is dropped."""
        return self._parts[0][0].first_offset if self._parts else self.next_offset

    def close(self) -> None:
        """Give unused space back and close the files. What was stored is on disk already.

        Raises:
            OSError: The disk refused; the log is whole nevertheless.
        """
        try:
            if self._file is not None and self._length > self._whole_end:
                self._file.truncate(self._whole_end)
                self._file.sync()
        finally:
            if self._file is not None:
                self._file.close()
            self._state_file.close()

    def _write(self, file: File, frame: EncodedFrame) -> None:
        """Write and sync one frame behind the last."""
        self._health = _Health.WRITE_FAILED
        end = self._end + frame.header.frame_bytes
        file.write_at(self._end, frame.parts)
        if end > self._length:
            self._length = end
            # Zeros make the syncs of small frames twice as fast: they have no new blocks to journal. A large frame
            # costs more in writing twice than its sync would save.
            if frame.header.frame_bytes <= len(self._zeros) // _ZEROS_PER_FRAME:
                self._write_zeros(file)
        # From here on a failure means that the kernel may have dropped the pages and reported it once. Another sync
        # would succeed and mean nothing, so these bytes are never relied on again.
        self._health = _Health.SYNC_FAILED
        file.sync()
        self._health = _Health.GOOD

    def _write_zeros(self, file: File) -> None:
        """Write zeros for the next frames to overwrite. No room for them does not mean that the disk is full."""
        try:
            file.write_at(self._length, [self._zeros])
            self._length += len(self._zeros)
        except OSError as error:
            if error.errno not in _FULL:
                raise
            self._length = file.size()

    def _drop_parts(self) -> None:
        """Go back to where the commit that is not whole began.

        Its bytes are cut before the next frame: one of its frames behind a torn one would be taken for damage.
        """
        if not self._parts:
            return
        self.next_offset = self.whole_offset
        self._parts.clear()
        self._end = self._whole_end
        if self._health is _Health.GOOD:
            self._health = _Health.WRITE_FAILED

    def _heal(self) -> None:
        """Undo what a failure left behind."""
        if self._health is _Health.GOOD or self._file is None:
            return
        broken = self._health
        self._health = _Health.SYNC_FAILED
        self._file.truncate(self._end)
        self._file.sync()
        self._length = self._end
        self._health = _Health.GOOD
        # The new segment is another file, whose sync state is not in doubt.
        if broken is _Health.SYNC_FAILED:
            self._seal()

    def _is_full(self, segment: Segment, header: FrameHeader) -> bool:
        # An older program refuses version 2 and would show parts of unfinished commits in version 1. So parts go into
        # segments of version 2 only, and a log without parts stays readable to it.
        if self._outdated or (header.continues and segment.version < PARTS_VERSION):
            return True
        if self._end == segment.header_bytes:
            return False
        age_us = header.append_time_us - segment.created_us
        return self._end >= self._options.segment_bytes_max or age_us >= self._options.segment_age_max_s * 1_000_000

    def _seal(self) -> None:
        """End the active segment at its last frame. Its index is advisory: a failure to write that is only noted."""
        segment, file = self._segment, self._file
        assert segment is not None
        assert file is not None
        if self._length > self._end:
            file.truncate(self._end)
            file.sync()
            self._length = self._end
        file.close()
        self._file = None
        try:
            index = self._files.create(index_name(segment.first_index))
            index.write_at(0, [self._sparse.pack(segment.first_index, self._end)])
            index.close()
        except OSError as error:
            logger.warning("sparse index not written", extra={"segment": segment.name, "problem": str(error)})
        logger.info("segment sealed", extra={"segment": segment.name, "size_bytes": self._end})

    def _begin_segment(self, header: FrameHeader) -> None:
        """Make the segment that begins with this frame; it gets its name when its header is on disk."""
        if self._file is not None:
            self._seal()
        name = segment_name(header.first_index)
        previous = self._segment.first_index if self._segment else Index(0)
        if self._segment and previous == header.first_index:  # the one before got no frame and is made again
            previous = self._segment.previous_index
        encoded = pack_segment_header(
            first_offset=header.first_offset,
            first_index=header.first_index,
            previous_index=previous,
            created_us=header.append_time_us,
            schema=ENVELOPE,
            version=PARTS_VERSION if header.continues else PLAIN_VERSION,
        )
        file = self._files.create(f"{name}.tmp")
        try:
            file.write_at(0, [encoded])
            file.sync()
            self._files.rename(f"{name}.tmp", name)
            self._files.sync_names()
            self._segment = read_segment_header(file, name)
        except (OSError, LogError):
            file.close()
            raise
        self._file = file
        self._outdated = False
        self._sparse = SparseIndex()
        self._end = self._length = self._whole_end = self._segment.header_bytes

    def _write_state(self, state: State) -> None:
        """Tell other processes how far the log is. They wait when this fails; the log itself does not need it."""
        self._state = state
        try:
            self._state_file.write_at(0, [pack_state(state)])
        except OSError as error:
            logger.warning("state not written", extra={"problem": str(error)})


def encode_frame(
    drafts: Sequence[Draft], first_offset: Offset, first_index: Index, append_time_us: int, first_hlc: int = 1
) -> EncodedFrame:
    """Return the frame of whole commits, or of one part of a commit, with these numbers."""
    batch, payload = encode_payload(drafts, first_offset, first_index, first_hlc)
    header, head = seal_frame(
        payload,
        change_count=batch.num_rows,
        commit_count=0 if drafts[-1].more else len(drafts),
        first_offset=first_offset,
        first_index=first_index,
        append_time_us=append_time_us,
    )
    last = drafts[-1]
    known = Known.of_drafts(drafts, first_offset, len(payload))
    return EncodedFrame(header, batch, (head, payload), CommitId(last.position, last.txid), last.part, known)


def disk_error(error: OSError) -> LogFullError | LogWriteError:
    """Return the error of the log that a disk's error stands for."""
    translated: LogFullError | LogWriteError
    if error.errno in _FULL:
        translated = LogFullError("the disk of the log is full; free some space, then it continues by itself")
    elif error.errno in _TOO_MANY:
        translated = LogWriteError(
            "the log cannot open a file: as many files and connections are open as the system allows; "
            "raise the limit of open files (ulimit -n)"
        )
    else:
        translated = LogWriteError(f"the disk of the log refused: {error.strerror or error}")
    translated.__cause__ = error
    return translated


def _open_state(files: Files) -> File:
    """Open the state file. One of another length is not ours to keep: it is emptied."""
    if STATE_NAME not in files.names():
        return files.create(STATE_NAME)
    file = files.open(STATE_NAME, write=True)
    if file.size() != STATE_BYTES:
        file.truncate(0)
    return file
