"""Stretches: the events of what lies in the log's files, made where it is read, and found by any place in them.

Whoever replays needs the events and not the changes. Found by their place, they are sent without reading the log at
all; and where they must be made, one trip to a worker thread reads, filters and encodes, from memory that is used again
for the next block.
"""

from collections.abc import Callable, Sequence

from msgspec import Struct

from tailrace.delivery.encoded import Encoded
from tailrace.delivery.view import View
from tailrace.model.chunk import Chunk
from tailrace.model.number import Offset
from tailrace.subscription.filter import Filter
from tailrace.subscription.window import WIDE_CHANGES_MAX

__all__ = ["Kind", "Stretch", "stretches_of"]

Kind = tuple[str, View, Filter | None]
"""What stretches that may follow each other have in common: source, view and filter; no filter where all pass."""


class Stretch(Struct, frozen=True):
    """The events of the changes from `first` to `last`, all that pass a filter."""

    first: Offset
    encoded: Encoded
    commit_time_us: int
    """When the last of the changes was committed."""

    fresh: bool = True
    """Whether it was encoded, and not found to be what was encoded for another filter."""

    @property
    def last(self) -> Offset:
        """Return the offset of the last change."""
        return self.encoded.last

    @property
    def changes(self) -> int:
        """Return how many changes there are, wanted or not."""
        return self.last - self.first + 1

    @property
    def is_whole(self) -> bool:
        """Tell whether all changes pass."""
        return self.encoded.count == self.changes


def stretches_of(
    chunks: Sequence[Chunk], kind: Kind, filter_: Filter, whole: Callable[[Kind, Offset, Offset], Stretch | None]
) -> list[Stretch]:
    """Return what passes a filter of consecutive chunks, as a view wants it; for a worker thread.

    `whole` gives what is kept of all changes between two offsets, whatever filter it was made for.
    """
    return [
        _stretch_of(
            chunk.part(begin, WIDE_CHANGES_MAX) if len(chunk) > WIDE_CHANGES_MAX else chunk, kind, filter_, whole
        )
        for chunk in chunks
        for begin in range(0, len(chunk), WIDE_CHANGES_MAX)
    ]


def _stretch_of(
    chunk: Chunk, kind: Kind, filter_: Filter, whole: Callable[[Kind, Offset, Offset], Stretch | None]
) -> Stretch:
    view, rows = kind[1], filter_.select(chunk)
    found = whole(kind, chunk.first, chunk.last) if len(rows) == len(chunk) else None
    if found is not None:
        return Stretch(found.first, found.encoded, found.commit_time_us, fresh=False)
    time_us = chunk.batch.column("commit_time_us")[len(chunk) - 1].as_py()
    return Stretch(chunk.first, view.wire.encode(chunk, rows, view), time_us)
