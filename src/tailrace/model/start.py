"""Where a feed begins. Offsets are exclusive: the first change delivered follows them."""

from msgspec import Struct

from tailrace.model.number import Offset

__all__ = ["After", "AtTime", "CursorStart", "Earliest", "Latest", "Start"]


class Earliest(Struct, frozen=True, tag=True):
    """Begin with the oldest change that the log still has."""


class Latest(Struct, frozen=True, tag=True):
    """Begin with the first change that comes after now."""


class After(Struct, frozen=True, tag=True):
    """Begin with the first change that follows `offset`."""

    offset: Offset


class AtTime(Struct, frozen=True, tag=True):
    """Begin with the first change that was committed at `time_us` or later."""

    time_us: int


Start = Earliest | Latest | After
"""Where a feed may begin."""

CursorStart = Start | AtTime
"""Where a subscription may begin, or be moved to."""
