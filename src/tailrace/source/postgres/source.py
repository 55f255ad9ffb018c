"""The PostgreSQL source: a thread that follows a replication slot and hands over what was committed."""

import asyncio
import concurrent.futures
import contextlib
import logging
import threading
from collections.abc import AsyncGenerator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from tailrace.model.commit import Draft, Progress
from tailrace.model.errors import SourceError, SourceStateError
from tailrace.model.number import Position, SchemaId
from tailrace.model.table import TableName, TableSchema
from tailrace.source.base import DirectSource, SchemaRegistry
from tailrace.source.kind import SourceTools
from tailrace.source.postgres.commit_watch import CommitWatch
from tailrace.source.postgres.options import PostgresSettings
from tailrace.source.postgres.session import Session
from tailrace.source.postgres.slot_watch import SlotWatch
from tailrace.source.postgres.table_book import TableBook
from tailrace.source.reader import Reader

__all__ = ["PostgresSource"]

logger = logging.getLogger(__name__)

_Group = Sequence[Draft] | Progress


class PostgresSource:
    """Captures one PostgreSQL database by logical replication; satisfies `tailrace.source.base.Source`.

    All that blocks runs in one thread: connecting, reading and decoding. The event loop sends status updates, so that
    the server hears from us also while the thread waits for the log.
    """

    def __init__(
        self,
        name: str,
        url: str,
        reader: Reader,
        settings: PostgresSettings,
        tools: SourceTools,
        commits: CommitWatch | None = None,
    ) -> None:
        """Make one; `commits` is for those who read rows of the same database."""
        self.name = name
        self._commits = commits or CommitWatch()
        self._url = url
        self._reader = reader
        self._settings = settings
        self._clock = tools.clock
        self._metrics = tools.metrics
        self._dropped = ""
        """Why we drop the slot ourselves; empty where we do not."""

        self._session: Session | None = None
        self._executor: ThreadPoolExecutor | None = None
        self._book: TableBook | None = None
        self._registry: SchemaRegistry | None = None

    async def open(self, registry: SchemaRegistry) -> None:
        """Connect, make publication and slot where they are missing, and announce the tables. Safe to repeat.

        Raises:
            SourceStateError: The database does not let us capture; the message says what to do.
            SourceUnavailableError: It cannot be reached now; try again.
        """
        await self.close()
        if self._dropped:
            raise SourceStateError(self._dropped)
        if self._book is None or self._registry is not registry:
            self._book, self._registry = TableBook(self.name, registry), registry
            self._commits.find_schema = _finder(registry)
        loop = asyncio.get_running_loop()

        def put(history: Sequence[TableSchema]) -> list[tuple[SchemaId, TableSchema]]:
            return asyncio.run_coroutine_threadsafe(registry.put_schemas(history), loop).result()

        session = Session(self._url, self._reader, self._settings, self._clock, self._book, put)
        executor = ThreadPoolExecutor(1, thread_name_prefix="postgres-read")
        try:
            schemas = await self._opened_in(executor, session)
            await self._book.announce(schemas)
        except BaseException:
            await _in_thread(executor, session.close)
            executor.shutdown(wait=False)
            raise
        self._session, self._executor = session, executor

    async def _opened_in(self, executor: ThreadPoolExecutor, session: Session) -> list[TableSchema]:
        """Open a session in its thread; making a slot may wait for long, and ends when this is cancelled."""
        opening = asyncio.get_running_loop().run_in_executor(executor, session.open, self.name)
        try:
            return await asyncio.shield(opening)
        except asyncio.CancelledError:
            await asyncio.to_thread(session.cancel)
            await asyncio.gather(opening, return_exceptions=True)
            raise

    async def commits(self, after: Position | None) -> AsyncGenerator[_Group, None]:
        """Yield committed transactions after a position as they come; see `Source.commits`."""
        loop = asyncio.get_running_loop()
        groups: asyncio.Queue[_Group] = asyncio.Queue(1)
        handing = _Handing(loop, groups)
        running = asyncio.create_task(self.hand_over(after, handing.take))
        try:
            while True:
                coming = asyncio.create_task(groups.get())
                await asyncio.wait([coming, running], return_when=asyncio.FIRST_COMPLETED)
                if not coming.done():
                    coming.cancel()
                    running.result()
                    return
                yield coming.result()
        finally:
            handing.end()
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    @property
    def direct(self) -> DirectSource:
        """Return itself: its reading thread can hand over what it reads."""
        return self

    async def hand_over(self, after: Position | None, take: Callable[[_Group], None]) -> None:
        """Call `take` with committed transactions after a position, in the reading thread; see `DirectSource`."""
        session, executor = self._opened()
        session.prepare()
        self._commits.begin(after)

        def take_and_note(group: _Group) -> None:
            self._commits.note(group)
            take(group)

        loop = asyncio.get_running_loop()
        status = asyncio.create_task(_send_status(session))
        watching = self._watch(session.slot)
        try:
            await loop.run_in_executor(executor, session.stream, after, take_and_note)
        finally:
            status.cancel()
            watching.set()
            session.stop()
            await _in_thread(executor, int)  # returns when the thread is free again
            await asyncio.gather(status, return_exceptions=True)

    def _watch(self, slot: str) -> threading.Event:
        """Have a thread look again and again at what the server keeps for the slot, until the event is set."""
        ending = threading.Event()

        def note(reason: str) -> None:
            self._dropped = reason

        if not self._reader.ephemeral:
            watch = SlotWatch(self.name, self._url, self._settings, slot, self._clock, self._metrics)
            threading.Thread(target=watch.run, args=(ending, note), name="postgres-watch", daemon=True).start()
        return ending

    def confirm_directly(self, position: Position) -> None:
        """Do what `confirm` does, in the reading thread."""
        self._opened()[0].confirm(position)

    async def confirm(self, position: Position) -> None:
        """Let the server forget what lies before a position. It hears of it within a second."""
        self._opened()[0].confirm(position)

    async def close(self) -> None:
        """Disconnect. The slot stays, unless it belongs to this process."""
        session, self._session = self._session, None
        executor, self._executor = self._executor, None
        if session is not None and executor is not None:
            session.stop()
            await _in_thread(executor, session.close)
            executor.shutdown(wait=False)

    def tables(self) -> Sequence[TableSchema]:
        """Return the captured tables as the log knows them."""
        self._opened()
        assert self._book is not None
        return list(self._book.live.values())

    def _opened(self) -> tuple[Session, ThreadPoolExecutor]:
        if self._session is None or self._executor is None:
            raise SourceStateError("the source is closed; open it first")
        return self._session, self._executor


def _finder(registry: SchemaRegistry) -> Callable[[TableName], TableSchema | None]:
    def find(table: TableName) -> TableSchema | None:
        found = registry.latest_schema(table)
        return None if found is None else found[1]

    return find


async def _send_status(session: Session) -> None:
    """Tell the server how far we are, as often as it is due. What fails is noticed by the reading thread, too."""
    while True:
        await asyncio.sleep(session.status_tick_s)
        with contextlib.suppress(SourceError):
            session.send_status_if_due()


async def _in_thread(executor: ThreadPoolExecutor, work: Callable[[], object]) -> None:
    """Run something in the thread, also where the task is being cancelled: then it is finished first."""
    running = asyncio.get_running_loop().run_in_executor(executor, work)
    try:
        await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.gather(running, return_exceptions=True)
        raise


class _Handing:
    """Hands groups from the reading thread to a task that takes one at a time."""

    def __init__(self, loop: asyncio.AbstractEventLoop, groups: "asyncio.Queue[_Group]") -> None:
        self._loop = loop
        self._groups = groups
        self._pending: concurrent.futures.Future[None] | None = None
        self._ended = False

    def take(self, group: _Group) -> None:
        """Wait until the task has room for a group. Runs in the reading thread."""
        self._pending = asyncio.run_coroutine_threadsafe(self._groups.put(group), self._loop)
        if self._ended:
            self._pending.cancel()
        self._pending.result()

    def end(self) -> None:
        """Have `take` wait no longer."""
        self._ended = True
        if self._pending is not None:
            self._pending.cancel()
