"""Cells of a row to the bytes that the log keeps, fast. Pure.

The bytes equal those of `tailrace.model.image`. Most rows hold values whose natural form is what the JSON encoder
writes anyway; which ones do is decided once for each combination of cell types and remembered.
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

_PLANS_MAX = 1024
"""Most combinations of cell types remembered for one table version."""

_ESCAPED = re.compile(r'[\\"\x00-\x1f]')
"""Characters in names that the quickest way of encoding cannot write."""

_encode = msgspec_json.Encoder().encode

_Plan = tuple[int, ...] | None
"""The cells that must be finite for the quick way, or None where there is no quick way."""


class RowEncoder:
    """Encodes the rows of one table version."""

    __slots__ = ("_columns", "_key_cells", "_key_columns", "_plans", "_row", "_rowid_key", "_skip", "version")

    def __init__(self, version: TableVersion) -> None:
        self.version = version
        self._columns = version.columns
        self._skip = int(version.hidden_rowid)
        self._key_cells = version.key_cells
        self._key_columns = version.schema("", 1).key_columns
        self._rowid_key = version.key_cells[0] if version.key_cells == (version.rowid_cell,) else None
        self._plans: dict[tuple[type, ...], _Plan] = {}
        self._row = _row_maker([column.name for column in version.columns])

    def image(self, cells: Sequence[Any]) -> bytes:
        """Return the image of a row."""
        if self._skip:
            cells = cells[1:]
        types = tuple(map(type, cells))
        try:
            plan = self._plans[types]
        except KeyError:
            plan = self._plan(types)
        if plan is not None and (not plan or all(math.isfinite(cells[cell]) for cell in plan)):
            return _encode(self._row(*cells))
        pairs = zip(cells, self._columns, strict=True)
        return _encode(self._row(*(_natural(value, column) for value, column in pairs)))

    def key(self, cells: Sequence[Any]) -> bytes:
        """Return the key of a row."""
        if self._rowid_key is not None:
            return b"[%d]" % cells[self._rowid_key]
        pairs = zip(self._key_cells, self._key_columns, strict=True)
        return _encode([_natural(cells[cell], column) for cell, column in pairs])

    def _plan(self, types: tuple[type, ...]) -> _Plan:
        kinds = [column.kind for column in self._columns]
        quick = all(_is_quick(type_, kind) for type_, kind in zip(types, kinds, strict=True))
        plan = tuple(cell for cell, type_ in enumerate(types) if type_ is float) if quick else None
        if len(self._plans) < _PLANS_MAX:
            self._plans[types] = plan
        return plan


def _row_maker(names: list[str]) -> Callable[..., Any]:
    """Return a function that makes something of cells that is encoded as an object with these member names."""
    if any(_ESCAPED.search(name) for name in names):
        return lambda *cells: dict(zip(names, cells, strict=True))
    fields = {f"c{number}": name for number, name in enumerate(names)}
    return msgspec.defstruct("Row", [(field, Any) for field in fields], rename=fields, gc=False)


def _is_quick(type_: type, kind: Kind) -> bool:
    """Return whether the JSON encoder writes a value of this type as its natural form in a column of this kind."""
    if type_ is bytes:
        return kind is Kind.BYTES
    return not (type_ is str and kind is Kind.BYTES)


def _natural(value: Value, column: Column) -> Any:
    return to_natural(value, column.kind)
