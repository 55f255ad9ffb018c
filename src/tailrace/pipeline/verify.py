"""Comparing a sink with its source at one offset, and repairing what differs.

The rows of the source are read range by range, each page at an offset of its own; the sink has what it has at another.
The changes in between, which the log has, bring both to the same offset: the newest of the pages. Only digests of rows
are kept, and those on disk.
"""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from tailrace.client.bulk_rows import BulkRowsClient
from tailrace.clock import Clock
from tailrace.meta.pipeline import Definition
from tailrace.model.key_interval import KeyInterval
from tailrace.model.table import TableSchema
from tailrace.pipeline.change_rows import table_changes
from tailrace.pipeline.copy import planned
from tailrace.pipeline.declared import declared
from tailrace.pipeline.digest import Difference, Digests, Side
from tailrace.pipeline.errors import PipelineError, SchemaMovedError
from tailrace.pipeline.evolve import fitted, united
from tailrace.pipeline.fold import OFFSET, lacks_now
from tailrace.pipeline.rows import RANGE, RowsTask, interval_rows
from tailrace.pipeline.sink.base import Batch, ChangeType, Mode, TableChanges
from tailrace.pipeline.sink.replay import column_names
from tailrace.pipeline.sink.row import key_names, key_text
from tailrace.pipeline.sink_thread import SinkThread
from tailrace.pipeline.sinks import mode_of
from tailrace.pipeline.transform import transformed
from tailrace.pipeline.truncation import is_truncation

__all__ = ["TableVerdict", "Verdict", "Verifier"]

_KEYS_SHOWN_MAX = 20
_CHANGES_AT_ONCE = 200_000
_ROWS_REPAIRED_AT_ONCE = 50_000
_TRIES_MAX = 5
"""So often a table is compared whose columns turn out to be of wider types."""


class TableVerdict(Struct, frozen=True):
    """How a table compares: `keys` are some of those that differ, each with what is wrong."""

    table: str
    rows: int
    ranges: int
    ranges_differing: tuple[int, ...]
    missing: int
    extra: int
    differs: int
    twice: int
    keys: list[tuple[str, str]]

    @property
    def equal(self) -> bool:
        """Tell whether source and sink are equal."""
        return not (self.missing or self.extra or self.differs or self.twice)


class Verdict(Struct, frozen=True):
    """How a sink compares with its source, both at `offset`."""

    pipeline: str
    offset: int
    equal: bool
    repaired: int
    """Rows that were copied again or removed."""

    tables: list[TableVerdict]


class Verifier:
    """Compares the sink of one pipeline with its source, in bounded memory. For one thread.

    The sink has all changes through `reached`, at least. Others may write into it meanwhile, unless it is repaired:
    the keys of changes after `reached` are taken from the log, for both sides.

    What it is repaired with are batches of their own, which leave alone how far the sink is.
    """

    def __init__(
        self,
        definition: Definition,
        client: BulkRowsClient,
        sink: SinkThread,
        session: Callable[[], Any],
        clock: Clock,
        token: str | None,
        reached: int,
    ) -> None:
        self._definition = definition
        self._client = client
        self._sink = sink
        self._session = session
        self._clock = clock
        self._token = token
        self._reached = reached
        self._offset = 0

    def run(self, *, repair: bool) -> Verdict:
        """Compare all tables; with `repair`, copy the rows again that differ and remove those that should not be.

        Raises:
            BehindHorizonError: The log no longer has the changes that the sink lacks: let the pipeline catch up first.
            ClientError: The server cannot be reached, or refused.
            SinkError: The sink cannot be reached, or refused.
            PipelineError: No key tells the rows of a table apart, or it has rows whose key is null in part. Or the sink
                keeps changes, and has a batch in part.
        """
        if repair:
            self._require_even()
        verdicts, repaired = [], 0
        for name in self._definition.tables:
            (found,) = self._client.info(self._definition.source, [name]).newest()
            schema = declared(found, self._definition.types)
            if not schema.identity.is_unique:
                raise PipelineError(f"no key tells the rows of table {name} apart: they cannot be compared")
            ranges, _ = planned(self._client, self._definition.source, name)
            verdict, repaired_rows = self._table(schema, ranges, repair=repair)
            if repaired_rows:
                repaired += repaired_rows
                verdict, _ = self._table(schema, ranges, repair=False)
            verdicts.append(verdict)
        equal = all(one.equal for one in verdicts)
        return Verdict(self._definition.name, self._offset, equal, repaired, verdicts)

    def _table(self, schema: TableSchema, ranges: Sequence[KeyInterval], *, repair: bool) -> tuple[TableVerdict, int]:
        """Compare one table, and fix it if wanted; return how many rows that were."""
        shape = _Shape()
        for _ in range(_TRIES_MAX):
            try:
                with tempfile.TemporaryDirectory(prefix="tailrace-verify-") as directory:
                    return self._compared(schema, ranges, shape, Path(directory), repair=repair)
            except _OtherShapeError as error:
                shape = error.shape
        raise SchemaMovedError(schema.table.wire)

    def _compared(
        self,
        schema: TableSchema,
        ranges: Sequence[KeyInterval],
        compared: "_Shape",
        directory: Path,
        *,
        repair: bool,
    ) -> tuple[TableVerdict, int]:
        progress = self._sink.progress()
        at = max(self._reached, 0 if progress is None else progress.offsets.get(self._definition.source, 0))
        pages = self._pages(schema, ranges)
        first = next(pages)
        shape = first.schema
        held = self._sink.rows(shape)
        begin = [pa.table(batch) for batch in [next(held, None)] if batch is not None]
        for one in [first.changes, *begin]:
            compared = _Shape(_joined(compared.columns, one, shape), compared.by_column)
        columns = compared.columns
        assert columns is not None
        with closing(Digests(directory, key_names(shape), columns, by_column=compared.by_column)) as digests:
            for rows in chain(begin, (pa.table(batch) for batch in held)):
                digests.add_rows(_fitting(rows, compared, shape), at)
            lowest = highest = at
            for page in chain([first], pages):
                digests.add_changes(Side.SOURCE, _fitting(page.changes, compared, shape))
                if page.changes.num_rows:
                    ends = pc.min_max(page.changes[OFFSET]).as_py()
                    lowest, highest = min(lowest, ends["min"]), max(highest, ends["max"])
            through = max(highest, self._client.info(self._definition.source).head)
            self._offset = max(self._offset, through)
            for late in self._changes(schema, lowest, through):
                changes = _fitting(late.changes, compared, shape)
                after = pc.greater(changes[OFFSET], at)
                digests.add_changes(Side.SOURCE, changes.filter(pc.invert(after)))
                digests.add_changes(Side.BOTH, changes.filter(after))
            digests.compare()
            repaired_rows = self._repair(schema, ranges, first, digests) if repair and digests.counts else 0
            return _verdict(shape, digests, len(ranges)), repaired_rows

    def _repair(self, schema: TableSchema, ranges: Sequence[KeyInterval], first: TableChanges, digests: Digests) -> int:
        """Remove the rows that are too many, then copy those again that differ or are missing."""
        shape, plain = first.schema, first.changes.drop_columns([RANGE]).schema
        repaired_rows = 0
        for keys in digests.unwanted(_ROWS_REPAIRED_AT_ONCE):
            repaired_rows += self._apply(shape, [fitted(self._removals(keys), plain)])
        waiting: list[pa.Table] = []
        for page in self._pages(schema, ranges, digests.ranges_differing):
            waiting.append(digests.wanted(page.changes.drop_columns([RANGE])))
            if sum(one.num_rows for one in waiting) >= _ROWS_REPAIRED_AT_ONCE:
                repaired_rows += self._apply(shape, waiting)
                waiting = []
        return repaired_rows + self._apply(shape, waiting)

    def _apply(self, shape: TableSchema, changes: Sequence[pa.Table]) -> int:
        """Give the sink a batch of its own; return how many rows it has."""
        rows: int = sum(one.num_rows for one in changes)
        if rows:
            whole = TableChanges(shape, pa.concat_tables(changes))
            self._sink.apply(Batch(self._definition.name, self._sink.next_number(), {}, [whole]))
        return rows

    def _require_even(self) -> None:
        """Refuse to fix changes that are kept while some tables have a batch that others lack.

        The changes that the others lack come later, and so do fixes of rows that they would have changed. To rows and
        their versions that does no harm.
        """
        definition = self._definition
        if mode_of(definition.sink, definition.mode) is not Mode.APPEND:
            return
        if self._sink.ahead():
            raise PipelineError(
                f"some tables in the sink of pipeline {definition.name!r} have a batch that others lack: "
                "run it once, then repair it"
            )

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
        types = self._definition.types
        for known, batch in self._client.batches(self._definition.source, after, through, [schema.table.wire]):
            schemas = {number: declared(one, types) for number, one in known.items()} if types else known
            waiting.append(batch)
            if sum(one.num_rows for one in waiting) >= _CHANGES_AT_ONCE:
                yield from map(self._transformed, table_changes(waiting, schemas))
                waiting = []
        yield from map(self._transformed, table_changes(waiting, schemas))

    def _transformed(self, one: TableChanges) -> TableChanges:
        return transformed(one, self._definition, self._session()) if self._definition.is_transformed else one


class _Shape(Struct, frozen=True):
    """What is compared: columns in types that hold all values, and whether changes lack cells of them."""

    columns: pa.Schema | None = None
    by_column: bool = False


class _OtherShapeError(Exception):
    """Columns turned out to be of wider types than they were digested with, or changes to lack cells."""

    def __init__(self, shape: _Shape) -> None:
        super().__init__()
        self.shape = shape


def _joined(columns: pa.Schema | None, rows: pa.Table, shape: TableSchema) -> pa.Schema:
    """Return the columns that are compared, in types that hold the values of these rows, too."""
    known = [rows.schema.field(name) for name in column_names(shape) if name in rows.column_names]
    return united(columns, pa.schema(known))


def _fitting(rows: pa.Table, compared: _Shape, shape: TableSchema) -> pa.Table:
    """Return rows as they are if their values fit the columns that are compared.

    Raises:
        _OtherShapeError: They do not, or lack cells for the first time.
        PipelineError: A key is null in part: several rows may have the same.
    """
    if any(_of_rows(rows)[name].null_count for name in key_names(shape)):
        raise PipelineError(
            f"table {shape.table.wire} has rows with NULL in a key column: they cannot be distinguished or compared"
        )
    needed = _Shape(_joined(compared.columns, rows, shape), compared.by_column or lacks_now(rows))
    if needed != compared:
        raise _OtherShapeError(needed)
    return rows


def _of_rows(changes: pa.Table) -> pa.Table:
    """Return what is a row, or a change of one: a truncation has no key."""
    return changes.filter(pc.invert(is_truncation(changes))) if "_change_type" in changes.column_names else changes


def _verdict(shape: TableSchema, digests: Digests, ranges: int) -> TableVerdict:
    """Return a comparison in numbers, with the first keys that differ."""
    shown = digests.first(_KEYS_SHOWN_MAX)
    keys = [(key_text(shown, shape, row), shown["_fault"][row].as_py()) for row in range(shown.num_rows)]
    counts = {str(fault): digests.counts.get(fault, 0) for fault in Difference}
    return TableVerdict(
        table=shape.table.wire,
        rows=digests.rows,
        ranges=ranges,
        ranges_differing=digests.ranges_differing,
        keys=keys,
        **counts,
    )
