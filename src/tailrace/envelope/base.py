"""The seam to envelopes: how one change is wrapped."""

from typing import Protocol

from msgspec import Struct

from tailrace.model.chunk import Change
from tailrace.model.op import Op

__all__ = ["Envelope", "UnfitError", "Wrapped", "word_of"]

_READ = "read"


class Wrapped(Struct, frozen=True):
    """A change in an envelope."""

    value: bytes | None
    """None for a tombstone, where the row is gone and the envelope is the row itself."""

    key: bytes
    """JSON, equal for all changes of one row; that of a truncation names no row."""

    headers: tuple[tuple[str, str], ...] = ()
    """What the envelope puts beside the value. Names are in lower case; `ce-` begins attributes of CloudEvents."""

    content_type: str = "application/json"


class UnfitError(ValueError):
    """A change cannot be wrapped in this envelope. The message names the column, never a value."""


class Envelope(Protocol):
    """One way to wrap changes. Pure: equal changes, encoded at the same time, give equal bytes."""

    tombstones: bool
    """Whether a deletion is followed by a tombstone where the target compacts by key."""

    def wrap(self, change: Change, id_: str, *, snapshot: bool = False, now_us: int | None = None) -> Wrapped:
        """Return the envelope of a change of a row, or of a truncation, which is known as `id_`.

        In a snapshot it is a row as it was read.

        `now_us` is the time of encoding, for envelopes that have a place for it; that of the commit by default.

        Raises:
            UnfitError: The envelope has no form for one of its values.
        """


def word_of(change: Change, *, snapshot: bool) -> str:
    """Return what happened in one word: insert, update, delete, truncate, or read for a row of a snapshot."""
    return _READ if snapshot else Op(change.op).word
