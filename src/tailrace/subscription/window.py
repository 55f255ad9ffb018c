"""Windows: the parts in which long chunks are looked at. Pure."""

from tailrace.model.chunk import Chunk
from tailrace.model.number import Offset

__all__ = ["WIDE_CHANGES_MAX", "WINDOW_CHANGES_MAX", "window_of"]

WINDOW_CHANGES_MAX = 2048
"""Most changes that are filtered and encoded in one go, so that nobody holds the event loop for long."""

WIDE_CHANGES_MAX = 2 * WINDOW_CHANGES_MAX
"""The same for those whose changes are filtered and encoded beside the event loop."""


def window_of(chunk: Chunk, after: Offset, changes_max: int = WINDOW_CHANGES_MAX) -> Chunk:
    """Return the part of a chunk that holds the change following `after`. Everybody cuts at the same places."""
    if len(chunk) <= changes_max:
        return chunk
    row = chunk.row_after(after) // changes_max * changes_max
    return chunk.memo(("window", row, changes_max), lambda chunk: chunk.part(row, changes_max))
