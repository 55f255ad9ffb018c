"""The log of one shard: appended by one process, read by everybody in it."""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from tailrace.clock import Clock
from tailrace.log.batch import pieces
from tailrace.log.commits import LogCommits
from tailrace.log.files import Files
from tailrace.log.group import GroupCommit
from tailrace.log.hybrid import HybridClock
from tailrace.log.options import LogOptions
from tailrace.log.payload import measure
from tailrace.log.progress import Progressed, write_progress
from tailrace.log.reads import Reads
from tailrace.log.recover import RecoveredLog, recover
from tailrace.log.retention import age_horizon, at_most, byte_horizon, horizon_by_changes, removable
from tailrace.log.ring import Ring
from tailrace.log.schemas import Schemas, numbered
from tailrace.log.segment import index_name, statistics_name
from tailrace.log.segments import Segments, SegmentSummary
from tailrace.log.state import State
from tailrace.log.statistics import Skipper
from tailrace.log.tend import Tender
from tailrace.log.waiters import Waiters
from tailrace.log.writer import Stored, Writer, disk_error
from tailrace.model.chunk import Chunk
from tailrace.model.commit import Appended, CommitId, Draft
from tailrace.model.errors import LogClosedError, LogError
from tailrace.model.number import Index, Offset, Position, SchemaId
from tailrace.model.table import TableName, TableSchema
from tailrace.model.wanted import Wanted

__all__ = ["Log"]

logger = logging.getLogger(__name__)

_T = TypeVar("_T")


class Log:
    """Numbers commits, keeps them, hands them out. Open it with `Log.open`, holding the directory's lock.

    All methods are called on one event loop, from as many tasks as there are. `head`, `horizon` and `last_index` speak
    of what is on disk; nothing else is ever handed out. So does `position`, but for `progress` that is not durable.
    """

    def __init__(
        self,
        files: Files,
        options: LogOptions,
        clock: Clock,
        schemas: Schemas,
        writer: Writer,
        found: RecoveredLog,
        *,
        hybrid: HybridClock,
        floor: Offset | None,
        source: str = "",
    ) -> None:
        self._named = {"source": source}
        self._files = files
        self._options = options
        self._clock = clock
        self._schemas = schemas
        self._writer = writer
        self._head = found.head
        by_changes = at_most(floor, horizon_by_changes(found.head, options.retention_changes))
        self._horizon = max(found.horizon, by_changes)
        self._last_index = found.last_index
        self._last_commit = found.commit
        self._position = self._durable_position = found.position
        self._segments = Segments(files, schemas.known)
        self._segments.replace(found.segments, found.sparse, found.end)
        self.commits = LogCommits(self._segments, self._window)
        self._ring = Ring(options.ring_changes_max, options.ring_bytes_max)
        self._waiters = Waiters()
        self._position_waiters = Waiters()
        self._progress_lock = asyncio.Lock()
        self._schema_lock = asyncio.Lock()
        self._retain_lock = asyncio.Lock()
        self._retain_soon = asyncio.Event()
        self._closed = False
        self._floors: dict[str, Offset | None] = {"": floor}
        self._floor = floor
        writer.floor = floor
        hybrid.observe(found.hlc)
        self._group = GroupCommit(
            writer, options, clock, append_time_us=found.append_time_us, hybrid=hybrid, publish=self._publish
        )
        self._skipper = Skipper(files, self._segments)
        self._reads = Reads(
            self._segments,
            self._skipper,
            self._ring,
            options.cache_bytes_max,
            window=self._readable,
            removed=lambda: self._horizon,
        )
        self._tender = Tender(
            files, self._segments, self._skipper, options, self._retain_lock, lambda: self._head, self._named
        )
        self._housekeeping = asyncio.gather(self._keep_house(), self._tender.run())

    @classmethod
    async def open(
        cls,
        files: Files,
        options: LogOptions,
        clock: Clock,
        *,
        hybrid: HybridClock | None = None,
        floor: Offset | None = None,
        source: str = "",
    ) -> "Log":
        """Recover the log in these files, or begin one, and take it for writing.

        Logs that share a `hybrid` clock have their commits in one order. `floor` is as in `hold`. Diagnostics name the
        `source`.

        Raises:
            CorruptSegmentError: It is damaged before its end.
            FormatVersionError: A newer version wrote it.
            LogFullError, LogWriteError: The disk refused.
        """
        try:
            schemas, found, writer = await asyncio.to_thread(_recover, files, options, clock)
        except OSError as error:
            raise disk_error(error) from error
        hybrid = hybrid or HybridClock()
        log = cls(files, options, clock, schemas, writer, found, hybrid=hybrid, floor=floor, source=source)
        await log.retain()
        return log

    @property
    def head(self) -> Offset:
        """Return the offset of the newest change; 0 when there is none."""
        return self._head

    @property
    def horizon(self) -> Offset:
        """Return the offset of the oldest change that can be read; `head` + 1 when there is none."""
        return self._horizon

    @property
    def last_index(self) -> Index:
        """Return the index of the newest commit; 0 when there is none."""
        return self._last_index

    @property
    def position(self) -> Position | None:
        """Return where the source resumes: the position of the newest commit, or how far it has progressed since."""
        return self._position

    @property
    def last_commit(self) -> CommitId | None:
        """Return the newest commit as its source knows it; None when there is none."""
        return self._last_commit

    @property
    def state(self) -> State:
        """Return how far others may read now, as the state file tells it those who cannot be asked."""
        segments = self._segments
        return State(
            head=self._head,
            last_index=self._last_index,
            horizon=self._horizon,
            active_index=segments.entries[-1].first_index if segments.entries else Index(0),
            synced_bytes=segments.end,
            time_us=self._clock.now_us(),
        )

    @property
    def segment_indexes(self) -> Sequence[Index]:
        """Return the first index of each segment, oldest first."""
        return [segment.first_index for segment in self._segments.entries]

    @property
    def hlc_complete(self) -> int:
        """Return a hybrid timestamp up to which no commit will be shown any more that is not shown now."""
        return self._group.hlc_complete()

    def hold(self, floor: Offset | None, *, holder: str = "") -> None:
        """Keep retention from removing changes from `floor` on; None lets its rules apply.

        Each holder has a floor of its own: the lowest counts.
        """
        self._floors[holder] = floor
        self._floor = self._writer.floor = min(
            (floor_ for floor_ in self._floors.values() if floor_ is not None), default=None
        )

    async def append(self, drafts: Sequence[Draft]) -> Appended:
        """Number the commits and return once they are on disk, all or none; appends that come together share a sync.

        A commit too large for memory is appended in parts, each alone, all of them or none: nobody sees anything of it
        before the last one is on disk, and a crash before that drops them all. So does a failure, `abandon`, and a
        commit that begins before the last part has come.

        Waits while too much is pending. A caller with several appends in flight gets them in the order of the calls;
        when one fails, those behind it fail too, and it should begin again with the first. A cancelled append may
        still happen.

        Raises:
            LogFullError, LogWriteError: The disk refused; nothing of it counts. It works again when the disk does.
            AppendTooLargeError: It does not fit into one frame.
            LogClosedError: The log was closed.
        """
        if self._closed:
            raise LogClosedError("the log is closed")
        changes, size_bytes = measure(drafts, len(self._schemas.known))
        return await self._group.append(drafts, changes, size_bytes)

    def append_now(self, drafts: Sequence[Draft]) -> None:
        """Do what `append` does, in this thread, which is not the event loop's: no other thread is waited for.

        Durable on return; readers see it soon after. For one thread at a time.

        Raises:
            LogFullError, LogWriteError, AppendTooLargeError, LogClosedError: As `append`.
        """
        if self._closed:
            raise LogClosedError("the log is closed")
        changes, size_bytes = measure(drafts, len(self._schemas.known))
        self._group.append_now(drafts, changes, size_bytes)

    def abandon(self) -> None:
        """Give up a commit of which not all parts were appended, if there is one."""
        self._group.abandon()

    async def progress(self, position: Position, *, durable: bool) -> None:
        """Note that the source has no commit for us between the last one here and a position: it resumes there.

        `position` is this one at once. Where it is not `durable`, it is written down by the next call that is, or when
        the log is closed; after a crash before that, the source resumes further back and finds the same nothing.
        Appends must not be on their way meanwhile.

        Raises:
            LogFullError, LogWriteError: The disk refused; it is not durable.
            LogClosedError: The log was closed.
        """
        async with self._progress_lock:
            if self._closed:
                raise LogClosedError("the log is closed")
            self._position = position
            self._position_waiters.wake()
            if durable:
                await self._write_progress()

    async def put_schema(self, schema: TableSchema) -> SchemaId:
        """Keep a schema version, durable on return, and return its number; the same version gives the same number.

        Raises:
            LogFullError, LogWriteError: The disk refused; it was not kept.
            LogClosedError: The log was closed.
        """
        async with self._schema_lock:
            return await self._keep_schema(schema)

    async def put_schemas(self, history: Sequence[TableSchema]) -> list[tuple[SchemaId, TableSchema]]:
        """Keep versions of one table's schema, oldest first, numbered by the log, durable on return. See `numbered`.

        Raises:
            LogFullError, LogWriteError: The disk refused; some may have been kept.
            LogClosedError: The log was closed.
        """
        async with self._schema_lock:
            versions = numbered(self._schemas.versions(history[0].table), history)
            return [(await self._keep_schema(schema), schema) for schema in versions]

    def latest_schema(self, table: TableName) -> tuple[SchemaId, TableSchema] | None:
        """Return the newest known version of a table's schema."""
        return self._schemas.latest(table)

    def schema(self, number: SchemaId) -> TableSchema:
        """Return a schema version by its number, which must be one that the log gave out."""
        return self._schemas.known[number]

    def schemas(self) -> Mapping[SchemaId, TableSchema]:
        """Return all schema versions by number: a live mapping that only grows."""
        return self._schemas.known

    async def read(self, after: Offset, wanted: Callable[[], Wanted | None] | None = None) -> Chunk | None:
        """Return the chunk that holds the change after `after`; None when that is the head.

        What the reader will ask for next is read ahead. Given what is `wanted`, the chunk may hold that alone, of many
        blocks, and perhaps nothing: see `PickedChunk`.

        The chunk is shared by all readers and cut where the log finds it cheap: it may begin before the wanted change,
        never behind it. Take what you want of it by offset. It is bounded: about 4096 changes and 2 MiB, or one change.

        Raises:
            BehindHorizonError: The change was removed by retention.
            BeyondHeadError: `after` is larger than the head.
            CorruptSegmentError: The segment that holds it is damaged.
            LogClosedError: The log was closed.
        """
        return await self._reads.read(after, wanted)

    async def skip(self, after: Offset, wanted: Callable[[], Wanted | None]) -> Offset:
        """Return an offset, `after` or a later one, up to which no change is wanted, by the statistics of blocks.

        It reads no changes, and knows nothing of the newest segment: there the answer is `after`, and `wanted` is not
        asked. None wants all changes.

        Raises:
            BehindHorizonError: The change after `after` was removed by retention.
            BeyondHeadError: `after` is larger than the head.
            LogClosedError: The log was closed.
        """
        return await self._reads.skip(after, wanted)

    async def read_run(self, after: Offset, through: Offset, take: Callable[[Sequence[Chunk]], _T]) -> _T:
        """Return what `take` makes, in a worker thread, of consecutive chunks, the first as `read` would return it.

        The last may go beyond `through`, which is larger than `after`. What one reader reads so is kept for no other.

        Raises:
            BehindHorizonError: The change was removed by retention.
            BeyondHeadError: `through` is larger than the head.
            CorruptSegmentError: A segment is damaged.
            LogClosedError: The log was closed.
        """
        return await self._reads.read_run(after, through, take)

    async def lend(
        self, after: Offset, through: Offset, bytes_max: int, take: Callable[[Sequence[Chunk]], _T]
    ) -> list[_T]:
        """Return what `take` makes, in a worker thread, of the chunks of each of some blocks, the first as in `read`.

        The chunks are lent: they may show memory that is used again, and nothing of them may be kept. They end at
        `through`, which is larger than `after`, or before that with about `bytes_max` bytes; there is one at least.

        Raises:
            BehindHorizonError: The change was removed by retention.
            BeyondHeadError: `through` is larger than the head.
            CorruptSegmentError: A segment is damaged.
            LogClosedError: The log was closed.
        """
        return await self._reads.lend(after, through, bytes_max, take)

    def run_behind(self, after: Offset, bytes_max: int) -> Offset | None:
        """Return the offset up to which `lend` will go from `after` on; None where memory does not say it."""
        return self._segments.run_behind(Offset(after + 1), bytes_max)

    def recent(self, after: Offset) -> Chunk | None:
        """Return the chunk that holds the change after `after`, where that is in memory, as the newest changes are."""
        return None if self._closed else self._ring.find(Offset(after + 1))

    def listen(self, grown: Callable[[], None]) -> Callable[[], None]:
        """Have `grown` called on the event loop each time the head has moved, and at the end; return what ends that."""
        return self._waiters.listen(grown)

    async def wait(self, after: Offset, timeout_s: float) -> bool:
        """Return True as soon as the head is beyond `after`, False after the timeout.

        Raises:
            LogClosedError: The log was closed.
        """
        if self._closed and self._head <= after:
            raise LogClosedError("the log is closed")
        return await self._waiters.wait_until(lambda: self._head > after, timeout_s)

    async def wait_position(self, known: Position | None, timeout_s: float) -> bool:
        """Return True as soon as `position` is another than `known`, False after the timeout.

        Raises:
            LogClosedError: The log was closed.
        """
        if self._closed:
            raise LogClosedError("the log is closed")
        if self._position != known:
            return True
        return timeout_s > 0 and await self._position_waiters.wait(timeout_s)

    async def segments(self) -> list[SegmentSummary]:
        """Return a line for each segment, oldest first."""
        return await asyncio.to_thread(self._segments.summaries)

    async def retain(self) -> None:
        """Apply the rules of retention now and remove files that lie wholly below the horizon. Runs by itself, too.

        Raises:
            CorruptSegmentError: A segment in which the horizon belongs is damaged.
            OSError: The disk refused; what was to be removed is removed the next time.
        """
        async with self._retain_lock:
            self._retain_soon.clear()
            found = await asyncio.to_thread(self._find_horizon, self._head)
            self._horizon = max(self._horizon, found)  # appends may have moved it meanwhile
            firsts = [segment.first_offset for segment in self._segments.entries]
            count = removable(firsts, self._horizon, self._head)
            removed = self._segments.entries[:count]
            await asyncio.to_thread(self._writer.move_horizon, self._horizon, durable=bool(count))
            if count:
                self._segments.drop(count)
            for segment in removed:
                await asyncio.to_thread(self._files.remove, segment.name)
                await asyncio.to_thread(self._files.remove, index_name(segment.first_index))
                await asyncio.to_thread(self._files.remove, statistics_name(segment.first_index))
                logger.info("segment removed", extra={**self._named, "segment": segment.name, "horizon": self._horizon})

    async def compact(self) -> None:
        """Compact all sealed segments that are worth it now. Runs by itself, too, unless that is switched off.

        Raises:
            OSError: The disk refused; what is left is compacted later.
        """
        await self._tender.tend()

    async def close(self) -> None:
        """Finish the appends that were taken, wake everybody who waits, and close the files."""
        if self._closed:
            return
        self._closed = True
        self._retain_soon.set()
        self._tender.close()
        await self._housekeeping
        await self._reads.finish()
        await self._group.close()
        self._waiters.close()
        self._position_waiters.close()
        async with self._progress_lock:
            try:
                await self._write_progress()
            except LogError as error:
                logger.warning("progress not written", extra={**self._named, "problem": str(error)})
        async with self._schema_lock, self._retain_lock:
            try:
                await asyncio.to_thread(self._writer.close)
            except OSError as error:
                logger.warning("unused space not given back", extra={"problem": str(error)})
            self._schemas.close()

    async def _keep_schema(self, schema: TableSchema) -> SchemaId:
        if self._closed:
            raise LogClosedError("the log is closed")
        try:
            number = self._schemas.id_of(schema)
            if number is not None:
                return number
            number = await asyncio.to_thread(self._schemas.put, schema)
        except OSError as error:
            raise disk_error(error) from error
        table = {"source": schema.table.source, "table": schema.table.wire, "columns": len(schema.columns)}
        logger.info(
            "table found" if schema.version == 1 else "schema changed", extra={**table, "version": schema.version}
        )
        return number

    async def _write_progress(self) -> None:
        position = self._position
        if position is None or position == self._durable_position:
            return
        progressed = Progressed(self._last_index, self._last_commit.position if self._last_commit else None, position)
        try:
            await asyncio.to_thread(write_progress, self._files, progressed)
        except OSError as error:
            raise disk_error(error) from error
        self._durable_position = position

    def _window(self) -> tuple[Offset, Offset, Index]:
        return self._horizon, self._head, self._last_index

    def _readable(self) -> tuple[Offset, Offset]:
        if self._closed:
            raise LogClosedError("the log is closed")
        return self._horizon, self._head

    def _publish(self, stored: Stored) -> None:
        """Show a frame that is on disk to everybody."""
        header = stored.frame.header
        batch = stored.frame.batch
        if stored.frame.part:
            self._ring.clear()  # the other parts are on disk alone
        parts = pieces(batch, header.payload_bytes)
        if len(parts) == 1:
            self._ring.add(Chunk(batch, self._schemas.known, stored.frame.known))
        else:
            self._ring.add_parts(parts, self._schemas.known)
        self._segments.advance(stored.segment, stored.sparse, stored.end)
        self._head = header.last_offset
        self._last_index = header.last_index
        self._last_commit = stored.frame.last_commit
        self._position = self._durable_position = stored.frame.last_commit.position
        self._horizon = max(self._horizon, stored.horizon)
        entries = self._segments.entries
        begins = header.first_index == stored.segment.first_index
        if len(entries) > 1 and (begins or entries[1].first_offset <= self._horizon):
            self._retain_soon.set()
        self._waiters.wake()
        self._position_waiters.wake()

    def _find_horizon(self, head: Offset) -> Offset:
        """Return where the rules for bytes and age put the horizon."""
        horizon = self._horizon
        if self._options.retention_bytes is not None:
            horizon = max(horizon, byte_horizon(self._segments, self._options.retention_bytes, head))
        if self._options.retention_age_s is not None:
            oldest_us = self._clock.now_us() - int(self._options.retention_age_s * 1_000_000)
            horizon = max(horizon, age_horizon(self._segments, oldest_us, head))
        return at_most(self._floor, horizon)

    async def _keep_house(self) -> None:
        """Retain from time to time, and soon after a new segment, until the log is closed."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._options.retention_interval_s):
                    await self._retain_soon.wait()
            if self._closed:
                return
            try:
                await self.retain()
            except (LogError, OSError) as error:
                logger.warning("retention failed", extra={**self._named, "problem": str(error)})


def _recover(files: Files, options: LogOptions, clock: Clock) -> tuple[Schemas, RecoveredLog, Writer]:
    schemas = Schemas(files)
    schemas.recover()
    found = recover(files)
    return schemas, found, Writer(files, options, clock, found)
