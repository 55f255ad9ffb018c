"""A sink in a thread of its own: sinks are for one thread, and Spark calls from many."""

import contextlib
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import pyarrow as pa
from msgspec import structs

from tailrace.model.errors import SinkRefusedError, SinkUnavailableError
from tailrace.model.table import TableSchema
from tailrace.pipeline.errors import SinkTableGoneError
from tailrace.pipeline.sink.base import Batch, Sink, SinkProgress
from tailrace.pipeline.sink.spread import SpreadBatch, Tally
from tailrace.pipeline.sink.upkeep import TableUpkeep, UpkeepOptions
from tailrace.retry import Backoff, Retry, resting

__all__ = ["SinkThread"]

_T = TypeVar("_T")

_BACKOFF = Backoff(first_s=0.2, longest_s=10.0)


class SinkThread:
    """Calls a sink from one thread. A sink that cannot be reached is tried again, for `outage_s_max` at most.

    `proceed` is called before each try; it raises when this worker may write no more. Nor is a sink tried again when
    that is no longer `wanted`: who stops or pauses a pipeline does not wait for its sink to come back. `away` is called
    why the sink is tried again, and nothing when it is there again.
    """

    def __init__(
        self,
        build: Callable[[], Sink],
        *,
        outage_s_max: float,
        proceed: Callable[[], None],
        wanted: Callable[[], bool] = lambda: True,
        away: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="tailrace-sink")
        self._outage_s_max = outage_s_max
        self._proceed = proceed
        self._wanted = wanted
        self._away = away
        self._schemas: Sequence[TableSchema] = ()
        self._number: int | None = None
        """Greatest number of a batch that the sink may have; None where that is not known."""

        self._sink = self._thread.submit(build).result()

    def open(self, schemas: Sequence[TableSchema], *, anew: Collection[str] = ()) -> None:
        """Connect; see `Sink.open`. Those of the tables `anew` that are gone are forgotten, unless others are, too."""
        renewed = [schema for schema in schemas if schema.table.wire in anew]
        others = [schema for schema in schemas if schema.table.wire not in anew]

        def connect() -> None:
            try:
                self._sink.open([*others, *renewed])
            except SinkTableGoneError as error:
                forget = self._sink.traits.forget
                # The first that is gone is named: one of those that come last means that none of the others is gone.
                if error.table not in anew or forget is None:
                    raise
                forget(renewed)
                self._sink.open(schemas)

        self._patiently(connect)
        self._schemas = schemas
        self._number = None

    def progress(self) -> SinkProgress | None:
        """Return how far the sink is."""
        return self._call(self._sink.progress)

    def applied(self) -> int | None:
        """Return the number of the last batch that the sink has."""
        return self._call(self._sink.applied)

    def newest(self, schemas: Sequence[TableSchema]) -> int | None:
        """Return the greatest number of a batch that one of these tables has, also where others lack it."""
        newest = self._sink.traits.newest
        return self.applied() if newest is None else self._call(lambda: newest(schemas))

    def next_number(self) -> int:
        """Return the number of a batch that the sink has not been given yet, not even for some of its tables."""
        known = self.newest(self._schemas) if self._number is None else self._number
        self._number = max(-1 if one is None else one for one in (known, self.applied()))
        return self._number + 1

    def ahead(self) -> dict[str, int]:
        """Return how far those tables are, by name, that have changes which the sink lacks as a whole."""
        ahead = self._sink.traits.ahead
        return {} if ahead is None else self._call(lambda: ahead(self._schemas))

    def apply(self, batch: Batch) -> None:
        """Apply one batch; see `Sink.apply`."""
        self._number = max(batch.number, -1 if self._number is None else self._number)
        self._patiently(lambda: self._sink.apply(batch))

    def takes_spread(self, schemas: Sequence[TableSchema]) -> bool:
        """Tell whether tasks can write the sink; see `TaskWriting`."""
        spread = self._sink.traits.spread
        return spread is not None and self._call(lambda: spread.takes_spread(schemas))

    def apply_spread(self, batch: SpreadBatch) -> Tally:
        """Apply one batch whose changes tasks have; see `TaskWriting.apply_spread`.

        Raises:
            SinkRefusedError: Tasks cannot write the sink.
        """
        spread = self._sink.traits.spread
        if spread is None:
            raise SinkRefusedError("tasks cannot write this sink")
        self._number = max(batch.number, -1 if self._number is None else self._number)
        guarded = structs.replace(batch, proceed=self._proceed)
        return self._patiently(lambda: spread.apply_spread(guarded))

    def rows(self, schema: TableSchema) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a table as the sink has them now."""
        batches = self._call(lambda: iter(self._sink.rows(schema)))
        while (batch := self._call(lambda: next(batches, None))) is not None:
            yield batch

    def is_empty(self, schema: TableSchema) -> bool:
        """Tell whether the sink has no row of a table, or keeps none that could be read."""
        try:
            return all(not batch.num_rows for batch in self.rows(schema))
        except SinkRefusedError:
            return True

    def is_readable(self, schema: TableSchema) -> bool:
        """Tell whether the sink keeps rows so that they can be read."""
        try:
            next(self.rows(schema), None)
        except SinkRefusedError:
            return False
        return True

    def tend(self) -> None:
        """Have a message sink resend dead letters marked for retry.

        A target that cannot be reached now is left for the next time.
        """
        retry_letters = self._sink.traits.retry_letters
        if retry_letters is not None:
            with contextlib.suppress(SinkUnavailableError):
                self._call(retry_letters)

    def maintain(self, schemas: Sequence[TableSchema], options: UpkeepOptions) -> list[TableUpkeep]:
        """Maintain tables, where the sink has such; no batch is applied meanwhile."""
        upkeep = self._sink.traits.upkeep
        self._proceed()
        return [] if upkeep is None else self._call(lambda: upkeep(schemas, options))

    def close(self) -> None:
        """Disconnect, and end the thread."""
        try:
            self._call(self._sink.close)
        finally:
            self._thread.shutdown()

    def _call(self, use: Callable[[], _T]) -> _T:
        return self._thread.submit(use).result()

    def _patiently(self, use: Callable[[], _T]) -> _T:
        retry = Retry(_BACKOFF, outage_s_max=self._outage_s_max)
        pause = resting(self._wanted)

        def attempt() -> _T:
            self._proceed()
            result = self._call(use)
            if retry.recovered():
                self._away("")
            return result

        def rest(pause_s: float, error: Exception) -> bool:
            self._away(str(error))
            return pause(pause_s)

        return retry.call(attempt, on=SinkUnavailableError, rest=rest)
