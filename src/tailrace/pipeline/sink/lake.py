"""Tables of a lake as sinks: each takes a batch in a commit of its own."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

import pyarrow as pa

from tailrace.model.errors import SinkUnavailableError
from tailrace.model.table import TableSchema
from tailrace.pipeline.sink.base import Batch, SinkProgress, SinkTraits, TableChanges
from tailrace.pipeline.sink.disk import disk_errors, replace_file, sync_since
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
from tailrace.sink_url import refuse_shared

__all__ = ["LakeSink", "LakeTables", "SpreadTables"]


class LakeTables(Protocol):
    """The tables of one format below one directory. Everything raises SinkError or OSError."""

    @property
    def spread(self) -> "SpreadTables | None":
        """Return how tasks write these tables; None where they cannot."""

    def place(self, schema: TableSchema) -> str:
        """Return where a table is, which is different for different tables."""

    def directory(self, schema: TableSchema) -> Path:
        """Return the directory below which the files of a table are."""

    def exists(self, schema: TableSchema) -> bool:
        """Tell whether a table is there."""

    def apply(self, one: TableChanges, number: int) -> None:
        """Commit the changes of one table and the number of their batch at once, unless the table has that batch."""

    def number(self, schema: TableSchema) -> int | None:
        """Return the number of the last batch that a table has which is there; None for none."""

    def rows(self, schema: TableSchema) -> Iterator[pa.RecordBatch]:
        """Return the rows of a table that is there: the open versions of a history, what changes make together."""


class SpreadTables(Protocol):
    """Tables that tasks can write."""

    def takes(self, schema: TableSchema) -> bool:
        """Tell whether tasks can write this one."""

    def drafted(self, batch: SpreadBatch) -> AbstractContextManager[tuple[list[Any], Tally]]:
        """Have tasks write the changes of a batch; give what is to be committed of each table, and what they met."""

    def commit(self, draft: Any, number: int) -> None:
        """Commit what tasks have written of one table and the number of the batch, unless the table has that batch."""


class LakeSink(KeepsProgress):
    """One table in a lake for each table of the pipeline.

    A table takes a batch in one commit that also holds the batch's number, so no table takes a batch twice. Tables are
    not committed together: a reader may see one of them a batch ahead of another, and after a failure the batch goes
    to those that do not have it yet. How far all of them are stands in `_tailrace/PIPELINE.json` below the directory;
    it never goes back, not even where a worker that was held up in the middle of a batch writes it after its successor.
    """

    def __init__(self, directory: Path, tables: LakeTables, pipeline: str) -> None:
        self._directory = directory
        self._tables = tables
        self._marker = directory / "_tailrace" / f"{quote(pipeline, safe='')}.json"

    @property
    def traits(self) -> SinkTraits:
        """Return that it can forget tables, that they are uneven, and whether tasks can write them."""
        return SinkTraits(forget=self.forget, newest=self.newest, spread=None if self._tables.spread is None else self)

    def open(self, schemas: Sequence[TableSchema]) -> None:
        """Check that the tables that were there still are; those that are not come with their first batch."""
        refuse_shared([self._tables.place(schema) for schema in schemas])
        with disk_errors(self._directory):
            self._directory.mkdir(parents=True, exist_ok=True)
            self._progress = self._noted()
            there = [schema for schema in schemas if self._tables.exists(schema)]
        refuse_lost(self._progress, schemas, there)

    def forget(self, schemas: Sequence[TableSchema]) -> None:
        """Forget the tables that are gone."""
        with disk_errors(self._directory):
            progress = self._noted()
            if progress is not None:
                there = [schema for schema in schemas if self._tables.exists(schema)]
                replace_file(self._marker, encode(forgotten(progress, schemas, there)))

    def newest(self, schemas: Sequence[TableSchema]) -> int | None:
        """Return the number of the last batch that any of these tables has."""
        with disk_errors(self._directory):
            held = [self._tables.number(schema) for schema in schemas if self._tables.exists(schema)]
        return max((number for number in held if number is not None), default=None)

    def apply(self, batch: Batch) -> None:
        """Commit the batch to one table after the other, then note that all have it."""
        if has(self._progress, batch):
            return
        with disk_errors(self._directory):
            self._require(self._noted())
            for one in batch.tables:
                self._tables.apply(one, batch.number)
            self._note(after(self._progress, batch), [one.schema for one in batch.tables])

    def takes_spread(self, schemas: Sequence[TableSchema]) -> bool:
        """Tell whether tasks can write all these tables."""
        tables = self._tables.spread
        with disk_errors(self._directory):
            return tables is not None and all(tables.takes(schema) for schema in schemas)

    def apply_spread(self, batch: SpreadBatch) -> Tally:
        """Have tasks write the batch, commit it to one table after the other, then note that all have it."""
        tables = self._tables.spread
        assert tables is not None
        with disk_errors(self._directory), tables.drafted(batch) as (drafts, tally):
            offsets = {batch.source: tally.offset if batch.offset is None else batch.offset}
            if not tally.rows or self._has(batch, offsets):
                return tally
            self._require(self._noted())
            for one in drafts:
                if batch.proceed is not None:
                    batch.proceed()
                tables.commit(one, batch.number)
            found = {place(one.schema): one.highest for one in drafts}
            self._note(moved(self._progress, batch.number, offsets, found), [one.schema for one in drafts])
        return tally

    def rows(self, schema: TableSchema) -> Iterator[pa.RecordBatch]:
        """Return the rows of a table."""
        with disk_errors(self._directory):
            return self._tables.rows(schema) if self._tables.exists(schema) else iter(())

    def close(self) -> None:
        """Nothing is held open."""

    def _has(self, batch: SpreadBatch, offsets: dict[str, int]) -> bool:
        """Tell whether all tables have a batch already, by its number or by the offset of its last change."""
        held = self._progress
        if has(held, Batch(batch.pipeline, batch.number, offsets, ())):
            return True
        return held is not None and batch.offset is None and offsets[batch.source] <= held.offsets.get(batch.source, 0)

    def _note(self, progress: SinkProgress, schemas: Iterable[TableSchema]) -> None:
        """Make what was written of these tables durable, then note how far all tables are."""
        since_ns = self._marker.stat().st_mtime_ns if self._marker.exists() else 0
        for schema in schemas:
            sync_since(self._tables.directory(schema), since_ns)
        replace_file(self._marker, encode(progress), lambda: self._require(self._noted()))
        self._progress = progress

    def _require(self, noted: SinkProgress | None) -> None:
        """Refuse to go on from a place where the lake no longer is; the next try begins where it is.

        Raises:
            SinkUnavailableError: Another worker has written into it.
        """
        known, self._progress = self._progress, noted
        if noted != known:
            raise SinkUnavailableError("another worker wrote into the lake in the meantime")

    def _noted(self) -> SinkProgress | None:
        """Return how far all tables are, as it stands in the lake."""
        return decode(self._marker.read_bytes()) if self._marker.exists() else None
