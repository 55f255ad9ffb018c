"""Waking feeds when there is something for them.

Each new change of a log is evaluated once for all feeds that wait, by the filter index, and wakes those that it
concerns. So a change costs what its subscribers cost, however many others wait. Few changes are evaluated as soon as
the log has them, before any task runs: their feeds are then the next to run. Many, and what takes long, are left to a
task (`Wake.run`) that lets others have their turn.
"""

import asyncio
import logging
from collections.abc import Iterator, Sequence
from time import monotonic
from typing import overload

import pyarrow.compute as pc

from tailrace.clock import Clock
from tailrace.model.chunk import Chunk
from tailrace.model.errors import BehindHorizonError, LogClosedError, LogError, PredicateError
from tailrace.model.number import Offset, SchemaId
from tailrace.model.table import ANY_TABLE, TableName, TableSchema
from tailrace.subscription.feed_batch import Evaluator
from tailrace.subscription.filter import Changes, Filter, RowFilter
from tailrace.subscription.index import FilterIndex, Match
from tailrace.subscription.lag import Lags
from tailrace.subscription.log_view import LogView
from tailrace.subscription.watch import FeedWatch
from tailrace.subscription.window import window_of

__all__ = ["Wake"]

logger = logging.getLogger(__name__)

_AT_ONCE_CHANGES = 64
"""Up to this many changes are evaluated as soon as they come."""

_MEASURE_EVERY_S = 1.0
"""Shortest time between two looks at the age of the newest change."""

_TURN_S = 0.005
"""So long filters are evaluated in one go; then others have their turn."""

_TURN_WATCHES = 256
"""This many filters are compiled again in one go; then others have their turn."""


class Wake:
    """Tells the feeds of one log what is new for them. For tasks of one event loop."""

    def __init__(self, log: LogView, clock: Clock) -> None:
        self.scanned = log.head
        """Up to here all changes were evaluated for the watches that were there."""

        self.closed = False
        self.lags = Lags(clock)
        self.evaluator = Evaluator()
        self._clock = clock
        self._measure_due_s = 0.0
        self._log = log
        self._index: FilterIndex[FeedWatch] = FilterIndex()
        self._left = asyncio.Event()
        """Set when there is something for the task to do."""

        self._unfinished: tuple[Iterator[Match[FeedWatch] | None], Chunk] | None = None
        """What was begun at once and took too long."""

        self._scanning = False
        self._versions: dict[TableName, SchemaId] = {}
        self._compiled: dict[TableName, int] = {}
        """How many watches have a filter that depends on the schema of a table."""

    async def run(self) -> None:
        """Wake feeds as the log grows, until it is closed or this task is cancelled; then wake all for ever."""
        end = self._log.listen(self._grown)
        self._left.set()
        try:
            while True:
                await self._left.wait()
                self._left.clear()
                self._scanning = True
                await self._log.wait(self.scanned, 0.0)  # which tells whether it is closed
                await self._scan()
                self._scanning = False
        except LogClosedError:
            logger.info("log closed: its feeds end")
        finally:
            end()
            self.closed = True
            for watch in self._index:
                watch.wake()

    def add(self, watch: FeedWatch) -> None:
        """Evaluate all changes after `scanned` for a watch."""
        watch.since = self.scanned
        table = _table_compiled_for(watch.filter)
        if table is not None and watch not in self._index:
            self._compiled[table] = self._compiled.get(table, 0) + 1
        self._index.add(watch, self._row_filter(watch.filter, table))

    def remove(self, watch: FeedWatch) -> None:
        """Evaluate nothing more for a watch; one that was not added is none to remove."""
        if watch not in self._index:
            return
        self._index.remove(watch)
        table = _table_compiled_for(watch.filter)
        if table is not None:
            self._compiled[table] -= 1
            if not self._compiled[table]:
                del self._compiled[table]
                self._versions.pop(table, None)

    def _grown(self) -> None:
        """Evaluate what has just come, if that is little; leave it to the task otherwise."""
        self.lags.grown(self._log.head)
        self._measure()
        if self._scanning or self._unfinished is not None or not self._scan_at_once():
            self._left.set()

    def _scan_at_once(self) -> bool:
        head = self._log.head
        if head - self.scanned > _AT_ONCE_CHANGES or head == self.scanned:
            return False  # the same head: the log was closed
        if not self._index:
            self.scanned = head
            return True
        chunk = self._log.recent(self.scanned)
        if chunk is None or chunk.last != head or len(chunk) > _AT_ONCE_CHANGES or self._schemas_moved(chunk):
            return False
        fresh = _after(chunk, self.scanned)
        matches = self._index.matches(_changes_of(fresh), fresh.schemas)
        if not _tell(matches, fresh, monotonic() + _TURN_S):
            self._unfinished = matches, fresh
            return False
        self.scanned = head
        return True

    async def _scan(self) -> None:
        """Evaluate what is new, one window a turn."""
        if self._unfinished is not None:
            matches, fresh = self._unfinished
            await self._go_on(matches, fresh)
            self._unfinished = None
            self.scanned = fresh.last
        while self.scanned < self._log.head:
            if not self._index:
                self.scanned = self._log.head
                return
            try:
                chunk = await self._log.read(self.scanned)
            except BehindHorizonError as error:
                self._lose(Offset(error.horizon - 1))
                continue
            except LogClosedError:
                raise
            except LogError:
                logger.exception("changes cannot be read: feeds look for themselves")
                self._lose(self._log.head)
                continue
            assert chunk is not None
            fresh = _after(window_of(chunk, self.scanned), self.scanned)
            await self._follow_schemas(fresh)
            await self._evaluate(fresh)
            self.scanned = fresh.last
            await asyncio.sleep(0)

    def _measure(self) -> None:
        """Look now and then how old the newest change is."""
        now_s = self._clock.monotonic_s()
        if now_s < self._measure_due_s:
            return
        newest = self._log.head
        chunk = self._log.recent(Offset(newest - 1))
        if chunk is not None:
            self._measure_due_s = now_s + _MEASURE_EVERY_S
            self.lags.captured(chunk, newest)

    async def _evaluate(self, fresh: Chunk) -> None:
        """Tell the watches what is for them; others have their turn when this takes long.

        A watch that comes meanwhile misses nothing: its feed has read to the head, which is behind these changes.
        """
        await self._go_on(self._index.matches(_changes_of(fresh), fresh.schemas), fresh)

    async def _go_on(self, matches: Iterator[Match[FeedWatch] | None], fresh: Chunk) -> None:
        while not _tell(matches, fresh, monotonic() + _TURN_S):  # noqa: ASYNC110  others have their turn
            await asyncio.sleep(0)

    def _lose(self, scanned: Offset) -> None:
        """Go on behind changes that cannot be read: all feeds must look for themselves what they miss."""
        self.scanned = scanned
        for watch in self._index:
            watch.since = scanned
            watch.wake()

    def _schemas_moved(self, fresh: Chunk) -> bool:
        """Return whether filters must be compiled again for the tables of few changes."""
        if not self._compiled:
            return False
        for schema_id in set(fresh.cells("schema")):
            table = fresh.schemas[schema_id].table
            if table in self._compiled and self._versions.get(table) != schema_id:
                return True
        return False

    async def _follow_schemas(self, fresh: Chunk) -> None:
        """Compile filters again for tables that have another schema version now; their feeds look for themselves."""
        if not self._compiled:
            return
        for schema_id in pc.unique(fresh.batch.column("schema")).to_pylist():
            table = fresh.schemas[schema_id].table
            if table in self._compiled and self._versions.get(table) != schema_id:
                self._versions[table] = schema_id
                await self._compile_anew(table, fresh)

    async def _compile_anew(self, table: TableName, fresh: Chunk) -> None:
        watches = [watch for watch in self._index if _table_compiled_for(watch.filter) == table]
        for number, watch in enumerate(watches, start=1):
            if watch in self._index:
                watch.tell(fresh.first, fresh.last)
                self._index.add(watch, self._row_filter(watch.filter, table))
            if number % _TURN_WATCHES == 0:
                await asyncio.sleep(0)

    def _row_filter(self, filter_: Filter, table: TableName | None) -> RowFilter:
        """Return what finds the matches of a filter in the index, and perhaps others: feeds evaluate what is slow."""
        version = None if table is None else self._version(table)
        if version is not None:
            try:
                return filter_.for_schema(*version).cheap
            except PredicateError:
                logger.info("filter no longer fits its table")
        return RowFilter(filter_.tables, filter_.ops)

    def _version(self, table: TableName) -> tuple[SchemaId, TableSchema] | None:
        """Return the schema version for which the filters of a table are compiled."""
        schema_id = self._versions.get(table)
        if schema_id is not None:
            return schema_id, self._log.schemas()[schema_id]
        latest = self._log.latest_schema(table)
        if latest is not None:
            self._versions[table] = latest[0]
        return latest


def _tell(matches: Iterator[Match[FeedWatch] | None], fresh: Chunk, until_s: float) -> bool:
    """Tell watches what is for them, until the time is over; return whether none is left."""
    for match in matches:
        if match is not None:
            # Where a filter failed, its feed finds out where.
            first, last = (match.rows[0], match.rows[-1]) if match.rows else (0, len(fresh) - 1)
            for watch in match.ids:
                watch.tell(Offset(fresh.first + first), Offset(fresh.first + last))
        if monotonic() > until_s:
            return False
    return True


def _table_compiled_for(filter_: Filter) -> TableName | None:
    """Return the table whose schema a filter depends on; None where it depends on none, or on several."""
    tables: frozenset[TableName] = filter_.tables
    if not filter_.looks_at_rows or len(tables) != 1 or ANY_TABLE in tables:
        return None
    return next(iter(tables))


def _after(chunk: Chunk, after: Offset) -> Chunk:
    """Return the changes of a chunk that follow `after`."""
    row = after + 1 - chunk.first
    return chunk if row <= 0 else Chunk(chunk.batch.slice(row), chunk.schemas)


def _changes_of(chunk: Chunk) -> Changes:
    """Return the changes of a chunk; images are taken out of it only when a filter looks at one."""
    if len(chunk) <= _AT_ONCE_CHANGES:
        ops, schemas, keys = chunk.cells("op"), chunk.cells("schema"), chunk.cells("key")
    else:
        ops, schemas, keys = (chunk.batch.column(name).to_pylist() for name in ("op", "schema", "key"))
    return Changes(ops, schemas, keys, _Images(chunk, "before"), _Images(chunk, "after"))


class _Images(Sequence[bytes | None]):
    """A column of images that is decoded at the first look."""

    def __init__(self, chunk: Chunk, name: str) -> None:
        self._chunk = chunk
        self._name = name
        self._images: list[bytes | None] | None = None

    @overload
    def __getitem__(self, row: int) -> bytes | None: ...
    @overload
    def __getitem__(self, row: slice) -> Sequence[bytes | None]: ...
    def __getitem__(self, row: int | slice) -> bytes | Sequence[bytes | None] | None:
        if self._images is None:
            chunk, name = self._chunk, self._name
            few = len(chunk) <= _AT_ONCE_CHANGES
            self._images = chunk.cells(name) if few else chunk.batch.column(name).to_pylist()
        return self._images[row]

    def __len__(self) -> int:
        return len(self._chunk)

    def __iter__(self) -> Iterator[bytes | None]:
        return (self[row] for row in range(len(self)))
