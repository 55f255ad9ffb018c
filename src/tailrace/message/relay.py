"""Sinks without Spark: the changes of a live subscription go to a target as they come, in a thread of their own."""

import logging
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

from msgspec import Struct

from tailrace.clock import Clock
from tailrace.message.base import BusyError
from tailrace.message.outbox import Outbox
from tailrace.meta.sink_store import SinkFigures, SinkState
from tailrace.model.chunk import Change
from tailrace.model.errors import (
    AccessError,
    BehindHorizonError,
    ConfigError,
    InvalidRequestError,
    MetadataError,
    NotFoundError,
    SinkRefusedError,
    SinkUnavailableError,
    SourceUnavailableError,
    TailraceError,
)
from tailrace.model.number import Offset
from tailrace.model.table import TableSchema
from tailrace.retry import Backoff, Retry

__all__ = ["LASTING", "Arrived", "Relay", "RelayOptions", "SinkReader"]

logger = logging.getLogger(__name__)

_T = TypeVar("_T")


class Arrived(Struct, frozen=True):
    """Changes that have come, in order, some or none of them wanted; nothing up to `through` is missing."""

    changes: Sequence[Change]
    through: Offset


class SinkReader(Protocol):
    """Reads the changes of one sink's subscription. For one thread.

    All methods raise `SourceUnavailableError` where nothing can be read now: worth another try.
    """

    @property
    def after(self) -> Offset:
        """Return the offset behind which it began to read when it was opened."""

    def tables(self) -> Sequence[TableSchema]:
        """Return the tables that the sink is for, as far as there are any yet. Leaves nothing behind."""

    def open(self, after: Offset) -> str:
        """Begin behind the cursor of the subscription, or behind `after` where that is further. Safe to repeat.

        The first time the subscription is made. Return what tells the sink from others that had its name before it.
        """

    def next(self, timeout_s: float) -> Arrived | None:
        """Return the next changes; None where none came in time."""

    def acknowledge(self, through: Offset) -> None:
        """Note that the target has all changes up to an offset, soon and in any case before `close` has returned."""

    def close(self) -> None:
        """Let go. Safe to repeat."""


class RelayOptions(Struct, frozen=True):
    """How a relay waits and tries again."""

    idle_s: float = 1.0
    """How long to wait for changes before it looks after the letters, and how often it tells how it goes."""

    outage_s_max: float | None = None
    """Longest time for which target and source are tried again; None for ever."""

    backoff: Backoff = Backoff(first_s=0.1, longest_s=10.0)
    again: Backoff = Backoff(first_s=1.0, longest_s=300.0)
    """How long a relay that has failed rests before it is run again, where it is."""


LASTING = (SinkRefusedError, BehindHorizonError, NotFoundError, InvalidRequestError, ConfigError, AccessError)
"""Failures that do not pass by themselves."""

_AWAY = (SinkUnavailableError, SourceUnavailableError, MetadataError)
"""Failures of a side that cannot be reached now."""


class Relay:
    """Runs one sink until it is stopped. What is there is sent at once; while a target is busy, more gathers.

    It never holds more changes than the reader hands over at once, and it disturbs nobody but its own thread.
    """

    def __init__(
        self,
        outbox: Outbox,
        reader: SinkReader,
        tell: Callable[[SinkFigures], None],
        clock: Clock,
        options: RelayOptions | None = None,
    ) -> None:
        self._outbox = outbox
        self._reader = reader
        self._tell = tell
        self._clock = clock
        self._options = options or RelayOptions()
        self._stop = threading.Event()
        self._offset = 0
        self._reported_s = float("-inf")
        self._awaits_tables = True
        self._subscribed = False
        self._problem = ""
        """What is to be said of the sink although it runs."""

    def stop(self) -> None:
        """Have it end soon. From any thread."""
        self._stop.set()

    def run(self) -> None:
        """Send changes until it is stopped.

        Raises:
            SinkRefusedError: The target takes nothing any more, a change was refused and the sink is to stop then, or
                another process has begun to send for the sink.
            SinkUnavailableError: The target could not be reached for too long.
            BehindHorizonError: Retention has removed changes that the target lacks.
            TailraceError: The source or the metadata failed.
        """
        try:
            try:
                self._follow()
            except BehindHorizonError as error:
                raise self._lost(error) from error
            finally:
                self._close()
        except TailraceError as error:
            self._note(SinkState.FAILED, str(error))
            raise
        except Exception as error:
            self._note(SinkState.FAILED, _shown(error))
            raise
        logger.info("sink stopped", extra={"sink": self._outbox.name, "offset": self._offset})
        self._note(SinkState.STOPPED)

    def keep_running(self) -> None:
        """Send changes until it is stopped; after a failure that may pass, again, with growing pauses.

        Raises:
            TailraceError: It has failed in a way that does not pass: see `LASTING`.
        """
        retry = Retry(self._options.again, progress=lambda: self._outbox.messages)
        while not self._stop.is_set():
            try:
                self.run()
            except LASTING:
                raise
            except Exception as error:
                pause_s = retry.failed(error)
                fields = {"sink": self._outbox.name, "problem": _shown(error), "failures": retry.failures}
                logger.error("sink failed, retrying", extra=fields)
                self._stop.wait(pause_s)

    def _follow(self) -> None:
        if self._patiently(self._open):
            logger.info("sink started", extra={"sink": self._outbox.name, "offset": self._offset})
            self._note(SinkState.RUNNING)
            self._patiently(self._tend)  # first: a sink with too many letters takes nothing more before they are sent
        while not self._stop.is_set():
            arrived = self._patiently(lambda: self._reader.next(self._options.idle_s))
            if arrived is not None:
                self._pass_on(arrived)
            if self._clock.monotonic_s() - self._reported_s >= self._options.idle_s or arrived is None:
                self._patiently(self._tend)
                if self._awaits_tables:
                    self._patiently(self._look_for_tables)
                self._note(SinkState.RUNNING, self._problem)

    def _close(self) -> None:
        """Let go of both sides. A cursor that cannot be moved now stays: what it lacks is sent again."""
        try:
            self._reader.close()
        except TailraceError as error:
            logger.warning("cursor of a sink not moved", extra={"sink": self._outbox.name, "problem": str(error)})
        finally:
            self._outbox.close()

    def _lost(self, error: BehindHorizonError) -> BehindHorizonError:
        """Return an error that also says how the sink is made to go on."""
        name = self._outbox.name
        remedy = (
            f"what is gone the sink cannot have; after `tailrace sink rm {name}` it starts over, as its `start` says"
        )
        return BehindHorizonError(requested=error.requested, horizon=error.horizon, remedy=remedy)

    def _open(self) -> bool:
        """Connect both sides. The target's mark, where it keeps one, may be further than the cursor.

        The subscription comes last: a sink that cannot be as it is configured leaves none behind. While its target is
        away it has one, so that it misses nothing, even if it is ended before it has ever reached the target.
        """
        try:
            self._outbox.open(self._reader.tables(), lambda: self._reader.open(Offset(0)))
        except SinkUnavailableError:
            if not self._subscribed:
                self._reader.open(Offset(0))
                self._subscribed = True
            raise
        after = max(_through(self._outbox.mark), self._outbox.settled)
        if after > self._reader.after:
            self._reader.open(Offset(after))
        self._offset = self._reader.after
        return True

    def _look_for_tables(self) -> None:
        """Check the tables that have appeared, and say which the sink still waits for.

        Raises:
            ConfigError: Filter or projection do not fit one.
        """
        schemas = self._reader.tables()
        missing = self._outbox.awaited(schemas)
        self._awaits_tables = bool(missing) or not schemas
        names = ", ".join(missing)
        problem = f"the source has no table {names} yet: the sink waits for it" if missing else ""
        if problem and problem != self._problem:
            logger.warning("sink waits for tables", extra={"sink": self._outbox.name, "tables": names})
        self._problem = problem

    def _pass_on(self, arrived: Arrived) -> None:
        """Deliver changes, as many at once as the target wants, and acknowledge them, until the relay is stopped."""
        changes, through = arrived.changes, arrived.through
        size = self._outbox.changes_max or len(changes)
        while len(changes) > size:
            through = changes[size - 1].offset
            if not self._pass_some(changes[:size], through) or self._stop.is_set():
                return
            changes, through = changes[size:], arrived.through
        self._pass_some(changes, through)

    def _pass_some(self, changes: Sequence[Change], through: Offset) -> bool:
        mark = b"%d-%d" % (self._offset, through)
        if changes and self._patiently(lambda: self._deliver(changes, mark)) is None:
            return False
        self._offset = through
        self._patiently(lambda: self._reader.acknowledge(through))
        return True

    def _deliver(self, changes: Sequence[Change], mark: bytes) -> bool:
        self._outbox.deliver(changes, mark)
        return True

    def _patiently(self, use: Callable[[], _T]) -> _T | None:
        """Return what a call returns, tried again while target or source are away; None where the relay is stopped.

        An outage begins with a failure, and again, with short pauses, where messages have arrived since the one before.
        """
        retry = Retry(
            self._options.backoff,
            outage_s_max=self._options.outage_s_max,
            progress=lambda: self._outbox.progress,
            monotonic_s=self._clock.monotonic_s,
        )

        def rest(pause_s: float, error: Exception) -> bool:
            if retry.failures == 1:
                logger.warning("sink waits", extra={"sink": self._outbox.name, "problem": str(error)})
            asked_s = error.retry_after_s if isinstance(error, BusyError) else 0.0
            self._rest(pause_s + asked_s, str(error))
            if self._stop.is_set():
                return False
            self._tend_while_waiting()
            return True

        try:
            return retry.call(use, on=_AWAY, rest=rest)
        except _AWAY:
            if self._stop.is_set():
                return None
            raise

    def _rest(self, pause_s: float, problem: str) -> None:
        """Wait, saying again and again that it waits, until the pause is over or the relay is stopped."""
        end_s = time.monotonic() + pause_s
        while not self._stop.is_set() and (left_s := end_s - time.monotonic()) > 0:
            self._note(SinkState.WAITING, problem)
            self._stop.wait(min(left_s, self._options.backoff.longest_s))

    def _tend(self) -> int:
        """Resend dead letters marked for retry, of changes that the relay has passed."""
        return self._outbox.tend(self._offset)

    def _tend_while_waiting(self) -> None:
        """Send letters that the sink waits for."""
        try:
            self._tend()
        except (SinkUnavailableError, MetadataError):
            return  # the next try tells

    def _note(self, state: SinkState, problem: str = "") -> None:
        """Tell how it goes."""
        outbox = self._outbox
        figures = SinkFigures(state, self._offset, outbox.messages, outbox.parked, self._clock.now_us(), problem)
        self._reported_s = self._clock.monotonic_s()
        try:
            self._tell(figures)
        except MetadataError as error:
            logger.warning("figures of a sink not noted", extra={"sink": outbox.name, "problem": str(error)})


def _shown(error: Exception) -> str:
    """Return the message for an error. A foreign error may hold values: only its place is shown."""
    if isinstance(error, TailraceError):
        return str(error)
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"unexpected {type(error).__name__} in {last.name}, line {last.lineno} of {Path(last.filename).name}"


def _through(mark: bytes | None) -> int:
    """Return the last offset of the batch that has a mark: `AFTER-THROUGH`. 0 where it is none of a relay."""
    through = (mark or b"").rpartition(b"-")[2]
    return int(through) if through.isdigit() else 0
