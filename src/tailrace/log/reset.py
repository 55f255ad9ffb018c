"""Beginning a log again, behind the numbers of the old one. See "Reset" in docs/log-format.md."""

from collections.abc import Callable, Iterator
from contextlib import closing, suppress

from msgspec import Struct

from tailrace.clock import Clock
from tailrace.log.files import Files
from tailrace.log.frame import BadFrameError, FrameHeader, find_frame, walk
from tailrace.log.progress import PROGRESS_NAME
from tailrace.log.recover import read_state
from tailrace.log.segment import (
    pack_segment_header,
    read_segment_header,
    segment_index,
    segment_name,
)
from tailrace.log.state import STATE_NAME
from tailrace.model.chunk import ENVELOPE
from tailrace.model.errors import LogError
from tailrace.model.number import Index, Offset

__all__ = ["Begun", "reset"]


class Begun(Struct, frozen=True):
    """Where a new log begins: the first change and the first commit that it can hold."""

    first_offset: Offset
    first_index: Index


def reset(files: Files, clock: Clock, put_away: Callable[[str], None]) -> Begun:
    """Begin a new log in the place of the one in these files, which may be damaged, and return where it begins.

    `put_away` is called for each file of the old log and takes it out of the directory. Schema versions are kept: the
    new log goes on with their numbers. One change and one commit are left out between both logs: whoever has read the
    old log to its end lacks a change of the new one that nobody has, and is asked for a new snapshot.

    Blocking; durable on return. The caller holds the directory's lock. After a crash the log is either the old one, or
    refused when it is opened because segments are missing: then call it again.

    Raises:
        OSError: The disk refused.
    """
    offset, index = _last(files)
    begun = Begun(Offset(offset + 2), Index(index + 2))
    old = [name for name in (STATE_NAME, PROGRESS_NAME) if name in files.names()]
    old += [name for name in files.names() if name.startswith("oplog-")]
    name = segment_name(begun.first_index)
    header = pack_segment_header(
        first_offset=begun.first_offset,
        first_index=begun.first_index,
        previous_index=Index(0),
        created_us=clock.now_us(),
        schema=ENVELOPE,
    )
    with closing(files.create(f"{name}.tmp")) as file:
        file.write_at(0, [header])
        file.sync()
    files.rename(f"{name}.tmp", name)
    files.sync_names()  # from here on, opening is refused until all of the old log is away
    for leaving in old:
        put_away(leaving)
    files.sync_names()
    return begun


def _last(files: Files) -> tuple[int, int]:
    """Return the largest offset and index that a log may have given out, however damaged it is."""
    state = read_state(files)
    offset, index = (state.head, state.last_index) if state else (0, 0)
    names = [name for name in files.names() if segment_index(name) is not None]
    for name in names[-2:]:  # the newest may have no frames, and a header that is damaged
        with closing(files.open(name)) as file:
            data = file.read_at(0, file.size())
            with suppress(LogError):
                offset = max(offset, read_segment_header(file, name).first_offset - 1)
        index = max(index, (segment_index(name) or 0) - 1)
        for header in _frames(data):
            offset, index = max(offset, header.last_offset), max(index, header.last_index)
    return offset, index


def _frames(data: bytes) -> Iterator[FrameHeader]:
    """Yield the headers of all whole frames, also of those behind damaged ones."""
    place = find_frame(data, 0)
    while place is not None:
        try:
            for _, header in walk(memoryview(data)[place:], place):
                yield header
            return
        except BadFrameError as error:
            place = find_frame(data, error.place + 1)
