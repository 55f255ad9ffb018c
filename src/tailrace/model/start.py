"""Where a feed begins. Offsets are exclusive: the first change delivered follows them."""

from msgspec import Struct

from tailrace.model.number import Offset

__all__ = ["After", "Earliest", "Latest", "Start"]


class Earliest(Struct, frozen=True, tag=True):
    """Begin with the oldest change that the log still has."""


class Latest(Struct, frozen=True, tag=True):
    """Begin with the first change that comes after now."""


class After(Struct, frozen=True, tag=True):
    """Begin with the first change that follows `offset`."""

    offset: Offset


Start = Earliest | Latest | After
