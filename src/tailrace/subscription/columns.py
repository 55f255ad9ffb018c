"""The changed-columns filter: passes changes that touch some of the named columns, and cuts images down to them. Pure.

Cells are compared and copied as the bytes that the log holds, so nothing is decoded that is not needed. Inserts and
deletes always pass, and so do truncations. Schema changes pass and are not cut.

A cell that the image after an update lacks was not sent because it has not changed: it does not differ, and is not in
the cut image either. One that only the image before it lacks, or whose whole image is missing, may have changed: the
update passes.
"""

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import msgspec
from msgspec import Raw, Struct

from tailrace.model.errors import InvalidRequestError, PredicateError
from tailrace.model.op import Op
from tailrace.model.table import TableSchema
from tailrace.model.value import Json

__all__ = ["ChangedColumns", "project"]

_MISSING = Raw()
_DECODERS_KEPT = 1024
_ODD_NAME = re.compile(r'["\\\x00-\x1f]')
"""Names with these characters cannot be those of a msgspec field."""


class ChangedColumns:
    """Passes changes in which at least one of the columns differs, and projects images to them."""

    __slots__ = ("_decode", "canonical", "columns")

    def __init__(self, columns: Json, schema: TableSchema) -> None:
        """Compile `columns`.

        Raises:
            InvalidRequestError: It is not a list of names, a name is empty or not one of the table's columns.
        """
        if not isinstance(columns, list | tuple) or not columns:
            raise InvalidRequestError("columns is a list of column names")
        for name in columns:
            if not isinstance(name, str):
                raise InvalidRequestError("columns holds something that is no name")
            if schema.column(name) is None:
                if not name.strip():
                    raise InvalidRequestError("columns holds an empty name")
                known = ", ".join(column.name for column in schema.columns[:20])
                raise InvalidRequestError(f"no column {name} in table {schema.table.wire}; it has {known}")
        wanted = set(columns)
        self.columns = tuple(column.name for column in schema.columns if column.name in wanted)
        self.canonical = f"columns:{msgspec.json.encode(self.columns).decode()}"
        self._decode = _decoder(self.columns)

    def select(self, ops: Sequence[int], befores: Sequence[bytes | None], afters: Sequence[bytes | None]) -> list[bool]:
        """Tell for each change whether it passes.

        Raises:
            PredicateError: An image is not valid JSON.
        """
        decode, schema_change = self._decode, Op.SCHEMA.value
        try:
            return [
                before is None
                or after is None
                or op == schema_change
                or ((old := decode(before)) != (new := decode(after)) and _differ(old, new))
                for op, before, after in zip(ops, befores, afters, strict=True)
            ]
        except msgspec.DecodeError as error:
            raise PredicateError("an image is not valid JSON") from error

    def project(self, image: bytes) -> bytes:
        """Return an image with no other columns than these, in its order of columns; those that it lacks stay away.

        Raises:
            PredicateError: The image is not valid JSON.
        """
        return project(image, self.columns)


def _differ(old: Any, new: Any) -> bool:
    """Tell whether one of the cells that were sent of the row after differs from that of the row before."""
    if isinstance(new, dict):
        return any(old.get(name, _MISSING) != cell for name, cell in new.items())
    names = new.__struct_fields__
    return any((cell := getattr(new, name)) is not _MISSING and cell != getattr(old, name) for name in names)


def project(image: bytes, columns: tuple[str, ...]) -> bytes:
    """Return an image with no other columns than these, in their order; those that it lacks stay away.

    Raises:
        PredicateError: The image is not valid JSON.
    """
    try:
        return msgspec.json.encode(_decoder(columns)(image))
    except msgspec.DecodeError as error:
        raise PredicateError("an image is not valid JSON") from error


@lru_cache(_DECODERS_KEPT)
def _decoder(columns: tuple[str, ...]) -> Callable[[bytes], Any]:
    """Return a function that keeps these columns of an image, still encoded."""
    if any(_ODD_NAME.search(name) for name in columns):
        whole, wanted = msgspec.json.Decoder(dict[str, Raw]).decode, frozenset(columns)
        return lambda image: {name: cell for name, cell in whole(image).items() if name in wanted}
    fields = [(f"c{number}", Raw, msgspec.field(name=name, default=_MISSING)) for number, name in enumerate(columns)]
    cells: type[Struct] = msgspec.defstruct("Cells", fields, omit_defaults=True, gc=False)
    return msgspec.json.Decoder(cells).decode
