"""The pump: takes commits out of a source, puts them into the log, then tells the source that the log has them."""

import asyncio
import concurrent.futures
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any, Protocol

from msgspec import Struct

from tailrace.model.commit import Appended, Draft, Progress
from tailrace.model.errors import LogFullError, LogWriteError, SourceUnavailableError
from tailrace.model.number import Position
from tailrace.retry import Backoff, Retry
from tailrace.source.base import DirectSource, SchemaRegistry, Source

__all__ = ["CaptureState", "Pump", "PumpLog"]

logger = logging.getLogger(__name__)

_GROUPS_IN_FLIGHT_MAX = 4

_DIRECT_CHANGES_MAX = 128
"""Up to this many changes, the thread that has read them appends them itself. With more it is quicker to read on while
they are encoded and synced."""

_PROGRESS_INTERVAL_S = 5.0
"""Progress without changes is written to disk, and confirmed, at most so often."""

_Group = Sequence[Draft] | Progress | Exception
"""Commits that a source yielded together, how far it is without any, or how it failed."""

_PASSING = (SourceUnavailableError, LogFullError, LogWriteError)
"""What passes by itself: a database that comes back, a disk that is given space."""


class PumpLog(SchemaRegistry, Protocol):
    """What the pump needs of a log."""

    @property
    def position(self) -> Position | None:
        """Return where the source resumes."""

    async def append(self, drafts: Sequence[Draft]) -> Appended:
        """Number and keep commits; durable on return."""

    def append_now(self, drafts: Sequence[Draft]) -> None:
        """Do the same in this thread, which is not the event loop's."""

    async def progress(self, position: Position, *, durable: bool) -> None:
        """Note that there is no commit up to a position; see `Log.progress`."""

    def abandon(self) -> None:
        """Give up a commit of which not all parts were appended, if there is one."""


class CaptureState:
    """Whether capture moves, for health checks: `problem` is empty while all is well."""

    def __init__(self) -> None:
        self.open = False
        self.problem = ""

    def waits(self, problem: str) -> None:
        """Note why nothing moves now."""
        self.problem = problem

    def recovered(self) -> None:
        """Note that the source is open and the log takes what it gives."""
        self.open = True
        self.problem = ""


class Pump:
    """Moves the commits of one source into its log, each exactly once and in order.

    A commit is confirmed to the source only after the log has synced it; so is progress without changes, which the log
    knows at once but writes down only every few seconds. After any break the source resumes after the
    last position in the log, so a crash between the two repeats and loses nothing. While the disk refuses (full,
    or failing), the same commits are offered again until it takes them; the source waits meanwhile. A commit in parts
    is in the log wholly or not at all: when anything breaks before its last part, the source begins it again.
    """

    def __init__(
        self,
        source: Source,
        log: PumpLog,
        state: CaptureState,
        backoff: Backoff = Backoff(),  # noqa: B008
        *,
        progress_interval_s: float = _PROGRESS_INTERVAL_S,
    ) -> None:
        self._source = source
        self._log = log
        self._state = state
        self._backoff = backoff
        self._progress_interval_s = progress_interval_s
        self._progress: Position | None = None
        """Progress that is not on disk yet; it is at `_progress_due_s`, unless commits come before."""

        self._progress_due_s = 0.0

    async def open(self) -> None:
        """Open the source, trying again while it cannot be reached.

        Raises:
            SourceStateError: The database does not let us capture; the message says what to do.
        """
        await self._patiently(partial(self._source.open, self._log))
        logger.info("source opened", extra={"source": self._source.name, "position": self._log.position})
        self._recovered()

    async def run(self) -> None:
        """Pump until cancelled. Call after `open`.

        Raises:
            SourceStateError: Capture cannot continue without an operator's help; the message says what to do.
        """
        await self._patiently(self._stream)

    async def _stream(self) -> None:
        if self._state.problem:
            await self.open()
        if self._source.direct is not None:
            await _DirectStream(self, self._source.direct).run(self._log.position)
        else:
            await self._stream_by_queue()

    async def _stream_by_queue(self) -> None:
        """Run reading and appending side by side, so that one waits for the database while the other syncs.

        A failure of the source travels through the queue behind the commits that came before it: those are appended
        first. So the next stream begins after everything that this one has read.
        """
        groups: asyncio.Queue[_Group] = asyncio.Queue(_GROUPS_IN_FLIGHT_MAX)
        reader = asyncio.create_task(self._read(groups))
        try:
            while True:
                taken = _take_all(await self._next(groups), groups)
                if taken.drafts:
                    await self.append(taken.drafts)
                if taken.progress is not None:
                    await self.note(taken.progress)
                if taken.failure is not None:
                    raise taken.failure
        finally:
            self._log.abandon()
            reader.cancel()
            await asyncio.gather(reader, return_exceptions=True)

    async def _read(self, groups: asyncio.Queue[_Group]) -> None:
        try:
            async with aclosing(self._source.commits(self._log.position)) as commits:
                async for group in commits:
                    await groups.put(group)
        except Exception as error:  # raised again by the task that takes it out
            await groups.put(error)

    async def _next(self, groups: "asyncio.Queue[_Group]") -> _Group:
        """Return the next group; the progress that waits to be written down, when nothing else comes before that."""
        if self._progress is None:
            return await groups.get()
        try:
            async with asyncio.timeout_at(self._progress_due_s):
                return await groups.get()
        except TimeoutError:
            return Progress(self._progress)

    async def note(self, position: Position) -> None:
        """Tell the log how far the source is, and the source that the log knows, once that is on disk."""
        now_s = asyncio.get_running_loop().time()
        durable = now_s >= self._progress_due_s
        await self._patiently(partial(self._log.progress, position, durable=durable))
        self._recovered()
        self._progress = None if durable else position
        if durable:
            self._progress_due_s = now_s + self._progress_interval_s
            await self._source.confirm(position)

    async def append(self, drafts: Sequence[Draft]) -> None:
        """Append commits and parts of commits, then confirm the last whole commit."""
        ended: Position | None = None
        for run in _runs(drafts):
            if run[0].part:  # after a failure, the parts before it are gone: the stream starts over
                await self._log.append(run)
            else:
                await self._patiently(partial(self._log.append, run))
            ended = ended if run[-1].more else run[-1].position
            self._recovered()
        self._progress = None
        if ended is not None:
            await self._source.confirm(ended)

    def append_now(self, drafts: Sequence[Draft], direct: DirectSource) -> bool:
        """Append whole commits in the reading thread and confirm them; return False where the disk refuses for now."""
        try:
            self._log.append_now(drafts)
        except _PASSING:
            return False
        self._progress = None
        self._recovered()
        direct.confirm_directly(drafts[-1].position)
        return True

    def abandon(self) -> None:
        """Give up a commit of which not all parts have come."""
        self._log.abandon()

    async def _patiently(self, attempt: Callable[[], Awaitable[object]]) -> None:
        await Retry(self._backoff).call_async(attempt, on=_PASSING, notice=self._notice)

    def _recovered(self) -> None:
        if self._state.problem:
            logger.info("capture continues", extra={"source": self._source.name, "position": self._log.position})
        self._state.recovered()

    def _notice(self, error: Exception) -> None:
        """Keep the problem for the health checks and log it once, however often it repeats."""
        problem = str(error)
        if problem != self._state.problem:
            logger.warning("capture waits", extra={"source": self._source.name, "problem": problem})
        self._state.waits(problem)


class _DirectStream:
    """Takes what a source reads in the source's own thread.

    Few changes are appended right there: reading, encoding, writing and syncing are then one thread's work, and the
    event loop is woken once, when there is something to show. Many changes are appended on the event loop while the
    thread reads on, one append at a time; so is what the disk refuses for now, because only a task can be patient and
    still be cancelled.
    """

    def __init__(self, pump: Pump, direct: DirectSource) -> None:
        self._pump = pump
        self._direct = direct
        self._loop = asyncio.get_running_loop()
        self._pending: concurrent.futures.Future[None] | None = None
        self._failed: asyncio.Future[None] = self._loop.create_future()
        """Ends with the error of an append: the thread, with nothing more to hand over, may never hear of it."""

        self._ending = False

    async def run(self, after: Position | None) -> None:
        """Take commits until cancelled, or until the source fails; what came before a failure is appended first."""
        handing_over = asyncio.create_task(self._direct.hand_over(after, self._take))
        try:
            await asyncio.wait([handing_over, self._failed], return_when=asyncio.FIRST_COMPLETED)
            if self._pending is not None:
                await asyncio.wrap_future(self._pending)
            if self._failed.done():
                self._failed.result()
            handing_over.result()
        finally:
            # The thread may wait for an append that waits for the disk: that must end first.
            self._ending = True
            self._failed.cancel()
            if self._pending is not None:
                self._pending.cancel()
            handing_over.cancel()
            await asyncio.gather(handing_over, return_exceptions=True)
            self._pump.abandon()

    # The rest runs in the source's thread.

    def _take(self, group: Sequence[Draft] | Progress) -> None:
        self._finish_pending()
        if isinstance(group, Progress):
            self._begin(self._pump.note(group.position))
            return
        few = sum(map(len, group)) <= _DIRECT_CHANGES_MAX and all(draft.whole for draft in group)
        if not (few and self._pump.append_now(group, self._direct)):
            self._begin(self._pump.append(group))

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        self._pending = pending = asyncio.run_coroutine_threadsafe(self._watched(work), self._loop)
        if self._ending:  # it was not there yet when the others were cancelled
            pending.cancel()

    async def _watched(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except Exception as error:
            if not self._failed.done():
                self._failed.set_exception(error)
                self._failed.exception()  # it may be raised by `pending` instead: then nobody fetches it here
            raise

    def _finish_pending(self) -> None:
        """Wait for the append that was begun before this one, and raise what it raised."""
        if self._pending is not None:  # it stays there meanwhile, so that it can be cancelled
            self._pending.result()
            self._pending = None


def _runs(drafts: Sequence[Draft]) -> Iterator[list[Draft]]:
    """Yield drafts as the log takes them: whole commits together, each part of a commit alone."""
    run: list[Draft] = []
    for draft in drafts:
        if draft.whole:
            run.append(draft)
            continue
        if run:
            yield run
        yield [draft]
        run = []
    if run:
        yield run


class _Taken(Struct):
    """What waits to be appended: commits, progress behind them, and a failure behind both."""

    drafts: list[Draft]
    progress: Position | None = None
    failure: Exception | None = None


def _take_all(first: _Group, groups: "asyncio.Queue[_Group]") -> _Taken:
    """Return all groups that wait, up to a failure, the commits to be appended as one."""
    taken = _Taken([])
    group = first
    while not isinstance(group, Exception):
        if isinstance(group, Progress):
            taken.progress = group.position
        else:
            taken.drafts += group
            taken.progress = None  # the commits are further
        if groups.empty():
            return taken
        group = groups.get_nowait()
    taken.failure = group
    return taken
