"""Changes as rows in Spark's change format: an update is the row before it and the row after it. Pure."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.model.number import SchemaId
from tailrace.model.op import Op
from tailrace.model.table import TableName, TableSchema
from tailrace.pipeline.sink.base import ChangeType, TableChanges
from tailrace.pipeline.typed import decode_images, row_schema
from tailrace.pipeline.unchanged import unsent, with_unsent

__all__ = [
    "CHANGE_COLUMNS",
    "COMMIT_TIME",
    "ChangeRows",
    "change_rows",
    "change_schema",
    "drops",
    "table_changes",
    "typed_rows",
]

COMMIT_TIME = pa.timestamp("us", tz="UTC")

CHANGE_COLUMNS: pa.Schema = pa.schema(
    [
        pa.field("_change_type", pa.string()),
        pa.field("_offset", pa.int64()),
        pa.field("_commit_version", pa.int64()),
        pa.field("_commit_timestamp", COMMIT_TIME),
    ]
)
"""What every change row has in front of the columns of its table."""

_WORDS = pa.array(
    [
        ChangeType.INSERT,
        ChangeType.UPDATE_PREIMAGE,
        ChangeType.UPDATE_POSTIMAGE,
        ChangeType.DELETE,
        ChangeType.TRUNCATE,
        ChangeType.DROP,
    ],
    pa.string(),
)
_INSERT, _PREIMAGE, _POSTIMAGE, _DELETE, _TRUNCATE, _DROP = range(6)
_WORD_OF_OP = np.array([-1, _INSERT, _POSTIMAGE, _DELETE, _DROP, _TRUNCATE])
"""The word of a change that is a single row. Of schema changes only the end of a table is one."""

_DROPPING = re.compile(r"\s*drop\s+table\b", re.IGNORECASE)


class _SchemaChange(msgspec.Struct):
    """The image of a schema change."""

    ddl: str = ""


_SCHEMA_CHANGE = msgspec.json.Decoder(_SchemaChange)


class ChangeRows(msgspec.Struct, frozen=True):
    """Rows made of changes: each with its word, its image, and the change that it is of. All of one length."""

    words: pa.Array
    images: pa.Array
    changes: pa.RecordBatch

    @property
    def change_columns(self) -> list[pa.Array]:
        """Return the columns of `CHANGE_COLUMNS`."""
        offsets, indexes, times = (self.changes.column(name) for name in ("offset", "index", "commit_time_us"))
        return [self.words, offsets, indexes, times.cast(COMMIT_TIME)]


def change_schema(schema: TableSchema, as_text: Collection[str] = ()) -> pa.Schema:
    """Return the columns of the change rows of a table."""
    return pa.schema([*CHANGE_COLUMNS, *row_schema(schema, as_text)])


def change_rows(batch: pa.RecordBatch, schemas: Mapping[SchemaId, TableSchema]) -> ChangeRows:
    """Return the rows of changes in order. Schema changes have none, except that a table is dropped.

    An update whose row before is not known is the row after alone; a deletion without it has the key alone; a
    truncation is a row without any column, and so is the end of a table.
    """
    ops = batch.column("op").to_numpy(zero_copy_only=False)
    before = ((ops == Op.UPDATE) & _valid(batch.column("before"))) | (ops == Op.DELETE)
    drop = drops(batch)
    after = (ops == Op.INSERT) | (ops == Op.UPDATE) | (ops == Op.TRUNCATE) | drop
    if drop.any():  # what it says is not of a row
        batch = _without_after(batch, drop)
    if (before ^ after).all():  # a row each: nothing need be moved
        images = pc.coalesce(batch.column("after"), batch.column("before")) if before.any() else batch.column("after")
        return _filled(_WORD_OF_OP[ops], images, batch, schemas)
    rows = np.repeat(np.arange(len(ops)), before.astype(np.int64) + after)
    second = np.zeros(len(rows), bool)
    second[1:] = rows[1:] == rows[:-1]
    is_before = before[rows] & ~second
    words = np.where(is_before, _PREIMAGE, _POSTIMAGE)
    words[ops[rows] == Op.INSERT] = _INSERT
    words[ops[rows] == Op.DELETE] = _DELETE
    words[ops[rows] == Op.TRUNCATE] = _TRUNCATE
    words[ops[rows] == Op.SCHEMA] = _DROP
    both = pa.concat_arrays([batch.column("before"), batch.column("after")])
    images = both.take(pa.array(np.where(is_before, rows, rows + len(ops))))
    return _filled(words, images, batch.take(pa.array(rows)), schemas)


def drops(batch: pa.RecordBatch) -> Any:
    """Tell for each change whether it is the end of its table, which is then gone with all its rows."""
    found = batch.column("op").to_numpy(zero_copy_only=False) == Op.SCHEMA
    for row in np.flatnonzero(found).tolist():
        image = batch.column("after")[row].as_py()
        found[row] = image is not None and _DROPPING.match(_SCHEMA_CHANGE.decode(image).ddl) is not None
    return found


def _without_after(batch: pa.RecordBatch, rows: Any) -> pa.RecordBatch:
    place = batch.schema.get_field_index("after")
    images = pc.if_else(pa.array(rows), pa.scalar(None, pa.binary()), batch.column(place))
    return batch.set_column(place, batch.schema.field(place), images)


def _filled(
    words: Any, images: pa.Array, changes: pa.RecordBatch, schemas: Mapping[SchemaId, TableSchema]
) -> ChangeRows:
    if images.null_count:
        images = _with_keys(images, changes, schemas)
    return ChangeRows(_WORDS.take(pa.array(words)), images, changes)


def typed_rows(
    rows: ChangeRows,
    schemas: Mapping[SchemaId, TableSchema],
    wanted: pa.Schema,
    as_text: Collection[str] = (),
) -> tuple[list[Any], pa.Array | None]:
    """Return the columns of `wanted` for rows of one table, whose changes may be of several versions of its schema.

    And which columns the image of each row lacks, as `UNCHANGED` tells it; None where all are whole.

    Raises:
        MisfitError: A value does not fit its column's type.
    """
    columns: list[list[pa.Array]] = []
    lacking: list[tuple[int, pa.Array | None]] = []
    keys = rows.changes.column("key")
    for number, begin, count in _runs(rows.changes.column("schema")):
        images, version = rows.images.slice(begin, count), schemas[number]
        decoded = decode_images(images, keys.slice(begin, count), version, wanted, as_text)
        columns.append(decoded.columns)
        lacking.append((count, unsent(images, decoded, wanted, version)))
    if not columns:
        return [pa.array([], field.type) for field in wanted], None
    cells = [pa.concat_arrays(pieces) if len(pieces) > 1 else pieces[0] for pieces in zip(*columns, strict=True)]
    if all(texts is None for _, texts in lacking):
        return cells, None
    parts = [pa.nulls(count, pa.string()) if texts is None else texts for count, texts in lacking]
    return cells, pa.concat_arrays(parts)


def table_changes(
    batches: Sequence[pa.RecordBatch],
    schemas: Mapping[SchemaId, TableSchema],
    as_text: Collection[str] = (),
) -> list[TableChanges]:
    """Return the changes of batches by table, typed by the newest version of its schema that they hold.

    Raises:
        MisfitError: A value does not fit its column's type.
    """
    by_table: dict[TableName, set[SchemaId]] = {}
    whole = pa.Table.from_batches(batches).combine_chunks().to_batches() if batches else []
    for batch in whole:
        for number in pc.unique(batch.column("schema")).to_pylist():
            by_table.setdefault(schemas[number].table, set()).add(number)
    changed = []
    for _, versions in sorted(by_table.items()):
        newest = schemas[max(versions)]
        wanted = row_schema(newest, as_text)
        tables = []
        for batch in whole:
            chosen = batch.filter(pc.is_in(batch.column("schema"), value_set=pa.array(sorted(versions), pa.int32())))
            rows = change_rows(chosen, schemas)
            cells, lacking = typed_rows(rows, schemas, wanted, as_text)
            table = pa.Table.from_arrays([*rows.change_columns, *cells], schema=change_schema(newest, as_text))
            tables.append((table, lacking))
        changed.append(TableChanges(newest, with_unsent(tables)))
    return changed


def _runs(schemas: pa.Array) -> Iterator[tuple[SchemaId, int, int]]:
    """Yield version, begin and length of each run of rows of one schema version."""
    encoded = pc.run_end_encode(schemas)
    begin = 0
    for version, end in zip(encoded.values.to_pylist(), encoded.run_ends.to_pylist(), strict=True):
        yield version, begin, end - begin
        begin = end


def _valid(column: pa.Array) -> Any:
    return column.is_valid().to_numpy(zero_copy_only=False)


def _with_keys(images: pa.Array, changes: pa.RecordBatch, schemas: Mapping[SchemaId, TableSchema]) -> pa.Array:
    """Return images in which those that are missing have the columns of the key alone."""
    filled = images.to_pylist()
    for row in pc.indices_nonzero(images.is_null()).to_pylist():
        schema = schemas[changes.column("schema")[row].as_py()]
        key = msgspec.json.decode(changes.column("key")[row].as_py())
        filled[row] = msgspec.json.encode(dict(zip(schema.key_names, key, strict=False)))
    return pa.array(filled, pa.binary())
