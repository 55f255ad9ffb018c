"""The log as a Spark source: `spark.readStream.format("tailrace")` and `spark.read.format("tailrace")`.

A stream's offset is `{"offset": N, "subscription": "sub_…"}`: everything up to change N was read, and the subscription
on the server tells others so. It lies in the checkpoint of the query, which is why a restarted query goes on with the
subscription that it has. Every micro-batch ends where a commit ends, and is cut into partitions at ends of commits.

A query starts several Python processes, and not all of them make rows: what that needs is imported late.
"""

import logging
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, Filter, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from tailrace.client.errors import ClientError, ConnectionFailed, NotFound
from tailrace.model.errors import BehindHorizonError, ConfigError
from tailrace.model.number import Offset
from tailrace.model.wanted import Conditions
from tailrace.pipeline.origin import Origin
from tailrace.pipeline.sink.base import ChangeType
from tailrace.pipeline.source_options import Layout, Preimages, SourceOptions, parse_options

__all__ = ["Interval", "TailraceReader", "TailraceSource", "TailraceStreamReader", "moved_alone"]

logger = logging.getLogger(__name__)

_TASK_CHANGES_MIN = 50_000
"""Fewer are not divided: on two cores, to start more tasks takes longer than to read them in one."""

_PUSHING_WORKER = "data_source_pushdown_filters.py"
"""The module of Spark that asks for filters to push down."""


class Interval(InputPartition):
    """What one task reads: the changes after one offset up to another, of these tables; without any, of those asked.

    Those that do not meet the `conditions` need not be read.
    """

    def __init__(
        self, after: int, through: int, tables: tuple[str, ...] = (), conditions: Conditions | None = None
    ) -> None:
        self.after = after
        self.through = through
        self.tables = tables
        self.conditions = conditions


class TailraceSource(DataSource):
    """Spark's name for the log of one source."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "tailrace"

    def schema(self) -> StructType:
        """Return the columns, by the newest versions of the tables' schemas."""
        from tailrace.pipeline.layout import arrow_schema_of

        options = parse_options(self.options)
        origin = options.origin()
        try:
            window = origin.window(options.tables)
        finally:
            origin.close()
        return from_arrow_schema(arrow_schema_of(options, options.declared(window.schemas)), prefer_timestamp_ntz=True)

    def reader(self, schema: StructType) -> "TailraceReader":
        """Return what reads a batch. Filters are taken only where Spark offers them: elsewhere it would refuse us."""
        # Spark refuses a reader that takes filters while spark.sql.python.filterPushdown.enabled is off, which it is by
        # default; whether it is on shows in who asks.
        asks = sys._getframe(1).f_code.co_filename  # noqa: SLF001
        kind = PushingReader if asks.endswith(_PUSHING_WORKER) else TailraceReader
        return kind(parse_options(self.options, streaming=False), schema)

    def streamReader(self, schema: StructType) -> "TailraceStreamReader":  # noqa: N802 - Spark's name
        """Return what reads a stream."""
        return TailraceStreamReader(parse_options(self.options, streaming=True), schema)


class TailraceReader(DataSourceReader):
    """Reads what there is between two places, once."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        from tailrace.pipeline.push_down import PushDown

        self.options = options
        self.schema = _checked_schema(schema, options.layout)
        self.pushed = PushDown()

    def partitions(self) -> Sequence[InputPartition]:
        """Return the intervals that tasks read, as of now."""
        origin = self.options.origin()
        try:
            known = origin.window(self.options.tables).schemas if self.pushed.filters else {}
            schemas = list(self.options.declared(known).values())
            tables = self.pushed.chosen(self.options.tables, {schema.table.wire for schema in schemas})
            if tables is None:
                return [Interval(0, 0)]
            conditions = self.pushed.conditions(schemas)
            places = origin.place(self.options.start), origin.place(self.options.end)
            after, through = self.pushed.narrowed(*places)
            intervals = _intervals(origin, after, through, self.options, tables, conditions)
            return intervals or [Interval(0, 0)]
        finally:
            origin.close()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one interval. Runs on an executor."""
        for batch in _rows(self.options, self.schema, partition):
            yield self.pushed.filter(batch)


class PushingReader(TailraceReader):
    """A reader that takes filters over, so that fewer rows leave the Python process."""

    def pushFilters(self, filters: list[Filter]) -> Iterator[Filter]:  # noqa: N802 - Spark's name
        """Take over what can be done exactly; return the rest."""
        for one in filters:
            if not self.pushed.take(one, self.schema):
                yield one


class TailraceStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads the log as it grows. The driver has one that lives as long as the query; each task has a copy."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self.options = options
        self.schema = _checked_schema(schema, options.layout)
        self._opened: Origin | None = None
        self._initial: dict[str, Any] | None = None
        self._target: Offset | None = None
        self._begun = False
        self._acknowledged = 0

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_opened": None}

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return where a new query begins, and make its subscription."""
        if self._initial is None:
            after = self._origin.place(self.options.start)
            subscription = self.options.subscription or self._origin.subscribe(self.options.tables, after)
            self._initial = {"offset": after, "subscription": subscription}
        return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return the limit that the options set; where there are two, both count."""
        if self.options.changes_max is not None:
            return ReadMaxRows(self.options.changes_max)
        return ReadAllAvailable() if self.options.bytes_max is None else ReadMaxBytes(self.options.bytes_max)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Note how far the log is now: the query ends there."""
        self._target = self._origin.window(()).head

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return where the next micro-batch ends: at the end of a commit. Waits a little where there is nothing new.

        Raises:
            BehindHorizonError: Retention has removed changes that the query has not read.
        """
        self.commit(start)  # Spark begins with a batch when the one before it is done with, and may never say so
        after = start["offset"]
        window = self._origin.window((), beyond=after if self._target is None else None)
        through = window.head if self._target is None else min(self._target, window.head)
        if after > window.head or after + 1 < window.horizon:
            self._origin.cuts(after, max(after, through), changes=1, count=1)  # raises what is wrong
            raise BehindHorizonError(requested=after + 1, horizon=window.horizon)
        if after >= through:
            return start
        if not isinstance(limit, ReadAllAvailable):
            cuts = self._origin.cuts(
                after,
                through,
                changes=self.options.changes_max or through - after,
                bytes_max=self.options.bytes_max,
                count=1,
            )
            through = cuts[0] if cuts else after
        return {**start, "offset": through}

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return how far the log is, for those who watch the query."""
        return {"offset": self._origin.window(()).head}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the intervals that the tasks of a micro-batch read."""
        self._begun = True
        return _intervals(self._origin, start["offset"], end["offset"], self.options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one interval. Runs on an executor."""
        return _rows(self.options, self.schema, partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Acknowledge what the query has done with. A server that is away now learns it with a later batch."""
        subscription = end.get("subscription")
        if subscription is None or end["offset"] <= self._acknowledged:
            return
        try:
            self._origin.acknowledge(subscription, end["offset"])
            self._acknowledged = end["offset"]
        except (ConnectionFailed, NotFound) as error:
            logger.warning("subscription %s not acknowledged: %s", subscription, error)

    def stop(self) -> None:
        """Close connections, and remove a subscription that was made for a query which read nothing."""
        subscription = None if self.options.subscription or self._initial is None else self._initial["subscription"]
        if self._opened is None:
            return
        if subscription is not None and not self._begun:
            try:
                self._opened.unsubscribe(subscription)
            except ClientError as error:
                logger.warning("subscription %s not closed: %s", subscription, error)
        self._opened.close()
        self._opened = None

    @property
    def _origin(self) -> Origin:
        if self._opened is None:
            self._opened = self.options.origin()
        return self._opened


def _intervals(
    origin: Origin,
    after: int,
    through: int,
    options: SourceOptions,
    tables: tuple[str, ...] = (),
    conditions: Conditions | None = None,
) -> list[InputPartition]:
    """Return an interval cut at ends of commits for tasks; what follows the last one found is one more.

    There are as many as there are cores to use, if there is enough for each to be worth a task.
    """
    share = max(_TASK_CHANGES_MIN, -(-(through - after) // options.cores))
    bounded = conditions is None  # otherwise most is not read, and tasks cost more than what they would share
    changes = min(options.partition_changes, share) if bounded else share
    intervals: list[InputPartition] = []
    while after < through:
        if through - after <= min(_TASK_CHANGES_MIN, options.partition_changes):
            cuts = [Offset(through)]
        else:
            cuts = origin.cuts(
                after, through, changes=changes, bytes_max=options.partition_bytes if bounded else None
            ) or [Offset(through)]
        for cut in cuts:
            intervals.append(Interval(after, cut, tables, conditions))
            after = cut
    return intervals


def _rows(options: SourceOptions, schema: StructType, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    from tailrace.pipeline.datasource import moved_alone
    from tailrace.pipeline.layout import coalesced, rows_of
    from tailrace.pipeline.sink.row import key_names

    assert isinstance(partition, Interval)
    wanted = _arrow_schema(schema)
    if partition.after >= partition.through:
        return
    origin = options.origin()
    try:
        tables = partition.tables or options.tables
        batches = origin.batches(partition.after, partition.through, tables, partition.conditions)
        for known, batch in coalesced(batches, options.layout):
            schemas = options.declared(known)
            rows = rows_of(batch, schemas, options.layout, wanted, options.string_columns)
            if options.preimages is Preimages.MOVED:
                newest = max(batch.column("schema").to_pylist())
                rows = moved_alone(rows, key_names(schemas[newest]))
            if rows.num_rows:
                yield rows
    finally:
        origin.close()


def _arrow_schema(schema: StructType) -> pa.Schema:
    """Return the columns exactly as Spark expects them."""
    return to_arrow_schema(schema, timezone="UTC")


def _checked_schema(schema: StructType, layout: Layout) -> StructType:
    """Return a schema that the user may have given, if rows can be had in it.

    Raises:
        ConfigError: A column is of a type that no value of a row has.
    """
    for field in _arrow_schema(schema):
        type_ = field.type
        while pa.types.is_list(type_):
            type_ = type_.value_type
        if pa.types.is_nested(type_):
            raise ConfigError(f"column {field.name!r} cannot be of type {field.type}: use text (layout {layout})")
    return schema


def moved_alone(rows: pa.RecordBatch, key: Sequence[str]) -> pa.RecordBatch:
    """Return rows of changes without the rows before updates that keep their key. Each is followed by the row after it.

    Raises:
        ConfigError: A column of the key, or the kind of change, is not among the columns.
    """
    for name in ("_change_type", *key):
        if name not in rows.schema.names:
            raise ConfigError(f"option preimages needs the column {name!r}: select it as well")
    if rows.num_rows < 2:
        return rows
    words = rows.column("_change_type")
    same = pc.equal(words[:-1], str(ChangeType.UPDATE_PREIMAGE))
    for name in key:
        column = rows.column(name)
        same = pc.and_(same, pc.fill_null(pc.equal(column[:-1], column[1:]), fill_value=False))
    mask = pa.concat_arrays([pc.invert(same), pa.array([True])])
    return rows.filter(mask)
