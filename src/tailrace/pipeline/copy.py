"""Copying the rows of tables into a sink, range by range, in batches that are each copied once.

Which keys a batch holds is noted before it is read: after a crash the same keys go into the batch of the same number,
or, where the sink has it, into none. So nothing is left out and nothing is copied twice.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct, structs

from tailrace.client.bulk_rows import BulkRowsClient
from tailrace.meta.pipeline import Copying, Lease, RangeProgress, SinkState, Stage
from tailrace.model.errors import SinkRefusedError
from tailrace.model.key_interval import KeyInterval
from tailrace.model.table import TableSchema
from tailrace.pipeline.declared import declared
from tailrace.pipeline.definition import Definition, takes_images
from tailrace.pipeline.errors import SchemaMovedError
from tailrace.pipeline.rows import RANGE, RowsTask, interval_rows
from tailrace.pipeline.sink.base import Batch, TableChanges
from tailrace.pipeline.sink.spread import SpreadBatch, Tally
from tailrace.pipeline.sink_thread import SinkThread
from tailrace.pipeline.store import PipelineStore
from tailrace.pipeline.transform import transformed

__all__ = ["Copier", "CopyOptions", "advanced", "planned"]

_T = TypeVar("_T")

_RANGES_AT_ONCE = 4
"""Ranges in one batch: this many tasks read at one time."""

_RANGES_SPREAD = 32
"""Ranges in one batch that tasks read and write."""

_FIRST_ROWS = 50_000
"""Rows in the first batch of a table: afterwards it is known how large they are. With no more, a table is one range."""

_BATCH_BYTES = 128 << 20
"""About how much a batch holds that comes here: as much is in memory, and as much again is read ahead."""

_TASK_PAGES = 4
"""How many times more rows a task takes at once, which holds only few of them in memory."""

_TRIES_MAX = 5
"""So often rows are read whose table changes its schema meanwhile."""

_KEY_CHARACTERS_MAX = 8_000
"""A range ends with no longer key: it goes with each request, in the URL."""


class CopyOptions(Struct, frozen=True):
    """How tables are copied."""

    ranges_max: int = 8
    """Maximum number of ranges of a table."""

    page_rows: int = 500_000
    """Most rows of a range in one batch; large rows are fewer."""

    distributed: bool = False
    """Whether tasks of Spark read the ranges; else threads do."""


def planned(
    client: BulkRowsClient, source: str, table: str, options: CopyOptions | None = None
) -> tuple[list[KeyInterval], int]:
    """Return the ranges of a table, with about as many rows each, and how many rows there are.

    They cover all keys, also those that come later: `verify` needs that. What is copied has an end; see `Copier`.
    """
    options = options or CopyOptions()
    plan = client.plan(source, table, options.ranges_max)
    cuts = [] if plan.rows <= min(options.page_rows, _FIRST_ROWS) else plan.cuts[: options.ranges_max - 1]
    bounds = [None, *cuts, None]
    return [KeyInterval(after, through) for after, through in pairwise(bounds)], plan.rows


class Copier:
    """Copies what is left of the tables of one pipeline. For one thread.

    It ends however quickly tables grow at their ends: rows behind the greatest key that a table has when the copier
    begins are left to the log, which is followed from an offset before that.
    """

    def __init__(
        self,
        definition: Definition,
        store: PipelineStore,
        lease: Lease,
        sink: SinkThread,
        client: BulkRowsClient,
        session: Callable[[], Any],
        token: str | None,
        options: CopyOptions,
    ) -> None:
        self._definition = definition
        self._store = store
        self._lease = lease
        self._sink = sink
        self._client = client
        self._session = session
        self._token = token
        self._options = options
        self._version = store.progress(lease.name)[0].init_version
        self._fresh = store.get(lease.name).sink_state is SinkState.EMPTY
        self._row_bytes: dict[str, float] = {}
        """Size of the rows of each table that were read last."""

    def resume(self) -> Iterator[int]:
        """Finish the batch that an earlier worker began, if there is one; yield how many rows it had."""
        begun = self._store.get(self._lease.name).copying
        if begun is not None:
            yield self._finish(begun)

    def run(self) -> Iterator[int]:
        """Copy batch after batch; yield how many rows each had. The next is read while the sink takes one."""
        ranges = self._bounded(self._store.progress(self._lease.name))
        if self._spreads():
            yield from self._run_spread(ranges)
            return
        with ThreadPoolExecutor(1, "tailrace-ahead") as ahead:
            reading = ahead.submit(self._next, ranges)
            while (read := reading.result()) is not None:
                cut, schema, rows = read
                ranges = advanced(ranges, cut)
                reading = ahead.submit(self._next, ranges)
                copying = self._begun(structs.replace(cut, number=self._sink.next_number()))
                yield self._put(copying, schema, rows)

    def _bounded(self, ranges: Sequence[RangeProgress]) -> list[RangeProgress]:
        """Return the ranges, each with an end: the last of a table ends with its greatest key.

        That key may be another one after a crash, which does no harm: all that comes behind it, now or then, came after
        the offset from which the log is followed. Of an empty table nothing is read. Only a range whose end would be a
        key too long to ask with has none, and ends where no rows are left.
        """
        bounded = []
        for one in ranges:
            if one.stage is Stage.SNAPSHOT and one.within.through is None:
                last = self._client.last_key(self._definition.source, one.table)
                if last is None:
                    ended = Copying(0, one.table, {one.range_id: one.left}, (one.range_id,))
                    self._store.finish_copy(self._lease, ended, version=self._version, rows={})
                    one = structs.replace(one, stage=Stage.INCREMENTAL_LOG)  # noqa: PLW2901
                elif len(last) <= _KEY_CHARACTERS_MAX:
                    one = structs.replace(one, within=KeyInterval(one.within.after, last))  # noqa: PLW2901
            bounded.append(one)
        return bounded

    def _run_spread(self, ranges: Sequence[RangeProgress]) -> Iterator[int]:
        """Copy batch after batch by tasks, which read and write the rows."""
        while some := _left(ranges, _RANGES_SPREAD):
            cut = self._cut(some, self._options.page_rows * _TASK_PAGES)
            copying = self._begun(structs.replace(cut, number=self._sink.next_number()))
            yield self._spread(copying)
            ranges = advanced(ranges, copying)

    def _next(self, ranges: Sequence[RangeProgress]) -> tuple[Copying, TableSchema, pa.Table] | None:
        """Read the next rows of some ranges of one table; None where there are none left. The number is open yet."""
        some = _left(ranges, _RANGES_AT_ONCE)
        if not some:
            return None
        cut = self._cut(some, self._rows_wanted(some))
        schema, read = self._read(cut)
        if read.num_rows:
            self._row_bytes[cut.table] = read.nbytes / read.num_rows
        return cut, schema, read

    def _rows_wanted(self, ranges: Sequence[RangeProgress]) -> int:
        """Return how many rows of each of these ranges make a batch that is neither large nor small."""
        row_bytes = self._row_bytes.get(ranges[0].table)
        rows = _FIRST_ROWS if row_bytes is None else int(_BATCH_BYTES / row_bytes)
        return max(1, min(self._options.page_rows, rows // len(ranges)))

    def _cut(self, ranges: Sequence[RangeProgress], rows: int) -> Copying:
        """Return the next keys of some ranges of one table, this many rows of each."""
        intervals, ends = {}, []
        for one in ranges:
            cuts = self._client.cut_rows(self._definition.source, one.table, one.left, rows=rows, count=1)
            through = cuts[0] if cuts else one.within.through
            intervals[one.range_id] = KeyInterval(one.left.after, through)
            if not cuts or through == one.within.through:
                ends.append(one.range_id)
        return Copying(0, ranges[0].table, intervals, tuple(ends))

    def _begun(self, copying: Copying) -> Copying:
        """Note which keys go into the sink next, and how far that is now."""
        begun = structs.replace(copying, reached=self._reached())
        self._store.begin_copy(self._lease, begun)
        return begun

    def _finish(self, copying: Copying) -> int:
        """Finish the batch that an earlier worker began.

        Raises:
            SinkRefusedError: The sink has another batch of that number.
        """
        applied = self._sink.applied()
        if applied is None or applied < copying.number:
            copying = self._begun(copying)
            return self._spread(copying) if self._spreads() else self._put(copying, *self._read(copying))
        if applied == copying.number and copying.reached not in {None, self._reached()}:
            # Whether a lake has the rows in spite of it is not known: copied once more they might be there twice.
            raise SinkRefusedError(
                f"the sink has another batch {applied} than the one that was copied of table {copying.table}: another "
                "worker wrote into it meanwhile, and rows may be missing. Reset the pipeline"
            )
        self._store.finish_copy(self._lease, copying, version=self._version, rows={})
        return 0

    def _put(self, copying: Copying, schema: TableSchema, rows: pa.Table) -> int:
        """Put the rows of a batch into the sink."""
        counts = _counts(rows)
        version = pc.max(rows["_offset"]).as_py() or self._version
        images = takes_images(self._definition)
        one = TableChanges(schema, rows.drop_columns([RANGE]), fresh=self._fresh, images=images)
        if self._definition.is_transformed and one.changes.num_rows:
            one = transformed(one, self._definition, self._session())
        if one.changes.num_rows:
            offsets = {self._definition.source: self._reached()}
            self._sink.apply(Batch(self._definition.name, copying.number, offsets, [one]))
        self._store.finish_copy(self._lease, copying, version=version, rows=counts)
        return len(rows)

    def _reached(self) -> int:
        """Return how far the sink is in the log, which rows that are copied do not change.

        A sink that keeps nothing is where it was noted to be: a table may be added long after the others were copied.
        """
        progress = self._sink.progress()
        reached = None if progress is None else progress.offsets.get(self._definition.source)
        if reached is not None:
            return reached
        return max(self._version, min(one.last_log_index for one in self._store.progress(self._lease.name)))

    def _spreads(self) -> bool:
        """Tell whether tasks write the rows that they read."""
        schemas = [self._schema(table) for table in self._definition.tables]
        return self._options.distributed and not self._definition.is_transformed and self._sink.takes_spread(schemas)

    def _spread(self, copying: Copying) -> int:
        """Have tasks put the rows of a batch into the sink."""
        from tailrace.pipeline.rows_source import spread_rows

        def apply(task: RowsTask) -> Tally:
            batch = SpreadBatch(
                pipeline=self._definition.name,
                number=copying.number,
                source=self._definition.source,
                changes=spread_rows(self._session(), task, self._title(task)),
                changes_max=self._options.page_rows * _TASK_PAGES * len(task.intervals),
                offset=self._reached(),
                fresh=self._fresh,
            )
            return self._sink.apply_spread(batch)

        _, tally = self._with_schema(copying, apply)
        counts = {int(number): count for number, count in tally.counts.items()}
        self._store.finish_copy(self._lease, copying, version=tally.offset or self._version, rows=counts)
        return tally.rows

    def _read(self, copying: Copying) -> tuple[TableSchema, pa.Table]:
        """Read the rows of a batch: by tasks of Spark where that is on several machines, else by threads here."""
        return self._with_schema(copying, self._rows)

    def _with_schema(self, copying: Copying, use: Callable[[RowsTask], _T]) -> tuple[TableSchema, _T]:
        """Read rows with the schema that their table has; another time where it changes meanwhile."""
        for _ in range(_TRIES_MAX):
            schema = self._schema(copying.table)
            task = RowsTask(
                self._definition.server,
                self._token,
                self._definition.source,
                schema,
                copying.intervals,
                images=takes_images(self._definition),
            )
            try:
                return schema, use(task)
            except SchemaMovedError:
                continue
            except Exception:
                if self._schema(copying.table) == schema:
                    raise
        raise SchemaMovedError(copying.table)

    def _rows(self, task: RowsTask) -> pa.Table:
        if self._options.distributed:
            from tailrace.pipeline.rows_source import rows_of_spark

            return rows_of_spark(self._session(), task, self._title(task))
        with ThreadPoolExecutor(len(task.intervals), "tailrace-range") as pool:
            parts = pool.map(lambda number: pa.concat_tables(interval_rows(task, number)), task.intervals)
            return pa.concat_tables(parts)

    def _title(self, task: RowsTask) -> str:
        """Return what Spark's pages show of the jobs that read rows."""
        return f"pipeline {self._definition.name}: copying {task.schema.table.wire}"

    def _schema(self, table: str) -> TableSchema:
        (found,) = self._client.info(self._definition.source, [table]).newest()
        return declared(found, self._definition.types)


def advanced(ranges: Sequence[RangeProgress], copying: Copying) -> list[RangeProgress]:
    """Return the ranges as they are when a batch is in the sink."""
    return [
        structs.replace(
            one,
            last_key=copying.intervals[one.range_id].through or one.last_key,
            stage=Stage.INCREMENTAL_LOG if one.range_id in copying.ends else one.stage,
        )
        if one.table == copying.table and one.range_id in copying.intervals
        else one
        for one in ranges
    ]


def _left(ranges: Sequence[RangeProgress], count: int) -> list[RangeProgress]:
    """Return some ranges of one table that are not copied yet."""
    left = [one for one in ranges if one.stage is Stage.SNAPSHOT]
    return [one for one in left if one.table == left[0].table][:count]


def _counts(rows: pa.Table) -> Mapping[int, int]:
    counted = pc.value_counts(rows[RANGE])
    return {one["values"]: one["counts"] for one in counted.to_pylist()}
