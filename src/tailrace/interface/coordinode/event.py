"""Commits to events: the parts of commits in a window of a chunk, and the messages that are made of them. Pure."""

from bisect import bisect_right
from collections.abc import Sequence

from msgspec import Struct, structs

from tailrace.delivery.grpc.call import prefixed
from tailrace.interface.coordinode.operation import NO_TYPES, Mapper
from tailrace.interface.coordinode.protobuf import bytes_field, number_field
from tailrace.interface.coordinode.token import ResumeToken, encode_token
from tailrace.model.chunk import Chunk
from tailrace.model.number import Index
from tailrace.subscription.restrict import HIDDEN

__all__ = ["WINDOW_CHANGES", "CommitSlice", "Stamp", "event_message", "parts_of", "progress_message", "segment_token"]

WINDOW_CHANGES = 512
"""This many changes are encoded in one go; everybody cuts chunks at the same places."""

_COLUMNS = ("op", "schema", "key", "before", "after", "index", "hlc", "migration")


class CommitSlice(Struct, frozen=True):
    """The changes of one commit that lie in one window; mostly all of them. `ends` tells that its last one does."""

    index: Index
    hlc: int
    migration: bool
    ends: bool
    ops: tuple[bytes, ...]
    """For each change its operations, as fields of a ChangeEvent; nothing for one that is not seen."""
    types: frozenset[str]
    """Edge types that they touch."""
    size_bytes: int

    def behind(self, changes: int) -> "CommitSlice":
        """Return what comes behind the first changes."""
        ops = self.ops[changes:]
        return structs.replace(self, ops=ops, size_bytes=sum(map(len, ops)))


class Stamp(Struct, frozen=True):
    """What an event tells of its commit besides the operations and the position."""

    shard: int
    term: int
    index: Index
    hlc: int
    migration: bool


def parts_of(chunk: Chunk, begin: int, mapper: Mapper) -> list[CommitSlice]:
    """Return the parts of commits in the window of a chunk that begins with row `begin`."""
    window = chunk.batch.slice(begin, WINDOW_CHANGES)
    columns = [window.column(name).to_pylist() for name in _COLUMNS]
    ends = window.column("position").is_valid().to_pylist()
    schemas = chunk.schemas
    parts: list[CommitSlice] = []
    ops: list[bytes] = []
    types: frozenset[str] = NO_TYPES
    last = len(ends) - 1
    for row, (op, schema, key, before, after, index, hlc, migration) in enumerate(zip(*columns, strict=True)):
        if op == HIDDEN:
            ops.append(b"")
        else:
            encoded, touched = mapper.operations(op, schemas[schema], key, before, after)
            ops.append(encoded)
            types |= touched
        if ends[row] or row == last:
            parts.append(CommitSlice(index, hlc, bool(migration), ends[row], tuple(ops), types, sum(map(len, ops))))
            ops, types = [], NO_TYPES
    return parts


def segment_token(shard: int, segments: Sequence[Index], following: Index) -> ResumeToken:
    """Return the place before the commit `following`, by the segment that holds the commit before it."""
    number = bisect_right(segments, following - 1) - 1
    if number < 0:
        return ResumeToken(shard, following, 0)
    return ResumeToken(shard, segments[number], following - segments[number])


def event_message(stamp: Stamp, ops: Sequence[bytes], position: ResumeToken) -> bytes:
    """Return a ChangeEvent, its length before it."""
    return prefixed(
        b"".join(
            [
                number_field(1, stamp.hlc),
                number_field(2, stamp.term),
                number_field(3, stamp.index),
                number_field(4, stamp.shard),
                number_field(5, stamp.migration),
                *ops,
                bytes_field(7, encode_token(position)),
            ]
        )
    )


def progress_message(shard: int, index: Index, position: ResumeToken) -> bytes:
    """Return an event that tells how far a filtered stream has read: no operations, timestamp or term."""
    return event_message(Stamp(shard, 0, index, 0, migration=False), (), position)
