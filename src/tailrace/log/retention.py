"""Where the horizon belongs by the rules for changes, bytes and age.

`byte_horizon` and `age_horizon` read indexes and frame headers and block; the rest is pure.
"""

from bisect import bisect_left
from collections.abc import Sequence

from tailrace.log.segments import Segments
from tailrace.model.number import Offset

__all__ = ["age_horizon", "at_most", "byte_cut", "byte_horizon", "horizon_by_changes", "removable"]


def horizon_by_changes(head: Offset, changes_max: int | None) -> Offset:
    """Return the oldest of the newest `changes_max` changes."""
    return Offset(1) if changes_max is None else Offset(max(1, head - changes_max + 1))


def at_most(floor: Offset | None, horizon: Offset) -> Offset:
    """Return a horizon that leaves the changes from `floor` on, if there is one."""
    return horizon if floor is None else min(floor, horizon)


def byte_cut(sizes: Sequence[int], bytes_max: int) -> tuple[int, int] | None:
    """Return number and byte of the oldest place that may stay, given the sizes of all segments, oldest first.

    What comes after it is at most `bytes_max` long. None when all may stay.
    """
    excess = sum(sizes) - bytes_max
    if excess <= 0:
        return None
    for number, size in enumerate(sizes):
        if excess < size:
            return number, excess
        excess -= size
    return len(sizes), 0


def removable(firsts: Sequence[Offset], horizon: Offset, head: Offset) -> int:
    """Return how many of the oldest segments, by their first offsets, hold nothing at or above the horizon.

    The segment with the last commit stays, whatever the horizon: it tells the source where to resume.
    """
    keep = min(horizon, head)
    return sum(1 for following in firsts[1:] if following <= keep)


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
