"""Rows as pullers get them: the key, and the other columns as one JSON object. Pure."""

import msgspec
from msgspec import Struct

from tailrace.model.image import completed, lacks_cells
from tailrace.model.number import Offset
from tailrace.model.table import Kind, TableSchema
from tailrace.model.value import from_natural, to_natural

__all__ = ["Pulled", "PulledLog", "PulledRows", "value_of"]

_TYPED = {Kind.BYTES, Kind.DEC, Kind.JSON, Kind.DATE, Kind.TIME, Kind.DATETIME, Kind.UUID}
"""Kinds whose natural form is a text that only the kind tells from ordinary text."""


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
        if column.kind in _TYPED and column.name in cells:
            cells[column.name] = to_natural(from_natural(cells[column.name], column.kind), Kind.ANY)
    return msgspec.json.encode(cells)
