"""A snapshot: the rows that a table has, at one offset of the log, as a subscription wants them.

The rows are those of one transaction. They contain every commit up to some position and none after it, and the offset
is that of the last change up to there: changes after the offset are exactly those that the rows do not have.
"""

import asyncio
from collections.abc import Sequence
from itertools import compress

import pyarrow as pa
from msgspec import Struct

from tailrace.clock import Clock
from tailrace.model.commit import CommitId
from tailrace.model.errors import SourceUnavailableError
from tailrace.model.number import Offset, Position, SchemaId
from tailrace.model.op import Op
from tailrace.model.table import TableName, TableSchema
from tailrace.source.base import Barrier, QuerySource, SnapshotRows, TablePage, TableSnapshot
from tailrace.subscription.filter import Changes, Filter, RowFilter
from tailrace.subscription.query.tracker import QueryLog
from tailrace.subscription.restrict import Restriction

__all__ = ["ReadRows", "Snapshot", "offset_of", "reach"]

_TIMEOUT_S = 30.0
"""Longest wait for capture to fit the schema, and for the log to have what the rows contain."""

_ATTEMPTS_MAX = 50
"""So often rows are copied again that contain a part of a commit."""

_SCHEMA = SchemaId(1)


class ReadRows(Struct, frozen=True):
    """Some rows that the subscription wants: keys and images in their natural JSON form."""

    offset: Offset
    time_us: int
    """When the rows were read."""

    schema: TableSchema
    keys: list[bytes]
    images: list[bytes]


class Snapshot:
    """The rows of one table for one feed, those that may be seen and that `wanted` lets pass as inserts. For one task.

    Nothing is read before `ready` is first called.
    """

    def __init__(
        self,
        source: QuerySource,
        log: QueryLog,
        table: TableName,
        wanted: Filter,
        clock: Clock,
        restriction: Restriction | None = None,
    ) -> None:
        self.count = 0
        """Rows handed out."""

        self._source = source
        self._log = log
        self._table = table
        self._wanted = wanted
        self._restriction = restriction
        self._clock = clock
        self._time_us = 0
        self._opening: asyncio.Task[None] | None = None
        self._rows: TableSnapshot | None = None
        self._filter: RowFilter | None = None
        self._offset = Offset(0)

    @property
    def offset(self) -> Offset:
        """Return where the rows belong, once they are ready."""
        return self._offset

    async def ready(self, timeout_s: float) -> bool:
        """Wait until the rows can be had; tell whether they can.

        Raises:
            UnknownTableError: There is no such table any more.
            PredicateError: The table no longer has what the filter asks for.
            SourceUnavailableError: The database cannot be reached, or the log did not follow in time.
        """
        if self._opening is None:
            self._opening = asyncio.create_task(self._open())
        if not self._opening.done():
            await asyncio.wait([self._opening], timeout=timeout_s)
        if self._opening.done():
            self._opening.result()
        return self._opening.done()

    async def next(self) -> ReadRows | None:
        """Return the next rows, perhaps none of them wanted; None when there are no more. Only when `ready`.

        Raises:
            PredicateError: A predicate failed on a row.
            PermissionDeniedError: What the reader may see of the table is unknown.
        """
        assert self._rows is not None
        assert self._filter is not None
        rows = await self._rows.rows()
        if rows is None:
            return None
        if self._restriction is not None:
            rows = _seen(rows, self._restriction.visible(rows.images, self._rows.schema))
        if self._filter.costly:
            passing = await asyncio.to_thread(_passing, rows, self._filter)
        else:
            passing = _passing(rows, self._filter)
        self.count += len(passing)
        keys, images = [rows.keys[row] for row in passing], [rows.images[row] for row in passing]
        return ReadRows(self._offset, self._time_us, self._rows.schema, keys, images)

    def close(self) -> None:
        """Let go of the rows. It is not used after that."""
        if self._opening is not None and not self._opening.cancel() and not self._opening.cancelled():
            self._opening.exception()  # nobody else may ask for it
        if self._rows is not None:
            self._rows.close()

    async def _open(self) -> None:
        for _ in range(_ATTEMPTS_MAX):
            self._time_us = self._clock.now_us()
            rows = self._rows = await self._source.snapshot(self._table, _TIMEOUT_S)
            self._filter = self._wanted.compile(rows.schema)
            await reach(rows.barrier, self._source, self._log)
            offset = await offset_of(rows, self._log)
            if offset is not None:
                self._offset = offset
                return
            rows.close()
        raise SourceUnavailableError("the table changes too quickly for a consistent page of rows: try again later")


async def reach(barrier: Barrier, source: QuerySource, log: QueryLog) -> None:
    """Wait until the log has what rows with this barrier contain.

    Raises:
        SourceUnavailableError: It did not follow in time.
    """
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + _TIMEOUT_S
    while not source.reached(barrier, position := log.position):
        left_s = deadline_s - loop.time()
        if left_s <= 0:
            raise SourceUnavailableError("the log does not have yet what the rows contain: try again later")
        await log.wait_position(position, left_s)


async def offset_of(rows: TableSnapshot | TablePage, log: QueryLog) -> Offset | None:
    """Return the offset of the last change that rows contain, in a log that has all of those.

    Where a source does not see how transactions follow each other, it makes one commit of several. None when the rows
    contain a part of such a one.

    Raises:
        SourceUnavailableError: Retention has removed the place.
    """
    last, newest = log.head, log.last_commit
    if newest is None or rows.contains(newest):
        return last
    while last >= log.horizon:
        chunk = await log.read(Offset(last - 1))
        assert chunk is not None
        found = _last_contained(chunk.batch.slice(0, last - chunk.first + 1), rows)
        if found is not None:
            row, commit = found
            return Offset(chunk.first + row) if rows.complete(commit) else None
        last = Offset(chunk.first - 1)
    if last == 0:
        return last if rows.complete(None) else None
    raise SourceUnavailableError("retention removed changes faster than the rows were copied: try again later")


def _last_contained(batch: pa.RecordBatch, rows: TableSnapshot | TablePage) -> tuple[int, CommitId] | None:
    """Return the number of the last change whose commit the rows contain, and that commit."""
    positions: list[str | None] = batch.column("position").to_pylist()
    for row in reversed(range(len(positions))):
        position = positions[row]
        if position is None:
            continue
        commit = CommitId(Position(position), batch.column("txid")[row].as_py())
        if rows.contains(commit):
            return row, commit
    return None


def _seen(rows: SnapshotRows, seen: Sequence[bool]) -> SnapshotRows:
    """Return the rows that may be seen."""
    return SnapshotRows(list(compress(rows.keys, seen)), list(compress(rows.images, seen)))


def _passing(rows: SnapshotRows, wanted: RowFilter) -> Sequence[int]:
    """Return the rows that would pass if they were inserted now."""
    count = len(rows.keys)
    inserted = Changes([Op.INSERT] * count, [_SCHEMA] * count, rows.keys, [None] * count, rows.images)
    return wanted.narrow(inserted, range(count))
