"""Keys in their raw form: plain bytes, for wires that know keys as such. Pure.

| key of the table | raw form |
|---|---|
| one text column | the text in UTF-8 |
| one column of bytes | the bytes |
| any other | the JSON array of the key's values, as the log has it |

A value of another type than its text or bytes column has is `FF` and the JSON array: no text begins with that byte.
"""

from msgspec import json as msgspec_json

from tailrace.model.image import NO_KEY, encode_key
from tailrace.model.table import Kind, TableSchema
from tailrace.model.value import from_natural

__all__ = ["key_of_raw", "raw_kind", "raw_of_key"]

_ODD = b"\xff"
"""Begins a key whose value is not of its column's type."""


def raw_kind(schema: TableSchema) -> Kind | None:
    """Return the kind of a key that is bare text or bytes in its raw form; None for a key that is a JSON array."""
    columns = schema.key_columns
    return columns[0].kind if len(columns) == 1 and columns[0].kind in (Kind.STR, Kind.BYTES) else None


def raw_of_key(key: bytes, schema: TableSchema) -> bytes:
    """Return the raw form of a key of the log; that of a change of a whole table is empty."""
    if key == NO_KEY:
        return b""
    kind = raw_kind(schema)
    if kind is None:
        return key
    match from_natural(msgspec_json.decode(key)[0], schema.key_columns[0]):
        case str(text) if kind is Kind.STR:
            return text.encode()
        case bytes(data) if kind is Kind.BYTES:
            return data
    return _ODD + key


def key_of_raw(raw: bytes, schema: TableSchema) -> bytes | None:
    """Return the key of the log that has this raw form; None where no key of the table has it."""
    kind = raw_kind(schema)
    if kind is Kind.BYTES:
        return encode_key([raw], schema)
    if kind is None:
        return raw
    if raw.startswith(_ODD):
        return raw.removeprefix(_ODD)
    try:
        return encode_key([raw.decode()], schema)
    except UnicodeDecodeError:
        return None
