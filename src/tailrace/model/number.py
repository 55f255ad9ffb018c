"""The two number lines of a shard, the source's own place mark, and hybrid timestamps. Pure."""

from typing import NewType

__all__ = ["LOGICAL_BITS", "Index", "Offset", "Position", "SchemaId", "hlc_at", "hlc_time_us"]

Offset = NewType("Offset", int)
"""Number of a change in its shard: from 1, dense, never reused. 0 means "before the first"."""

Index = NewType("Index", int)
"""Number of a commit in its shard: from 1, dense, never reused. 0 means "before the first"."""

SchemaId = NewType("SchemaId", int)
"""Number of a table schema version in its shard's log: from 1, in order of arrival."""

Position = NewType("Position", str)
"""A place in the source's own log; opaque outside that source and ordered only within it."""

LOGICAL_BITS = 18
"""Hybrid timestamps have wall-clock milliseconds in the upper 46 bits, a counter in these lower ones."""


def hlc_at(time_us: int) -> int:
    """Return the first timestamp of the millisecond in which a time lies; times before 1970 count as that."""
    return max(time_us, 0) // 1000 << LOGICAL_BITS


def hlc_time_us(hlc: int) -> int:
    """Return the time that a timestamp tells, to the millisecond."""
    return (hlc >> LOGICAL_BITS) * 1000
