"""The ring: the newest changes in memory. Pure. A cache of the log's end; missing it is not an error."""

from bisect import bisect_right
from collections.abc import Mapping, Sequence

import pyarrow as pa

from tailrace.log.batch import owned
from tailrace.model.chunk import Chunk
from tailrace.model.number import Offset, SchemaId
from tailrace.model.table import TableSchema

__all__ = ["Ring"]

_MERGE_COUNT = 32
_MERGED_CHANGES_MAX = 4096
_MERGED_BYTES_MAX = 1024 * 1024


class Ring:
    """Consecutive chunks up to the head, bounded in changes and in the memory that they hold.

    A chunk is one frame, as long as it is the newest. Behind it, runs of small chunks are merged step by step, so that
    a reader that lags a little takes large pieces, and each change is merged only a few times: its chunk's rank says
    how often, and falls from the oldest chunk to the newest. What is dropped is referenced no longer: there is no list
    of dropped chunks to be cleaned later.
    """

    def __init__(self, changes_max: int, bytes_max: int) -> None:
        self._changes_max = changes_max
        self._bytes_max = bytes_max
        self._chunks: list[Chunk] = []
        self._firsts: list[Offset] = []
        self._sizes: list[int] = []
        self._ranks: list[int] = []
        self._changes = 0
        self._bytes = 0

    def __len__(self) -> int:
        return self._changes

    @property
    def size_bytes(self) -> int:
        """Return how much memory the chunks hold, without memos."""
        return self._bytes

    @property
    def floor(self) -> Offset | None:
        """Return the offset of the oldest change that is here; None when there is none."""
        return self._firsts[0] if self._firsts else None

    def find(self, offset: Offset) -> Chunk | None:
        """Return the chunk that holds a change; None when it is not here."""
        place = bisect_right(self._firsts, offset) - 1
        if place < 0 or offset > self._chunks[place].last:
            return None
        return self._chunks[place]

    def add(self, chunk: Chunk) -> None:
        """Take the next chunk and drop the oldest beyond the bounds; the newest always stays."""
        self._merge()
        size_bytes = chunk.held_bytes
        self._chunks.append(chunk)
        self._firsts.append(chunk.first)
        self._sizes.append(size_bytes)
        self._ranks.append(0)
        self._changes += len(chunk)
        self._bytes += size_bytes
        self._evict()

    def clear(self) -> None:
        """Forget all chunks: what follows does not begin where they end."""
        self._drop(len(self._chunks))

    def add_parts(self, parts: Sequence[pa.RecordBatch], schemas: Mapping[SchemaId, TableSchema]) -> None:
        """Take the next changes, which are slices of one large batch: those that fit, copied so that it can go."""
        count = changes = size_bytes = 0
        for part in reversed(parts):
            changes += part.num_rows
            size_bytes += part.nbytes
            if count and (changes > self._changes_max or size_bytes > self._bytes_max):
                break
            count += 1
        if count < len(parts):
            self._drop(len(self._chunks))
        for part in parts[-count:]:
            self.add(Chunk(owned(part), schemas))

    def _evict(self) -> None:
        changes, size_bytes, count = self._changes, self._bytes, 0
        while count < len(self._chunks) - 1 and (changes > self._changes_max or size_bytes > self._bytes_max):
            changes -= len(self._chunks[count])
            size_bytes -= self._sizes[count]
            count += 1
        if count:
            self._drop(count)

    def _drop(self, count: int) -> None:
        """Forget the oldest chunks."""
        self._changes -= sum(map(len, self._chunks[:count]))
        self._bytes -= sum(self._sizes[:count])
        for column in (self._chunks, self._firsts, self._sizes, self._ranks):
            del column[:count]

    def _merge(self) -> None:
        """Replace the oldest chunks of a rank by one of the next, when there are enough of it, and so on upwards.

        Of large changes, and of a high rank, not all of them become one, but as many as a chunk should have.
        """
        rank, end = 0, len(self._chunks)
        while end >= _MERGE_COUNT and self._ranks[end - _MERGE_COUNT] == rank:
            begin = self._ranks.index(rank)  # older chunks have higher ranks
            count = self._mergeable(begin, end)
            rank += 1
            if count > 1:
                self._join(begin, begin + count)
            self._ranks[begin] = rank  # also where it is large enough alone
            end = begin + 1

    def _mergeable(self, begin: int, end: int) -> int:
        """Return how many chunks from a place on may become one."""
        first, size_bytes = self._firsts[begin], 0
        for place in range(begin, end):
            size_bytes += self._chunks[place].size_bytes
            changes = self._chunks[place].last - first + 1
            if changes > _MERGED_CHANGES_MAX or size_bytes > _MERGED_BYTES_MAX:
                return place - begin
        return end - begin

    def _join(self, begin: int, end: int) -> None:
        """Replace some chunks by one."""
        chunks = self._chunks[begin:end]
        merged = Chunk(pa.concat_batches([chunk.batch for chunk in chunks]), chunks[-1].schemas)
        self._bytes += merged.held_bytes - sum(self._sizes[begin:end])
        self._chunks[begin:end] = [merged]
        self._firsts[begin:end] = [merged.first]
        self._sizes[begin:end] = [merged.held_bytes]
        del self._ranks[begin + 1 : end]
