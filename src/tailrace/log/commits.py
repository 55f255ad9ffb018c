"""Finding commits by their index, and how much lies behind them. Reads segments; blocking.

A block holds whole frames and a frame whole commits, so a commit always lies wholly in one block.
"""

from bisect import bisect_right

import pyarrow.compute as pc

from tailrace.log.segments import Segments
from tailrace.model.number import Index, Offset

__all__ = ["commit_at", "find_commit", "size_after"]


def commit_at(segments: Segments, offset: Offset) -> tuple[Index, Offset]:
    """Return the index of the commit that holds a change, and the offset of its first change.

    Raises:
        CorruptSegmentError: The segment is damaged.
        FileNotFoundError: Retention has just removed it.
    """
    chunks = segments.load(offset)
    chunk = next(chunk for chunk in chunks if offset <= chunk.last)
    index = chunk.batch.column("index")[offset - chunk.first].as_py()
    return Index(index), _first_offset(segments, offset, Index(index))


def find_commit(segments: Segments, index: Index) -> Offset:
    """Return the offset of the first change of a commit, which must be in the log.

    Raises:
        CorruptSegmentError: The segment is damaged.
        FileNotFoundError: Retention has just removed it.
    """
    entries = segments.entries
    number = bisect_right(entries, index, key=lambda segment: segment.first_index) - 1
    if number < 0:
        raise FileNotFoundError(f"no segment holds commit {index}")
    sparse, _ = segments.index(entries[number])
    return _first_offset(segments, sparse.first_offset(max(0, sparse.block_of_index(index))), index)


def size_after(segments: Segments, offset: Offset, head: Offset) -> int:
    """Return about how many bytes of the log follow a change, to the size of a block.

    Raises:
        CorruptSegmentError: A segment is damaged.
        FileNotFoundError: Retention has just removed one.
    """
    if offset >= head:
        return 0
    entries = segments.entries
    number = max(0, bisect_right(entries, Offset(offset + 1), key=lambda segment: segment.first_offset) - 1)
    sparse, end = segments.index(entries[number])
    place = sparse.place(max(0, sparse.block_of(Offset(offset + 1)))) or 0
    return end - place + sum(segments.size(segment) for segment in entries[number + 1 :])


def _first_offset(segments: Segments, offset: Offset, index: Index) -> Offset:
    """Return the first change of a commit that lies in the block of a change."""
    for chunk in segments.load(offset):
        row = pc.index(chunk.batch.column("index"), index).as_py()
        if row >= 0:
            return Offset(chunk.first + row)
    raise FileNotFoundError(f"no block holds commit {index}")
