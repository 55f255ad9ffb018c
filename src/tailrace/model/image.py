"""Row images and keys as the bytes that the log keeps. Pure.

An image is a JSON object column → natural value, in column order; a key is a JSON array of natural values in key
order. See `tailrace.model.value` for the forms.

A column of the schema that an image lacks is `UNCHANGED`: the source did not send it. That is never null. After an
update it has the value that it had before; in any other image its value is not known. An image that is missing as a
whole was not sent either. Columns that only other versions of the schema have are no part of an image: a reader that
wants them takes null, as before.
"""

from collections.abc import Mapping, Sequence

from msgspec import Raw
from msgspec import json as msgspec_json

from tailrace.model.table import ANY_COLUMN, Column, Kind, TableSchema
from tailrace.model.value import Value, from_natural, to_literal, to_natural, to_plain

__all__ = [
    "NO_KEY",
    "completed",
    "decode_image",
    "decode_key",
    "encode_image",
    "encode_key",
    "image_to_literals",
    "image_to_plain",
    "key_image",
    "key_to_literals",
    "key_to_plain",
    "lacks_cells",
]

NO_KEY = b"[]"
"""Key of every change of a whole table (a schema change, a truncation), and of nothing else."""

_CELLS = msgspec_json.Decoder(dict[str, Raw])
_CELL_LIST = msgspec_json.Decoder(list[Raw])

_LITERAL = b'{"t":'
"""Every literal begins so, and no JSON string can contain it: its quotation marks would be escaped."""


def encode_image(row: Mapping[str, Value], schema: TableSchema) -> bytes:
    """Return the bytes of a row image; columns that `row` lacks are left out."""
    return msgspec_json.encode(
        {column.name: to_natural(row[column.name], column) for column in schema.columns if column.name in row}
    )


def decode_image(image: bytes, schema: TableSchema) -> dict[str, Value]:
    """Return the row that an image stands for."""
    columns = {column.name: column for column in schema.columns}
    cells = msgspec_json.decode(image).items()
    return {name: from_natural(cell, columns.get(name, ANY_COLUMN)) for name, cell in cells}


def completed(image: bytes, before: bytes) -> bytes:
    """Return the image after an update with the cells that it lacks as the image before has them, where it does."""
    older: dict[str, Raw] = _CELLS.decode(before)
    newer: dict[str, Raw] = _CELLS.decode(image)
    return image if older.keys() <= newer.keys() else msgspec_json.encode({**older, **newer})


def lacks_cells(image: bytes, schema: TableSchema) -> bool:
    """Tell whether an image lacks columns of its schema.

    A quotation mark before a colon ends the name of a column, unless it is escaped or within a typed literal: images
    without those need not be decoded.
    """
    count = len(schema.columns)
    if image.count(b'":') == count and b'\\":' not in image and _LITERAL not in image:
        return False
    return len(_CELLS.decode(image)) < count


def key_image(key: bytes, schema: TableSchema) -> bytes:
    """Return an image that has the columns of a key alone; a hidden row number is no column."""
    return msgspec_json.encode(dict(zip(schema.key_names, _CELL_LIST.decode(key), strict=False)))


def encode_key(key: Sequence[Value], schema: TableSchema) -> bytes:
    """Return the bytes of a key."""
    pairs = zip(key, schema.key_columns, strict=True)
    return msgspec_json.encode([to_natural(value, column) for value, column in pairs])


def decode_key(key: bytes, schema: TableSchema) -> tuple[Value, ...]:
    """Return the values of a key."""
    cells = zip(msgspec_json.decode(key), schema.key_columns, strict=True)
    return tuple(from_natural(cell, column) for cell, column in cells)


def image_to_literals(image: bytes, schema: TableSchema) -> bytes:
    """Return the image with every cell as a typed literal, columns in order of their names."""
    cells = msgspec_json.decode(image)
    forms = _forms(schema)
    return msgspec_json.encode({name: _literal(cells[name], forms.get(name, _ANY)) for name in sorted(cells)})


def image_to_plain(image: bytes, schema: TableSchema) -> bytes:
    """Return the image as ordinary JSON. Mostly that is the image itself."""
    if _LITERAL not in image and not any(column.has_documents for column in schema.columns):
        return image
    return msgspec_json.encode({name: to_plain(value) for name, value in decode_image(image, schema).items()})


def key_to_literals(key: bytes, schema: TableSchema) -> bytes:
    """Return the key as an array of typed literals; that of a change of a whole table is empty."""
    if key == NO_KEY:
        return key
    cells = zip(msgspec_json.decode(key), schema.key_columns, strict=True)
    return msgspec_json.encode([_literal(cell, _form(column)) for cell, column in cells])


def key_to_plain(key: bytes, schema: TableSchema) -> bytes:
    """Return the key as an array of ordinary JSON values."""
    if key == NO_KEY or (_LITERAL not in key and not any(column.has_documents for column in schema.key_columns)):
        return key
    return msgspec_json.encode([to_plain(value) for value in decode_key(key, schema)])


_Form = tuple[Column, str | None, str, str]
"""Of a column: itself, the tag and member of the literal of a text in it, and the tag of a whole number's.

The tag of a text is None where its literal has more than that, or depends on what the text says.
"""

_TEXT_FORMS: dict[Kind, tuple[str | None, str]] = {
    Kind.BYTES: ("bytes", "b64"),
    Kind.GEOMETRY: ("geometry", "b64"),
    Kind.DEC: ("dec", "v"),
    Kind.JSON: (None, "v"),
    Kind.FOREIGN: (None, "v"),
    Kind.DATE: ("date", "iso"),
    Kind.TIME: ("time", "iso"),
    Kind.DATETIME: ("datetime", "iso"),
    **{
        kind: (str(kind), "v")
        for kind in (Kind.UUID, Kind.INTERVAL, Kind.ENUM, Kind.BIT, Kind.NETWORK, Kind.RANGE, Kind.COMPOSITE)
    },
}
"""Kinds that are not here have strings that are nothing but text."""


def _form(column: Column) -> _Form:
    return (column, *_TEXT_FORMS.get(column.kind, ("str", "v")), "u64" if column.kind is Kind.U64 else "i64")


_ANY = _form(ANY_COLUMN)
_SCHEMAS_KEPT = 4096
_forms_kept: dict[int, tuple[TableSchema, dict[str, _Form]]] = {}


def _forms(schema: TableSchema) -> dict[str, _Form]:
    """Return the forms of a schema's columns. Kept by identity: to hash a schema costs more than to convert a row."""
    kept = _forms_kept.get(id(schema))
    if kept is None or kept[0] is not schema:
        if len(_forms_kept) >= _SCHEMAS_KEPT:
            _forms_kept.clear()
        kept = _forms_kept[id(schema)] = (schema, {column.name: _form(column) for column in schema.columns})
    return kept[1]


def _literal(cell: object, form: _Form) -> object:
    """Return the literal of a natural cell. The common types come first: this runs once per cell delivered."""
    column, text_tag, text_member, number_tag = form
    cell_type = type(cell)
    if cell_type is str and text_tag is not None:
        return {"t": text_tag, text_member: cell}
    if cell_type is int:
        return {"t": number_tag if cell < _UNSIGNED else "u64", "v": cell}  # type: ignore[operator]
    if cell_type is bool:
        return {"t": "bool", "v": cell}
    if cell_type is dict:
        return cell
    return to_literal(from_natural(cell, column), column)


_UNSIGNED = 2**63
