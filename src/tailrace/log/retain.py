"""Finding the frame at which the rules for bytes and age cut the log. Reads indexes and frame headers; blocking."""

from bisect import bisect_left

from tailrace.log.retention import byte_cut
from tailrace.log.segments import Segments
from tailrace.model.number import Offset

__all__ = ["age_horizon", "byte_horizon"]


def byte_horizon(segments: Segments, bytes_max: int, head: Offset) -> Offset:
    """Return the first change of the oldest frame such that it and all after it take at most `bytes_max`.

    Raises:
        CorruptSegmentError: The segment at the cut is damaged.
    """
    entries = segments.entries
    sizes = [segments.size(segment) for segment in entries]
    cut = byte_cut(sizes, bytes_max)
    if cut is None:
        return Offset(0)
    number, place = cut
    if number == len(entries):
        return Offset(head + 1)
    sparse, _ = segments.index(entries[number])
    for frame_place, header in segments.frames(entries[number], max(0, sparse.block_at(place))):
        if frame_place >= place:
            return header.first_offset
    return _next_block(segments, number, max(0, sparse.block_at(place)), head)


def age_horizon(segments: Segments, oldest_us: int, head: Offset) -> Offset:
    """Return the first change of the oldest frame appended at or after a time.

    Raises:
        CorruptSegmentError: The segment at the cut is damaged.
    """
    entries = segments.entries
    number = bisect_left(entries, oldest_us, key=lambda segment: segment.created_us) - 1
    if number < 0:
        return Offset(0)
    sparse, _ = segments.index(entries[number])
    block = max(0, sparse.block_before_time(oldest_us))
    for _, header in segments.frames(entries[number], block):
        if header.append_time_us >= oldest_us:
            return header.first_offset
    return _next_block(segments, number, block, head)


def _next_block(segments: Segments, number: int, block: int, head: Offset) -> Offset:
    """Return the first change behind a block."""
    entries = segments.entries
    sparse, _ = segments.index(entries[number])
    if block + 1 < len(sparse):
        return min(sparse.first_offset(block + 1), Offset(head + 1))
    return entries[number + 1].first_offset if number + 1 < len(entries) else Offset(head + 1)
