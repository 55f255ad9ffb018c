"""A log in memory that satisfies what subscriptions read, for tests without a disk."""

import asyncio
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import pyarrow as pa

from tailrace.log.hybrid import HybridClock
from tailrace.log.schemas import numbered
from tailrace.model.chunk import ENVELOPE, Chunk
from tailrace.model.commit import Appended, CommitId, Draft
from tailrace.model.errors import BehindHorizonError, BeyondHeadError, LogClosedError
from tailrace.model.number import Index, Offset, Position, SchemaId
from tailrace.model.table import TableName, TableSchema
from tailrace.model.wanted import Wanted

__all__ = ["MemoryLog"]

_T = TypeVar("_T")


class MemoryLog:
    """Keeps each append as one chunk. `forget_before` moves the horizon by hand, exactly, also inside a chunk."""

    def __init__(self, hybrid: HybridClock | None = None) -> None:
        self.hybrid = hybrid or HybridClock()
        self.floor: Offset | None = None
        self._floors: dict[str, Offset | None] = {}
        self.commits = self
        self.head = Offset(0)
        self.horizon = Offset(1)
        self.last_index = Index(0)
        self.position: Position | None = None
        self.last_commit: CommitId | None = None
        self._chunks: list[Chunk] = []
        self._parts: list[pa.RecordBatch] = []
        self._hlc = 0
        self._schemas: dict[SchemaId, TableSchema] = {}
        self._grown = asyncio.Event()
        self._listeners: list[Callable[[], None]] = []
        self._closed = False

    async def append(self, drafts: Sequence[Draft]) -> Appended:
        """Number the changes of the drafts and keep them as one chunk; a part of a commit until its last has come."""
        if not drafts[0].part:
            self._parts.clear()
        first_offset = Offset(self.head + 1 + sum(chunk.num_rows for chunk in self._parts))
        first_index = Index(self.last_index + 1)
        columns: list[list[object]] = [[] for _ in ENVELOPE]
        offset = first_offset
        for index, draft in enumerate(drafts, first_index):
            self._hlc = self._hlc if draft.part else self.hybrid.take(1, draft.commit_time_us)
            positions = [None] * (len(draft) - 1) + [None if draft.more else draft.position]
            rows = zip(draft.ops, draft.schemas, draft.keys, draft.befores, draft.afters, positions, strict=True)
            for op, schema, key, before, after, position in rows:
                row = (offset, index, draft.commit_time_us, draft.txid)
                commit = (position, self._hlc, draft.migration)
                offset = Offset(offset + 1)
                for column, cell in zip(columns, (*row, op, schema, key, before, after, *commit), strict=True):
                    column.append(cell)
        arrays = [pa.array(column, field.type) for column, field in zip(columns, ENVELOPE, strict=True)]
        self._parts.append(pa.record_batch(arrays, schema=ENVELOPE))
        appended = Appended(first_index, first_offset, Index(self.last_index + len(drafts)), Offset(offset - 1))
        if not drafts[-1].more:
            self._chunks += [Chunk(part, self._schemas) for part in self._parts]
            self._parts.clear()
            self.head, self.last_index = appended.last_offset, appended.last_index
            self.position = drafts[-1].position
            self.last_commit = CommitId(drafts[-1].position, drafts[-1].txid)
            self._wake()
        return appended

    def abandon(self) -> None:
        """Forget the parts of a commit whose last part has not come."""
        self._parts.clear()

    async def progress(self, position: Position, *, durable: bool) -> None:
        """Note the position; nothing here is durable."""
        del durable
        self.position = position
        self._wake()

    @property
    def segment_indexes(self) -> Sequence[Index]:
        """Return the first index of all, as if there were one segment."""
        return [Index(1)] if self._chunks else []

    @property
    def hlc_complete(self) -> int:
        """Return a hybrid timestamp up to which no commit will come any more."""
        return self.hybrid.last

    async def first_index(self) -> Index:
        """Return the index of the oldest commit of which all changes can be read."""
        if self.horizon > self.head:
            return Index(self.last_index + 1)
        indexes = self._indexes()
        index = indexes[self.horizon]
        return Index(index + 1 if indexes.get(Offset(self.horizon - 1)) == index else index)

    async def offset_before(self, index: Index) -> Offset:
        """Return the offset after which a commit begins."""
        if index > self.last_index + 1:
            raise BeyondHeadError(requested=index, head=self.last_index)
        if index == self.last_index + 1:
            return self.head
        first = min((offset for offset, found in self._indexes().items() if found == index), default=Offset(0))
        if first < self.horizon:
            raise BehindHorizonError(requested=first, horizon=self.horizon)
        return Offset(first - 1)

    async def index_after_hlc(self, hlc: int) -> Index | None:
        """Return the index of the first commit with a larger timestamp; None where that one is gone."""
        for chunk in self._chunks:
            for index, stamp in zip(*(chunk.batch.column(n).to_pylist() for n in ("index", "hlc")), strict=True):
                if stamp > hlc:
                    return None if index < await self.first_index() else Index(index)
        return Index(self.last_index + 1)

    async def size_after(self, offset: Offset) -> int:
        """Return a hundred bytes for each change that follows."""
        return 100 * (self.head - offset)

    def hold(self, floor: Offset | None, *, holder: str = "") -> None:
        """Note the floor; `forget_before` minds the lowest of all holders."""
        self._floors[holder] = floor
        self.floor = min((one for one in self._floors.values() if one is not None), default=None)

    async def put_schema(self, schema: TableSchema) -> SchemaId:
        """Keep a schema version; the same version gives the same number."""
        for number, known in self._schemas.items():
            if known == schema:
                return number
        number = SchemaId(len(self._schemas) + 1)
        self._schemas[number] = schema
        return number

    async def put_schemas(self, history: Sequence[TableSchema]) -> list[tuple[SchemaId, TableSchema]]:
        """Keep versions of one table's schema, numbered as the log does it."""
        known = [schema for schema in self._schemas.values() if schema.table == history[0].table]
        return [(await self.put_schema(schema), schema) for schema in numbered(known, history)]

    def latest_schema(self, table: TableName) -> tuple[SchemaId, TableSchema] | None:
        """Return the newest known version of a table's schema."""
        versions = [(number, schema) for number, schema in self._schemas.items() if schema.table == table]
        return max(versions, key=lambda version: version[1].version, default=None)

    def schemas(self) -> Mapping[SchemaId, TableSchema]:
        """Return all known schema versions."""
        return self._schemas

    async def read(self, after: Offset, wanted: Callable[[], Wanted | None] | None = None) -> Chunk | None:
        """Return the chunk that holds the change following `after`; None when that is the head."""
        del wanted
        self._check(after)
        if after == self.head:
            return None
        return self._chunks[bisect_right(self._chunks, after + 1, key=lambda chunk: chunk.first) - 1]

    async def skip(self, after: Offset, wanted: Callable[[], Wanted | None]) -> Offset:
        """Return `after`: nothing is known of chunks but what is in them."""
        del wanted
        self._check(after)
        return after

    def _check(self, after: Offset) -> None:
        if after + 1 < self.horizon:
            raise BehindHorizonError(requested=after + 1, horizon=self.horizon)
        if after > self.head:
            raise BeyondHeadError(requested=after, head=self.head)

    async def read_run(self, after: Offset, through: Offset, take: Callable[[Sequence[Chunk]], _T]) -> _T:
        """Return what `take` makes of the chunk that holds the change following `after`."""
        if through > self.head:
            raise BeyondHeadError(requested=through, head=self.head)
        chunk = await self.read(after)
        assert chunk is not None
        return await asyncio.to_thread(take, [chunk])

    async def lend(
        self, after: Offset, through: Offset, bytes_max: int, take: Callable[[Sequence[Chunk]], _T]
    ) -> list[_T]:
        """Return what `take` makes of the chunk that holds the change following `after`, up to `through`."""
        del bytes_max

        def taken(chunks: Sequence[Chunk]) -> list[_T]:
            return [
                take([chunk if chunk.last <= through else chunk.part(0, through - chunk.first + 1) for chunk in chunks])
            ]

        return await self.read_run(after, through, taken)

    def run_behind(self, after: Offset, bytes_max: int) -> Offset | None:
        """Return None: nothing is known of what `lend` gives."""
        del after, bytes_max
        return None

    def recent(self, after: Offset) -> Chunk | None:
        """Return the chunk that holds the change after `after`; None where there is none."""
        if self._closed or not self.horizon <= after + 1 <= self.head:
            return None
        return next(chunk for chunk in reversed(self._chunks) if chunk.first <= after + 1)

    def listen(self, grown: Callable[[], None]) -> Callable[[], None]:
        """Have `grown` called each time the head has moved, and at the end; return what ends that."""
        self._listeners.append(grown)
        return lambda: self._listeners.remove(grown)

    async def wait(self, after: Offset, timeout_s: float) -> bool:
        """Return True as soon as the head is beyond `after`, False when that took too long."""
        try:
            async with asyncio.timeout(timeout_s):
                while self.head <= after and not self._closed:
                    await self._grown.wait()
        except TimeoutError:
            return False
        if self._closed:
            raise LogClosedError("the log was closed")
        return True

    async def wait_position(self, known: Position | None, timeout_s: float) -> bool:
        """Return True as soon as the position is another one, False when that took too long."""
        try:
            async with asyncio.timeout(timeout_s):
                while self.position == known and not self._closed:
                    await self._grown.wait()
        except TimeoutError:
            return False
        if self._closed:
            raise LogClosedError("the log was closed")
        return True

    def forget_before(self, horizon: Offset) -> None:
        """Make `horizon` the oldest change that can be read."""
        assert self.horizon <= horizon <= self.head + 1
        self.horizon = horizon if self.floor is None else max(self.horizon, min(horizon, self.floor))

    async def close(self) -> None:
        """End all waits."""
        self._closed = True
        self._wake()

    def _indexes(self) -> dict[Offset, Index]:
        columns = [chunk.batch.select(["offset", "index"]).to_pydict() for chunk in self._chunks]
        return {o: i for column in columns for o, i in zip(column["offset"], column["index"], strict=True)}

    def _wake(self) -> None:
        grown, self._grown = self._grown, asyncio.Event()
        grown.set()
        for listener in self._listeners:
            listener()
