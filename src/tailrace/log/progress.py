"""The progress file: how far the source is beyond the last commit, where it has no commit for us there.

One JSON object, `{"crc":123,"progress":{…}}`, put in place at once. It counts only as long as the commit that it
follows is the last one of the log: a later commit has a later position of its own.
"""

import zlib
from contextlib import closing

import msgspec
from msgspec import Raw, Struct

from tailrace.log.files import Files
from tailrace.model.number import Index, Position

__all__ = ["PROGRESS_NAME", "Progressed", "read_progress", "write_progress"]

PROGRESS_NAME = "progress"


class Progressed(Struct, frozen=True):
    """A position that follows the commit with this index and position; both tell that it is still that commit."""

    index: Index
    commit: Position | None
    position: Position


class _Content(Struct):
    crc: int
    progress: Raw


def read_progress(files: Files, index: Index, commit: Position | None) -> Position | None:
    """Return the position after the last commit of a log, which has this index and position; None when there is none.

    A damaged file counts as none: the source then resumes after the last commit.
    """
    try:
        file = files.open(PROGRESS_NAME)
    except FileNotFoundError:
        return None
    with closing(file):
        data = file.read_at(0, file.size())
    try:
        content = msgspec.json.decode(data, type=_Content)
        progressed = msgspec.json.decode(content.progress, type=Progressed)
    except msgspec.MsgspecError:
        return None
    fits = zlib.crc32(content.progress) == content.crc and (progressed.index, progressed.commit) == (index, commit)
    return progressed.position if fits else None


def write_progress(files: Files, progressed: Progressed) -> None:
    """Put a progress file in place of the old one; durable on return.

    Raises:
        OSError: The disk refused. The old one counts.
    """
    encoded = msgspec.json.encode(progressed)
    temporary = f"{PROGRESS_NAME}.tmp"
    with closing(files.create(temporary)) as file:
        file.write_at(0, [msgspec.json.encode(_Content(zlib.crc32(encoded), Raw(encoded)))])
        file.sync()
    files.rename(temporary, PROGRESS_NAME)
    files.sync_names()
