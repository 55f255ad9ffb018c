"""Finding the end of a log: what is whole, what is torn, what is damaged. See "Open" in docs/log-format.md."""

import logging
from contextlib import closing

import pyarrow as pa
from msgspec import Struct

from tailrace.log.batch import last_commit
from tailrace.log.decode import decode
from tailrace.log.files import File, Files
from tailrace.log.frame import BadFrameError, FrameHeader, find_frame, scan, walk
from tailrace.log.progress import read_progress
from tailrace.log.segment import Segment, segment_name
from tailrace.log.segments import Segments, list_segments
from tailrace.log.sparse import SparseIndex
from tailrace.log.state import STATE_BYTES, STATE_NAME, State, unpack_state
from tailrace.model.commit import CommitId
from tailrace.model.errors import CorruptSegmentError
from tailrace.model.number import Index, Offset, Position

__all__ = ["RecoveredLog", "examine", "read_state", "recover"]

logger = logging.getLogger(__name__)

_WALK_BYTES = 4 * 1024 * 1024


class RecoveredLog(Struct, frozen=True, kw_only=True):
    """A log as it is on disk. `end` is where the last commit of the newest segment ends; `sparse` is its index.

    `commit` is the last commit as the source knows it, `position` is where the source resumes.
    """

    segments: list[Segment]
    sparse: SparseIndex
    end: int
    head: Offset
    last_index: Index
    horizon: Offset
    commit: CommitId | None
    position: Position | None
    append_time_us: int
    hlc: int


def recover(files: Files) -> RecoveredLog:
    """Examine a log, cut its torn tail, and make sure that all of the rest is on disk. For the one writer.

    Raises:
        CorruptSegmentError: It is damaged before its end.
        FormatVersionError: A newer version wrote it.
        OSError: The disk refused.
    """
    for name in files.names():
        if name.endswith(".tmp"):
            files.remove(name)
    found = examine(files)
    state = read_state(files)
    if state and found.segments and found.segments[0].previous_index:
        gone = found.segments[0].first_offset - 1
        if gone >= state.horizon:  # retention writes down the horizon before it removes files
            extra = {"segment": segment_name(found.segments[0].previous_index), "changes": f"{state.horizon} to {gone}"}
            logger.warning("segments are missing before the oldest; their changes are gone", extra=extra)
    if found.segments:
        name = found.segments[-1].name
        with closing(files.open(name, write=True)) as file:
            if file.size() > found.end:
                if not _is_zero(file, found.end):
                    logger.warning("torn tail cut", extra={"segment": name, "through_bytes": found.end})
                file.truncate(found.end)
            # A frame that can be read may be in the page cache alone, where the writer was killed before its sync. Sync
            # before anybody sees it: what readers have seen must survive a power failure.
            file.sync()
        files.sync_names()
    return found


def examine(files: Files) -> RecoveredLog:
    """Return what is in a log, without changing anything. Reads the newest segment whole, of the others only headers.

    Raises:
        CorruptSegmentError: It is damaged before its end.
        FormatVersionError: A newer version wrote it.
    """
    segments = list_segments(files)
    state = read_state(files)
    newest = segments[-1] if segments else None
    # `state` is written after the segment exists. A state that is ahead of the directory means a lost file, and not a
    # crash between the two.
    if state and state.active_index > (newest.first_index if newest else 0):
        raise CorruptSegmentError(segment_name(state.active_index), place=0, reason="the file is missing")
    if newest is None:
        return RecoveredLog(
            segments=[],
            sparse=SparseIndex(),
            end=0,
            head=Offset(0),
            last_index=Index(0),
            horizon=Offset(1),
            commit=None,
            position=read_progress(files, Index(0), None),
            append_time_us=0,
            hlc=0,
        )
    sparse, end, last, batch = _walk_newest(files, newest)
    # A torn write can only be behind what was synced. Bytes that are bad before that were acknowledged once: cutting
    # them would lose commits in silence, so opening fails.
    if state and state.active_index == newest.first_index and state.synced_bytes > end:
        raise CorruptSegmentError(newest.name, place=end, reason="changes that were synced are gone or damaged")
    if last is None and len(segments) > 1:
        last, batch = _last_frame(files, segments)
    head = last.last_offset if last else Offset(newest.first_offset - 1)
    last_index = last.last_index if last else Index(newest.first_index - 1)
    commit = last_commit(batch) if batch else None
    position = commit.position if commit else None
    horizon = max(state.horizon if state else Offset(0), segments[0].first_offset)
    return RecoveredLog(
        segments=segments,
        sparse=sparse,
        end=end,
        head=head,
        last_index=last_index,
        horizon=min(horizon, Offset(head + 1)),
        commit=commit,
        # Progress counts only after the commit that it names. Behind a newer commit it is older than the commit itself.
        position=read_progress(files, last_index, position) or position,
        append_time_us=last.append_time_us if last else 0,
        hlc=batch.column("hlc")[-1].as_py() if batch else 0,
    )


def read_state(files: Files) -> State | None:
    """Return what the state file says; None when there is none, or a damaged one."""
    try:
        file = files.open(STATE_NAME)
    except FileNotFoundError:
        return None
    with closing(file):
        return unpack_state(file.read_at(0, STATE_BYTES + 1))


def _is_zero(file: File, begin: int) -> bool:
    """Tell whether a file has nothing but zeros from a byte on."""
    for place in range(begin, file.size(), _WALK_BYTES):
        data = file.read_at(place, _WALK_BYTES)
        if data.count(0) < len(data):
            return False
    return True


def _walk_newest(files: Files, segment: Segment) -> tuple[SparseIndex, int, FrameHeader | None, pa.RecordBatch | None]:
    """Return index and end of the whole commits, and their last frame with its batch."""
    with closing(files.open(segment.name)) as file:
        walked = _Walk(file, segment)
        try:
            walked.run()
        except BadFrameError as error:
            # At most one frame is unsynced at any time. A bad frame with nothing good behind it is the torn tail of a
            # crash and is cut; with a good frame behind it, it was whole once and is damage.
            if find_frame(file.read_at(error.place + 1, file.size()), 0) is not None:
                raise CorruptSegmentError(segment.name, place=error.place, reason=error.reason) from error
        batch = None
        if walked.last is not None:
            begin = walked.whole_end - walked.last.frame_bytes
            batch = decode(file.read_at(begin, walked.last.frame_bytes), begin, segment)[0][0]
    return walked.sparse, walked.whole_end, walked.last, batch


class _Walk:
    """Goes through a segment with all checksums, some megabytes at a time.

    Index, end and last frame are those of whole commits: parts of one whose last part is missing do not count.
    """

    def __init__(self, file: File, segment: Segment) -> None:
        self._file = file
        self._segment = segment
        self.sparse = SparseIndex()
        self._end = self.whole_end = segment.header_bytes
        self._parts: list[tuple[FrameHeader, int]] = []
        self.last: FrameHeader | None = None

    def run(self) -> None:
        """Walk to the end of the file.

        Raises:
            BadFrameError: Something else than a whole frame comes before that. What comes before it is good.
            CorruptSegmentError: The first frame is not the one that the segment's header tells of.
        """
        through = self._end
        try:
            for place, header in scan(self._file.read_at, self._end, self._file.size()):
                through = place + header.frame_bytes
                if through - self._end >= _WALK_BYTES:
                    self._check(through)
        finally:
            self._check(through)

    def _check(self, through: int) -> None:
        """Check the frames up to a byte, of which the headers are good."""
        begin = self._end
        for at, header in walk(self._file.read_at(begin, through - begin), begin):
            expected = (self._segment.first_offset, self._segment.first_index)
            first = begin + at == self._segment.header_bytes
            if first and (header.first_offset, header.first_index) != expected:
                raise CorruptSegmentError(self._segment.name, place=begin, reason="the first frame is another one")
            self._parts.append((header, begin + at))
            self._end = begin + at + header.frame_bytes
            # Parts are not counted until the commit ends: what a crash left of an unfinished commit is cut with the
            # torn tail.
            if header.continues:
                continue
            for part, place in self._parts:
                self.sparse.add(part, place)
            self._parts.clear()
            self.whole_end = self._end
            self.last = header


def _last_frame(files: Files, segments: list[Segment]) -> tuple[FrameHeader, pa.RecordBatch]:
    """Return the last frame of the segment before the newest."""
    sealed = Segments(files, {})
    sealed.replace(segments, SparseIndex(), 0)
    # The newest segment has no frame yet: a crash came after its creation. The position to resume from is in the one
    # before it.
    frames = sealed.frames(segments[-2], -1)
    if not frames:
        raise CorruptSegmentError(segments[-2].name, place=segments[-2].header_bytes, reason="it has no frames")
    place, header = frames[-1]
    if header.last_index + 1 != segments[-1].first_index:
        raise CorruptSegmentError(segments[-2].name, place=place, reason="its last commits are missing")
    with closing(files.open(segments[-2].name)) as file:
        data = file.read_at(place, header.frame_bytes)
    return header, decode(data, place, segments[-2])[0][0]
