"""Windows: the parts in which long chunks are looked at. Pure."""

from tailrace.model.chunk import Chunk
from tailrace.model.number import Offset

__all__ = ["WINDOW_CHANGES_MAX", "window_of"]

WINDOW_CHANGES_MAX = 2048
"""Most changes that are filtered and encoded in one go, so that nobody holds the event loop for long."""


def window_of(chunk: Chunk, after: Offset) -> Chunk:
    """Return the part of a chunk that holds the change following `after`. Everybody cuts at the same places."""
    if len(chunk) <= WINDOW_CHANGES_MAX:
        return chunk
    row = chunk.row_after(after) // WINDOW_CHANGES_MAX * WINDOW_CHANGES_MAX
    return chunk.memo(("window", row), lambda chunk: chunk.part(row, WINDOW_CHANGES_MAX))
