"""Row images and keys as the bytes that the log keeps. Pure.

An image is a JSON object column → natural value, in column order; a key is a JSON array of natural values in key
order. A column that is missing from an image was not sent by the source. See `tailrace.model.value` for the forms.
"""

from collections.abc import Mapping, Sequence

from msgspec import json as msgspec_json

from tailrace.model.table import Column, Kind, TableSchema
from tailrace.model.value import Value, from_natural, to_literal, to_natural, to_plain

__all__ = [
    "decode_image",
    "decode_key",
    "encode_image",
    "encode_key",
    "image_to_literals",
    "image_to_plain",
    "key_to_literals",
    "key_to_plain",
]

_LITERAL = b'{"t":'
"""Every literal begins so, and no JSON string can contain it: its quotation marks would be escaped."""


def encode_image(row: Mapping[str, Value], schema: TableSchema) -> bytes:
    """Return the bytes of a row image; columns that `row` lacks are left out."""
    return msgspec_json.encode(
        {column.name: to_natural(row[column.name], column.kind) for column in schema.columns if column.name in row}
    )


def decode_image(image: bytes, schema: TableSchema) -> dict[str, Value]:
    """Return the row that an image stands for."""
    kinds = _kinds(schema.columns)
    return {name: from_natural(cell, kinds.get(name, Kind.ANY)) for name, cell in msgspec_json.decode(image).items()}


def encode_key(key: Sequence[Value], schema: TableSchema) -> bytes:
    """Return the bytes of a key."""
    pairs = zip(key, schema.key_columns, strict=True)
    return msgspec_json.encode([to_natural(value, column.kind) for value, column in pairs])


def decode_key(key: bytes, schema: TableSchema) -> tuple[Value, ...]:
    """Return the values of a key."""
    cells = zip(msgspec_json.decode(key), schema.key_columns, strict=True)
    return tuple(from_natural(cell, column.kind) for cell, column in cells)


def image_to_literals(image: bytes, schema: TableSchema) -> bytes:
    """Return the image with every cell as a typed literal, columns in order of their names."""
    kinds = _kinds(schema.columns)
    cells = msgspec_json.decode(image)
    return msgspec_json.encode({name: _literal(cells[name], kinds.get(name, Kind.ANY)) for name in sorted(cells)})


def image_to_plain(image: bytes, schema: TableSchema) -> bytes:
    """Return the image as ordinary JSON. Mostly that is the image itself."""
    if _LITERAL not in image and not any(column.kind is Kind.JSON for column in schema.columns):
        return image
    return msgspec_json.encode({name: to_plain(value) for name, value in decode_image(image, schema).items()})


def key_to_literals(key: bytes, schema: TableSchema) -> bytes:
    """Return the key as an array of typed literals."""
    cells = zip(msgspec_json.decode(key), schema.key_columns, strict=True)
    return msgspec_json.encode([_literal(cell, column.kind) for cell, column in cells])


def key_to_plain(key: bytes, schema: TableSchema) -> bytes:
    """Return the key as an array of ordinary JSON values."""
    if _LITERAL not in key and not any(column.kind is Kind.JSON for column in schema.key_columns):
        return key
    return msgspec_json.encode([to_plain(value) for value in decode_key(key, schema)])


def _kinds(columns: Sequence[Column]) -> dict[str, Kind]:
    return {column.name: column.kind for column in columns}


def _literal(cell: object, kind: Kind) -> object:
    if isinstance(cell, dict):
        return cell
    if isinstance(cell, str) and kind is Kind.STR:
        return {"t": "str", "v": cell}
    return to_literal(from_natural(cell, kind), kind)
