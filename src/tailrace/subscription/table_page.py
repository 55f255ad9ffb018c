"""The rows of a table by intervals of keys, each page at an offset of the log.

A page contains every commit up to its offset and none after it. Pages of one table have different offsets: a reader
that takes the log from the smallest on, and lets a change count only for rows that are older, has the table as it is.
"""

import pyarrow as pa
from msgspec import Struct

from tailrace.model.errors import BehindHorizonError, SourceUnavailableError
from tailrace.model.key_interval import KeyInterval
from tailrace.model.number import Index, Offset
from tailrace.model.table import TableName
from tailrace.source.base import QuerySource, TablePage
from tailrace.subscription.query.tracker import QueryLog
from tailrace.subscription.snapshot import offset_of, reach

__all__ = ["PAGE_SCHEMA", "Page", "read_page"]

PAGE_SCHEMA: pa.Schema = pa.schema([pa.field("key", pa.binary()), pa.field("image", pa.binary())])
"""Columns of the rows of a page: key and image in their natural JSON form."""

_TIMEOUT_S = 30.0
_ATTEMPTS_MAX = 50
"""So often rows are read again that contain a part of a commit."""


class Page(Struct, frozen=True):
    """Some rows, and where they belong: behind the commit `index`, whose last change has the offset."""

    offset: Offset
    index: Index
    rows: TablePage

    def batch(self, *, typed: bool) -> tuple[pa.RecordBatch, bool]:
        """Return the rows as Arrow, `key` and `image`, or, where it can be had, typed; and whether they are typed.

        Takes long for many: not for an event loop.
        """
        columns = self.rows.columns() if typed else None
        if columns is not None:
            return columns, True
        rows = self.rows.rows()
        arrays = [pa.array(column, pa.binary()) for column in (rows.keys, rows.images)]
        return pa.RecordBatch.from_arrays(arrays, schema=PAGE_SCHEMA), False


async def read_page(source: QuerySource, log: QueryLog, table: TableName, within: KeyInterval, rows_max: int) -> Page:
    """Return the first rows of an interval of keys, at the offset where they belong.

    Raises:
        InvalidValueError: A bound is no key of the table.
        UnknownTableError: There is no such table any more.
        SourceUnavailableError: The database cannot be reached, or the log did not follow in time.
    """
    for _ in range(_ATTEMPTS_MAX):
        rows = await source.page(table, within, rows_max=rows_max, timeout_s=_TIMEOUT_S)
        await reach(rows.barrier, source, log)
        offset = await offset_of(rows, log)
        if offset is not None:
            return Page(offset, await _index(log, offset), rows)
    raise SourceUnavailableError("the table changes too quickly for a consistent page of rows: try again later")


async def _index(log: QueryLog, offset: Offset) -> Index:
    """Return the index of the commit that an offset ends; that of the newest where retention has removed it."""
    if offset == log.head:
        return log.last_index
    try:
        chunk = await log.read(Offset(offset - 1)) if offset else None
    except BehindHorizonError:
        return log.last_index
    return Index(0) if chunk is None else Index(chunk.batch.column("index")[offset - chunk.first].as_py())
