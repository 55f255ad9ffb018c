"""Drafts to Arrow and back: the payload of a frame. Pure."""

import struct
import sys
from array import array
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import accumulate, chain
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.model.chunk import ENVELOPE
from tailrace.model.commit import CommitId, Draft
from tailrace.model.number import Index, Offset, Position, hlc_at

__all__ = ["conform", "encode_drafts", "gather", "last_commit", "measure", "owned", "pieces", "with_hlc"]

PIECE_CHANGES_MAX = 4096
PIECE_BYTES_MAX = 1024 * 1024
_JOINED_CHANGES_MIN = 512
_JOINED_BYTES_MIN = 128 * 1024
_pack = struct.Struct("=q").pack
_COUNTING_MAX = 16384
"""Frames of more changes are rare; their numbers are made one by one."""

_ROW_BYTES = 64
"""What a change takes in a frame besides its key and images, about."""


def measure(drafts: Sequence[Draft], schema_count: int) -> tuple[int, int]:
    """Return how many changes the drafts have, and about how many bytes they take in a frame.

    Raises:
        ValueError: They are such as only a bug can make: empty, ragged, with a schema that the log does not have, or a
            part of a commit together with others.
    """
    if not drafts:
        raise ValueError("an append needs at least one draft")
    if len(drafts) > 1 and not all(draft.whole for draft in drafts):
        raise ValueError("a part of a commit is appended alone")
    changes = size_bytes = 0
    for draft in drafts:
        schemas, keys, befores, afters = draft.schemas, draft.keys, draft.befores, draft.afters
        count = len(draft.ops)
        if not count == len(schemas) == len(keys) == len(befores) == len(afters) or not count:
            raise ValueError("a draft needs changes, and columns of one length")
        changes += count
        if count == 1:
            least = most = schemas[0]
            size_bytes += len(keys[0]) + len(befores[0] or b"") + len(afters[0] or b"")
        else:
            least, most = (schemas[0], schemas[0]) if _alike(schemas) else (min(schemas), max(schemas))
            size_bytes += sum(map(len, keys)) + _bytes_of(befores) + _bytes_of(afters)
        if least < 1 or most > schema_count:
            raise ValueError("a draft refers to a schema that was not put")
    return changes, size_bytes + changes * _ROW_BYTES


def _alike(values: Sequence[Any]) -> bool:
    """Tell whether all values are the same. Quicker than anything else that looks at each, and mostly they are."""
    return values.count(values[0]) == len(values)


def _bytes_of(images: Sequence[bytes | None]) -> int:
    absent = images.count(None)
    if absent == len(images):
        return 0
    return sum(map(len, filter(None, images) if absent else images))  # type: ignore[arg-type]


def encode_drafts(
    drafts: Sequence[Draft], first_offset: Offset, first_index: Index, first_hlc: int = 1
) -> pa.RecordBatch:
    """Return the record batch of whole commits, numbered from the given offset, index and hybrid timestamp."""
    counts = [len(draft.ops) for draft in drafts]
    total = sum(counts)
    integer, binary = pa.int64(), pa.binary()
    columns = [
        _numbers(first_offset, total),
        _fixed(integer, total, _repeated(range(first_index, first_index + len(drafts)), counts)),
        _fixed(integer, total, _repeated([draft.commit_time_us for draft in drafts], counts)),
        _fixed(integer, total, _repeated([draft.txid for draft in drafts], counts)),
        _fixed(pa.int8(), total, _ops(_joined([draft.ops for draft in drafts]))),
        _fixed(pa.int32(), total, _schemas(_joined([draft.schemas for draft in drafts]))),
        pa.array(_joined([draft.keys for draft in drafts]), binary, size=total),
        pa.array(_joined([draft.befores for draft in drafts]), binary, size=total),
        pa.array(_joined([draft.afters for draft in drafts]), binary, size=total),
        pa.array(_positions(drafts, counts), pa.utf8(), size=total),
        _fixed(integer, total, _repeated(range(first_hlc, first_hlc + len(drafts)), counts)),
        _migrations(drafts, counts, total),
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


def with_hlc(batch: pa.RecordBatch, append_time_us: int) -> pa.RecordBatch:
    """Return a frame's batch with a timestamp for each commit, also where an older version gave none.

    Such a commit has the time of its append, raised by its index: times of append never fall and indexes rise, so the
    timestamps rise strictly from commit to commit.
    """
    place = ENVELOPE.get_field_index("hlc")
    if not batch.column(place).null_count:
        return batch
    derived = pc.add(batch.column("index"), pa.scalar(hlc_at(append_time_us), pa.int64()))
    return batch.set_column(place, ENVELOPE.field(place), derived)


def owned(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a copy of a batch, which holds nothing else. A slice holds all of what it was cut from."""
    return pa.concat_batches([batch])


def gather(batches: Sequence[tuple[pa.RecordBatch, int]], *, lent: bool = False) -> Iterator[pa.RecordBatch]:
    """Yield the changes of a block in batches that are worth sharing, each of which holds its own memory alone.

    Given are the batches of its frames with their sizes, all of which show parts of the block's bytes. Small neighbours
    are joined, large ones cut. Those that are `lent` may go on to show the block's bytes: nothing is copied for that.
    """
    run: list[pa.RecordBatch] = []
    changes = size_bytes = 0
    for batch, batch_bytes in batches:
        if batch.num_rows >= _JOINED_CHANGES_MIN or batch_bytes >= _JOINED_BYTES_MIN:
            if run:
                yield pa.concat_batches(run)
            yield from pieces(batch, batch_bytes) if lent else map(owned, pieces(batch, batch_bytes))
            run, changes, size_bytes = [], 0, 0
            continue
        run.append(batch)
        changes += batch.num_rows
        size_bytes += batch_bytes
        if changes >= _JOINED_CHANGES_MIN or size_bytes >= _JOINED_BYTES_MIN:
            yield pa.concat_batches(run)
            run, changes, size_bytes = [], 0, 0
    if run:
        yield pa.concat_batches(run)


def pieces(batch: pa.RecordBatch, size_bytes: int) -> list[pa.RecordBatch]:
    """Return the batch in pieces that are worth sharing: bounded in changes and, if changes are alike, in bytes.

    Where there are several, they are slices: whoever keeps one of them should make it `owned`.
    """
    rows = batch.num_rows
    if rows <= PIECE_CHANGES_MAX and size_bytes <= 2 * PIECE_BYTES_MAX:
        return [batch]
    step = max(1, min(PIECE_CHANGES_MAX, rows * PIECE_BYTES_MAX // size_bytes))
    return [batch.slice(begin, step) for begin in range(0, rows, step)]


def last_commit(batch: pa.RecordBatch) -> CommitId | None:
    """Return the last commit in a batch of whole commits."""
    position: str | None = batch.column("position")[batch.num_rows - 1].as_py()
    return None if position is None else CommitId(Position(position), batch.column("txid")[batch.num_rows - 1].as_py())


def _positions(drafts: Sequence[Draft], counts: Sequence[int]) -> list[str | None]:
    """Return each commit's position at its last change and None at the others."""
    positions: list[str | None] = [None] * sum(counts)
    for draft, end in zip(drafts, accumulate(counts), strict=True):
        positions[end - 1] = None if draft.more else draft.position
    return positions


def _migrations(drafts: Sequence[Draft], counts: Sequence[int], total: int) -> pa.Array:
    """Return for each change whether its commit moves data. Mostly none does: then it is zeros."""
    if not any(draft.migration for draft in drafts):
        return _fixed(pa.bool_(), total, bytes((total + 7) // 8))
    marks = [[draft.migration] * count for draft, count in zip(drafts, counts, strict=True)]
    return pa.array(_joined(marks), pa.bool_(), size=total)


def _repeated(values: Sequence[int], counts: Sequence[int]) -> "array[int] | bytes":
    """Return each value as often as its count says, as 64-bit integers."""
    if len(counts) == sum(counts):
        return array("q", values)
    return b"".join([_pack(value) * count for value, count in zip(values, counts, strict=True)])


def _numbers(first: int, count: int) -> pa.Array:
    """Return consecutive numbers."""
    if count > _COUNTING_MAX:
        return _fixed(pa.int64(), count, array("q", range(first, first + count)))
    return pc.add(_counting().slice(0, count), pa.scalar(first, pa.int64()))


@cache
def _counting() -> pa.Array:
    return _fixed(pa.int64(), _COUNTING_MAX, array("q", range(_COUNTING_MAX)))


def _schemas(numbers: list[int]) -> "array[int] | bytes":
    """Return the numbers of schemas as 32-bit integers; mostly they are all the same."""
    return numbers[0].to_bytes(4, sys.byteorder) * len(numbers) if _alike(numbers) else array("i", numbers)


def _ops(numbers: list[int]) -> bytes:
    return bytes(numbers[:1]) * len(numbers) if _alike(numbers) else bytes(numbers)


def _joined(lists: Sequence[list[Any]]) -> list[Any]:
    return lists[0] if len(lists) == 1 else list(chain.from_iterable(lists))


def _fixed(kind: pa.DataType, count: int, values: "array[int] | bytes") -> pa.Array:
    return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(values)])
