"""From ranges of keys in bytes to intervals of keys as databases know them. Pure."""

from collections.abc import Sequence

import msgspec

from tailrace.interface.jimdb.errors import OutOfBoundError
from tailrace.meta.key_range import KeyRange, RangedTable
from tailrace.meta.ordered_key import TABLE_BYTES, decode_ordered, encode_ordered
from tailrace.model.errors import InvalidValueError
from tailrace.model.image import decode_key, encode_key
from tailrace.model.key_interval import KeyInterval
from tailrace.model.table import TableSchema
from tailrace.model.value import Value

__all__ = ["cut_of", "interval_after", "key_of", "ordered_of"]


def key_of(key: bytes, schema: TableSchema) -> Sequence[Value]:
    """Return the values of a key without the number of the table.

    Raises:
        InvalidValueError: The bytes are no key of the table.
    """
    return decode_ordered(key, schema.key_columns)


def ordered_of(table_id: int, key: bytes, schema: TableSchema) -> bytes:
    """Return the bytes that a key of the log has for pullers."""
    return encode_ordered(table_id, decode_key(key, schema))


def cut_of(key: str, schema: TableSchema) -> bytes:
    """Return the same without the number of the table, for a key in its natural JSON form."""
    return ordered_of(0, key.encode(), schema)[TABLE_BYTES:]


def interval_after(within: KeyRange, table: RangedTable, last: bytes, schema: TableSchema) -> KeyInterval:
    """Return the keys of a range that follow `last`; all of them where that is empty.

    Raises:
        OutOfBoundError: The key is none of the range, or none of the table.
    """
    begin = None if within.start == table.prefix else within.start[:-1]
    through = None if within.end == RangedTable(table.id + 1, table.table, ()).prefix else within.end[:-1]
    if last:
        if not within.contains(last):
            raise OutOfBoundError(last, within)
        begin = last
    try:
        return KeyInterval(_natural(begin, schema), _natural(through, schema))
    except InvalidValueError as error:
        raise OutOfBoundError(last, within) from error


def _natural(key: bytes | None, schema: TableSchema) -> str | None:
    if key is None:
        return None
    try:
        return encode_key(decode_ordered(key, schema.key_columns), schema).decode()
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise InvalidValueError("these bytes are not a key") from error
