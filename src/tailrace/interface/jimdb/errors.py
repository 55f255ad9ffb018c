"""What may go wrong between a puller and a range. Each has a place of its own in JimDB's errors.

UnknownRangeError          there is no such range, or no longer: ask for the ranges of the table
NotRegisteredError         the puller has not registered with the range: register
StaleEpochError            the range was split meanwhile: go on with what the error tells
OutOfBoundError            the key is none of the range
ClusterMismatchError       the request is for another cluster: ask the server of that one
PullerBusyError            another call of the same puller is under way: wait for its end
RegistrationsFullError     there are as many pullers as there may be: unregister some
"""

from tailrace.meta.key_range import KeyRange
from tailrace.model.errors import InvalidRequestError, NotFoundError, TailraceError

__all__ = [
    "ClusterMismatchError",
    "NotRegisteredError",
    "OutOfBoundError",
    "PullerBusyError",
    "RegistrationsFullError",
    "StaleEpochError",
    "UnknownRangeError",
]


class UnknownRangeError(NotFoundError):
    """There is no range of that number that the caller may see. Ask for the ranges of the table, and start over."""

    def __init__(self, range_id: int) -> None:
        super().__init__(f"range {range_id} not found: ask for the ranges of the table")
        self.range_id = range_id


class NotRegisteredError(NotFoundError):
    """The puller has not registered with the range, or was forgotten. Register, and start over."""

    def __init__(self, range_id: int, name: str) -> None:
        super().__init__(f"subscriber {name[:64]!r} is not registered with range {range_id}")
        self.range_id = range_id
        self.name = name


class StaleEpochError(TailraceError):
    """The range is not what the request says. Go on with `left` and `right`, which the next split made of it.

    Where the request names no state that the range ever had, `left` is what it is now, and `right` is None.
    """

    def __init__(self, left: KeyRange, right: KeyRange | None) -> None:
        super().__init__(f"range {left.id} was split: it had epoch {left.epoch.conf_ver}.{left.epoch.version} then")
        self.left = left
        self.right = right


class OutOfBoundError(InvalidRequestError):
    """A key of the request is none of the range."""

    def __init__(self, key: bytes, within: KeyRange) -> None:
        super().__init__(f"the key is none of range {within.id}")
        self.key = key
        self.within = within


class ClusterMismatchError(InvalidRequestError):
    """The request is for another cluster. Ask the server of that one."""

    def __init__(self, *, requested: int, actual: int) -> None:
        super().__init__(f"this is cluster {actual}, not {requested}")
        self.requested = requested
        self.actual = actual


class PullerBusyError(TailraceError):
    """Another call of the same puller is under way. A range has one puller of a name at a time: wait for its end."""

    def __init__(self, range_id: int, name: str) -> None:
        super().__init__(f"subscriber {name[:64]!r} pulls range {range_id} already")
        self.range_id = range_id
        self.name = name


class RegistrationsFullError(TailraceError):
    """There are as many pullers as there may be. Unregister some."""
