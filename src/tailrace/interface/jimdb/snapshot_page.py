"""The rows of a range that follow a key, as the database has them now."""

import asyncio

from msgspec import Struct

from tailrace.interface.jimdb.bounds import interval_after, ordered_of
from tailrace.interface.jimdb.errors import OutOfBoundError
from tailrace.interface.jimdb.options import PullOptions
from tailrace.interface.jimdb.row import Pulled, value_of
from tailrace.interface.jimdb.shard import RangeShard
from tailrace.meta.key_range import KeyRange, RangedTable
from tailrace.model.errors import InvalidValueError, UnknownTableError
from tailrace.model.number import Offset
from tailrace.model.table import TableSchema
from tailrace.source.base import SnapshotRows
from tailrace.subscription.restrict import Restriction
from tailrace.subscription.table_page import Page, read_page

__all__ = ["RangePage", "read_range"]


class RangePage(Struct, frozen=True):
    """Some rows; the first of their pages belongs at `offset`, and they have the columns of `schema`.

    `full` tells that more rows were read than an answer takes.
    """

    offset: Offset
    schema: TableSchema
    rows: list[Pulled]
    end: bool
    full: bool = False


async def read_range(
    shard: RangeShard,
    table: RangedTable,
    within: KeyRange,
    last: bytes,
    restriction: Restriction | None,
    options: PullOptions,
) -> RangePage:
    """Return the rows of a range after the key `last`, as many as an answer takes: one at least, or all are read.

    A caller who may see only some rows gets those alone. Where the schema changes meanwhile, or the table has another
    key than its ranges, the page has no rows and is not the end.

    Raises:
        OutOfBoundError: The key is none of the range.
        UnknownTableError: There is no such table any more.
        SourceUnavailableError: The database cannot be reached, or the log did not follow in time.
    """
    first: Page | None = None
    while True:
        latest = shard.log.latest_schema(table.table)
        if latest is None:
            raise UnknownTableError(table.table.source, table.table.wire)
        if latest[1].key != table.key:
            return RangePage(Offset(0), latest[1], [], end=False)
        interval = interval_after(within, table, last, latest[1])
        try:
            page = await read_page(shard.source, shard.log, table.table, interval, options.rows_max)
        except InvalidValueError as error:
            raise OutOfBoundError(last, within) from error
        schema, first = page.rows.schema, first or page
        if schema.version != first.rows.schema.version or schema.key != table.key:
            return RangePage(first.offset, schema, [], end=False)
        rows, end, full = await asyncio.to_thread(_rows, page, table.id, restriction, options.bytes_max)
        if rows or end:
            return RangePage(first.offset, schema, rows, end, full)
        assert page.rows.last is not None
        last = ordered_of(table.id, page.rows.last.encode(), schema)


def _rows(
    page: Page, table_id: int, restriction: Restriction | None, bytes_max: int
) -> tuple[list[Pulled], bool, bool]:
    """Return the rows that may be seen, up to the bound, whether there are no more, and whether some were left out."""
    schema, found = page.rows.schema, page.rows.rows()
    if restriction is not None:
        seen = restriction.visible(found.images, schema)
        pairs = [pair for pair, visible in zip(_pairs(found), seen, strict=True) if visible]
    else:
        pairs = _pairs(found)
    rows: list[Pulled] = []
    size_bytes = 0
    last = b""
    for key, image in pairs:
        row = Pulled(ordered_of(table_id, key, schema), value_of(image, schema))
        size_bytes += row.size_bytes
        if rows and size_bytes > bytes_max and not _may_equal(last, key):
            return rows, False, True
        rows.append(row)
        last = key
    return rows, page.rows.end, False


def _may_equal(key: bytes, other: bytes) -> bool:
    """Tell whether a database may take two keys for the same: only such as are null in part are not unique.

    The next answer begins after the last key of this one, by the database's rules: it may know no case, nor spaces.
    """
    return b"null" in key and key.lower().replace(b" ", b"") == other.lower().replace(b" ", b"")


def _pairs(found: SnapshotRows) -> list[tuple[bytes, bytes]]:
    return list(zip(found.keys, found.images, strict=True))
