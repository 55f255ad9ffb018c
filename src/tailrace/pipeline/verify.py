"""Comparing a sink with its source at one offset, and mending what differs.

The rows of the source are read range by range, each page at an offset of its own; the sink has what it has at another.
The changes in between, which the log has, bring both to the same offset: the newest of the pages.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from tailrace.client.bulk_rows import BulkRowsClient
from tailrace.clock import Clock
from tailrace.model.key_interval import KeyInterval
from tailrace.model.table import TableSchema
from tailrace.pipeline.change_rows import table_changes
from tailrace.pipeline.copy import next_number, planned
from tailrace.pipeline.definition import Definition
from tailrace.pipeline.digest import Compared, Fault, compare, digest, read_as, state
from tailrace.pipeline.evolve import fitted, united
from tailrace.pipeline.fold import OFFSET
from tailrace.pipeline.rows import RANGE, RowsTask, interval_rows
from tailrace.pipeline.sink.base import Batch, ChangeType, TableChanges
from tailrace.pipeline.sink.replay import column_names
from tailrace.pipeline.sink.row import key_names, key_text
from tailrace.pipeline.sink_thread import SinkThread
from tailrace.pipeline.transform import transformed

__all__ = ["TableVerdict", "Verdict", "Verifier"]

_KEYS_SHOWN_MAX = 20
_CHANGES_AT_ONCE = 200_000


class TableVerdict(Struct, frozen=True):
    """How a table compares: `keys` are some of those that differ, each with what is wrong."""

    table: str
    rows: int
    ranges: int
    ranges_differing: tuple[int, ...]
    missing: int
    extra: int
    differs: int
    keys: list[tuple[str, str]]

    @property
    def equal(self) -> bool:
        """Tell whether source and sink are equal."""
        return not (self.missing or self.extra or self.differs)


class Verdict(Struct, frozen=True):
    """How a sink compares with its source, both at `offset`."""

    pipeline: str
    offset: int
    equal: bool
    repaired: int
    """Rows that were copied anew or removed."""

    tables: list[TableVerdict]


class Verifier:
    """Compares the sink of one pipeline with its source. For one thread; nobody may write into the sink meanwhile."""

    def __init__(
        self,
        definition: Definition,
        client: BulkRowsClient,
        sink: SinkThread,
        session: Callable[[], Any],
        clock: Clock,
        token: str | None,
        number_min: int,
    ) -> None:
        self._definition = definition
        self._client = client
        self._sink = sink
        self._session = session
        self._clock = clock
        self._token = token
        self._number_min = number_min
        self._offset = 0

    def run(self, *, repair: bool) -> Verdict:
        """Compare all tables; with `repair`, copy the rows anew that differ and remove those that should not be.

        Raises:
            BehindHorizonError: The log no longer has the changes that the sink lacks: let the pipeline catch up first.
            ClientError: The server cannot be reached, or refused.
            SinkError: The sink cannot be reached, or refused.
        """
        verdicts, repaired = [], 0
        for name in self._definition.tables:
            schema = self._client.info(self._definition.source, [name]).tables[0].versions[-1].schema
            ranges, _ = planned(self._client, self._definition.source, name)
            compared, shape = self._compare(schema, ranges)
            if repair and compared.faults.num_rows:
                repaired += self._repair(schema, ranges, compared)
                compared, shape = self._compare(schema, ranges)
            verdicts.append(_verdict(shape, compared))
        equal = all(one.equal for one in verdicts)
        return Verdict(self._definition.name, self._offset, equal, repaired, verdicts)

    def _compare(self, schema: TableSchema, ranges: Sequence[KeyInterval]) -> tuple[Compared, TableSchema]:
        """Compare one table; return with it the schema that the transformation gave it."""
        progress = self._sink.progress()
        at = 0 if progress is None else progress.offsets.get(self._definition.source, 0)
        pages = list(self._pages(schema, ranges))
        read_at = [offset for page in pages if (offset := pc.max(page.changes[OFFSET]).as_py()) is not None]
        through = max([*read_at, at, self._client.info(self._definition.source).head])
        self._offset = max(self._offset, through)
        late = list(self._changes(schema, min([*read_at, at]), through))
        shape = pages[0].schema
        held = self._sink.rows(shape)
        key, columns = key_names(shape), _columns(shape, [one.changes for one in [*pages, *late]], held)
        theirs = [digest(one.changes, key, columns) for one in [*late, *pages]]
        ours = [digest(one.changes.filter(pc.greater(one.changes[OFFSET], at)), key, columns) for one in late]
        if held is not None:
            ours.append(digest(read_as(held, at), key, columns))
        none = theirs[-1].slice(0, 0)
        return compare(state(theirs, key), state([none, *ours], key), key, len(ranges)), shape

    def _repair(self, schema: TableSchema, ranges: Sequence[KeyInterval], compared: Compared) -> int:
        """Copy the rows anew that differ or are missing, and remove those that are too many."""
        pages = list(self._pages(schema, ranges, compared.ranges_differing))
        first = pages[0] if pages else next(self._pages(schema, ranges, (1,)))
        shape, plain = first.schema, [page.changes.drop_columns([RANGE]) for page in pages]
        key = key_names(shape)
        wanted = compared.faults.filter(pc.not_equal(compared.faults["_fault"], str(Fault.EXTRA)))
        changes = [rows.join(wanted.select(key), key, join_type="left semi") for rows in plain]
        extra = compared.faults.filter(pc.equal(compared.faults["_fault"], str(Fault.EXTRA)))
        changes.append(fitted(self._removals(extra.select(key)), first.changes.drop_columns([RANGE]).schema))
        whole = pa.concat_tables(changes)
        if whole.num_rows:
            progress = self._sink.progress()
            offsets = {} if progress is None else dict(progress.offsets)
            number = next_number(progress, self._number_min)
            self._sink.apply(Batch(self._definition.name, number, offsets, [TableChanges(shape, whole)]))
        return len(whole)

    def _removals(self, keys: pa.Table) -> pa.Table:
        """Return changes that delete these keys."""
        values = {
            "_change_type": pa.scalar(str(ChangeType.DELETE)),
            OFFSET: pa.scalar(self._offset, pa.int64()),
            "_commit_version": pa.scalar(self._client.info(self._definition.source).last_index, pa.int64()),
            "_commit_timestamp": pa.scalar(self._clock.now_us(), pa.timestamp("us", tz="UTC")),
        }
        for name, value in values.items():
            keys = keys.append_column(name, pa.repeat(value, keys.num_rows))
        return keys

    def _pages(
        self, schema: TableSchema, ranges: Sequence[KeyInterval], only: Sequence[int] | None = None
    ) -> Iterator[TableChanges]:
        """Yield the rows of a table, range by range, transformed, with the number of the range."""
        numbered = dict(enumerate(ranges, 1))
        task = RowsTask(self._definition.server, self._token, self._definition.source, schema, numbered)
        for number in numbered if only is None else only:
            for rows in interval_rows(task, number):
                one = self._transformed(TableChanges(schema, rows.drop_columns([RANGE])))
                ranged = pa.repeat(pa.scalar(number, pa.int64()), one.changes.num_rows)
                yield TableChanges(one.schema, one.changes.append_column(RANGE, ranged))

    def _changes(self, schema: TableSchema, after: int, through: int) -> Iterator[TableChanges]:
        """Yield the changes of a table in an interval of the log, transformed."""
        waiting: list[pa.RecordBatch] = []
        schemas: Any = {}
        for schemas, batch in self._client.batches(self._definition.source, after, through, [schema.table.wire]):
            waiting.append(batch)
            if sum(one.num_rows for one in waiting) >= _CHANGES_AT_ONCE:
                yield from map(self._transformed, table_changes(waiting, schemas))
                waiting = []
        yield from map(self._transformed, table_changes(waiting, schemas))

    def _transformed(self, one: TableChanges) -> TableChanges:
        return transformed(one, self._definition.transform, self._session()) if self._definition.transform else one


def _columns(shape: TableSchema, tables: Sequence[pa.Table], held: pa.Table | None) -> pa.Schema:
    """Return the columns that are compared, in types that hold the values of both sides."""
    columns: pa.Schema | None = None
    for table in [*tables, *([] if held is None else [held])]:
        known = [table.schema.field(name) for name in column_names(shape) if name in table.column_names]
        columns = united(columns, pa.schema(known))
    assert columns is not None
    return columns


def _verdict(shape: TableSchema, compared: Compared) -> TableVerdict:
    """Return a comparison in numbers, with the first keys that differ."""
    counts = {one["values"]: one["counts"] for one in pc.value_counts(compared.faults["_fault"]).to_pylist()}
    shown = compared.faults.slice(0, _KEYS_SHOWN_MAX)
    keys = [(key_text(shown, shape, row), shown["_fault"][row].as_py()) for row in range(shown.num_rows)]
    return TableVerdict(
        table=shape.table.wire,
        rows=compared.rows,
        ranges=compared.ranges,
        ranges_differing=compared.ranges_differing,
        missing=counts.get(str(Fault.MISSING), 0),
        extra=counts.get(str(Fault.EXTRA), 0),
        differs=counts.get(str(Fault.DIFFERS), 0),
        keys=keys,
    )
