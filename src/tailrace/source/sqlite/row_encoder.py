"""Cells of a row to the bytes that the log keeps, fast. Pure.

The bytes equal those of `tailrace.model.image`. Most rows hold values whose natural form is what the JSON encoder
writes anyway. It writes others for bytes, which need a literal outside BLOB columns, for text in BLOB columns, and for
numbers that are not finite, which come out as null: rows with any of these take the careful way.
"""

import math
import re
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from msgspec import json as msgspec_json

from tailrace.model.table import Column, Kind
from tailrace.model.value import Value, to_natural
from tailrace.source.sqlite.table_version import TableVersion

__all__ = ["RowEncoder"]

_ESCAPED = re.compile(r'[\\"\x00-\x1f]')
"""Characters in names that the quickest way of encoding cannot write."""

_encode = msgspec_json.Encoder().encode


class RowEncoder:
    """Encodes the rows of one table version."""

    __slots__ = ("_columns", "_has_bytes", "_key_cells", "_key_columns", "_row", "_rowid_key", "_skip", "version")

    def __init__(self, version: TableVersion) -> None:
        self.version = version
        self._columns = version.columns
        self._has_bytes = any(column.kind is Kind.BYTES for column in version.columns)
        self._skip = int(version.hidden_rowid)
        self._key_cells = version.key_cells
        self._key_columns = version.schema("", 1).key_columns
        self._rowid_key = version.key_cells[0] if version.key_cells == (version.rowid_cell,) else None
        self._row = _row_maker([column.name for column in version.columns])

    def image(self, cells: Sequence[Any]) -> bytes:
        """Return the image of a row."""
        if self._skip:
            cells = cells[1:]
        if self._has_bytes or bytes in map(type, cells):
            return self._careful(cells)
        image = _encode(self._row(*cells))
        if b"null" in image and not all(map(_is_finite, cells)):
            return self._careful(cells)
        return image

    def same_rowid(self, old: Sequence[Any], new: Sequence[Any]) -> bool:
        """Return whether two rows are known to have the same key because that is their number."""
        return self._rowid_key is not None and old[self._rowid_key] == new[self._rowid_key]

    def _careful(self, cells: Sequence[Any]) -> bytes:
        pairs = zip(cells, self._columns, strict=True)
        return _encode(self._row(*(_natural(value, column) for value, column in pairs)))

    def key(self, cells: Sequence[Any]) -> bytes:
        """Return the key of a row."""
        if self._rowid_key is not None:
            return b"[%d]" % cells[self._rowid_key]
        pairs = zip(self._key_cells, self._key_columns, strict=True)
        return _encode([_natural(cells[cell], column) for cell, column in pairs])


def _row_maker(names: list[str]) -> Callable[..., Any]:
    """Return a function that makes something of cells that is encoded as an object with these member names."""
    if any(_ESCAPED.search(name) for name in names):
        return lambda *cells: dict(zip(names, cells, strict=True))
    fields = {f"c{number}": name for number, name in enumerate(names)}
    return msgspec.defstruct("Row", [(field, Any) for field in fields], rename=fields, gc=False)


def _is_finite(value: Value) -> bool:
    return not isinstance(value, float) or math.isfinite(value)


def _natural(value: Value, column: Column) -> Any:
    return to_natural(value, column)
