"""What Spark calls with each micro-batch: it puts the changes into the sink, once."""

import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.client.bulk import BulkClient
from tailrace.message.outbox import OutboxOptions
from tailrace.model.errors import TailraceError
from tailrace.model.table import TableSchema
from tailrace.pipeline.declared import declared
from tailrace.pipeline.decode import changes_of_json
from tailrace.pipeline.definition import Definition, is_message_sink, shape_of, takes_images
from tailrace.pipeline.errors import SinkMovedError
from tailrace.pipeline.failure import INTERRUPTED, brief
from tailrace.pipeline.image_rows import image_changes
from tailrace.pipeline.layout import unpacked
from tailrace.pipeline.sink.base import Batch, Mode, Sink, SinkProgress, TableChanges
from tailrace.pipeline.sink.row import key_names, refuse_unidentified
from tailrace.pipeline.sink.spread import SpreadBatch, Tally
from tailrace.pipeline.sink.upkeep import TableLayout, TableUpkeep, UpkeepOptions
from tailrace.pipeline.sink_thread import SinkThread
from tailrace.pipeline.sinks import MessageOptions, mode_of, sink_of
from tailrace.pipeline.source_options import Layout
from tailrace.pipeline.spark_spread import SparkSpread, describe
from tailrace.pipeline.transform import transformed
from tailrace.pipeline.truncation import TruncationMetError, has_truncation, without_drops
from tailrace.pipeline.typed import row_schema
from tailrace.sink_url import Secrets

__all__ = ["BatchWriter", "changes_of_packed"]

_CHANGES_MAX = 200_000
_CHANGES_MERGED_MAX = 500_000
_CHANGES_SPREAD_MAX = 1_000_000
_BYTES_MAX = 256 << 20
_BYTES_SPREAD_MAX = 1 << 30
"""Most changes in one micro-batch, and about how many bytes of the log; only a single commit may have more.

Those that tasks do not write come here, through the memory of Spark's driver: more of them where each batch is merged
with the whole table of a lake.
"""

_CLOSE_S_MAX = 10.0
"""Longest time to wait for a micro-batch whose query has ended."""

_TRIES_MAX = 3
"""So often a batch is cut again because another worker was still writing into the sink."""

_SPREAD_MIN = 400_000
_SPREAD_MIN_DISTRIBUTED = 100_000
"""From this many changes on tasks write the sink: where all run on one machine, and where they run on several."""


class BatchWriter:
    """Applies micro-batches to the sink of one pipeline.

    A micro-batch that Spark runs again ends at the same offset: the sink's own progress tells whether it has it. Over
    Spark Connect a copy of this runs in the server of Spark and opens the sink there.
    """

    def __init__(
        self,
        definition: Definition,
        token: str | None,
        outage_s_max: float,
        proceed: Callable[[], None] | None = None,
        session: Callable[[], Any] | None = None,
        *,
        distributed: bool = False,
        secrets: Secrets | None = None,
        metadata_url: str = "sqlite://",
        wanted: Callable[[], bool] | None = None,
        away: Callable[[str], None] | None = None,
    ) -> None:
        self.changes = 0
        """Changes applied so far."""

        self.waiting = ""
        """Why the sink is tried again; empty where it is there."""

        self.problem: Exception | None = None
        """Why the last call failed."""

        self.stopping = False
        """Whether the query is being stopped: a batch that cannot be finished for that reason has not failed."""

        self._definition = definition
        self._token = token
        self.outage_s_max = outage_s_max
        """Longest time for which what cannot be reached is tried again."""

        self._proceed = proceed
        self._wanted = wanted
        self._away = away
        self._session = session
        self._distributed = distributed
        self._spread_min = _SPREAD_MIN_DISTRIBUTED if distributed else _SPREAD_MIN
        self._secrets = secrets
        self._metadata_url = metadata_url
        self._sink: SinkThread | None = None
        self._versions: dict[tuple[str, int], TableSchema] = {}
        self._title = ""
        self._busy = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        # Spark Connect pickles this object and runs the copy in its server. Locks, threads and callbacks stay behind;
        # the copy opens the sink there.
        left = dict.fromkeys(("_proceed", "_wanted", "_away", "_session", "_sink", "_busy"))
        return {**self.__dict__, **left}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _busy=threading.Lock())

    def __call__(self, frame: Any, batch_id: int) -> None:
        """Apply one micro-batch."""
        with self._busy:
            self.problem = None
            self._title = f"pipeline {self._definition.name}: {', '.join(self._definition.tables)}, batch {batch_id}"
            describe(frame.sparkSession, self._title)
            self._session = self._session or (lambda: frame.sparkSession)
            try:
                self._take(frame)
            except Exception as error:
                self.problem = error
                # A query that is stopped interrupts the batch in any place, and the error it fails with means nothing:
                # it must not count as a failure of the sink.
                if self.stopping:
                    raise RuntimeError(INTERRUPTED) from None
                if isinstance(error, TailraceError):
                    raise
                # Spark passes on the text alone, and shows it to users. A short line with the type survives; a chained
                # traceback would not.
                raise RuntimeError(f"{type(error).__name__}: {brief(str(error))}") from None

    def settle(self, wait_s_max: float) -> bool:
        """Wait until the micro-batch in hand is done with; return whether it is."""
        done = self._busy.acquire(timeout=wait_s_max)
        if done:
            self._busy.release()
        return done

    def _take(self, frame: Any) -> None:
        if self._is_large():
            # Tasks see a part of the batch each and in no order, and a truncation concerns all rows before it. Only the
            # driver sees the batch in order.
            with suppress(TruncationMetError):  # nothing was committed: the driver takes all of it, below
                self.apply_spread(frame)
                return
        packed = frame.toArrow()
        if packed.num_rows:
            changes = pc.sum(packed["_changes"]).as_py()
            self.apply(pa.concat_tables(unpacked(packed)), changes, frame.sparkSession)

    def apply(self, rows: pa.Table, changes: int, session: Any) -> None:
        """Apply rows in the layout `json`, of this many changes, that the sink does not have.

        Spark knows where its own batches end, and the sink knows what it has: only the sink's word counts.

        Raises:
            MisfitError: A value does not fit its column's type.
            TransformError: The transformation cannot be used.
            SinkError: The sink cannot be reached for long, or refuses.
            LeaseError: This worker no longer has the pipeline.
        """
        through = pc.max(rows["_offset"]).as_py()
        for tries_left in reversed(range(_TRIES_MAX)):
            reached, ahead = self._reached(self.sink().progress()), self.sink().ahead()
            if reached >= through:
                return
            try:
                self._apply(_behind(rows, reached, ahead), through, session)
                break
            except SinkMovedError:  # a worker that had the pipeline before was in the middle of a batch
                if not tries_left:
                    raise
        self.changes += changes

    def _apply(self, rows: pa.Table, through: int, session: Any) -> None:
        definition, sink = self._definition, self.sink()
        rows = without_drops(rows, definition.on_drop, definition.name)
        versions = self._known(rows)
        tables = image_changes(rows, versions) if takes_images(definition) else changes_of_json(rows, versions)
        if definition.is_transformed:
            tables = [transformed(one, definition, session) for one in tables]
        filled = [one for one in tables if one.changes.num_rows]
        sink.apply(Batch(definition.name, sink.next_number(), {definition.source: through}, filled))

    def apply_spread(self, frame: Any) -> None:
        """Have tasks apply rows in the layout `packed` that the sink does not have. The schemas of all are known.

        Raises:
            TailraceError: What `apply` raises.
        """
        for tries_left in reversed(range(_TRIES_MAX)):
            try:
                self._apply_spread(frame)
                break
            except SinkMovedError:
                if not tries_left:
                    raise

    def _apply_spread(self, frame: Any) -> None:
        definition, sink = self._definition, self.sink()
        mode = mode_of(definition.sink, definition.mode)
        decode = partial(
            changes_of_packed,
            versions=self._versions,
            after=self._reached(sink.progress()),
            ahead=sink.ahead(),
            mode=mode,
            dropping=partial(without_drops, on_drop=definition.on_drop, name=definition.name),
        )
        changes = SparkSpread(frame, decode, self._title)
        self.changes += sink.apply_spread(
            SpreadBatch(definition.name, sink.next_number(), definition.source, changes, self.changes_max)
        ).rows

    @property
    def layout(self) -> Layout:
        """Return the layout in which micro-batches are to come."""
        definition = self._definition
        # The layout `latest` lets the source leave out all but the last change of each key. A transformation may want
        # the others, and so do history and append.
        last = not definition.is_transformed and mode_of(definition.sink, definition.mode) is Mode.CURRENT
        return Layout.LATEST if last and not takes_images(definition) else Layout.PACKED

    @property
    def changes_max(self) -> int:
        """Return how many changes a micro-batch should have at most: more where they need not come here."""
        if self._definition.batch_changes:
            return self._definition.batch_changes
        if not self._can_spread():
            return _CHANGES_MAX
        return _CHANGES_SPREAD_MAX if self._is_spread() else _CHANGES_MERGED_MAX

    @property
    def bytes_max(self) -> int:
        """Return how many bytes of the log a micro-batch should have at most, about."""
        return self._definition.batch_bytes or (_BYTES_SPREAD_MAX if self._is_spread() else _BYTES_MAX)

    def sink(self) -> SinkThread:
        """Return the sink, opened."""
        return self._opened()

    def renew(self, tables: Collection[str]) -> None:
        """Open the sink although some of these tables may be gone from it, and have it forget those.

        Raises:
            SinkTableGoneError: Another one is gone; nothing is forgotten.
            SinkError: The sink cannot be reached, or refuses for another reason.
        """
        self._opened(tables)

    def is_lost(self, rows_copied: int) -> bool:
        """Tell whether a sink that has no progress should have some: rows went into it, and could be read there."""
        sink = self.sink()
        return rows_copied > 0 and not self._definition.is_transformed and all(map(sink.is_readable, self.schemas()))

    def note(self, offset: int, *, anew: bool = False) -> None:
        """Have the sink note that it has all changes through an offset, of which none was for it.

        With `anew` it forgets how far each table was: its offsets may be of a log that has begun again since.
        """
        offsets = {self._definition.source: offset}
        self.sink().apply(Batch(self._definition.name, self.sink().next_number(), offsets, [], anew=anew))

    def note_idle(self, offset: int, changes_min: int) -> None:
        """Have the sink note an offset that is this many changes beyond what it knows of; not in the middle of a batch.

        All changes through that offset were read. So the next run need not read them again only to find that none of
        them is for the sink.
        """
        if self._busy.acquire(blocking=False):
            try:
                if offset - self._reached(self.sink().progress()) >= changes_min:
                    self.note(offset)
            finally:
                self._busy.release()

    def tend(self) -> None:
        """Resend dead letters marked for retry, where the sink is of messages and open here."""
        if self._sink is not None and is_message_sink(self._definition):
            self._sink.tend()

    def maintain(self, options: UpkeepOptions) -> list[TableUpkeep]:
        """Maintain the tables of the sink, where it has such."""
        return self.sink().maintain(self.schemas(), options)

    def schemas(self) -> list[TableSchema]:
        """Return the newest known schema of each table."""
        newest = {name: self._versions[name, version] for name, version in sorted(self._versions)}
        return list(newest.values())

    def close(self) -> None:
        """Close the sink, when the micro-batch in hand is done with.

        Where Spark has ended there may be one in a thread of Spark's. A process that ends meanwhile, in the middle of
        what is written in C++, is aborted.
        """
        # The sink belongs to its thread. Closing it under a batch that still writes would break off in the middle of
        # it.
        self.settle(_CLOSE_S_MAX)
        if self._sink is not None:
            self._sink.close()
            self._sink = None

    def _opened(self, anew: Collection[str] = ()) -> SinkThread:
        if self._sink is None:
            proceed, wanted = self._proceed or (lambda: None), self._wanted or (lambda: True)
            sink = SinkThread(
                self._build, outage_s_max=self.outage_s_max, proceed=proceed, wanted=wanted, away=self._wait
            )
            try:
                self._learn()
                refuse_unidentified(self.schemas(), mode_of(self._definition.sink, self._definition.mode))
                sink.open(self.schemas(), anew=anew)
            except BaseException:
                sink.close()
                raise
            self._sink = sink
        return self._sink

    def _wait(self, problem: str) -> None:
        """Note why the sink is waited for, and tell it when it is news."""
        if problem != self.waiting:
            self.waiting = problem
            if self._away is not None:
                self._away(problem)

    def _build(self) -> Sink:
        definition = self._definition
        outbox = OutboxOptions(on_refused=definition.on_refused)
        messages = MessageOptions(self._metadata_url, shape_of(definition), outbox)
        sink = sink_of(
            definition.sink, definition.mode, pipeline=definition.name, secrets=self._secrets, messages=messages
        )
        use_spark = sink.traits.use_spark
        if use_spark is not None and self._session is not None:
            use_spark(self._session)
        if sink.traits.lay_out is not None:
            sink.traits.lay_out(TableLayout(definition.partition_by, definition.properties))
        return sink

    def _can_spread(self) -> bool:
        """Tell whether tasks can write the sink. What is transformed comes here."""
        return not self._definition.is_transformed and self.sink().takes_spread(self.schemas())

    def _is_spread(self) -> bool:
        """Tell whether tasks write what is large. On one machine the driver merges rows more quickly than they do."""
        mode = mode_of(self._definition.sink, self._definition.mode)
        # On one machine tasks and driver share the same cores, and tasks have to shuffle the rows by key first.
        return (self._distributed or mode is not Mode.CURRENT) and self._can_spread()

    def _is_large(self) -> bool:
        """Tell whether a micro-batch is better written by tasks, as far as is known: by how much there is to read."""
        if not self._is_spread():
            return False
        reached = self._reached(self.sink().progress())
        # How much is in the micro-batch itself is not known without running it; how much the log has beyond the sink is
        # known for one request.
        return self._learn() - reached >= self._spread_min and self._has_stable_keys()

    def _reached(self, progress: SinkProgress | None) -> int:
        """Return the offset up to which a sink has all changes."""
        return 0 if progress is None else progress.offsets.get(self._definition.source, 0)

    def _has_stable_keys(self) -> bool:
        """Tell whether keys are always of one type: those of two types would not come together by their hashes."""
        kinds: dict[str, set[tuple[str, ...]]] = {}
        for (name, _), schema in self._versions.items():
            columns = row_schema(schema)
            kinds.setdefault(name, set()).add(tuple(str(columns.field(one).type) for one in key_names(schema)))
        return all(len(found) == 1 for found in kinds.values())

    def _known(self, rows: pa.Table) -> dict[tuple[str, int], TableSchema]:
        """Return the schemas that rows refer to."""
        pairs = rows.group_by(["_table", "_schema_version"]).aggregate([])
        wanted = set(zip(pairs["_table"].to_pylist(), pairs["_schema_version"].to_pylist(), strict=True))
        if not wanted <= self._versions.keys():
            self._learn()
        return self._versions

    def _learn(self) -> int:
        """Learn the schemas of the tables; return how far the log is."""
        client = BulkClient(self._definition.server, self._token)
        try:
            info = client.info(self._definition.source, self._definition.tables)
        finally:
            client.close()
        schemas = [declared(schema, self._definition.types) for schema in info.schemas().values()]
        self._versions = {(schema.table.wire, schema.version): schema for schema in schemas}
        return info.head


def changes_of_packed(
    rows: pa.Table,
    versions: dict[tuple[str, int], TableSchema],
    *,
    after: int = 0,
    ahead: Mapping[str, int] | None = None,
    mode: Mode = Mode.APPEND,
    dropping: Callable[[pa.Table], pa.Table] = lambda rows: rows,
) -> Iterator[tuple[Tally, list[TableChanges]]]:
    """Yield the changes behind an offset in rows of the layouts `packed` and `latest`, and what was met among them.

    Those of some tables are wanted behind other offsets. Runs in a task. `dropping` is what becomes of rows that say
    that a table was dropped.

    Raises:
        MisfitError: A value does not fit its column's type.
        TableDroppedError: A table was dropped, and the pipeline is to stop there.
        TruncationMetError: There is a truncation, and the mode is not `append`.
    """
    for held, offset, changes in zip(unpacked(rows), rows["_offset"], rows["_changes"], strict=True):
        some = dropping(_behind(held, after, ahead or {}))
        if mode is not Mode.APPEND and has_truncation(some):
            raise TruncationMetError("a truncation is among the changes")
        if some.num_rows:
            yield Tally(offset.as_py(), {"log": changes.as_py()}), changes_of_json(some, versions)


def _behind(rows: pa.Table, after: int, ahead: Mapping[str, int]) -> pa.Table:
    """Return the rows of changes behind an offset, or another one of their table: mostly all of them."""
    lowest = pc.min(rows["_offset"]).as_py()
    if lowest is not None and lowest <= after:
        rows = rows.filter(pc.greater(rows["_offset"], after))
    for table, offset in ahead.items():
        held = pc.and_(pc.equal(rows["_table"], table), pc.less_equal(rows["_offset"], offset))
        rows = rows.filter(pc.invert(held))
    return rows
