"""The ring: the newest changes in memory. Pure. A cache of the log's end; missing it is not an error."""

from bisect import bisect_right

import pyarrow as pa

from tailrace.model.chunk import Chunk
from tailrace.model.number import Offset

__all__ = ["Ring"]

_MERGE_COUNT = 32
_MERGED_CHANGES_MAX = 4096
_MERGED_BYTES_MAX = 1024 * 1024
_COMPACT_COUNT = 1024


class Ring:
    """Consecutive chunks up to the head, bounded in changes and in bytes.

    A chunk is one frame, as long as it is the newest. Behind it, runs of small chunks are merged step by step, so that
    a reader that lags a little takes large pieces, and each change is merged only a few times.
    """

    def __init__(self, changes_max: int, bytes_max: int) -> None:
        self._changes_max = changes_max
        self._bytes_max = bytes_max
        self._chunks: list[Chunk] = []
        self._firsts: list[Offset] = []
        self._sizes: list[int] = []
        self._ranks: list[int] = []
        self._begin = 0
        self._changes = 0
        self._bytes = 0

    def __len__(self) -> int:
        return self._changes

    @property
    def size_bytes(self) -> int:
        """Return how much memory the changes take, without memos."""
        return self._bytes

    @property
    def floor(self) -> Offset | None:
        """Return the offset of the oldest change that is here; None when there is none."""
        return self._firsts[self._begin] if self._begin < len(self._firsts) else None

    def find(self, offset: Offset) -> Chunk | None:
        """Return the chunk that holds a change; None when it is not here."""
        place = bisect_right(self._firsts, offset, self._begin) - 1
        if place < self._begin or offset > self._chunks[place].last:
            return None
        return self._chunks[place]

    def add(self, chunk: Chunk, size_bytes: int) -> None:
        """Take the next chunk and drop the oldest beyond the bounds; the newest always stays."""
        self._merge()
        self._chunks.append(chunk)
        self._firsts.append(chunk.first)
        self._sizes.append(size_bytes)
        self._ranks.append(0)
        self._changes += len(chunk)
        self._bytes += size_bytes
        self._evict()

    def _evict(self) -> None:
        newest = len(self._chunks) - 1
        while self._begin < newest and (self._changes > self._changes_max or self._bytes > self._bytes_max):
            self._changes -= len(self._chunks[self._begin])
            self._bytes -= self._sizes[self._begin]
            self._begin += 1
        if self._begin >= _COMPACT_COUNT or (self._begin and self._begin == newest):
            for column in (self._chunks, self._firsts, self._sizes, self._ranks):
                del column[: self._begin]
            self._begin = 0

    def _merge(self) -> None:
        """Replace the last chunks by one, when there are enough of one rank, and so on upwards."""
        while True:
            begin = len(self._chunks) - _MERGE_COUNT
            if begin < self._begin or self._ranks[begin] != self._ranks[-1]:
                return
            size = sum(self._sizes[begin:])
            count = self._chunks[-1].last - self._firsts[begin] + 1
            if count > _MERGED_CHANGES_MAX or size > _MERGED_BYTES_MAX:
                return
            merged = Chunk(pa.concat_batches([chunk.batch for chunk in self._chunks[begin:]]), self._chunks[-1].schemas)
            self._ranks[begin:] = [self._ranks[-1] + 1]
            self._chunks[begin:] = [merged]
            self._firsts[begin:] = [merged.first]
            self._sizes[begin:] = [size]
