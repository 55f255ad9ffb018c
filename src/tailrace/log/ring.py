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
    a reader that lags a little takes large pieces, and each change is merged only a few times. What is dropped is
    referenced no longer: there is no list of dropped chunks to be cleaned later.
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
        """Replace the last chunks by one, when there are enough of one rank, and so on upwards."""
        while True:
            begin = len(self._chunks) - _MERGE_COUNT
            if begin < 0 or self._ranks[begin] != self._ranks[-1]:
                return
            size = sum(self._sizes[begin:])
            count = self._chunks[-1].last - self._firsts[begin] + 1
            if count > _MERGED_CHANGES_MAX or size > _MERGED_BYTES_MAX:
                return
            merged = Chunk(pa.concat_batches([chunk.batch for chunk in self._chunks[begin:]]), self._chunks[-1].schemas)
            merged_bytes = merged.held_bytes
            self._bytes += merged_bytes - size
            self._ranks[begin:] = [self._ranks[-1] + 1]
            self._chunks[begin:] = [merged]
            self._firsts[begin:] = [merged.first]
            self._sizes[begin:] = [merged_bytes]
