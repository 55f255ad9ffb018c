"""Drafts to Arrow and back: the payload of a frame. Pure."""

from array import array
from collections.abc import Sequence
from itertools import chain
from typing import Any

import pyarrow as pa

from tailrace.model.chunk import ENVELOPE
from tailrace.model.commit import Draft
from tailrace.model.number import Index, Offset, Position

__all__ = ["conform", "draft_bytes", "encode_drafts", "join", "last_position", "pieces"]

PIECE_CHANGES_MAX = 4096
PIECE_BYTES_MAX = 1024 * 1024
_ROW_BYTES = 64
"""What a change takes in a frame besides its key and images, about."""


def draft_bytes(draft: Draft) -> int:
    """Return about how many bytes a draft takes in a frame."""
    images = sum(map(len, filter(None, draft.befores))) + sum(map(len, filter(None, draft.afters)))
    return images + sum(map(len, draft.keys)) + len(draft) * _ROW_BYTES


def encode_drafts(drafts: Sequence[Draft], first_offset: Offset, first_index: Index) -> pa.RecordBatch:
    """Return the record batch of whole commits, numbered from the given offset and index."""
    counts = [len(draft) for draft in drafts]
    total = sum(counts)
    indexes, times, txids = array("q"), array("q"), array("q")
    positions: list[str | None] = [None] * total
    end = 0
    for number, (draft, count) in enumerate(zip(drafts, counts, strict=True)):
        indexes.extend(array("q", [first_index + number]) * count)
        times.extend(array("q", [draft.commit_time_us]) * count)
        txids.extend(array("q", [draft.txid]) * count)
        end += count
        positions[end - 1] = draft.position
    columns = [
        _fixed(pa.int64(), total, array("q", range(first_offset, first_offset + total))),
        _fixed(pa.int64(), total, indexes),
        _fixed(pa.int64(), total, times),
        _fixed(pa.int64(), total, txids),
        _fixed(pa.int8(), total, bytes(_joined([draft.ops for draft in drafts]))),
        _fixed(pa.int32(), total, array("i", _joined([draft.schemas for draft in drafts]))),
        pa.array(_joined([draft.keys for draft in drafts]), pa.binary(), size=total),
        pa.array(_joined([draft.befores for draft in drafts]), pa.binary(), size=total),
        pa.array(_joined([draft.afters for draft in drafts]), pa.binary(), size=total),
        pa.array(positions, pa.utf8(), size=total),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=ENVELOPE)


def conform(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the batch with exactly today's columns: those that an older segment lacks are null."""
    if batch.schema.equals(ENVELOPE):
        return batch
    have = set(batch.schema.names)
    columns = [
        batch.column(field.name) if field.name in have else pa.nulls(batch.num_rows, field.type) for field in ENVELOPE
    ]
    return pa.RecordBatch.from_arrays(columns, schema=ENVELOPE)


def join(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Return consecutive batches as one. Copies, unless there is just one."""
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def pieces(batch: pa.RecordBatch, size_bytes: int) -> list[pa.RecordBatch]:
    """Return the batch in pieces that are worth sharing: bounded in changes and, if changes are alike, in bytes."""
    rows = batch.num_rows
    if rows <= PIECE_CHANGES_MAX and size_bytes <= 2 * PIECE_BYTES_MAX:
        return [batch]
    step = max(1, min(PIECE_CHANGES_MAX, rows * PIECE_BYTES_MAX // size_bytes))
    return [batch.slice(begin, step) for begin in range(0, rows, step)]


def last_position(batch: pa.RecordBatch) -> Position | None:
    """Return the position of the last commit in a batch of whole commits."""
    position: str | None = batch.column("position")[batch.num_rows - 1].as_py()
    return None if position is None else Position(position)


def _joined(lists: Sequence[list[Any]]) -> list[Any]:
    return lists[0] if len(lists) == 1 else list(chain.from_iterable(lists))


def _fixed(kind: pa.DataType, count: int, values: "array[int] | bytes") -> pa.Array:
    return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(values)])
