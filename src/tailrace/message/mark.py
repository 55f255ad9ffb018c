"""What a target keeps about a sink, so that nothing is sent twice."""

import msgspec
from msgspec import Struct

__all__ = ["Interrupted", "Mark"]


class Mark(Struct, frozen=True):
    """What a target keeps beside the messages, in the same atomic step.

    The mark of the last whole batch, the letters that were sent since, and how much it has of the batch that follows:
    this many of its changes, the last of which has the offset `settled`.
    """

    mark: bytes | None
    letters: tuple[int, ...] = ()
    batch: bytes = b""
    done: int = 0
    settled: int = 0
    owner: str = ""
    """Whose it is. A sink that was removed leaves its mark behind, which means nothing to the next of its name."""


class Interrupted(Struct):
    """How far the batch with this mark is: this many of its changes are settled, and these messages parked besides."""

    mark: bytes
    done: int = 0
    settled: int = 0
    parked: set[str] = msgspec.field(default_factory=set)
