"""Small logs for tests: made without threads, read back as plain tuples."""

from collections.abc import Sequence

from tailrace.clock import Clock
from tailrace.log.files import Files
from tailrace.log.hybrid import HybridClock
from tailrace.log.options import LogOptions
from tailrace.log.recover import examine, recover
from tailrace.log.schemas import Schemas
from tailrace.log.segments import Segments
from tailrace.log.writer import Stored, Writer, encode_frame
from tailrace.model.chunk import Chunk
from tailrace.model.commit import Draft
from tailrace.model.number import Offset, Position, SchemaId
from tailrace.model.op import Op
from tailrace.model.table import Column, Kind, TableName, TableSchema
from tailrace.testing.clock import FakeClock
from tailrace.testing.source import in_parts

SCHEMA = TableSchema(TableName("app", "orders"), 1, (Column("id", Kind.I64), Column("note", Kind.STR)), ("id",))
SMALL = LogOptions(zero_ahead_bytes=512, retention_bytes=None, retention_age_s=None)

Row = tuple[int, int, bytes, bytes | None, str | None]
"""Offset, index, key, after image, position."""


def draft(number: int, changes: int = 1, note: str = "n") -> Draft:
    """Return a commit whose position and keys tell its number."""
    made = Draft(Position(f"p{number}"), 1_700_000_000_000_000 + number, number)
    for change in range(changes):
        after = None if change % 3 == 2 else b'{"id":%d,"note":"%s"}' % (change, note.encode())
        made.add(Op.INSERT if after else Op.DELETE, SchemaId(1), b"[%d,%d]" % (number, change), after=after)
    return made


def parts_of(whole: Draft, count: int) -> list[Draft]:
    """Return a commit in about so many parts."""
    return in_parts(whole, -(-len(whole) // count))


def rows_of(drafts: Sequence[Draft]) -> list[Row]:
    """Return what a log that holds these commits from the beginning must give back."""
    rows: list[Row] = []
    for index, one in enumerate(drafts, 1):
        for change, (key, after) in enumerate(zip(one.keys, one.afters, strict=True), 1):
            rows.append((len(rows) + 1, index, key, after, one.position if change == len(one) else None))
    return rows


def rows_in(chunk: Chunk) -> list[Row]:
    names = ("offset", "index", "key", "after", "position")
    return list(zip(*(chunk.batch.column(name).to_pylist() for name in names), strict=True))


def contents(files: Files) -> list[Row]:
    """Return everything in a log, without changing it."""
    found = examine(files)
    schemas = Schemas(files)
    schemas.load()
    segments = Segments(files, schemas.known)
    segments.replace(found.segments, found.sparse, found.end)
    rows: list[Row] = []
    after = found.segments[0].first_offset - 1 if found.segments else 0
    while after < found.head:
        for chunk in segments.load(Offset(after + 1)):
            rows += rows_in(chunk)
            after = chunk.last
    return rows


def hlcs_of(files: Files) -> dict[int, int]:
    """Return the timestamp of each commit by its index."""
    found = examine(files)
    segments = Segments(files, {1: SCHEMA})
    segments.replace(found.segments, found.sparse, found.end)
    stamps: dict[int, int] = {}
    after = found.segments[0].first_offset - 1 if found.segments else 0
    while after < found.head:
        for chunk in segments.load(Offset(after + 1)):
            columns = (chunk.batch.column(name).to_pylist() for name in ("index", "hlc"))
            stamps |= zip(*columns, strict=True)
            after = chunk.last
    return stamps


class PlainLog:
    """A log that is written in the calling thread."""

    def __init__(self, files: Files, options: LogOptions = SMALL, clock: Clock | None = None) -> None:
        self.clock = clock or FakeClock()
        self.schemas = Schemas(files)
        self.schemas.recover()
        self.found = recover(files)
        self.hybrid = HybridClock(self.found.hlc)
        self.writer = Writer(files, options, self.clock, self.found)
        self.schemas.put(SCHEMA)
        self._hlc = 0

    def append(self, *drafts: Draft) -> Stored:
        writer = self.writer
        now_us = self.clock.now_us()
        part = drafts[0].part
        self._hlc = self._hlc if part else self.hybrid.take(len(drafts), now_us)
        offset = writer.next_offset if part else writer.whole_offset
        frame = encode_frame(drafts, offset, writer.next_index, now_us, self._hlc)
        return writer.store(frame)
