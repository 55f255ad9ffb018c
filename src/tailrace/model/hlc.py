"""Hybrid timestamps: wall-clock milliseconds in the upper 46 bits, a counter in the lower 18. Pure."""

__all__ = ["LOGICAL_BITS", "hlc_at", "hlc_time_us"]

LOGICAL_BITS = 18


def hlc_at(time_us: int) -> int:
    """Return the first timestamp of the millisecond in which a time lies; times before 1970 count as that."""
    return max(time_us, 0) // 1000 << LOGICAL_BITS


def hlc_time_us(hlc: int) -> int:
    """Return the time that a timestamp tells, to the millisecond."""
    return (hlc >> LOGICAL_BITS) * 1000
