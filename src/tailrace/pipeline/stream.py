"""Following the log into a sink with Spark's structured streaming."""

import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from tailrace.client.bulk_rows import BulkRowsClient
from tailrace.clock import Clock
from tailrace.model.errors import BehindHorizonError, TailraceError
from tailrace.pipeline.batch_writer import BatchWriter
from tailrace.pipeline.definition import Definition
from tailrace.pipeline.errors import CheckpointLostError, PipelineError, PipelineFailedError
from tailrace.pipeline.keeper import LeaseKeeper
from tailrace.pipeline.record import Figures
from tailrace.pipeline.store import PipelineStore

__all__ = ["Follower", "has_offsets"]

logger = logging.getLogger(__name__)

_CHANGES_MAX = 200_000
"""Most changes in one micro-batch; only a single commit may have more."""

_TRIGGER = "200 milliseconds"
_LOOK_S = 0.5
"""How often to look how the query goes."""


class _Place(Struct, frozen=True):
    """Where the log follows on the snapshot, how far the sink is, and how far the log is."""

    init: int
    reached: int
    head: int


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
        *,
        tending: bool = True,
    ) -> None:
        self._definition = definition
        self._store = store
        self._keeper = keeper
        self._writer = writer
        self._client = client
        self._clock = clock
        self._token = token
        self._tending = tending
        self._begin_s = time.monotonic()
        self._batch = -1
        self._changes = 0

    def run(
        self,
        session: Any,
        checkpoint: Path,
        *,
        once: bool,
        stopped: Callable[[], bool],
        tell: Callable[[Figures], None],
    ) -> None:
        """Follow the log until `stopped`, or, with `once`, until the sink has what is committed now.

        Raises:
            CheckpointLostError: The sink has changes that no checkpoint knows of.
            PipelineFailedError: Retention has removed changes that the sink does not have.
            PipelineError: Spark failed.
            TailraceError: The sink, the transformation or the metadata failed.
        """
        if once:
            self._client.committed(self._definition.source, self._definition.tables[0])
        place = self._check(checkpoint)
        if once and place.reached >= place.head:
            if self._tending:
                self._writer.tend()
            self._store.advance(self._keeper.lease, place.reached, self._figures(place.head))
            return
        query = self._start(session(), checkpoint, place.init, once=once)
        try:
            while query.isActive and not stopped():
                query.awaitTermination(_LOOK_S)
                self._keeper.check()
                self._note(query, tell)
                if self._tending and query.lastProgress is not None:
                    self._writer.tend()
                if not self._keeper.wanted:
                    return
        finally:
            if query.isActive:
                query.stop()
            self._note_last(query, tell)
        if query.exception() is not None:
            raise self._reason(query.exception())

    @property
    def changes(self) -> int:
        """Return how many rows of changes were applied: as Spark tells, which may miss batches, or as we counted."""
        return max(self._changes, self._writer.changes)

    def _check(self, checkpoint: Path) -> "_Place":
        """Return how far the sink is, if all that is needed to go on is there."""
        ranges = self._store.progress(self._definition.name)
        init = max(one.init_version for one in ranges)
        progress = self._writer.sink().progress()
        reached = init if progress is None else progress.offsets.get(self._definition.source, init)
        if reached > init and not has_offsets(checkpoint):
            raise CheckpointLostError(self._definition.name, str(checkpoint))
        noted = max(reached, *(one.last_log_index for one in ranges))
        info = self._client.info(self._definition.source)
        if noted + 1 < info.horizon:
            error = BehindHorizonError(requested=noted + 1, horizon=info.horizon)
            self._store.fail(self._keeper.lease, self._figures(info.head, str(error)))
            raise PipelineFailedError(self._definition.name, str(error)) from error
        return _Place(init, noted, info.head)

    def _start(self, session: Any, checkpoint: Path, offset: int, *, once: bool) -> Any:
        definition = self._definition
        options = {
            "server": definition.server,
            "source": definition.source,
            "tables": msgspec.json.encode(definition.tables).decode(),
            "layout": "json",
            "start": str(offset),
            "maxChangesPerTrigger": str(_CHANGES_MAX),
        }
        found = self._store.get(definition.name)
        extra = {"subscription": found.subscription, "token": self._token}
        options |= {name: value for name, value in extra.items() if value is not None}
        writing = session.readStream.format("tailrace").options(**options).load().writeStream
        writing = writing.queryName(definition.name).foreachBatch(self._writer)
        writing = writing.option("checkpointLocation", str(checkpoint))
        writing = writing.trigger(availableNow=True) if once else writing.trigger(processingTime=_TRIGGER)
        return writing.start()

    def _note(self, query: Any, tell: Callable[[Figures], None]) -> None:
        """Keep how far the query is, and tell people."""
        last = query.lastProgress
        offset = None if last is None or not last.sources else _offset(last.sources[0].endOffset)
        if offset is None:
            return
        if last.batchId > self._batch:
            self._batch = last.batchId
            self._changes += last.numInputRows
        head = _offset(last.sources[0].latestOffset) or offset
        figures = self._figures(max(head, offset))
        self._store.advance(self._keeper.lease, offset, figures)
        tell(figures)

    def _figures(self, head: int, problem: str = "") -> Figures:
        seconds = max(time.monotonic() - self._begin_s, 1e-3)
        return Figures(
            rows=self._store.get(self._definition.name).figures.rows,
            changes=self.changes,
            changes_per_s=round(self.changes / seconds, 1),
            head=head,
            time_us=self._clock.now_us(),
            problem=problem,
        )

    def _note_last(self, query: Any, tell: Callable[[Figures], None]) -> None:
        try:
            self._note(query, tell)
        except TailraceError as error:
            logger.warning("progress not noted", extra={"problem": str(error)})

    def _reason(self, failure: Any) -> Exception:
        """Return why a query failed, as one of our errors where it is one."""
        if self._writer.problem is not None:
            return self._writer.problem
        text = str(failure)
        if "BehindHorizonError" in text:
            horizon = self._client.info(self._definition.source).horizon
            reason = f"changes before {horizon} are no longer in the log"
            self._store.fail(self._keeper.lease, self._figures(0, reason))
            return PipelineFailedError(self._definition.name, reason)
        return PipelineError(f"Spark failed: {text.strip().splitlines()[0][:500]}")


def _offset(text: Any) -> int | None:
    """Return the offset in what Spark keeps of a place in the log."""
    if not text or text == "null":
        return None
    decoded = msgspec.json.decode(text) if isinstance(text, str) else text
    return int(decoded["offset"]) if isinstance(decoded, dict) and "offset" in decoded else None


def has_offsets(checkpoint: Path) -> bool:
    """Tell whether a checkpoint has a micro-batch."""
    directory = checkpoint / "offsets"
    return directory.is_dir() and any(path.name.isdigit() for path in directory.iterdir())
