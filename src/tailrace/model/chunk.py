"""A run of numbered changes in memory, as one Arrow record batch: what the log hands out and feeds pass on."""

from bisect import bisect_right
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import pyarrow as pa
from msgspec import Struct

from tailrace.model.commit import Draft
from tailrace.model.number import Index, Offset, SchemaId
from tailrace.model.op import Op
from tailrace.model.table import TableSchema

__all__ = ["ENVELOPE", "Change", "Chunk", "Known", "PickedChunk"]

ENVELOPE: pa.Schema = pa.schema(
    [
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("index", pa.int64(), nullable=False),
        pa.field("commit_time_us", pa.int64(), nullable=False),
        pa.field("txid", pa.int64(), nullable=False),
        pa.field("op", pa.int8(), nullable=False),
        pa.field("schema", pa.int32(), nullable=False),
        pa.field("key", pa.binary(), nullable=False),
        pa.field("before", pa.binary()),
        pa.field("after", pa.binary()),
        pa.field("position", pa.utf8()),
        pa.field("hlc", pa.int64()),
        pa.field("migration", pa.bool_()),
    ]
)
"""Columns of a change in the log. `position` is set on the last change of each commit and null on the others.

`hlc` is the hybrid timestamp of the commit (`tailrace.model.number`); `migration` tells that it moves data and is no
news.
"""

_CHANGE_COLUMNS = ENVELOPE.names[: ENVELOPE.get_field_index("position")]

_T = TypeVar("_T")

_MEMO_MAX = 64
"""Most results that a chunk keeps for others."""

_CELLS_CHANGES_MAX, _CELLS_BYTES_MAX = 64, 32 * 1024
"""Of a chunk that is no larger than this, values are kept for others: nobody counts what is kept."""

_CELLS = ("op", "schema", "key", "before", "after", "commit_time_us")

_CHUNK_BYTES = 8 * 1024
"""What a chunk takes besides the buffers of its batch, about: two dozen allocations, measured with single changes."""


class Change(Struct, frozen=True):
    """One change, numbered. Key and images are in their natural JSON form."""

    offset: Offset
    index: Index
    commit_time_us: int
    txid: int
    op: Op
    schema: TableSchema
    key: bytes
    before: bytes | None
    after: bytes | None


class Known(Struct, frozen=True):
    """What whoever makes a chunk knows of its batch: its first offset, about its size, and columns as Python values."""

    first: Offset
    size_bytes: int
    cells: Mapping[str, list[Any]] | None = None

    @classmethod
    def of_drafts(cls, drafts: Sequence[Draft], first: Offset, size_bytes: int) -> "Known":
        """Return what is known of the batch of some drafts; the values too where there are few."""
        count = sum(map(len, drafts))
        if count > _CELLS_CHANGES_MAX or size_bytes > _CELLS_BYTES_MAX:
            return cls(first, size_bytes)
        if len(drafts) == 1:
            draft = drafts[0]
            times_us = [draft.commit_time_us] * count
            columns = (draft.ops, draft.schemas, draft.keys, draft.befores, draft.afters, times_us)
            return cls(first, size_bytes, dict(zip(_CELLS, columns, strict=True)))
        cells: dict[str, list[Any]] = {
            "op": [op for draft in drafts for op in draft.ops],
            "schema": [schema for draft in drafts for schema in draft.schemas],
            "key": [key for draft in drafts for key in draft.keys],
            "before": [before for draft in drafts for before in draft.befores],
            "after": [after for draft in drafts for after in draft.afters],
            "commit_time_us": [draft.commit_time_us for draft in drafts for _ in draft.ops],
        }
        return cls(first, size_bytes, cells)


class Chunk:
    """Consecutive changes `first`..`last` with the schemas that they refer to. Never empty, never changed.

    A chunk may be shared by many feeds; `memo` keeps what one of them computed from it for the others. It may be called
    from several threads: two may compute the same thing, one of the two results is kept. Nobody counts what is kept so:
    it must be small beside the chunk.
    """

    __slots__ = ("_count", "_held_bytes", "_memo", "_size_bytes", "batch", "first", "last", "picked", "schemas")

    def __init__(
        self,
        batch: pa.RecordBatch,
        schemas: Mapping[SchemaId, TableSchema],
        known: "Known | None" = None,
    ) -> None:
        """Take a batch; what is known of it need not be found out, which costs more than all else for one change."""
        self.batch = batch
        self.schemas = schemas
        self.picked: Hashable = None
        """By what its changes were picked, where some between first and last may be left out; None: all are here."""

        self._count: int = batch.num_rows
        self.first = Offset(batch.column(0)[0].as_py()) if known is None else known.first
        self.last = Offset(self.first + self._count - 1)
        self._size_bytes = None if known is None else known.size_bytes
        self._held_bytes = None if known is None else _CHUNK_BYTES + known.size_bytes
        self._memo: dict[Hashable, Any] = {}
        if known is not None and known.cells is not None:
            for name, cells in known.cells.items():
                self._memo["cells", name] = cells

    def __len__(self) -> int:
        return self._count

    @property
    def size_bytes(self) -> int:
        """Return how much memory the changes take, without memos."""
        if self._size_bytes is None:
            self._size_bytes = self.batch.nbytes
        return self._size_bytes

    @property
    def held_bytes(self) -> int:
        """Return about how much memory the chunk holds, without memos: of buffers of which it shows a part, all."""
        if self._held_bytes is None:
            self._held_bytes = _CHUNK_BYTES + self.batch.get_total_buffer_size()
        return self._held_bytes

    def offset_of(self, row: int) -> Offset:
        """Return the offset of a row."""
        return Offset(self.first + row)

    def offsets(self, rows: Sequence[int]) -> Sequence[int]:
        """Return the offsets of some rows; a range for a range."""
        first = self.first
        if isinstance(rows, range):
            return range(first + rows.start, first + rows.stop)
        return [first + row for row in rows]

    def row_after(self, offset: Offset) -> int:
        """Return the first row behind an offset, which is not beyond the last one; the count of rows for none."""
        return max(0, offset + 1 - self.first)

    def part(self, begin: int, count: int) -> "Chunk":
        """Return some consecutive rows, at least one, as a chunk that shows a part of the same memory."""
        return Chunk(self.batch.slice(begin, count), self.schemas)

    def remade(self, batch: pa.RecordBatch) -> "Chunk":
        """Return a chunk of the same changes in another form, row by row."""
        return Chunk(batch, self.schemas)

    def memo(self, key: Hashable, compute: Callable[["Chunk"], _T]) -> _T:
        """Return `compute(self)`, computed once for equal keys, as long as there are not very many different ones."""
        memo = self._memo
        if key in memo:
            return memo[key]  # type: ignore[no-any-return]
        if len(memo) >= _MEMO_MAX:
            self._memo = memo = {}  # another thread may still look into the old one
        return memo.setdefault(key, compute(self))  # type: ignore[no-any-return]

    def cells(self, name: str) -> list[Any]:
        """Return a column as Python values, made once for all who want them where the chunk is small."""
        kept: list[Any] | None = self._memo.get(("cells", name))
        if kept is None:
            kept = self.batch.column(name).to_pylist()
            if self._count <= _CELLS_CHANGES_MAX and self.size_bytes <= _CELLS_BYTES_MAX:
                self._memo["cells", name] = kept
        return kept

    def changes(self, rows: Sequence[int] | None = None) -> Iterator[Change]:
        """Yield the changes of the given rows, or all, one by one. For small batches; fast paths work on `batch`.

        Rows that are hidden from a reader have no operation: name only those that it wants.
        """
        batch = self.batch if rows is None else self.batch.take(pa.array(rows, pa.int64()))
        columns = [batch.column(name).to_pylist() for name in _CHANGE_COLUMNS]
        for offset, index, time_us, txid, op, schema, key, before, after in zip(*columns, strict=True):
            yield Change(offset, index, time_us, txid, Op(op), self.schemas[schema], key, before, after)


class PickedChunk(Chunk):
    """The changes between `first` and `last` that may be wanted by someone; there may be none.

    Whoever keeps something for a chunk by its first and last offset must tell those with another `picked` apart.
    """

    __slots__ = ("_offsets",)

    def __init__(
        self,
        batch: pa.RecordBatch,
        schemas: Mapping[SchemaId, TableSchema],
        first: Offset,
        last: Offset,
        picked: Hashable,
    ) -> None:
        super().__init__(batch, schemas, Known(first, batch.nbytes))
        self.last = last
        self.picked = picked
        self._offsets: Sequence[int] = _numbers(batch.column(0)) if len(self) else ()

    def offset_of(self, row: int) -> Offset:
        """Return the offset of a row."""
        return Offset(self._offsets[row])

    def offsets(self, rows: Sequence[int]) -> Sequence[int]:
        """Return the offsets of some rows."""
        offsets = self._offsets
        return [offsets[row] for row in rows]

    def row_after(self, offset: Offset) -> int:
        """Return the first row behind an offset; the count of rows for none."""
        return bisect_right(self._offsets, offset)

    def part(self, begin: int, count: int) -> Chunk:
        """Return some consecutive rows with all that was left out behind them, and before them where they are first."""
        end = min(begin + count, len(self))
        first = Offset(self._offsets[begin - 1] + 1) if begin else self.first
        last = Offset(self._offsets[end] - 1) if end < len(self) else self.last
        return PickedChunk(self.batch.slice(begin, end - begin), self.schemas, first, last, self.picked)

    def remade(self, batch: pa.RecordBatch) -> Chunk:
        """Return a chunk of the same changes in another form, row by row."""
        return PickedChunk(batch, self.schemas, self.first, self.last, self.picked)


def _numbers(column: pa.Array) -> memoryview:
    """Return 64-bit integers as they lie in memory."""
    values = memoryview(column.buffers()[1]).cast("B").cast("q")
    return values[column.offset : column.offset + len(column)]
