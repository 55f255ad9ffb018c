"""Where the horizon belongs. Pure."""

from collections.abc import Sequence

from tailrace.model.number import Offset

__all__ = ["at_most", "byte_cut", "horizon_by_changes", "removable"]


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
