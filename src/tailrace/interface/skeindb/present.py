"""Events of SkeinDB as bytes. Pure.

One change becomes one JSON object, keys in this order: seq, db, table, op, pk, before?, after?, query_id?, etag?,
commit_ts_ms, lsn. `query_id` and `etag` mark the change as an invalidation of a query; its op is then `invalidate`.
Four wires frame it: `SSE` as one server-sent event, `WS` as one WebSocket text frame of an object with `id`, `event`
and `data`, `ARRAY` as one element of a JSON array with the comma behind it, `LINES` as one line.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.delivery.column_encoder import NOTHING, Tables, encode_rows, rows_of, scalar
from tailrace.delivery.encoded import Encoded
from tailrace.delivery.frame import frame_array, frame_of
from tailrace.delivery.view import View, Wire
from tailrace.interface.skeindb.enveloped import encode_enveloped
from tailrace.interface.skeindb.literal import key_literals
from tailrace.model.chunk import ENVELOPE, Chunk
from tailrace.model.image import image_to_literals, image_to_plain, key_to_literals, key_to_plain
from tailrace.model.op import Op
from tailrace.model.subscription import Format
from tailrace.model.table import TableSchema
from tailrace.subscription.columns import project
from tailrace.subscription.filter import Rows
from tailrace.subscription.query.query_filter import InvalidationMark

__all__ = ["ARRAY", "FORMS", "LINES", "SSE", "WS", "encode"]

_ROWS_FEW = 64
"""Below this many rows, encoding them one by one costs less than calling Arrow."""

_NO_KEY = b"[]"
"""Key of an invalidation by a schema change, which has no row."""

_LITERAL = b'{"t":'

# As Arrow scalars: handed a Python number, Arrow looks for packages that may not be there, each time again.
_OP_FIRST, _OP_COUNT = pa.scalar(min(Op), pa.int32()), pa.scalar(len(Op), pa.int32())
_US_PER_MS = pa.scalar(1000, pa.int64())


def encode(chunk: Chunk, rows: Rows, view: View) -> Encoded:
    """Return the events of the given rows of a chunk."""
    if view.envelope:
        return encode_enveloped(chunk, rows, view, _ENVELOPE_FRAMES[view.wire])
    mark = view.mark
    if mark is not None and mark.extra:
        return encode_rows(chunk, rows, lambda: _encode_few_with_extra(chunk, rows, view, mark))
    return encode_rows(
        chunk,
        rows,
        lambda: _encode_few(chunk, rows, view),
        lambda: None if mark and _has_schema_change(chunk) else _encode_many(chunk, rows, view),
        _ROWS_FEW,
    )


SSE = Wire("sse", encode)
WS = Wire("ws", encode)
ARRAY = Wire("array", encode)
LINES = Wire("lines", encode)

_ENVELOPE_FRAMES: dict[Wire, Callable[[int, bytes, bytes], bytes]] = {
    SSE: lambda offset, word, value: b"id: %d\nevent: %s\ndata: %s\n\n" % (offset, word, value),
    WS: lambda offset, word, value: frame_of(b'{"id":%d,"event":"%s","data":%s}' % (offset, word, value)),
    ARRAY: lambda _offset, _word, value: value + b",",
    LINES: lambda _offset, _word, value: value + b"\n",
}
"""How each wire frames what an envelope of another system says."""


def _encode_few_with_extra(chunk: Chunk, rows: Rows, view: View, mark: InvalidationMark) -> list[bytes]:
    """Return the events of invalidations, of which the last one says more."""
    plain = msgspec.structs.replace(view, mark=msgspec.structs.replace(mark, extra=b""))
    return _encode_few(chunk, rows[:-1], plain) + _encode_few(chunk, rows[-1:], view)


def _has_schema_change(chunk: Chunk) -> bool:
    return bool(pc.any(pc.equal(chunk.batch.column("op"), pa.scalar(Op.SCHEMA.value, pa.int8()))).as_py())


def _columns(view: View) -> list[str]:
    return ["offset", "commit_time_us", "op", "schema", "key", *view.images]


# ---- row by row


def _encode_few(chunk: Chunk, rows: Rows, view: View) -> list[bytes]:
    names = [b',"%s":' % name.encode() for name in view.images]
    known: dict[tuple[int, int], _Constants] = {}
    tells_offset = view.wire in _BEGINS
    events = []
    for row, (time_us, op, schema_id, key, *images) in zip(rows, _cells(chunk, rows, view), strict=True):
        offset = chunk.offset_of(row)
        if (schema_id, op) not in known:
            known[schema_id, op] = _constants(chunk.schemas[schema_id], op, view)
        template, key_form, image_form = known[schema_id, op]
        members = b""
        if view.mark is not None and op == Op.SCHEMA:
            pk = _NO_KEY
        else:
            pk = key_form(key)
            columns_kept = view.columns if op != Op.SCHEMA else ()
            for name, image in zip(names, images, strict=True):
                if image is not None:
                    members += name + image_form(_cut(image, columns_kept) if columns_kept else image)
        cells = (offset, pk, members, time_us // 1000, offset)
        events.append(template % ((offset, *cells) if tells_offset else cells))
    return [frame_of(event) for event in events] if view.wire is WS else events


_Form = Callable[[bytes], bytes]
_Constants = tuple[bytes, _Form, _Form]

_constants_kept: OrderedDict[tuple[int, int, View], tuple[TableSchema, _Constants]] = OrderedDict()
_CONSTANTS_MAX = 1024


def _constants(schema: TableSchema, op: int, view: View) -> _Constants:
    """Return what the events of one operation on one table have in common; those used last are kept.

    A schema is found by its identity, which costs nothing: it is kept with what was made for it, so no other object
    can have the same. The log hands out one object for each version.
    """
    key = (id(schema), op, view)
    found = _constants_kept.get(key)
    if found is None:
        found = _constants_kept[key] = schema, (_template(schema, op, view), *_forms(schema, view.format))
        if len(_constants_kept) > _CONSTANTS_MAX:
            _constants_kept.popitem(last=False)
    return found[1]


def _forms(schema: TableSchema, format_: Format) -> tuple[_Form, _Form]:
    """Return how keys and images of one schema version are written; what must be known of that is found out once."""
    key_form, image_form = FORMS[format_]
    forms: list[_Form] = [lambda key: key_form(key, schema), lambda image: image_form(image, schema)]
    if format_ is Format.PLAIN_JSON:
        for place, columns in enumerate((schema.key_columns, schema.columns)):
            if not _has_json(columns):
                forms[place] = partial(_mostly_same, forms[place])
    return forms[0], forms[1]


def _mostly_same(form: _Form, value: bytes) -> bytes:
    """Return a value in its plain form, which is the value itself unless there are literals in it."""
    return form(value) if _LITERAL in value else value


def _cells(chunk: Chunk, rows: Rows, view: View) -> Iterable[tuple[Any, ...]]:
    """Return the wanted cells of each row."""
    if len(chunk) <= _ROWS_SINGLE:
        columns = [chunk.cells(name) for name in _columns(view)[1:]]
        return [tuple(column[row] for column in columns) for row in rows]
    if len(rows) <= _ROWS_SINGLE:
        batch = chunk.batch
        columns = [batch.column(place) for place in _PLACES]
        columns += [batch.column(_IMAGES[name]) for name in view.images]
        return [tuple(column[row].as_py() for column in columns) for row in rows]
    columns = rows_of(chunk, rows, _columns(view)).columns[1:]
    return zip(*(column.to_pylist() for column in columns), strict=True)


_ROWS_SINGLE = 8
"""Up to this many rows, taking single cells costs less than taking rows."""

_PLACES = [ENVELOPE.get_field_index(name) for name in ("commit_time_us", "op", "schema", "key")]
_IMAGES = {name: ENVELOPE.get_field_index(name) for name in ("before", "after")}

FORMS: dict[Format, tuple[Callable[[bytes, TableSchema], bytes], Callable[[bytes, TableSchema], bytes]]] = {
    Format.OBJECTS_JSON: (key_to_literals, image_to_literals),
    Format.PLAIN_JSON: (key_to_plain, image_to_plain),
}
"""How a key and an image are written in each format."""

_BEGINS = {SSE: b"id: ", WS: b'{"id":'}
"""What stands before the offset on the wires that tell it beside the event."""

_FRONTS = {SSE: b'\nevent: %s\ndata: {"seq":', WS: b',"event":"%s","data":{"seq":'}
_ENDS = {SSE: b"\n\n", WS: b"}", ARRAY: b",", LINES: b"\n"}


def _marked(view: View) -> bytes:
    """Return the members that only invalidations have."""
    mark = view.mark
    if mark is None:
        return b""
    named = msgspec.json.encode(mark.query_id), msgspec.json.encode(mark.etag)
    return b',"query_id":%s,"etag":%s%s' % (*named, mark.extra)


def _template(schema: TableSchema, op: int, view: View) -> bytes:
    """Return an event with places for its offset, twice on some wires, its key, its images, its time and its offset."""
    front, middle = (piece.replace(b"%", b"%%") for piece in _pieces(schema, op, view))
    begin = _BEGINS[view.wire] + b"%d" if view.wire in _BEGINS else b""
    marked, end = _marked(view).replace(b"%", b"%%"), _ENDS[view.wire]
    return begin + front + b"%d" + middle + b"%s%s" + marked + b',"commit_ts_ms":%d,"lsn":%d}' + end


def _pieces(schema: TableSchema, op: int, view: View) -> tuple[bytes, bytes]:
    """Return what stands before the offset, and what stands between it and the key."""
    word = Op(op).word.encode() if view.mark is None else b"invalidate"
    front = _FRONTS[view.wire] % word if view.wire in _FRONTS else b'{"seq":'
    table = schema.table
    middle = b',"db":%s,"table":%s,"op":"%s","pk":' % (
        msgspec.json.encode(table.source),
        msgspec.json.encode(table.wire),
        word,
    )
    return front, middle


# ---- column by column


def _encode_many(chunk: Chunk, rows: Rows, view: View) -> Any:
    batch = rows_of(chunk, rows, _columns(view))
    tables = Tables.of(batch, chunk)
    codes = pc.subtract(pc.cast(batch.column("op"), pa.int32()), _OP_FIRST)
    if len(tables.schemas) > 1:
        codes = pc.add(pc.multiply(tables.places, _OP_COUNT), codes)
    pieces = [_pieces(schema, op, view) for schema in tables.schemas for op in Op]
    middle = pa.array([piece[1] for piece in pieces], pa.binary()).take(codes)
    offset = _digits(batch.column("offset"))
    if view.wire in _BEGINS:
        front = [scalar(_BEGINS[view.wire]), offset, pa.array([piece[0] for piece in pieces], pa.binary()).take(codes)]
    else:
        front = [scalar(pieces[0][0])]
    images = []
    for name in ("before", "after"):
        if name in view.images:
            column = _images(_cut_all(batch, name, view.columns), tables, view.format)
            # Null where there is no image, so the join below leaves the member out.
            images.append(pc.binary_join_element_wise(scalar(b',"%s":' % name.encode()), column, NOTHING))
    events = pc.binary_join_element_wise(
        *front,
        offset,
        middle,
        _keys(batch.column("key"), tables, view.format),
        *images,
        pa.scalar(_marked(view) + b',"commit_ts_ms":', pa.binary()),
        _digits(pc.divide(batch.column("commit_time_us"), _US_PER_MS)),
        scalar(b',"lsn":'),
        offset,
        scalar(b"}" + _ENDS[view.wire]),
        NOTHING,
        null_handling="replace",
        null_replacement=b"",
    )
    return frame_array(events) if view.wire is WS else events


def _keys(keys: Any, tables: Tables, format_: Format) -> Any:
    if format_ is Format.OBJECTS_JSON:
        literals, odd = key_literals(keys, tables.places, tables.schemas)
        return tables.converted(literals, keys, odd, key_to_literals)
    odd = _unlike_plain(keys, tables, [_has_json(schema.key_columns) for schema in tables.schemas])
    return tables.converted(keys, keys, odd, key_to_plain)


def _cut(image: bytes, columns: tuple[str, ...]) -> bytes:
    return project(image, columns) if columns else image


def _cut_all(batch: Any, name: str, columns: tuple[str, ...]) -> Any:
    """Return a column of images, cut down to the wanted columns of the table."""
    if not columns:
        return batch.column(name)
    images = zip(batch.column(name).to_pylist(), batch.column("op").to_pylist(), strict=True)
    cut = [image if image is None or op == Op.SCHEMA else project(image, columns) for image, op in images]
    return pa.array(cut, pa.binary())


def _images(images: Any, tables: Tables, format_: Format) -> Any:
    if format_ is Format.OBJECTS_JSON:
        return tables.converted(images, images, pc.is_valid(images), image_to_literals)
    odd = _unlike_plain(images, tables, [_has_json(schema.columns) for schema in tables.schemas])
    return tables.converted(images, images, odd, image_to_plain)


def _unlike_plain(column: Any, tables: Tables, has_json: list[bool]) -> Any:
    """Return a mask of the values whose plain form may differ from what the log keeps; None for none."""
    masks = []
    if _LITERAL in _bytes_of(column):
        masks.append(pc.fill_null(pc.match_substring(column, _LITERAL), fill_value=False))
    if any(has_json):
        masks.append(pc.and_(tables.each(has_json, pa.bool_()), pc.is_valid(column)))
    if not masks:
        return None
    return masks[0] if len(masks) == 1 else pc.or_(*masks)


def _bytes_of(column: Any) -> bytes:
    """Return the values of a binary array, joined."""
    _, ends, data = column.buffers()
    if data is None:
        return b""
    view = memoryview(ends).cast("B").cast("i")
    begin, end = view[column.offset], view[column.offset + len(column)]
    return data.slice(begin, end - begin).to_pybytes()  # type: ignore[no-any-return]


def _has_json(columns: Sequence[Any]) -> bool:
    return any(column.has_documents for column in columns)


def _digits(numbers: Any) -> Any:
    return pc.cast(numbers, pa.utf8()).view(pa.binary())
