"""A batch of a feed: changes of the log with the filter that says which of them are wanted.

A CEL expression takes its time on each change, and its caller chooses how much of what is allowed. So such filters are
evaluated in a worker thread, without Python's global lock, a few changes a turn. All slow filters of a log share one
turn: each gets a short part of it, in the order in which they asked, so that the slowest delays the others least and
what is not slow not at all.
"""

import asyncio
import time
from collections import OrderedDict

from msgspec import Struct, structs

from tailrace.model.chunk import Chunk
from tailrace.model.errors import PredicateError
from tailrace.model.number import Offset
from tailrace.subscription.filter import Filter, Rows

__all__ = ["Evaluator", "FeedBatch"]

_STEP_CHANGES_FIRST = 16
_STEP_S = 0.05
"""About how long one turn takes. How many changes that are is found by measuring."""

_CALL_S = 0.5
"""After about this long what was evaluated is handed out: the rest comes with the next call."""

_OVERRUN_S = 1.0
"""A filter that takes longer for one change, against its bound, is not asked again."""

_KEPT_MAX = 256

_Key = tuple[str, Offset, Offset, Filter]


class FeedBatch(Struct, frozen=True):
    """The next changes to look at: those of `chunk` after the offset `after`. Some, all or none pass the filter.

    Where the reader may not see all, the chunk holds what it may, and the filter says so by being another.
    """

    source: str
    chunk: Chunk
    filter: Filter
    after: Offset
    passing: Rows | None = None
    """The rows that pass, where that is known already."""

    def rows(self) -> Rows:
        """Return the rows that pass, of the *whole* chunk: the same for every feed with this filter."""
        return self.filter.select(self.chunk) if self.passing is None else self.passing

    def before_failure(self) -> "FeedBatch":
        """Return the changes before the first on which the filter fails, of those after `after`.

        For a batch whose `rows` fails. What failed at or before `after` is over: the reader has continued after it.

        Raises:
            PredicateError: It fails on the very next change.
        """
        begin = self.chunk.row_after(self.after)
        passing, failing = 0, len(self.chunk) - begin + 1  # this many changes pass, this many do not
        failure: PredicateError | None = None
        while passing + 1 < failing:
            middle = (passing + failing) // 2
            try:
                self.filter.select(self.chunk.part(begin, middle))
                passing = middle
            except PredicateError as error:
                failing, failure = middle, error
        if passing == 0 and failure is not None:
            raise failure
        return structs.replace(self, chunk=self.chunk.part(begin, passing))


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
        keep = batch.filter.lasting
        kept = self._kept.get(key) if keep else None
        if kept is not None and kept.chunk.first <= batch.after + 1 <= kept.chunk.last:
            self._kept.move_to_end(key)
            return FeedBatch(batch.source, kept.chunk, batch.filter, batch.after, kept.passing)
        made = await self._evaluate(batch, batch.chunk.row_after(batch.after))
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
        chunk = chunk.part(begin, count)
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
