"""Blocks read back from segments, shared by all readers. Pure."""

from bisect import bisect_right, insort
from collections import OrderedDict
from collections.abc import Sequence

from tailrace.model.chunk import Chunk
from tailrace.model.number import Offset

__all__ = ["BlockCache"]


class BlockCache:
    """The blocks used last, found by any offset in them, bounded in the memory that they hold.

    The block put last always stays, however large: a huge frame is read once and not once per piece.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._blocks: OrderedDict[Offset, tuple[Sequence[Chunk], int]] = OrderedDict()
        self._firsts: list[Offset] = []
        self._bytes = 0

    @property
    def size_bytes(self) -> int:
        """Return how much memory the blocks hold, without memos."""
        return self._bytes

    def find(self, offset: Offset) -> Chunk | None:
        """Return the chunk that holds a change; None when it is not here."""
        chunks = self._chunks(offset)
        if chunks is None:
            return None
        self._blocks.move_to_end(chunks[0].first)
        return chunks[bisect_right(chunks, offset, key=lambda chunk: chunk.first) - 1]

    def last_of(self, offset: Offset) -> Offset | None:
        """Return the last change of the block that holds a change; None when it is not here."""
        chunks = self._chunks(offset)
        return None if chunks is None else chunks[-1].last

    def has_room_beside(self, offset: Offset) -> bool:
        """Tell whether another block like that which holds a change could be kept without that one going for it."""
        place = bisect_right(self._firsts, offset) - 1
        return place < 0 or 2 * self._blocks[self._firsts[place]][1] <= self._bytes_max

    def _chunks(self, offset: Offset) -> Sequence[Chunk] | None:
        place = bisect_right(self._firsts, offset) - 1
        if place < 0:
            return None
        chunks, _ = self._blocks[self._firsts[place]]
        return chunks if offset <= chunks[-1].last else None

    def put(self, chunks: Sequence[Chunk]) -> None:
        """Keep the chunks of a block, in place of all that have changes in common with it.

        Those are a shorter reading of the same block, or blocks of the segment before it was compacted.
        """
        first, last = chunks[0].first, chunks[-1].last
        size_bytes = sum(chunk.held_bytes for chunk in chunks)
        begin = max(0, bisect_right(self._firsts, first) - 1)
        end = bisect_right(self._firsts, last)
        for known in self._firsts[begin:end]:
            if self._blocks[known][0][-1].last >= first:
                self._bytes -= self._blocks.pop(known)[1]
                self._firsts.remove(known)
        insort(self._firsts, first)
        self._blocks[first] = (chunks, size_bytes)
        self._bytes += size_bytes
        while self._bytes > self._bytes_max and len(self._blocks) > 1:
            oldest, (_, size) = self._blocks.popitem(last=False)
            self._firsts.remove(oldest)
            self._bytes -= size
