"""Debezium's envelope in JSON, with and without the schema in each message."""

import base64
from functools import lru_cache
from typing import Any

import msgspec

from tailrace import __version__
from tailrace.envelope.base import UnfitError, Wrapped, plain_image, plain_key_object
from tailrace.envelope.connect import SOURCE, connect_columns, envelope_schema, struct_schema
from tailrace.model.chunk import Change
from tailrace.model.image import decode_image, decode_key, lacks_cells
from tailrace.model.op import Op
from tailrace.model.table import Column, TableSchema
from tailrace.model.value import Value

__all__ = ["DebeziumEnvelope"]

_OPS = {Op.INSERT: b"c", Op.UPDATE: b"u", Op.DELETE: b"d", Op.TRUNCATE: b"t"}
_READ = b"r"
_NULL = b"null"
_SCHEMAS_KEPT = 1024

_UNAVAILABLE = "__debezium_unavailable_value"
_MARKERS = {"string": _UNAVAILABLE, "bytes": base64.b64encode(_UNAVAILABLE.encode()).decode()}
"""What stands for a cell that was not sent, by the type of its column."""


class DebeziumEnvelope:
    """`{"before":…,"after":…,"source":{…},"transaction":{…},"op":"c|u|d|t|r","ts_ms":…}`, keyed by `{"id":1}`.

    The times inside of `source` are those of the commit, the outer ones the time of encoding. A change does not know
    its place among those of its commit: the orders in `transaction` are its offset, which rises within a commit.

    A truncation (`t`) has no images, and null as its key.

    A cell that the source did not send has Debezium's own marker, `__debezium_unavailable_value`; with schemas in
    base64 where the column is of bytes. Numbers and booleans have no such form there: a row before that lacks one is
    null as a whole, a row after that does cannot be represented.

    With schemas, that is the `payload` beside a `schema` in the words of Kafka Connect, in value and key alike, and
    each value has the type that the schema says. Dates, times and decimals are text, so that nothing is rounded.
    """

    tombstones = True

    def __init__(self, *, with_schema: bool) -> None:
        self._with_schema = with_schema

    def wrap(self, change: Change, id_: str, *, snapshot: bool = False, now_us: int | None = None) -> Wrapped:
        """Return the envelope of a change."""
        schema = change.schema
        if change.op is Op.TRUNCATE:
            return self._truncation(change, now_us)
        if not self._with_schema:
            before, after = (_plain_image(image, schema) for image in (change.before, change.after))
            return Wrapped(_payload(change, before, after, now_us, snapshot=snapshot), plain_key_object(change))
        before = None if _is_untellable(change.before, schema) else _typed_image(change.before, schema)
        after = _typed_image(change.after, schema)
        key_columns = schema.key_columns
        values = dict(zip([column.name for column in key_columns], decode_key(change.key, schema), strict=True))
        value_schema, key_schema = _schemas(schema)
        payload = _payload(change, before, after, now_us, snapshot=snapshot)
        value = b'{"schema":%s,"payload":%s}' % (value_schema, payload)
        return Wrapped(value, b'{"schema":%s,"payload":%s}' % (key_schema, _typed(values, key_columns)))

    def _truncation(self, change: Change, now_us: int | None) -> Wrapped:
        payload = _payload(change, None, None, now_us, snapshot=False)
        if not self._with_schema:
            return Wrapped(payload, _NULL)
        value_schema, _ = _schemas(change.schema)
        return Wrapped(b'{"schema":%s,"payload":%s}' % (value_schema, payload), b'{"schema":null,"payload":null}')


def _payload(change: Change, before: bytes | None, after: bytes | None, now_us: int | None, *, snapshot: bool) -> bytes:
    table, time_us = change.schema.table, change.commit_time_us
    wrapped_us = time_us if now_us is None else now_us
    source = {
        "version": __version__,
        "connector": "tailrace",
        "name": table.source,
        "ts_ms": time_us // 1000,
        "snapshot": "true" if snapshot else "false",
        "db": table.source,
        "sequence": f'["{change.index}","{change.offset}"]',
        "ts_us": time_us,
        "ts_ns": time_us * 1000,
        "schema": table.schema,
        "table": table.name,
        "txId": change.index,
        "lsn": change.offset,
    }
    orders = b'{"id":"%d","total_order":%d,"data_collection_order":%d}' % (change.index, change.offset, change.offset)
    return (b'{"before":%s,"after":%s,"source":%s,"transaction":%s,"op":"%s","ts_ms":%d,"ts_us":%d,"ts_ns":%d}') % (
        before or b"null",
        after or b"null",
        msgspec.json.encode({name: source[name] for name, _, _ in SOURCE}),
        b"null" if snapshot else orders,  # a row that was read belongs to no transaction
        _READ if snapshot else _OPS[change.op],
        wrapped_us // 1000,
        wrapped_us,
        wrapped_us * 1000,
    )


@lru_cache(maxsize=_SCHEMAS_KEPT)
def _schemas(schema: TableSchema) -> tuple[bytes, bytes]:
    """Return the schemas of value and key of a table's messages."""
    name = ".".join((schema.table.source, *([schema.table.schema] if schema.table.schema else []), schema.table.name))
    key = struct_schema(f"{name}.Key", connect_columns(schema.key_columns), optional=False)
    return msgspec.json.encode(envelope_schema(name, schema.columns)), msgspec.json.encode(key)


def _plain_image(image: bytes | None, schema: TableSchema) -> bytes | None:
    plain = plain_image(image, schema)
    if image is None or plain is None or not lacks_cells(image, schema):
        return plain
    cells = msgspec.json.decode(plain, type=dict[str, msgspec.Raw])
    shown = [column.name for column in schema.columns if column.name in cells or column.name not in schema.key]
    return msgspec.json.encode({name: cells.get(name, _UNAVAILABLE) for name in shown})


def _is_untellable(image: bytes | None, schema: TableSchema) -> bool:
    """Tell whether an image lacks a cell for which there is no marker."""
    if image is None or not lacks_cells(image, schema):
        return False
    cells = decode_image(image, schema).keys() | set(schema.key)
    return any(one.name not in cells and one.type not in _MARKERS for one in connect_columns(schema.columns))


def _typed_image(image: bytes | None, schema: TableSchema) -> bytes | None:
    if image is None:
        return None
    row = decode_image(image, schema)
    unsent = frozenset(column.name for column in schema.columns) - row.keys() - set(schema.key)
    return _typed(row, schema.columns, unsent)


def _typed(row: dict[str, Value], columns: tuple[Column, ...], unsent: frozenset[str] = frozenset()) -> bytes:
    """Return a row whose values are of the types that its schema tells, with markers for those that were not sent.

    Raises:
        UnfitError: One cannot be, or was not sent and has no marker.
    """
    typed: dict[str, Any] = {}
    for one in connect_columns(columns):
        if one.name in unsent:
            if one.type not in _MARKERS:
                raise UnfitError(f"the source did not send column {one.name!r}, and its type has no marker for that")
            typed[one.name] = _MARKERS[one.type]
            continue
        try:
            value = row.get(one.name)
            typed[one.name] = None if value is None else one.form(value)
        except (TypeError, ValueError):
            raise UnfitError(f"the value in column {one.name!r} is not of the column's type") from None
    return msgspec.json.encode(typed)
