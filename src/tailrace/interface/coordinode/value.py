"""Values of operations: row images in MessagePack. Pure.

A row is `[[table], {column: cell}]`. A cell is nil, or a map of one member whose name is its type: `Bool`, `Int`,
`Float`, `String`, `Bytes`, `Decimal`, `Date`, `Time`, `Datetime`, `Uuid`, `Json`, `Interval`, `Enum`, `Bit`, `Network`,
`Range`, `Composite`, `Foreign`, `Array`, `Geometry`. From `Decimal` to `Composite` they carry text. `Geometry` carries
bytes, `Foreign` an array of the type's name and the text, and `Array` an array of cells, with arrays for dimensions. An
array whose lower bounds are not all 1 has a second member, `lower`.
"""

from collections.abc import Mapping
from decimal import Decimal

import msgspec

from tailrace.model.table import ANY_COLUMN, Column, Kind, TableSchema
from tailrace.model.value import Array, Item, Json, Text, Value, from_natural

__all__ = ["RowLayout", "cells_of", "encode_row", "encode_schema", "shape_of"]

_encode = msgspec.msgpack.Encoder().encode
_decode_json = msgspec.json.Decoder().decode

_TEXT_TAGS = {
    Kind.DATE: "Date",
    Kind.TIME: "Time",
    Kind.DATETIME: "Datetime",
    Kind.UUID: "Uuid",
    Kind.JSON: "Json",
    Kind.INTERVAL: "Interval",
    Kind.ENUM: "Enum",
    Kind.BIT: "Bit",
    Kind.NETWORK: "Network",
    Kind.RANGE: "Range",
    Kind.COMPOSITE: "Composite",
}
_PLAIN_STRINGS = frozenset(Kind) - {*_TEXT_TAGS, Kind.BYTES, Kind.GEOMETRY, Kind.DEC, Kind.FOREIGN, Kind.ARRAY}
"""Kinds in whose columns a JSON string is nothing but text, and in which there are no JSON arrays."""

_INT_MIN, _INT_MAX = -(2**63), 2**64 - 1
_INT = "Int"
_TAGS: dict[type, str] = {str: "String", int: _INT, float: "Float", bool: "Bool"}
_SCHEMAS_KEPT = 4096


class RowLayout:
    """What is needed of a schema for each of its rows."""

    __slots__ = ("labels", "schema", "special", "table", "wire")

    def __init__(self, schema: TableSchema) -> None:
        self.schema = schema
        self.wire = schema.table.wire
        self.table = self.wire.encode()
        self.labels = [self.wire]
        self.special = {column.name: column for column in schema.columns if column.kind not in _PLAIN_STRINGS}
        """The columns in which a JSON string is more than text, or an array."""


_shapes: dict[int, RowLayout] = {}


def shape_of(schema: TableSchema) -> RowLayout:
    """Return the shape of a schema. Kept by identity: to hash a schema costs more than to encode a row."""
    known = _shapes.get(id(schema))
    if known is None or known.schema is not schema:
        if len(_shapes) >= _SCHEMAS_KEPT:
            _shapes.clear()
        known = _shapes[id(schema)] = RowLayout(schema)
    return known


def cells_of(image: bytes) -> dict[str, Json]:
    """Return the cells of an image in their natural JSON form, by column."""
    cells: dict[str, Json] = _decode_json(image)
    return cells


def encode_row(cells: Mapping[str, Json], shape: RowLayout) -> bytes:
    """Return the bytes of a row, given by its cells in their natural JSON form."""
    if not shape.special:
        try:
            tags = _TAGS
            return _encode(
                [
                    shape.labels,
                    {name: None if cell is None else {tags[type(cell)]: cell} for name, cell in cells.items()},
                ]
            )
        except (KeyError, OverflowError):
            pass  # a typed literal, or a number of more than 64 bits: the careful way
    special = shape.special
    fields = {}
    for name, cell in cells.items():
        column = special.get(name, ANY_COLUMN)
        fields[name] = _tagged(from_natural(cell, column), column)
    return _encode([shape.labels, fields])


def encode_schema(schema: TableSchema, after: bytes | None) -> bytes:
    """Return the bytes of a schema change, whose image tells its DDL."""
    image = cells_of(after) if after else {}
    columns = [[column.name, str(column.kind), column.declared, column.nullable] for column in schema.columns]
    return _encode(
        {
            "table": schema.table.wire,
            "version": schema.version,
            "ddl": image.get("ddl", schema.ddl),
            "columns": columns,
            "key": list(schema.key),
        }
    )


def _tagged(value: Value, column: Column) -> object:
    match value:
        case None:
            return None
        case bool() | float() | str():
            return {_TAGS[type(value)]: value}
        case int():
            return {_INT: value} if _INT_MIN <= value <= _INT_MAX else {"Decimal": str(value)}
        case bytes():
            return {"Geometry" if column.kind is Kind.GEOMETRY else "Bytes": value}
        case Decimal():
            return {"Decimal": str(value)}
        case Text(Kind.FOREIGN, text, type_):
            return {"Foreign": [type_, text]}
        case Text(kind, text):
            return {_TEXT_TAGS[kind]: text}
        case Array(items, lower):
            tagged = {"Array": _tagged_items(items, column.element or ANY_COLUMN)}
            return {**tagged, "lower": list(lower)} if lower else tagged


def _tagged_items(items: "tuple[Item, ...]", element: Column) -> list[object]:
    return [_tagged_items(item, element) if isinstance(item, tuple) else _tagged(item, element) for item in items]
