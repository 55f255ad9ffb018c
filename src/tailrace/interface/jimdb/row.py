"""Rows as pullers get them: the key, and the other columns as one JSON object. Pure."""

from decimal import Decimal

import msgspec
from msgspec import Struct

from tailrace.model.image import completed, lacks_cells
from tailrace.model.number import Offset
from tailrace.model.table import ANY_COLUMN, Column, Kind, TableSchema
from tailrace.model.value import Array, Json, Text, Value, from_natural, to_literal, to_natural

__all__ = ["Pulled", "PulledLog", "PulledRows", "value_of"]

_PLAIN = {Kind.ANY, Kind.BOOL, Kind.I64, Kind.U64, Kind.F64, Kind.STR}
"""Kinds whose natural form is a JSON scalar that tells by itself what it is."""


class Pulled(Struct, frozen=True):
    """One row written, or one deleted: then there is no value."""

    key: bytes
    value: bytes | None

    @property
    def size_bytes(self) -> int:
        """Return about how much of an answer it takes."""
        return len(self.key) + len(self.value or b"")


class PulledRows(Struct, frozen=True):
    """Some rows of a range in order of keys. `version` tells of which copy; at its `end` there are no more."""

    version: Offset
    rows: list[Pulled]
    end: bool


class PulledLog(Struct, frozen=True):
    """Some changes of a range in order, and the offset up to which the log was looked through."""

    changes: list[Pulled]
    through: Offset


def value_of(image: bytes, schema: TableSchema, before: bytes | None = None) -> bytes:
    """Return the columns of an image that are not of the key, in a form that tells all types by itself.

    That is the natural form of a column of any type: what is no JSON scalar is a typed literal. What the source did not
    send after an update is taken from the row `before`; what that lacks, too, is left out, and is never null.
    """
    if before is not None and lacks_cells(image, schema):
        image = completed(image, before)
    cells = msgspec.json.decode(image)
    for name in schema.key_names:
        cells.pop(name, None)
    for column in schema.columns:
        if column.kind not in _PLAIN and column.name in cells:
            cells[column.name] = _telling(from_natural(cells[column.name], column), column)
    return msgspec.json.encode(cells)


def _telling(value: Value, column: Column) -> Json:
    """Return a value as a JSON scalar if that tells its type, else as a typed literal."""
    match value:
        case Decimal() | bytes() | Text() | Array():
            return to_literal(value, column)
        case _:
            return to_natural(value, ANY_COLUMN)
