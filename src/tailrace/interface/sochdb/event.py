"""Events of SochDB as bytes: gRPC messages, each with its length before it. Pure.

| field | `SubscribeEvent` | `WatchKeyEvent` | of a change |
|---|---|---|---|
| sequence | 1 | 1 | offset |
| timestamp_us | 2 | 2 | time of the commit |
| txn_id | 3 | | index of the commit |
| table | 4 | | name of the table as every wire shows it |
| key | 5 | | key in its raw form (`tailrace.model.raw_key`) |
| operation | 6 | 3 | op; the numbers of the first four are the same |
| after_value, before_value | 7, 8 | 4, 5 | images (`tailrace.interface.sochdb.raw_image`) |
| ddl | 9 | | text of a schema change |

Rows with a change of a whole table among them are encoded one by one. SochDB has no truncation: subscribers get a
schema change whose text is the statement `TRUNCATE TABLE`; whoever watches one key gets its deletion, without a value.
"""

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from tailrace.delivery.column_encoder import NOTHING, Tables, ddl_of, encode_rows, rows_of, scalar
from tailrace.delivery.encoded import Encoded
from tailrace.delivery.view import View, Wire
from tailrace.interface.sochdb.raw_image import is_key_value, raw_of_image
from tailrace.interface.sochdb.varint import field_array, field_of, prefix_array, prefix_of, varint_array, varint_of
from tailrace.model.chunk import Chunk
from tailrace.model.op import ROWLESS, Op
from tailrace.model.raw_key import raw_kind, raw_of_key
from tailrace.model.table import Kind, TableSchema
from tailrace.subscription.columns import project
from tailrace.subscription.filter import Rows

__all__ = ["SOCHDB", "SOCHDB_KEY", "encode_events"]

_ROWS_FEW = 24
"""Below this many rows, encoding them one by one costs less than calling Arrow."""


class _Layout(Struct, frozen=True):
    """Tags of a message: field number and wire type. 0 for a field that it does not have."""

    sequence: int
    timestamp_us: int
    operation: int
    after_value: int
    before_value: int
    txn_id: int = 0
    table: int = 0
    key: int = 0
    ddl: int = 0


_VARINT, _BYTES = 0, 2


def _tag(number: int, wire_type: int) -> int:
    return number << 3 | wire_type


_COLUMNS = ("offset", "index", "commit_time_us", "op", "schema", "key", "before", "after")


def encode_events(chunk: Chunk, rows: Rows, view: View) -> Encoded:
    """Return the events of the given rows of a chunk."""
    return encode_rows(
        chunk,
        rows,
        lambda: _encode_few(chunk, rows, view),
        lambda: _encode_many(chunk, rows, view),
        _ROWS_FEW,
    )


SOCHDB = Wire("sochdb", encode_events)
SOCHDB_KEY = Wire("sochdb_key", encode_events)

_LAYOUTS = {
    SOCHDB: _Layout(
        sequence=_tag(1, _VARINT),
        timestamp_us=_tag(2, _VARINT),
        txn_id=_tag(3, _VARINT),
        table=_tag(4, _BYTES),
        key=_tag(5, _BYTES),
        operation=_tag(6, _VARINT),
        after_value=_tag(7, _BYTES),
        before_value=_tag(8, _BYTES),
        ddl=_tag(9, _BYTES),
    ),
    SOCHDB_KEY: _Layout(
        sequence=_tag(1, _VARINT),
        timestamp_us=_tag(2, _VARINT),
        operation=_tag(3, _VARINT),
        after_value=_tag(4, _BYTES),
        before_value=_tag(5, _BYTES),
    ),
}


# ---- row by row


def _encode_few(chunk: Chunk, rows: Rows, view: View) -> list[bytes]:
    layout = _LAYOUTS[view.wire]
    columns = [chunk.batch.column(name) for name in _COLUMNS[1:]]
    events = []
    for row in rows:
        index, time_us, op, schema_id, key, before, after = (column[row].as_py() for column in columns)
        schema = chunk.schemas[schema_id]
        event = b"%c%s" % (layout.sequence, varint_of(chunk.offset_of(row)))
        if time_us:
            event += b"%c%s" % (layout.timestamp_us, varint_of(time_us))
        if layout.txn_id:
            event += b"%c%s" % (layout.txn_id, varint_of(index))
            event += field_of(layout.table, schema.table.wire.encode()) + field_of(layout.key, raw_of_key(key, schema))
        if op == Op.TRUNCATE:
            event += _truncation(layout, schema)
            events.append(prefix_of(len(event)) + event)
            continue
        event += b"%c%c" % (layout.operation, op)
        if op == Op.SCHEMA:
            event += field_of(layout.ddl, ddl_of(after).encode()) if layout.ddl else b""
        else:
            for tag, image, wanted in (
                (layout.after_value, after, view.include.after),
                (layout.before_value, before, view.include.before),
            ):
                if wanted and image is not None:
                    event += field_of(tag, _image(image, schema, view.columns))
        events.append(prefix_of(len(event)) + event)
    return events


def _truncation(layout: _Layout, schema: TableSchema) -> bytes:
    """Return the operation of a truncation and what goes with it: DDL where the message has a place for it."""
    if not layout.ddl:
        return b"%c%c" % (layout.operation, Op.DELETE)
    return b"%c%c" % (layout.operation, Op.SCHEMA) + field_of(layout.ddl, schema.table.truncate_statement.encode())


def _image(image: bytes, schema: TableSchema, columns: tuple[str, ...]) -> bytes:
    if is_key_value(schema):
        return raw_of_image(image, schema)
    return project(image, columns) if columns else image


# ---- column by column


def _encode_many(chunk: Chunk, rows: Rows, view: View) -> Any | None:
    batch = rows_of(chunk, rows, _COLUMNS)
    if pc.max(batch.column("op")).as_py() in ROWLESS:
        return None
    layout = _LAYOUTS[view.wire]
    tables = Tables.of(batch, chunk)
    parts = [scalar(bytes((layout.sequence,))), varint_array(batch.column("offset"))]
    parts += _times(layout.timestamp_us, batch.column("commit_time_us"))
    if layout.txn_id:
        names = [field_of(layout.table, schema.table.wire.encode()) for schema in tables.schemas]
        parts += [scalar(bytes((layout.txn_id,))), varint_array(batch.column("index")), tables.each(names, pa.binary())]
        parts += field_array(layout.key, _keys(batch.column("key"), tables))
    ops = pa.array([b"%c%c" % (layout.operation, op) for op in (0, *Op)], pa.binary())
    parts.append(ops.take(batch.column("op")))
    for tag, name, wanted in (
        (layout.after_value, "after", view.include.after),
        (layout.before_value, "before", view.include.before),
    ):
        if wanted:
            parts += field_array(tag, _images(batch.column(name), tables, view.columns))
    bodies = pc.binary_join_element_wise(*parts, NOTHING, null_handling="replace", null_replacement=b"")
    return pc.binary_join_element_wise(prefix_array(pc.binary_length(bodies)), bodies, NOTHING)


_ESCAPE = "\\"
_TEXT = b'["'


def _times(tag: int, times_us: Any) -> list[Any]:
    if pc.min(times_us).as_py() > 0:
        return [scalar(bytes((tag,))), varint_array(times_us)]
    fields = [b"%c%s" % (tag, varint_of(time_us)) if time_us else b"" for time_us in times_us.to_pylist()]
    return [pa.array(fields, pa.binary())]


def _keys(keys: Any, tables: Tables) -> Any:
    """Return a column of keys in their raw form."""
    kinds = [raw_kind(schema) for schema in tables.schemas]
    if not any(kinds):
        return keys
    bare = tables.each([kind is not None for kind in kinds], pa.bool_())
    is_text = pc.and_(pc.starts_with(keys, _TEXT), tables.each([kind is Kind.STR for kind in kinds], pa.bool_()))
    simple = pc.and_(is_text, pc.invert(pc.match_substring(keys, _ESCAPE)))
    raw = pc.if_else(simple, pc.binary_slice(keys, 2, -2), keys)
    return tables.converted(raw, keys, pc.and_not(bare, simple), raw_of_key)


def _images(images: Any, tables: Tables, columns: tuple[str, ...]) -> Any:
    """Return a column of images as SochDB shows them."""
    if columns:
        odd = pc.is_valid(images)
    elif any(map(is_key_value, tables.schemas)):
        odd = pc.and_(tables.each([is_key_value(schema) for schema in tables.schemas], pa.bool_()), pc.is_valid(images))
    else:
        return images
    return tables.converted(images, images, odd, lambda image, schema: _image(image, schema, columns))
