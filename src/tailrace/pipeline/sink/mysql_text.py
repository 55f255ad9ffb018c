"""Rows as the text of MySQL's statements. Pure."""

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.model.errors import SinkRefusedError

__all__ = ["in_statements", "row_texts"]


def row_texts(rows: pa.Table) -> list[str]:
    """Return rows as SQL, each in parentheses. All cells of a column are written at once.

    Text is escaped for a connection that speaks UTF-8 and has backslashes as escapes, which is what we set.

    Raises:
        SinkRefusedError: A number is not finite.
    """
    cells = [_literals(rows[name]) for name in rows.column_names]
    joined = pc.binary_join_element_wise(*cells, ",", null_handling="replace", null_replacement="NULL")
    return [f"({row})" for row in joined.to_pylist()]


def _literals(column: pa.ChunkedArray) -> Any:
    """Return the values of a column as SQL; null stays null."""
    type_ = column.type
    if pa.types.is_binary(type_):
        return pa.chunked_array(
            [[None if value is None else f"x'{value.hex()}'" for value in column.to_pylist()]], pa.string()
        )
    if pa.types.is_floating(type_) and pc.all(pc.is_finite(column)).as_py() is False:
        raise SinkRefusedError("MySQL has no numbers that are not finite")
    if pa.types.is_integer(type_) or pa.types.is_floating(type_) or pa.types.is_boolean(type_):
        return column.cast(pa.string())
    text = (column.cast(pa.timestamp("us")) if pa.types.is_timestamp(type_) else column).cast(pa.string())
    for plain, escaped in (("\\", "\\\\"), ("'", "\\'"), ("\0", "\\0")):
        text = pc.replace_substring(text, plain, escaped)
    return pc.binary_join_element_wise("'", text, "'", "")


def in_statements(texts: Sequence[str], bytes_max: int, row_bytes_max: int) -> Iterator[Sequence[str]]:
    """Cut rows into runs that have no more than this many bytes, or are one row alone that has more.

    Raises:
        SinkRefusedError: One row has more than any may have.
    """
    first, size = 0, 0
    for place, text in enumerate(texts):
        length = len(text.encode()) + 1
        if length > row_bytes_max:
            raise SinkRefusedError("it is larger than max_allowed_packet of the server")
        if size and size + length > bytes_max:
            yield texts[first:place]
            first, size = place, 0
        size += length
    yield texts[first:]
