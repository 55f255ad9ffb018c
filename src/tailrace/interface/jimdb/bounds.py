"""From ranges of keys in bytes to intervals of keys as databases know them, and which tables can be divided. Pure."""

import msgspec

from tailrace.interface.jimdb.errors import OutOfBoundError
from tailrace.meta.key_range import KeyRange, RangedTable
from tailrace.meta.ordered_key import TABLE_BYTES, decode_ordered, encode_ordered
from tailrace.model.errors import InvalidValueError
from tailrace.model.image import decode_key, encode_key
from tailrace.model.key_interval import KeyInterval
from tailrace.model.table import TableSchema
from tailrace.sql.sqlite.catalog import CatalogTable
from tailrace.sql.sqlite.query.comparison import UNKNOWN, storage

__all__ = ["cut_of", "interval_after", "is_divisible", "is_kept", "ordered_of"]


def is_divisible(schema: TableSchema, listed: CatalogTable | None) -> bool:
    """Tell whether a database has the keys of a table in the order of their bytes: then borders are the same in both.

    It has not where text is compared by another rule than its code points, nor where a key may be null: a comparison
    with null is neither true nor false.
    """
    if not schema.key:
        return True
    if listed is None or any(column.nullable for column in schema.key_columns):
        return False
    columns = [listed.column(name) for name in schema.key]
    return all(column is not None and column.binary for column in columns)


def is_kept(key: bytes, schema: TableSchema, listed: CatalogTable | None) -> bool:
    """Tell whether the columns of a key keep its values as they are.

    Others are converted before they are compared, so that the border would be elsewhere for the database.

    Raises:
        InvalidValueError: The bytes are no key of the table.
    """
    values = decode_ordered(key, [column.kind for column in schema.key_columns])
    columns = [None if listed is None else listed.column(name) for name in schema.key]
    pairs = zip(values, columns, strict=False)  # a hidden row number has no column
    return all(column is not None and storage(value, column.affinity) is not UNKNOWN for value, column in pairs)


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
    kinds = [column.kind for column in schema.key_columns]
    try:
        return encode_key(decode_ordered(key, kinds), schema).decode()
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise InvalidValueError("these bytes are no key") from error
