"""Changes as the rows of a DataFrame, in each layout. Pure."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.model.errors import ConfigError
from tailrace.model.number import SchemaId
from tailrace.model.op import Op
from tailrace.model.table import TableSchema
from tailrace.pipeline.change_rows import (
    CHANGE_COLUMNS,
    COMMIT_TIME,
    ChangeRows,
    change_rows,
    change_schema,
    drops,
    typed_rows,
)
from tailrace.pipeline.latest import latest
from tailrace.pipeline.sink.base import ChangeType
from tailrace.pipeline.source_options import Layout, SourceOptions
from tailrace.pipeline.unchanged import UNCHANGED, UnsentError

__all__ = ["PACKED_SCHEMA", "arrow_schema_of", "coalesced", "newest_schema", "rows_of", "unpacked"]

_CHANGES_TARGETS = {
    Layout.TYPED: 16_384,
    Layout.JSON: 8192,
    Layout.ENVELOPE: 8192,
    Layout.PACKED: 32_768,
    Layout.LATEST: 131_072,
}
_BYTES_TARGET = 32 << 20
"""A batch is handed on when it has this many changes, or this many bytes.

To take images apart costs something for each batch; what is only handed on is better still in the processor's cache;
the more changes come together, the more of them are void.
"""

_ENVELOPE_COLUMNS = [
    pa.field("_table", pa.string(), nullable=False),
    pa.field("_schema_version", pa.int32(), nullable=False),
    pa.field("_txid", pa.int64(), nullable=False),
    pa.field("_key", pa.string(), nullable=False),
]
_ALWAYS_COLUMNS = [field.with_nullable(False) for field in CHANGE_COLUMNS]
"""Columns that no row lacks: Spark need not look, row by row, whether their values are there."""

_JSON_SCHEMA = pa.schema([*_ALWAYS_COLUMNS, *_ENVELOPE_COLUMNS, pa.field("_row", pa.string())])
_ENVELOPE_SCHEMA = pa.schema(
    [*_ALWAYS_COLUMNS, *_ENVELOPE_COLUMNS, pa.field("_before", pa.string()), pa.field("_after", pa.string())]
)
PACKED_SCHEMA = pa.schema(
    [
        pa.field("_offset", pa.int64(), nullable=False),
        pa.field("_changes", pa.int64(), nullable=False),
        pa.field("_rows", pa.binary(), nullable=False),
    ]
)
_OP_WORDS = pa.array([None, *(op.word for op in Op)], pa.string())

Schemas = Mapping[SchemaId, TableSchema]


def newest_schema(schemas: Schemas) -> TableSchema:
    """Return the newest of several versions of one table's schema."""
    return max(schemas.values(), key=lambda schema: schema.version)


def arrow_schema_of(options: SourceOptions, schemas: Schemas) -> pa.Schema:
    """Return the columns of the DataFrame that these options ask for.

    Raises:
        ConfigError: They name a column that the table does not have.
    """
    match options.layout:
        case Layout.JSON:
            return _JSON_SCHEMA
        case Layout.ENVELOPE:
            return _ENVELOPE_SCHEMA
        case Layout.PACKED | Layout.LATEST:
            return PACKED_SCHEMA
    newest = newest_schema(schemas)
    whole = change_schema(newest, options.string_columns)
    whole = whole.append(pa.field(UNCHANGED, pa.string()))
    for name in (*options.columns, *options.string_columns, *options.types):
        if name not in whole.names[len(CHANGE_COLUMNS) :]:
            raise ConfigError(f"table {newest.table.wire} has no column {name!r}")
    names = options.columns or whole.names[len(CHANGE_COLUMNS) : -1]
    return pa.schema([*_ALWAYS_COLUMNS, *(whole.field(name) for name in names)])


def coalesced(
    batches: Iterator[tuple[Schemas, pa.RecordBatch]], layout: Layout = Layout.TYPED
) -> Iterator[tuple[Schemas, pa.RecordBatch]]:
    """Yield the same changes in larger batches, of the size that suits a layout."""
    run: list[pa.RecordBatch] = []
    changes = size = 0
    schemas: Schemas = {}
    for schemas, batch in batches:
        if not batch.num_rows:
            continue
        run.append(batch)
        changes += batch.num_rows
        size += batch.get_total_buffer_size()  # quick; says too much of a slice, which is then handed on sooner
        if changes >= _CHANGES_TARGETS[layout] or size >= _BYTES_TARGET:
            yield schemas, _joined(run)
            run, changes, size = [], 0, 0
    if run:
        yield schemas, _joined(run)


def rows_of(
    batch: pa.RecordBatch, schemas: Schemas, layout: Layout, wanted: pa.Schema, as_text: Sequence[str] = ()
) -> pa.RecordBatch:
    """Return changes as rows with exactly the columns of `wanted`, which may be fewer than the layout has, or others.

    Raises:
        MisfitError: A value does not fit its column's type.
        UnsentError: A typed cell of a row as it is now was not sent, and `wanted` has no column that tells.
    """
    if layout in {Layout.PACKED, Layout.LATEST}:
        needed = latest(batch, schemas) if layout is Layout.LATEST else batch
        return _packed(rows_of(needed, schemas, Layout.JSON, _JSON_SCHEMA), _row_changes(batch))
    columns: dict[str, Callable[[], Any]]
    if layout is Layout.ENVELOPE:
        words = _OP_WORDS.take(batch.column("op"))
        count = batch.num_rows
        columns = {
            **_change_columns(words, batch),
            **_envelope_columns(batch, schemas),
            "_before": lambda: batch.column("before").view(pa.utf8()),
            "_after": lambda: batch.column("after").view(pa.utf8()),
        }
    else:
        rows = change_rows(batch, schemas)
        count = len(rows.words)
        columns = _change_columns(rows.words, rows.changes)
        if layout is Layout.JSON:
            columns |= {**_envelope_columns(rows.changes, schemas), "_row": lambda: rows.images.view(pa.utf8())}
        else:
            typed = pa.schema([field for field in wanted if field.name not in columns and field.name != UNCHANGED])
            cells, unsent = typed_rows(rows, schemas, typed, as_text)
            by_name = dict(zip(typed.names, cells, strict=True))
            if unsent is not None and UNCHANGED in wanted.names:
                by_name[UNCHANGED] = unsent
            elif unsent is not None:
                _refuse_unsent(rows, unsent, schemas)
            columns |= {name: (lambda column=column: column) for name, column in by_name.items()}
    arrays = [_exactly(columns[f.name](), f.type) if f.name in columns else pa.nulls(count, f.type) for f in wanted]
    return pa.RecordBatch.from_arrays(arrays, schema=wanted)


def _refuse_unsent(rows: ChangeRows, unsent: pa.Array, schemas: Schemas) -> None:
    """Check that only rows before changes lack something.

    Raises:
        UnsentError: Another one does.
    """
    now = pc.is_in(rows.words, value_set=pa.array([ChangeType.INSERT, ChangeType.UPDATE_POSTIMAGE], pa.string()))
    found = pc.index(pc.and_(now, unsent.is_valid()), pa.scalar(value=True)).as_py()
    if found >= 0:
        schema = schemas[rows.changes.column("schema")[found].as_py()]
        raise UnsentError(schema.table.wire, rows.changes.column("key")[found].as_py().decode(), unsent[found].as_py())


def unpacked(rows: pa.Table) -> Iterator[pa.Table]:
    """Yield the rows of the layout `json` that are in those of the layouts `packed` and `latest`."""
    for chunk in rows["_rows"].chunks:
        for held in chunk:
            yield pa.ipc.open_stream(held.as_buffer()).read_all()


def _packed(rows: pa.RecordBatch, changes: int) -> pa.RecordBatch:
    """Return rows as one, with the highest of their offsets; none where there are none. Short to hand on is quick."""
    if not rows.num_rows:
        return pa.RecordBatch.from_pylist([], PACKED_SCHEMA)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        writer.write_batch(rows)
    columns = [[pc.max(rows.column("_offset")).as_py()], [changes], [sink.getvalue().to_pybytes()]]
    return pa.RecordBatch.from_arrays(
        [pa.array(column, field.type) for column, field in zip(columns, PACKED_SCHEMA, strict=True)],
        schema=PACKED_SCHEMA,
    )


def _row_changes(batch: pa.RecordBatch) -> int:
    """Return how many changes of rows there are; the end of a table is one of all its rows."""
    return int(pc.sum(pc.not_equal(batch.column("op"), int(Op.SCHEMA))).as_py() or 0) + int(drops(batch).sum())


def _change_columns(words: pa.Array, changes: pa.RecordBatch) -> dict[str, Callable[[], Any]]:
    return {
        "_change_type": lambda: words,
        "_offset": lambda: changes.column("offset"),
        "_commit_version": lambda: changes.column("index"),
        "_commit_timestamp": lambda: changes.column("commit_time_us").cast(COMMIT_TIME),
    }


def _envelope_columns(changes: pa.RecordBatch, schemas: Schemas) -> dict[str, Callable[[], Any]]:
    numbers = changes.column("schema")
    return {
        "_table": lambda: _looked_up(numbers, {n: schemas[n].table.wire for n in schemas}, pa.string()),
        "_schema_version": lambda: _looked_up(numbers, {n: schemas[n].version for n in schemas}, pa.int32()),
        "_txid": lambda: changes.column("txid"),
        "_key": lambda: changes.column("key").view(pa.utf8()),
    }


def _looked_up(numbers: pa.Array, values: Mapping[SchemaId, Any], type_: pa.DataType) -> pa.Array:
    by_number = pa.array([values.get(SchemaId(n)) for n in range(max(values, default=0) + 1)], type_)
    return by_number.take(numbers)


def _exactly(column: pa.Array, type_: pa.DataType) -> pa.Array:
    return column if column.type == type_ else pc.cast(column, type_)


def _joined(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)
