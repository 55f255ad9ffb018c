"""The pump: takes commits out of a source, puts them into the log, then tells the source that the log has them."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from functools import partial
from typing import Protocol

from tailrace.model.commit import Appended, Draft
from tailrace.model.errors import LogFullError, LogWriteError, SourceUnavailableError
from tailrace.model.number import Position
from tailrace.retry import Backoff, retry
from tailrace.source.base import SchemaRegistry, Source

__all__ = ["CaptureState", "Pump", "PumpLog"]

logger = logging.getLogger(__name__)

_GROUPS_IN_FLIGHT_MAX = 4

_BUSY_CHANGES = 128
"""From so many changes at once, the database is busy: then the disk is left to it for a moment between two syncs."""

_BUSY_PAUSE_S = 0.02

_Group = Sequence[Draft] | Exception
"""Commits that a source yielded together, or how it failed."""

_PASSING = (SourceUnavailableError, LogFullError, LogWriteError)
"""What passes by itself: a database that comes back, a disk that is given space."""


class PumpLog(SchemaRegistry, Protocol):
    """What the pump needs of a log."""

    @property
    def position(self) -> Position | None:
        """Return the position of the newest durable commit."""

    async def append(self, drafts: Sequence[Draft]) -> Appended:
        """Number and keep commits; durable on return."""


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

    A commit is confirmed to the source only after the log has synced it. After any break the source resumes after the
    last position in the log, so a crash between the two repeats and loses nothing. While the disk refuses (full,
    or failing), the same commits are offered again until it takes them; the source waits meanwhile.
    """

    def __init__(self, source: Source, log: PumpLog, state: CaptureState, backoff: Backoff = Backoff()) -> None:  # noqa: B008
        self._source = source
        self._log = log
        self._state = state
        self._backoff = backoff

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
            SourceStateError: Capture cannot go on without somebody's help; the message says what to do.
        """
        await self._patiently(self._stream)

    async def _stream(self) -> None:
        """Run reading and appending side by side, so that one waits for the database while the other syncs.

        A failure of the source travels through the queue behind the commits that came before it: those are appended
        first. So the next stream begins after everything that this one has read.
        """
        if self._state.problem:
            await self.open()
        groups: asyncio.Queue[_Group] = asyncio.Queue(_GROUPS_IN_FLIGHT_MAX)
        reader = asyncio.create_task(self._read(groups))
        try:
            while True:
                drafts, failure = _take_all(await groups.get(), groups)
                if drafts:
                    await self._append(drafts)
                    if sum(map(len, drafts)) >= _BUSY_CHANGES:
                        await asyncio.sleep(_BUSY_PAUSE_S)
                if failure is not None:
                    raise failure
        finally:
            reader.cancel()
            await asyncio.gather(reader, return_exceptions=True)

    async def _read(self, groups: asyncio.Queue[_Group]) -> None:
        try:
            async with aclosing(self._source.commits(self._log.position)) as commits:
                async for drafts in commits:
                    await groups.put(drafts)
        except Exception as error:  # raised again by the task that takes it out
            await groups.put(error)

    async def _append(self, drafts: Sequence[Draft]) -> None:
        await self._patiently(partial(self._log.append, drafts))
        self._recovered()
        await self._source.confirm(drafts[-1].position)

    async def _patiently(self, attempt: Callable[[], Awaitable[object]]) -> None:
        await retry(attempt, on=_PASSING, notice=self._notice, backoff=self._backoff)

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


def _take_all(first: _Group, groups: "asyncio.Queue[_Group]") -> tuple[list[Draft], Exception | None]:
    """Return the commits of all groups that wait, to be appended as one, and the failure behind them, if any."""
    drafts: list[Draft] = []
    group = first
    while not isinstance(group, Exception):
        drafts += group
        if groups.empty():
            return drafts, None
        group = groups.get_nowait()
    return drafts, group
