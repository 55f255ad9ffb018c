"""Row images as SochDB shows them: the JSON that the log keeps, and of keys and values the value alone. Pure."""

import msgspec
from msgspec import Struct

from tailrace.model.table import TableSchema
from tailrace.model.value import Array, Json, Text, from_natural, to_plain

__all__ = ["is_key_value", "raw_of_image"]

_KEY_VALUE_COLUMNS = ("key", "value", "expires_time_us")


class _Entry(Struct):
    value: Json = None


_read_entry = msgspec.json.Decoder(_Entry).decode


def is_key_value(schema: TableSchema) -> bool:
    """Tell whether a table holds keys and values: it has the name and the columns of that, in the default schema."""
    if schema.table.wire != "kv" or schema.key != ("key",):
        return False
    return tuple(column.name for column in schema.columns) == _KEY_VALUE_COLUMNS


def raw_of_image(image: bytes, schema: TableSchema) -> bytes:
    """Return the bytes that stand for a row."""
    if not is_key_value(schema):
        return image
    column = schema.column("value")
    assert column is not None
    match from_natural(_read_entry(image).value, column):
        case bytes(data):
            return data
        case str(text):
            return text.encode()
        case Text(_, text):
            return text.encode()
        case Array() as array:
            return msgspec.json.encode(to_plain(array))
        case None:
            return b""
        case other:
            return str(other).encode()
