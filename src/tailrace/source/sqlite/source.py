"""The SQLite source: a thread that reads changes and hands them to the event loop as commits."""

import asyncio
import os
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tailrace.clock import Clock
from tailrace.model.commit import Draft
from tailrace.model.errors import SourceStateError, SourceUnavailableError
from tailrace.model.number import Position, SchemaId
from tailrace.model.table import TableSchema
from tailrace.source.base import DirectSource, Reader, SchemaRegistry
from tailrace.source.sqlite.change_table import (
    NEW_LOG,
    Border,
    in_migration,
    mark_of,
    marked,
    parse_position,
)
from tailrace.source.sqlite.connection import FileId, file_id
from tailrace.source.sqlite.decode import Decoder
from tailrace.source.sqlite.options import SqliteOptions
from tailrace.source.sqlite.pace import Pace
from tailrace.source.sqlite.reader import ChangeReader
from tailrace.source.sqlite.table_version import TableVersion
from tailrace.source.sqlite.trim import Trimmer
from tailrace.source.sqlite.watch import FileWatch

__all__ = ["Announcer", "SqliteSource"]

_READ_FIRST = 64
"""Rows fetched at first, before their size is known."""


class SqliteSource:
    """Captures one SQLite database; satisfies `tailrace.source.base.Source`.

    Reading runs in one thread of its own, removal of confirmed changes in another; neither blocks the event loop. While
    the pump works on one group of commits, the next one is read.
    """

    def __init__(self, name: str, path: Path, reader: Reader, options: SqliteOptions, clock: Clock) -> None:
        self.name = name
        self._path = path
        self._reader_name = reader
        self._options = options
        self._clock = clock
        self._session: _Session | None = None
        self._was_open = False
        self._stale: FileId | None = None

    async def open(self, registry: SchemaRegistry) -> None:
        """Set capture up or fit it to the schema, enter the reader, and announce the tables. Safe to repeat.

        Raises:
            SourceStateError: The database does not let us capture; the message says what to do.
            SourceUnavailableError: It is locked or cannot be opened now; try again.
        """
        await self.close()
        if self._was_open and file_id(self._path) is None:  # who replaces it may put the other one there soon
            raise SourceUnavailableError(f"database {os.fspath(self._path)!r} no longer exists: restore it")
        announcer = Announcer(self.name, registry)
        session = _Session(self._path, self._reader_name, self._options, self._clock, announcer, self._stale)
        try:
            await session.open()
        except asyncio.CancelledError:
            await session.close(leave=True)  # capture may be set up by then
            raise
        except BaseException:
            await session.close(leave=False)
            raise
        self._session = session
        self._was_open = True
        self._stale = None

    async def commits(self, after: Position | None) -> AsyncGenerator[Sequence[Draft], None]:
        """Yield committed transactions after a position as they come; see `Source.commits`."""
        session = self._opened()
        await session.start(after)
        try:
            async for group in session.groups():
                yield group
        finally:
            await session.stop()

    @property
    def direct(self) -> DirectSource:
        """Return itself: its reading thread can hand over what it reads."""
        return self

    async def hand_over(self, after: Position | None, take: Callable[[Sequence[Draft]], None]) -> None:
        """Call `take` with committed transactions after a position, in the reading thread; see `DirectSource`."""
        session = self._opened()
        await session.start(after)
        try:
            await session.hand_over(take)
        finally:
            await session.stop()

    def confirm_directly(self, position: Position) -> None:
        """Do what `confirm` does, for few changes, in the reading thread."""
        self._opened().confirm(position)

    async def confirm(self, position: Position) -> None:
        """Tell the database, sooner or later, that the log has everything through `position`. Never waits for it.

        After many changes it leaves the disk to the database for a moment.
        """
        if self._opened().confirm(position) >= self._options.busy_changes:
            await asyncio.sleep(self._options.busy_pause_s)

    async def close(self) -> None:
        """Disconnect; an ephemeral reader is forgotten."""
        session, self._session = self._session, None
        if session is not None:
            self._stale = session.stale
            await session.close(leave=True)

    def tables(self) -> Sequence[TableSchema]:
        """Return the captured tables as they are now."""
        return self._opened().tables()

    def _opened(self) -> "_Session":
        if self._session is None:
            raise SourceStateError("the source is closed; open it first")
        return self._session


class Announcer:
    """Announces table versions to one log, each once and in order, and keeps the schema number of each."""

    def __init__(self, source: str, registry: SchemaRegistry) -> None:
        self._source = source
        self._registry = registry
        self.ids: dict[int, SchemaId] = {}
        self.schemas: dict[int, TableSchema] = {}

    async def announce(self, versions: Iterable[TableVersion]) -> None:
        """Enter versions that are new here, given with all older ones. The log has them on disk afterwards."""
        histories: dict[str, list[TableVersion]] = {}
        for version in sorted(versions, key=lambda version: version.version):
            histories.setdefault(version.name, []).append(version)
        for history in histories.values():
            if all(version.version in self.ids for version in history):
                continue
            announced = [version.schema(self._source, version.number) for version in history]
            kept = await self._registry.put_schemas(announced)
            for version, (number, schema) in zip(history, kept, strict=True):
                self.ids[version.version] = number
                self.schemas[version.version] = schema


class _Session:
    """One opening of the source: its thread, its connections, and how far it has read."""

    def __init__(
        self,
        path: Path,
        reader: Reader,
        options: SqliteOptions,
        clock: Clock,
        announcer: Announcer,
        stale: FileId | None,
    ) -> None:
        self._options = options
        self._clock = clock
        self._announcer = announcer
        self._loop = asyncio.get_running_loop()
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="sqlite-read")
        self._reader = ChangeReader(path, reader, options, clock, stale)
        self._trimmer = Trimmer(path, reader, options, clock)
        self._watch = FileWatch(path.resolve())
        self._stopping = False
        self._live: set[int] = set()
        self._decoder = Decoder("", changes_max=1, bytes_max=1)
        self._after = 0
        self._confirmed = 0
        self._newest = 0
        self._marked = (Position(""), 0, "")
        """The last position that was marked, the row that it stands for, and its mark."""

        self._pace = self._new_pace()
        self._borders: deque[Border] = deque()
        self._limit = _READ_FIRST
        self._fits = 0

    async def open(self) -> None:
        """Connect and announce the tables."""
        await self._loop.run_in_executor(self._executor, self._reader.open)
        versions, live, _ = await self._loop.run_in_executor(self._executor, self._reader.versions)
        await self._announcer.announce(versions.values())
        self._live = live

    @property
    def stale(self) -> FileId | None:
        """Return the write-ahead log that the database left behind when another file was put in its place."""
        return self._reader.place.stale

    async def start(self, after: Position | None) -> None:
        """Prepare to read after a position."""
        self._stopping = False
        self._after = await self._loop.run_in_executor(self._executor, self._reader.start, after)
        capture = self._reader.capture
        assert capture is not None
        self._newest = self._confirmed = self._after
        self._trimmer.marks = self._reader.marks
        self._trimmer.file = self._reader.place.file
        self._fits = 0
        self._pace = self._new_pace()
        self._borders.clear()
        cut = self._reader.backlog - self._after > self._options.commit_changes_max
        self._decoder = Decoder(
            capture.capture,
            changes_max=self._options.commit_changes_max,
            bytes_max=self._options.commit_bytes_max,
            cut_through=self._reader.backlog,
            changes_first=self._options.commit_changes_first if cut else None,
            migration=after is not None and in_migration(after),
        )

    async def groups(self) -> AsyncGenerator[list[Draft]]:
        """Yield groups of commits until `stop`; one more is read while the caller has the last one."""
        coming = self._loop.run_in_executor(self._executor, self._next_group)
        while group := await coming:
            coming = self._loop.run_in_executor(self._executor, self._next_group)
            yield group

    async def hand_over(self, take: Callable[[Sequence[Draft]], None]) -> None:
        """Have the thread call `take` with each group of commits until `stop`."""
        await self._loop.run_in_executor(self._executor, self._hand_over, take)

    def _hand_over(self, take: Callable[[Sequence[Draft]], None]) -> None:
        while group := self._next_group():
            take(group)

    async def stop(self) -> None:
        """End reading; returns when the thread is free again."""
        self._stopping = True
        self._watch.wake()
        await self._loop.run_in_executor(self._executor, int)

    def confirm(self, position: Position) -> int:
        """Pass on what the log has; return how many rows of the change table were confirmed by that."""
        marked = self._marked  # once: the reading thread may replace it while the event loop confirms
        number, mark = marked[1:] if position == marked[0] else self._parse(position)
        self._trimmer.confirmed(number, mark)
        self._confirmed, before = number, self._confirmed
        return number - before

    def _parse(self, position: Position) -> tuple[int, str]:
        capture, mark = self._reader.capture, mark_of(position)
        assert capture is not None
        assert mark is not None  # the last commit of each group has one
        return parse_position(position, capture.capture), mark

    def tables(self) -> list[TableSchema]:
        """Return the schemas of the live tables."""
        return [self._announcer.schemas[version] for version in sorted(self._live)]

    async def close(self, *, leave: bool) -> None:
        """End everything."""
        await self.stop()
        if leave:
            self._trimmer.file = self._reader.place.file
            await asyncio.to_thread(self._trimmer.close)
        await self._loop.run_in_executor(self._executor, self._reader.close)
        self._executor.shutdown()
        self._watch.close()

    def _new_pace(self) -> Pace:
        return Pace(self._options.settle_s, self._options.poll_interval_s, self._clock.monotonic_s())

    def _next_group(self) -> list[Draft]:
        """Return the next commits, waiting for them; nothing once stopped. Runs in the reading thread."""
        pace = self._pace
        rest_s = pace.rest_s(self._clock.monotonic_s())
        if rest_s > 0:
            self._watch.pause(rest_s)
        # Listening since before the last look, and that saw all that was written: there is nothing to look at.
        woken = pace.prompt and self._watch.lasts and self._listen(pace.pause_s(self._clock.monotonic_s()))
        while not self._stopping:
            listened = pace.listens
            if listened:
                # Before the look, so that no write falls in between.
                wal_alone = not self._reader.locks_writers
                self._watch.arm(wal_alone=wal_alone, lasting=wal_alone and pace.few)
            begin_s = self._clock.monotonic_s()
            rows = self._look(woken=woken)
            drafts = self._read(rows or [])
            if rows is not None or drafts:
                pace.seen(begin_s, sum(map(len, drafts)), locks_writers=self._reader.locks_writers)
            if drafts:
                if not pace.few and self._watch.lasts:
                    self._watch.arm(wal_alone=True)  # a busy writer raises one more event and then none
                return drafts
            self._trimmer.due()
            pause_s = pace.pause_s(self._clock.monotonic_s())
            woken = not pace.listens
            if woken:
                self._watch.pause(pause_s)
            elif listened:  # else look once more, with a watch
                woken = self._listen(pause_s)
        return []

    def _listen(self, pause_s: float) -> bool:
        """Wait for a write; return whether there was one."""
        woken = self._watch.wait(pause_s)
        if woken:
            self._pace.touched(self._clock.monotonic_s())
        return woken

    def _look(self, *, woken: bool) -> list[tuple[Any, ...]] | None:
        """Look for what is new; return the first rows of it, if they were read along; None where there is nothing."""
        self._reader.marks = self._trimmer.marks
        if woken and self._after == self._newest:
            seen = self._reader.look_after_write(self._newest, self._limit)
        else:
            seen = self._reader.look()
        self._trimmer.fitted = self._reader.schema_version
        if seen is None:
            return None
        if self._reader.fits != self._fits:
            self._learn()
        self._borders.extend(border for border in seen.borders if border.number > self._newest)
        self._newest = seen.borders[-1].number
        return seen.rows

    def _read(self, rows: list[tuple[Any, ...]]) -> list[Draft]:
        """Return the commits up to the newest border; `rows` are the first ones, where they were read already."""
        drafts: list[Draft] = []
        changes = 0
        through = self._newest
        changes_max = min(self._options.group_changes_max, self._decoder.cut_changes)
        while self._after < through and changes < changes_max and not self._stopping:
            rows = rows or self._reader.read(self._after, through, self._limit)
            if not rows or rows[0][0] != self._after + 1:
                raise SourceStateError(f"changes that were not confirmed are gone from the database; {NEW_LOG}")
            if self._decoder.unknown(rows):
                self._learn()
                if self._decoder.unknown(rows):
                    raise SourceStateError("the change table refers to unknown tables; remove capture, set it up again")
            last = rows[-1][0]
            borders = []
            while self._borders[0].number < last:
                borders.append(self._borders.popleft())
            before = self._decoder.bytes_total
            complete = self._decoder.feed(rows, [*borders, self._borders[0]])
            self._mark(rows, complete)
            if self._borders[0].number == last:
                self._borders.popleft()
            changes += sum(map(len, complete))
            drafts += complete
            self._after = last
            average = (self._decoder.bytes_total - before) // len(rows) + 1
            wanted = min(self._limit * 2, self._options.read_bytes // average)
            self._limit = max(1, min(self._options.read_changes_max, wanted))
            rows = []
        return drafts

    def _mark(self, rows: Sequence[Sequence[Any]], complete: list[Draft]) -> None:
        """Extend the history by rows that were read, and mark the last commit that they complete.

        The commits of a group are in the log all or none: marks of the others would never be looked at.
        """
        history = self._reader.history
        assert history is not None
        last = next((draft for draft in reversed(complete) if not draft.more), None)
        if last is None:
            history.extend(rows)
            return
        number = self._decoder.closed_at
        count = number - history.number
        history.extend(rows[:count] if count < len(rows) else rows)
        mark = history.mark
        last.position = marked(last.position, mark)
        self._marked = (last.position, number, mark)
        if count < len(rows):
            history.extend(rows[count:])

    def _learn(self) -> None:
        """Announce new table versions through the event loop, and pass them to the decoder."""
        self._fits = self._reader.fits
        versions, live, chained = self._reader.versions()
        asyncio.run_coroutine_threadsafe(self._announcer.announce(versions.values()), self._loop).result()
        self._live = live
        for number, version in versions.items():
            self._decoder.know(version, self._announcer.ids[number])
        self._decoder.chain(chained)
