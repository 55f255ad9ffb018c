"""Evaluating slow filters outside the event loop, a few changes a turn.

A CEL expression takes its time on each change, and its caller chooses how much of what is allowed. So such filters run
in a worker thread, without Python's global lock. All slow filters of a log share one turn: each gets a short part of
it, in the order in which they asked, so that the slowest delays the others least and what is not slow not at all.
"""

import asyncio
import time
from collections import OrderedDict

from msgspec import Struct

from tailrace.model.chunk import Chunk
from tailrace.model.errors import PredicateError
from tailrace.model.number import Offset
from tailrace.subscription.feed_batch import FeedBatch
from tailrace.subscription.filter import Filter
from tailrace.subscription.query.query_filter import QueryFilter

__all__ = ["Evaluator"]

_STEP_CHANGES_FIRST = 16
_STEP_S = 0.05
"""About how long one turn takes. How many changes that are is found by measuring."""

_CALL_S = 0.5
"""After about this long what was evaluated is handed out: the rest comes with the next call."""

_OVERRUN_S = 1.0
"""A filter that takes longer for one change, against its bound, is not asked again."""

_KEPT_MAX = 256

_Key = tuple[str, Offset, Offset, Filter]


class _Looked(Struct, frozen=True):
    """What one turn found: how many changes were evaluated, which of them pass, and whether the next one fails."""

    count: int
    passing: list[int]
    failed: bool
    time_s: float


class Evaluator:
    """Finds the changes that pass slow filters. For tasks of one event loop."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()  # whoever waits longest is next
        self._kept: OrderedDict[_Key, FeedBatch] = OrderedDict()

    async def evaluate(self, batch: FeedBatch) -> FeedBatch:
        """Return the first changes of a batch after its place, with those known that pass. At least one change.

        Raises:
            PredicateError: The filter fails on the very next change, or takes too long.
        """
        key = (batch.source, batch.chunk.first, batch.chunk.last, batch.filter)
        keep = not isinstance(batch.filter, QueryFilter)  # which is made for one look
        kept = self._kept.get(key) if keep else None
        if kept is not None and kept.chunk.first <= batch.after + 1 <= kept.chunk.last:
            self._kept.move_to_end(key)
            return FeedBatch(batch.source, kept.chunk, batch.filter, batch.after, kept.passing)
        made = await self._evaluate(batch, max(0, batch.after + 1 - batch.chunk.first))
        if keep:
            self._kept[key] = made
            while len(self._kept) > _KEPT_MAX:
                self._kept.popitem(last=False)
        return made

    async def _evaluate(self, batch: FeedBatch, begin: int) -> FeedBatch:
        passing: list[int] = []
        place, step, spent_s = begin, _STEP_CHANGES_FIRST, 0.0
        while place < len(batch.chunk) and spent_s < _CALL_S:
            part = _part(batch, place, step)
            try:
                async with self._turn:
                    looked = await asyncio.to_thread(_look, part)
            except PredicateError:
                if place == begin:
                    raise
                break  # what came before it goes out first
            passing += [place - begin + row for row in looked.passing]
            place += looked.count
            if looked.failed:
                break
            spent_s += looked.time_s
            step = max(1, min(2 * step, round(step * _STEP_S / max(looked.time_s, 1e-6))))
        done = _part(batch, begin, place - begin)
        return FeedBatch(batch.source, done.chunk, batch.filter, batch.after, passing)


def _part(batch: FeedBatch, begin: int, count: int) -> FeedBatch:
    chunk = batch.chunk
    if begin or count < len(chunk):
        chunk = Chunk(chunk.batch.slice(begin, count), chunk.schemas)
    return FeedBatch(batch.source, chunk, batch.filter, Offset(chunk.first - 1))


def _look(part: FeedBatch) -> _Looked:
    """Evaluate a few changes; for a worker thread.

    Raises:
        PredicateError: The filter fails on the first of them, or took too long.
    """
    begin_s, failed = time.thread_time(), False
    try:
        rows = part.rows()
    except PredicateError:
        part, failed = part.before_failure(), True
        rows = part.rows()
    time_s = time.thread_time() - begin_s
    if time_s > _OVERRUN_S * len(part.chunk):
        raise PredicateError(f"the expression took {time_s:.0f} s for {len(part.chunk)} changes")
    return _Looked(len(part.chunk), list(rows), failed, time_s)
