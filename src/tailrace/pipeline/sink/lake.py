"""Tables of a lake as sinks: each takes a batch in a commit of its own."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar
from urllib.parse import quote

import pyarrow as pa
from msgspec import structs

from tailrace.model.errors import SinkUnavailableError
from tailrace.model.table import TableSchema
from tailrace.pipeline.sink.base import Batch, SinkProgress, SinkTraits, TableChanges, TableMark
from tailrace.pipeline.sink.disk import sync_since
from tailrace.pipeline.sink.progress import (
    KeepsProgress,
    after,
    decode,
    encode,
    forgotten,
    has,
    moved,
    place,
    refuse_lost,
)
from tailrace.pipeline.sink.spread import SpreadBatch, Tally
from tailrace.pipeline.sink.storage import Held, Storage
from tailrace.pipeline.sink.upkeep import TableLayout, TableUpkeep, UpkeepOptions
from tailrace.sink_url import refuse_shared

__all__ = ["LakeSink", "LakeTables", "SpreadTables"]

_D = TypeVar("_D")


class LakeTables(Protocol):
    """The tables of one format below one place. Everything raises SinkError, or what `Storage.errors` knows."""

    @property
    def spread(self) -> "SpreadTables | None":
        """Return how tasks write these tables; None where they cannot."""

    @property
    def lay_out(self) -> Callable[[TableLayout], None] | None:
        """Return what takes how tables are to be made; None where that cannot be chosen."""

    def place(self, schema: TableSchema) -> str:
        """Return where a table is, which is different for different tables."""

    def directory(self, schema: TableSchema) -> Path | None:
        """Return the directory below which the files of a table are; None where they need no sync to be durable."""

    def exists(self, schema: TableSchema) -> bool:
        """Tell whether a table is there."""

    def apply(self, one: TableChanges, given: TableMark, known: TableMark | None = None) -> None:
        """Commit the changes of one table and the mark of their batch at once, unless the table has that batch.

        Raises:
            SinkMovedError: The last batch of the table is neither that one nor the one `known`.
        """

    def mark(self, schema: TableSchema) -> TableMark | None:
        """Return the last batch that a table has which is there; None for none."""

    def rows(self, schema: TableSchema) -> Iterator[pa.RecordBatch]:
        """Return the rows of a table that is there: the open versions of a history, what changes make together."""

    def maintain(self, schema: TableSchema, options: UpkeepOptions) -> TableUpkeep:
        """Maintain a table that is there."""


class SpreadTables(Protocol):
    """Tables that tasks can write."""

    def takes(self, schema: TableSchema) -> bool:
        """Tell whether tasks can write this one."""

    def drafted(self, batch: SpreadBatch) -> AbstractContextManager[tuple[list[Any], Tally]]:
        """Have tasks write the changes of a batch; give what is to be committed of each table, and what they met."""

    def commit(self, draft: Any, given: TableMark, known: TableMark | None) -> None:
        """Commit what tasks have written of one table and the mark of the batch; see `LakeTables.apply`."""


class LakeSink(KeepsProgress):
    """One table in a lake for each table of the pipeline.

    A table takes a batch in one commit that also holds the batch's number and last offset, so no table takes a change
    twice, however the log is cut into batches. Tables are not committed together: a reader may see one of them a batch
    ahead of another, and after a failure `ahead` says which those are. How far all of them are is in
    `_tailrace/PIPELINE.json` below the sink's place; it never goes back, not even where a worker that was held up in
    the middle of a batch writes it after its successor.
    """

    def __init__(self, storage: Storage, tables: LakeTables, pipeline: str) -> None:
        self._storage = storage
        self._tables = tables
        self._marker = f"_tailrace/{quote(pipeline, safe='')}.json"
        self._marks: dict[str, TableMark | None] = {}
        self._known = False
        """Whether the marks of tables are surely what the tables have."""

    @property
    def traits(self) -> SinkTraits:
        """Return that it can forget and maintain tables, that they are uneven, and what else its format can."""
        return SinkTraits(
            forget=self.forget,
            newest=self.newest,
            ahead=self.ahead,
            spread=None if self._tables.spread is None else self,
            upkeep=self.maintain,
            lay_out=self._tables.lay_out,
        )

    def open(self, schemas: Sequence[TableSchema]) -> None:
        """Check that the tables that were there still are; those that are not come with their first batch."""
        refuse_shared([self._tables.place(schema) for schema in schemas])
        with self._storage.errors():
            self._storage.open()
            self._progress = _progress(self._storage.read(self._marker))
            self._known = False
            there = [schema for schema in schemas if self._tables.exists(schema)]
        refuse_lost(self._progress, schemas, there)

    def forget(self, schemas: Sequence[TableSchema]) -> None:
        """Forget the tables that are gone."""
        with self._storage.errors():
            held = self._storage.read(self._marker)
            progress = _progress(held)
            if progress is not None:
                there = [schema for schema in schemas if self._tables.exists(schema)]
                self._replace(encode(forgotten(progress, schemas, there)), held)

    def newest(self, schemas: Sequence[TableSchema]) -> int | None:
        """Return the number of the last batch that any of these tables has."""
        marks = self._looked(schemas).values()
        return max((mark.number for mark in marks if mark is not None), default=None)

    def ahead(self, schemas: Sequence[TableSchema]) -> dict[str, int]:
        """Return how far those of these tables are that have a batch which others lack."""
        self._looked(schemas)
        found = {schema: self._through(schema) for schema in schemas}
        return {
            schema.table.wire: through
            for schema, through in found.items()
            if through is not None and through > self._reached(schema, -1)
        }

    def apply(self, batch: Batch) -> None:
        """Commit the batch to one table after the other, then note that all have it."""
        if has(self._progress, batch):
            return
        with self._storage.errors():
            held = self._required()
            for one in batch.tables:
                through = batch.offsets.get(one.schema.table.source)
                self._mark(one.schema, batch.number, through, partial(self._tables.apply, one))
            progress = after(self._progress, batch)
            if batch.anew:
                progress = structs.replace(progress, since=batch.number)
            self._note(progress, [one.schema for one in batch.tables], held)

    def maintain(self, schemas: Sequence[TableSchema], options: UpkeepOptions) -> list[TableUpkeep]:
        """Maintain those of these tables that are there."""
        with self._storage.errors():
            return [self._tables.maintain(one, options) for one in schemas if self._tables.exists(one)]

    def takes_spread(self, schemas: Sequence[TableSchema]) -> bool:
        """Tell whether tasks can write all these tables."""
        tables = self._tables.spread
        with self._storage.errors():
            return tables is not None and all(tables.takes(schema) for schema in schemas)

    def apply_spread(self, batch: SpreadBatch) -> Tally:
        """Have tasks write the batch, commit it to one table after the other, then note that all have it."""
        tables = self._tables.spread
        assert tables is not None
        with self._storage.errors(), tables.drafted(batch) as (drafts, tally):
            offsets = {batch.source: tally.offset if batch.offset is None else batch.offset}
            if not tally.rows or self._has(batch, offsets):
                return tally
            held = self._required()
            for one in drafts:
                if batch.proceed is not None:
                    batch.proceed()
                self._mark(one.schema, batch.number, offsets[batch.source], partial(tables.commit, one))
            found = {place(one.schema): one.highest for one in drafts}
            self._note(moved(self._progress, batch.number, offsets, found), [one.schema for one in drafts], held)
        return tally

    def rows(self, schema: TableSchema) -> Iterator[pa.RecordBatch]:
        """Return the rows of a table."""
        with self._storage.errors():
            found = self._tables.rows(schema) if self._tables.exists(schema) else iter(())
        return self._read(found)

    def close(self) -> None:
        """Nothing is held open."""

    def _read(self, rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield rows that are read while they are taken."""
        with self._storage.errors():
            yield from rows

    def _looked(self, schemas: Sequence[TableSchema]) -> dict[str, TableMark | None]:
        """Return the marks of tables: those that were seen, unless something went wrong since."""
        if not self._known:
            self._marks.clear()
        for schema in schemas:
            self._look(schema)
        self._known = True
        return self._marks

    def _look(self, schema: TableSchema) -> None:
        """Read the mark of a table that was not seen yet."""
        if place(schema) not in self._marks:
            with self._storage.errors():
                self._marks[place(schema)] = self._tables.mark(schema) if self._tables.exists(schema) else None

    def _through(self, schema: TableSchema) -> int | None:
        """Return the offset that a table was brought to, which was looked at; None where that is not known."""
        mark, progress = self._marks[place(schema)], self._progress
        if mark is None or (progress is not None and mark.number < progress.since):
            return None
        return mark.through

    def _reached(self, schema: TableSchema, default: _D) -> int | _D:
        """Return the offset of a table's source that all tables were brought to."""
        return default if self._progress is None else self._progress.offsets.get(schema.table.source, default)

    def _mark(
        self,
        schema: TableSchema,
        number: int,
        through: int | None,
        commit: Callable[[TableMark, TableMark | None], None],
    ) -> None:
        """Commit a batch to one table, which must be as it was seen when the batch was cut.

        Rows that are copied or repaired do not bring a table back: what it has of the log it keeps. A repair says
        itself how far the table is, lest an offset of another log count from then on.
        """
        self._look(schema)
        before = self._through(schema)
        if through is None:
            through = self._reached(schema, None)
        if before is not None:
            through = before if through is None else max(through, before)
        given = TableMark(number, through)
        try:
            commit(given, self._marks[place(schema)])
        except Exception:
            self._known = False
            raise
        self._marks[place(schema)] = given

    def _has(self, batch: SpreadBatch, offsets: dict[str, int]) -> bool:
        """Tell whether all tables have a batch already, by its number or by the offset of its last change."""
        held = self._progress
        if has(held, Batch(batch.pipeline, batch.number, offsets, ())):
            return True
        return held is not None and batch.offset is None and offsets[batch.source] <= held.offsets.get(batch.source, 0)

    def _note(self, progress: SinkProgress, schemas: Iterable[TableSchema], held: Held | None) -> None:
        """Make what was written of these tables durable, then note how far all tables are, in the place of `held`."""
        for schema in schemas:
            directory = self._tables.directory(schema)
            if directory is not None:
                sync_since(directory, 0 if held is None else held.written_ns)
        self._replace(encode(progress), held)
        self._progress = progress

    def _required(self) -> Held | None:
        """Return what is noted, if it is what we know: the next try begins where the lake is.

        Raises:
            SinkUnavailableError: Another worker has written into it.
        """
        held = self._storage.read(self._marker)
        known, self._progress = self._progress, _progress(held)
        if self._progress != known:
            self._known = False
            raise SinkUnavailableError(_OVERTAKEN)
        return held

    def _replace(self, data: bytes, held: Held | None) -> None:
        """Note how far all tables are, in the place of `held`.

        Raises:
            SinkUnavailableError: Another worker has written into the lake.
        """
        if not self._storage.replace(self._marker, data, held):
            self._progress = _progress(self._storage.read(self._marker))
            raise SinkUnavailableError(_OVERTAKEN)


_OVERTAKEN = "another worker wrote into the lake in the meantime"


def _progress(held: Held | None) -> SinkProgress | None:
    """Return how far all tables are, as it stands in the lake."""
    return None if held is None else decode(held.data)
