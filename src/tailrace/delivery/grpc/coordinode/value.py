"""Values of operations: row images in MessagePack. Pure.

A row is `[[table], {column: cell}]`. A cell is nil, or a map of one member whose name is its type: `Bool`, `Int`,
`Float`, `String`, `Bytes`, `Decimal`, `Date`, `Time`, `Datetime`, `Uuid`, `Json`. The last six but `Bytes` carry text.
"""

from collections.abc import Mapping
from decimal import Decimal

import msgspec

from tailrace.model.table import Kind, TableSchema
from tailrace.model.value import Json, Text, Value, from_natural

__all__ = ["cells_of", "encode_row", "encode_schema"]

_encode = msgspec.msgpack.Encoder().encode
_decode_json = msgspec.json.Decoder().decode

_TEXT_TAGS = {
    Kind.DATE: "Date",
    Kind.TIME: "Time",
    Kind.DATETIME: "Datetime",
    Kind.UUID: "Uuid",
    Kind.JSON: "Json",
}
_PLAIN_STRINGS = frozenset(Kind) - {*_TEXT_TAGS, Kind.BYTES, Kind.DEC}
"""Kinds in whose columns a JSON string is nothing but text."""

_INT_MIN, _INT_MAX = -(2**63), 2**64 - 1
_SCHEMAS_KEPT = 4096
_kinds_kept: dict[int, tuple[TableSchema, dict[str, Kind]]] = {}


def cells_of(image: bytes) -> dict[str, Json]:
    """Return the cells of an image in their natural JSON form, by column."""
    cells: dict[str, Json] = _decode_json(image)
    return cells


def encode_row(cells: Mapping[str, Json], schema: TableSchema) -> bytes:
    """Return the bytes of a row, given by its cells in their natural JSON form."""
    special = _special_kinds(schema)
    fields: dict[str, object] = {}
    for name, cell in cells.items():
        tag = _TAGS.get(type(cell))
        if tag is not None and name not in special and (tag is not _INT or _INT_MIN <= cell <= _INT_MAX):
            fields[name] = {tag: cell}
        elif cell is None:
            fields[name] = None
        else:
            fields[name] = _tagged(from_natural(cell, special.get(name, Kind.ANY)))
    return _encode([[schema.table.wire], fields])


def encode_schema(schema: TableSchema, after: bytes | None) -> bytes:
    """Return the bytes of a schema change, whose image tells its DDL."""
    told = cells_of(after) if after else {}
    columns = [[column.name, str(column.kind), column.declared, column.nullable] for column in schema.columns]
    return _encode(
        {
            "table": schema.table.wire,
            "version": schema.version,
            "ddl": told.get("ddl", schema.ddl),
            "columns": columns,
            "key": list(schema.key),
        }
    )


_INT = "Int"
_TAGS: dict[type, str] = {str: "String", int: _INT, float: "Float", bool: "Bool"}


def _tagged(value: Value) -> object:
    match value:
        case None:
            return None
        case bool() | float() | str():
            return {_TAGS[type(value)]: value}
        case int():
            return {_INT: value} if _INT_MIN <= value <= _INT_MAX else {"Decimal": str(value)}
        case bytes():
            return {"Bytes": value}
        case Decimal():
            return {"Decimal": str(value)}
        case Text(kind, text):
            return {_TEXT_TAGS[kind]: text}


def _special_kinds(schema: TableSchema) -> dict[str, Kind]:
    """Return the columns in which a JSON string is more than text. Kept by identity, as schemas are large to hash."""
    kept = _kinds_kept.get(id(schema))
    if kept is None or kept[0] is not schema:
        if len(_kinds_kept) >= _SCHEMAS_KEPT:
            _kinds_kept.clear()
        special = {column.name: column.kind for column in schema.columns if column.kind not in _PLAIN_STRINGS}
        kept = _kinds_kept[id(schema)] = (schema, special)
    return kept[1]
