"""Following the log into a sink with Spark's structured streaming."""

import contextlib
import logging
import time
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from tailrace.client.bulk_rows import BulkRowsClient
from tailrace.client.errors import ClientError, NotFound
from tailrace.clock import Clock
from tailrace.meta.pipeline import Figures
from tailrace.model.errors import BehindHorizonError, MetadataError, TailraceError
from tailrace.pipeline.batch_writer import BatchWriter
from tailrace.pipeline.definition import Definition
from tailrace.pipeline.errors import LeaseError, SinkTableGoneError, SparkEndedError
from tailrace.pipeline.failure import Failure, failure_of
from tailrace.pipeline.keeper import LeaseKeeper
from tailrace.pipeline.layout import PACKED_SCHEMA
from tailrace.pipeline.maintenance import Maintenance
from tailrace.pipeline.session import Turns
from tailrace.pipeline.store import PipelineStore
from tailrace.retry import Backoff, Retry, resting

__all__ = ["Follower", "RecentRate", "in_turn"]

logger = logging.getLogger(__name__)

_TRIGGER = "0 seconds"
"""At once: the source waits where there is nothing new."""

_LOOK_S = 0.5
"""How often to look how the query goes."""

_BACKOFF = Backoff(first_s=0.2, longest_s=10.0)
_FAILURES_MAX = 5
"""So often a query that Spark ended is started again, unless it gets on meanwhile."""

_BATCH_S_MAX = 50.0
"""Longest time that a batch in hand is given when the query is to stop."""

_TELL_S = 5.0
"""How often to tell that nothing happens."""


_START_S_MAX = 30.0
"""Longest time for which the start of one query keeps others waiting: its first batch may be a large one."""

_START_LOOK_S = 0.05

_RATE_S = 10.0
"""How far back the rate of changes looks."""


_IDLE_CHANGES = 50_000
"""After this many changes that are not for the sink it notes that it has them: the next run reads no more again."""


class _Place(Struct, frozen=True):
    """Where the log is to be followed from, and how far it is."""

    begin: int
    head: int


class _Batch(Struct, frozen=True):
    """The newest batch of a query that has ended, as Spark reports it: its number from 1, its size, its time."""

    count: int = 0
    changes: int = 0
    seconds: float = 0.0


class RecentRate:
    """How quickly a number grew in the last seconds, and not since whenever it began to."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()

    def at(self, now_s: float, number: int) -> float:
        """Return by how much the number grew for each second, given what it is now."""
        self._seen.append((now_s, number))
        # What was seen last before the window stays: growth between then and now is known for that time alone.
        while len(self._seen) > 2 and self._seen[1][0] <= now_s - _RATE_S:
            self._seen.popleft()
        begin_s, before = self._seen[0]
        return (number - before) / (now_s - begin_s) if now_s > begin_s else 0.0


class Follower:
    """Runs the streaming query of one pipeline. For one thread."""

    def __init__(
        self,
        definition: Definition,
        store: PipelineStore,
        keeper: LeaseKeeper,
        writer: BatchWriter,
        client: BulkRowsClient,
        clock: Clock,
        token: str | None,
        turns: Turns,
        *,
        remote: bool = False,
    ) -> None:
        self._turns = turns
        self._definition = definition
        self._store = store
        self._keeper = keeper
        self._writer = writer
        self._client = client
        self._clock = clock
        self._token = token
        self._remote = remote
        self._maintenance = Maintenance(definition, store, keeper.lease, writer.maintain, clock)
        self._rate = RecentRate()
        self._offset = -1
        self._queries = 0
        self._changes = 0
        self._head = 0
        self._retry = Retry(_BACKOFF, outage_s_max=writer.outage_s_max)
        self._noted = (0, 0, 0, "")
        self._noted_s = 0.0
        self._batch = _Batch()

    def place(self) -> _Place:
        """Return where to go on: behind all that the sink has.

        A sink that keeps nothing is where it was noted to be, here and on the server.

        Raises:
            BehindHorizonError: Retention has removed changes that the sink does not have.
            SinkTableGoneError: The sink has nothing of what was copied.
        """
        definition = self._definition
        ranges = self._store.progress(definition.name)
        init = max(one.init_version for one in ranges)
        noted = max(init, *(one.last_log_index for one in ranges))
        progress = self._writer.sink().progress()
        if progress is None and self._writer.is_lost(sum(one.rows_copied for one in ranges)):
            raise SinkTableGoneError(definition.tables[0])
        reached = None if progress is None else progress.offsets.get(definition.source)
        begin = max(init, max(noted, self._acknowledged()) if reached is None else reached)
        info = self._client.info(definition.source)
        if begin + 1 < info.horizon:
            # What was noted to be read and is not known to the sink was not for it, or it would have been given to it.
            begin = max(begin, noted)
        if begin + 1 < info.horizon:
            raise BehindHorizonError(requested=begin + 1, horizon=info.horizon)
        return _Place(begin, info.head)

    def run(
        self,
        session: Any,
        directory: Path,
        *,
        once: bool,
        stopped: Callable[[], bool],
        tell: Callable[[Figures], None],
    ) -> None:
        """Follow the log until `stopped`, or, with `once`, until the sink has what is committed now.

        What Spark keeps of a query is below `directory`; a Spark Connect server has a place of its own for it.

        Raises:
            BehindHorizonError: Retention has removed changes that the sink does not have.
            PipelineError: Spark failed, or has ended; or `place` does.
            StoppedError: It was stopped while Spark was being started.
            TailraceError: The sink, the transformation or the metadata failed.
        """
        if once:
            self._settle()
        place = self.place()
        if not self._remote:  # first: a sink that may have no more letters takes nothing until it is rid of some
            self._writer.tend()
        if once and place.begin >= place.head:
            self._store.advance(self._keeper.lease, place.begin, self._figures(place.head))
            self._maintenance.tend()
            return
        self._head = place.head
        while not stopped():
            spark = session()
            with _spark_outcome() as outcome:
                start = partial(self._start, spark, directory, place.begin, once=once)
                query = in_turn(self._turns, start, stopped)
                outcome.append(self._watch(query, stopped, tell))
            if outcome[0] is None or not self._keeper.wanted or stopped():  # what stops a query may have failed it, too
                return
            self._wait(self._reason(outcome[0]), stopped)
            place = self.place()

    def _acknowledged(self) -> int:
        """Return up to which offset the server knows the changes to be done with, where it knows."""
        subscription = self._store.get(self._definition.name).subscription
        with contextlib.suppress(ClientError, KeyError, TypeError):
            listed = self._client.call("cdc.list", {}, again=True)["subscriptions"]
            return max((one["acked_offset"] for one in listed if one["sub_id"] == subscription), default=0)
        return 0

    def _settle(self) -> None:
        """Wait until the log has what is committed now, which any table tells that the source still has."""
        for table in self._definition.tables:
            with contextlib.suppress(NotFound):
                self._client.committed(self._definition.source, table)
                return

    def _watch(self, query: Any, stopped: Callable[[], bool], tell: Callable[[Figures], None]) -> Any:
        """Let a query run until it ends, or is to; return what it failed with, if it did."""
        try:
            while query.isActive and not stopped() and self._keeper.wanted:
                query.awaitTermination(_LOOK_S)
                self._keeper.check()
                with contextlib.suppress(MetadataError):  # for as long as the lease lasts; then it is another's
                    self._note(query, tell)
                if not self._remote and query.lastProgress is not None:
                    self._writer.tend()
                with contextlib.suppress(MetadataError):  # it is tried again at the next look
                    self._maintenance.tend()
        finally:
            if query.isActive:
                self._writer.settle(_BATCH_S_MAX)
                self._writer.stopping = True
                query.stop()
            if self._remote:
                self._writer.close()  # the sink was written by another process: this one's knows less
            self._note_last(query, tell)
        return query.exception()

    def _wait(self, failure: Failure, stopped: Callable[[], bool]) -> None:
        """Wait before a query is started again.

        Raises:
            TailraceError: That is of no use.
        """
        self._keeper.check()
        if failure.final or (not failure.away and self._retry.failures >= _FAILURES_MAX):
            raise failure.error
        pause_s = self._retry.failed(failure.error)
        logger.warning("query failed, started again", extra={"problem": str(failure.error)})
        self._store.note(self._keeper.lease, self._figures(self._head, str(failure.error)))
        resting(lambda: not stopped() and self._keeper.wanted)(pause_s)

    @property
    def changes(self) -> int:
        """Return how many changes were applied; over Spark Connect, where that is not known, changes read."""
        return self._writer.changes or self._changes

    def _start(self, session: Any, directory: Path, offset: int, *, once: bool) -> Any:
        definition = self._definition
        self._writer.stopping = False
        options = {
            "server": definition.server,
            "source": definition.source,
            "tables": msgspec.json.encode(definition.tables).decode(),
            "layout": self._writer.layout,
            "start": str(offset),
            "maxChangesPerTrigger": str(self._writer.changes_max),
            "maxBytesPerTrigger": str(self._writer.bytes_max),
        }
        found = self._store.get(definition.name)
        extra = {"subscription": found.subscription, "token": self._token}
        options |= {name: value for name, value in extra.items() if value is not None}
        # With its columns said, Spark need not have the source asked for them, and the source need not ask the server.
        reading = session.readStream.format("tailrace").schema(_columns()).options(**options)
        writing = reading.load().writeStream
        writing = writing.queryName(definition.name).foreachBatch(self._writer)
        if not self._remote:
            # Each query has a checkpoint of its own: where to begin is known from the sink, and what Spark has noted
            # about it would have to agree. A Spark Connect server makes one where it runs.
            self._queries += 1
            writing = writing.option("checkpointLocation", str(directory / f"query-{self._queries}"))
        writing = writing.trigger(availableNow=True) if once else writing.trigger(processingTime=_trigger(definition))
        return writing.start()

    def _note(self, query: Any, tell: Callable[[Figures], None]) -> None:
        """Keep how far the query is, and tell people."""
        last = query.lastProgress
        offset = None if last is None or not last.sources else _offset(last.sources[0].endOffset)
        if offset is None:
            return
        if offset > self._offset:
            self._offset = offset
            spanned = offset - (_offset(last.sources[0].startOffset) or offset)
            self._changes += spanned
            self._batch = _Batch(last.batchId + 1, spanned, last.durationMs.get("triggerExecution", 0) / 1000)
            self._retry.recovered()
        self._head = head = max(_offset(last.sources[0].latestOffset) or offset, offset)
        outcome = (offset, head, self.changes, self._writer.waiting)
        if outcome == self._noted and time.monotonic() - self._noted_s < _TELL_S:
            return
        figures = self._figures(head)
        self._store.advance(self._keeper.lease, offset, figures)
        self._noted, self._noted_s = outcome, time.monotonic()
        tell(figures)
        if not self._remote:
            self._note_idle(_IDLE_CHANGES)

    def _note_idle(self, changes_min: int) -> None:
        """Have the sink note how far the query is, where that is this much further than it knows."""
        try:
            self._writer.note_idle(self._offset, changes_min)
        except LeaseError:
            raise
        except TailraceError as error:
            logger.warning("progress not noted in the sink", extra={"problem": str(error)})

    def _figures(self, head: int, problem: str = "") -> Figures:
        before = self._store.get(self._definition.name).figures
        return Figures(
            rows=before.rows,
            maintained_time_us=before.maintained_time_us,
            changes=self.changes,
            changes_per_s=round(self._rate.at(time.monotonic(), self.changes), 1),
            batches=self._batch.count,
            batch_changes=self._batch.changes,
            batch_s=self._batch.seconds,
            head=head,
            time_us=self._clock.now_us(),
            problem=problem or self._writer.waiting,
        )

    def _note_last(self, query: Any, tell: Callable[[Figures], None]) -> None:
        try:
            self._note(query, tell)
            self._note_idle(1)
        except TailraceError as error:
            logger.warning("progress not noted", extra={"problem": str(error)})

    def _reason(self, failed: Any) -> Failure:
        """Return why a query failed, as one of our errors where it is one."""
        text = str(failed)
        if "BehindHorizonError" not in text:
            return failure_of(text, self._writer.problem)
        lacking = min(one.last_log_index for one in self._store.progress(self._definition.name)) + 1
        horizon = self._client.info(self._definition.source).horizon
        return Failure(BehindHorizonError(requested=min(lacking, horizon - 1), horizon=horizon), final=True)


def in_turn(turns: Turns, start: Callable[[], Any], stopped: Callable[[], bool]) -> Any:
    """Start a query and return it when it is under way, or has ended, or another one should not wait longer.

    A query starts several Python processes, each of which has 10 seconds to say so: many at once on a busy machine
    would all fail, and fail again.

    Raises:
        StoppedError: It was `stopped` before it was its turn.
    """
    with turns.held(stopped):
        query = start()
        end_s = time.monotonic() + _START_S_MAX
        while query.lastProgress is None and query.isActive and not stopped() and time.monotonic() < end_s:
            query.awaitTermination(_START_LOOK_S)
        return query


@contextlib.contextmanager
def _spark_outcome() -> Iterator[list[Any]]:
    """Give a list; what Spark fails with inside the `with` block is put into it.

    Raises:
        SparkEndedError: Spark is gone as a whole.
    """
    from py4j.protocol import Py4JError, Py4JNetworkError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    outcome: list[Any] = []
    try:
        yield outcome
    except (Py4JNetworkError, ConnectionError) as error:
        raise SparkEndedError("Spark has ended: run the pipeline again") from error
    except (PySparkException, Py4JError) as error:
        outcome.append(error)


def _trigger(definition: Definition) -> str:
    """Return how often a batch begins, as Spark takes it."""
    return f"{round(definition.trigger_s * 1000)} milliseconds" if definition.trigger_s else _TRIGGER


def _columns() -> Any:
    """Return the columns of micro-batches."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(PACKED_SCHEMA)


def _offset(text: Any) -> int | None:
    """Return the offset in what Spark keeps of a place in the log."""
    if not text or text == "null":
        return None
    decoded = msgspec.json.decode(text) if isinstance(text, str) else text
    return int(decoded["offset"]) if isinstance(decoded, dict) and "offset" in decoded else None
