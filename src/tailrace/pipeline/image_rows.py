"""Changes with their rows as images, as the log has them, for sinks that want no types; and what they were. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from tailrace.client.bulk_rows import RowsPage
from tailrace.model.chunk import Change
from tailrace.model.image import NO_KEY
from tailrace.model.number import Index, Offset
from tailrace.model.op import Op
from tailrace.model.table import TableSchema
from tailrace.pipeline.change_rows import CHANGE_COLUMNS, COMMIT_TIME
from tailrace.pipeline.sink.base import ChangeType, TableChanges

__all__ = ["IMAGE_SCHEMA", "ChangeColumns", "changes_of_images", "image_changes", "image_page", "joined_changes"]

IMAGE_SCHEMA: pa.Schema = pa.schema(
    [
        *CHANGE_COLUMNS,
        pa.field("_txid", pa.int64()),
        pa.field("_key", pa.binary()),
        pa.field("_row", pa.binary()),
    ]
)
"""Columns of changes whose rows are images: key and row are in their natural JSON form."""

_OPS = {
    str(ChangeType.INSERT): Op.INSERT,
    str(ChangeType.READ): Op.INSERT,
    str(ChangeType.UPDATE_PREIMAGE): Op.DELETE,
    str(ChangeType.UPDATE_POSTIMAGE): Op.UPDATE,
    str(ChangeType.DELETE): Op.DELETE,
    str(ChangeType.TRUNCATE): Op.TRUNCATE,
    str(ChangeType.DROP): Op.TRUNCATE,
}
"""What a row by itself is. The row before an update alone has left what is looked at: a deletion."""


class ChangeColumns(Struct, frozen=True):
    """Rows of changes by columns, as lists of one length."""

    types: Sequence[str]
    offsets: Sequence[Offset]
    indexes: Sequence[Index]
    times_us: Sequence[int]
    txids: Sequence[int]
    keys: Sequence[bytes]
    images: Sequence[bytes]


def image_page(page: RowsPage) -> pa.Table:
    """Return the rows of a page, which is not typed, as changes of the type `read`."""
    count = page.rows.num_rows
    columns = [
        pa.repeat(pa.scalar(str(ChangeType.READ)), count),
        pa.repeat(pa.scalar(page.offset, pa.int64()), count),
        pa.repeat(pa.scalar(page.index, pa.int64()), count),
        pa.repeat(pa.scalar(page.time_us, COMMIT_TIME), count),
        pa.repeat(pa.scalar(0, pa.int64()), count),
        page.rows.column("key").cast(pa.binary()),
        page.rows.column("image").cast(pa.binary()),
    ]
    return pa.Table.from_arrays(columns, schema=IMAGE_SCHEMA)


def image_changes(rows: pa.Table, versions: Mapping[tuple[str, int], TableSchema]) -> list[TableChanges]:
    """Return the changes of a batch in the layout `json` by table and version of its schema, with images for rows."""
    changes = []
    pairs = rows.group_by(["_table", "_schema_version"]).aggregate([])
    for name, version in zip(pairs["_table"].to_pylist(), pairs["_schema_version"].to_pylist(), strict=True):
        here = pc.and_(pc.equal(rows["_table"], name), pc.equal(rows["_schema_version"], version))
        chosen = rows if len(pairs) == 1 else rows.filter(here)
        columns = [chosen[field.name].cast(field.type) for field in IMAGE_SCHEMA]
        changes.append(
            TableChanges(versions[name, version], pa.Table.from_arrays(columns, schema=IMAGE_SCHEMA), images=True)
        )
    return changes


def changes_of_images(one: TableChanges) -> Iterator[Change]:
    """Yield the changes of a table whose rows are images, in order."""
    table = one.changes
    types, offsets, indexes, times, txids, keys, images = (table[name] for name in IMAGE_SCHEMA.names)
    lists: list[Any] = [
        one.to_pylist() for one in (types, offsets, indexes, times.cast(pa.int64()), txids, keys, images)
    ]
    return joined_changes(ChangeColumns(*lists), one.schema)


def joined_changes(rows: ChangeColumns, schema: TableSchema) -> Iterator[Change]:
    """Yield the changes that rows are of: the row before an update and the row after it are one."""
    before: bytes | None = None
    count = len(rows.types)
    columns = zip(*(getattr(rows, name) for name in ChangeColumns.__struct_fields__), strict=True)
    for place, (type_, offset, index, time_us, txid, key, image) in enumerate(columns, 1):
        if type_ == ChangeType.UPDATE_PREIMAGE and place < count:
            follows = rows.types[place] == ChangeType.UPDATE_POSTIMAGE and rows.offsets[place] == offset
            if follows:
                before = image
                continue
        op = _OPS[type_]
        if op is Op.TRUNCATE:
            yield Change(offset, index, time_us, txid, op, schema, NO_KEY, None, None)
            continue
        images = (image, None) if op is Op.DELETE else (before, image)
        yield Change(offset, index, time_us, txid, op, schema, key, *images)
        before = None
