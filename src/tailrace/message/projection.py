"""Projections: which columns a sink gets of a row, and what is computed of it besides. Pure.

A projection is a list of parts: `*` (all columns), a column's name, `-name` (all but that one, after `*`), and
`name = expression`, a CEL expression over `row`, which is each image in turn, `op` and `table`.
"""

import re
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct, structs

from tailrace.model.errors import InvalidPredicateError
from tailrace.model.image import completed
from tailrace.model.op import Op
from tailrace.model.table import Column, Identity, TableSchema
from tailrace.model.value import to_natural
from tailrace.subscription.cel.compile import CelValue, compile_cel_value

__all__ = ["Projection", "compile_projection"]

_COMPUTED = re.compile(r"\s*([^\W\d]\w*)\s*=(?!=)\s*(.+)", re.DOTALL)
_CELLS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ALL = "*"


class _Computed(Struct, frozen=True):
    """A column that is computed."""

    column: Column
    value: CelValue


class Projection:
    """What becomes of the rows of one version of a table. `schema` is that of the rows that it makes."""

    __slots__ = ("_computed", "_names", "schema")

    def __init__(self, schema: TableSchema, names: Sequence[str], computed: Sequence[_Computed]) -> None:
        self._names = tuple(names)
        self._computed = tuple(computed)
        named = [column for name in names if (column := schema.column(name)) is not None]
        self.schema = structs.replace(schema, columns=(*named, *(one.column for one in computed)))

    def before(self, op: Op, image: bytes | None) -> bytes | None:
        """Return what becomes of the image before a change. What it lacks, and what depends on that, is left out.

        Raises:
            PredicateError: An expression failed on it.
        """
        if image is None:
            return None
        cells = _CELLS.decode(image)
        return self._image(op, image, cells, [one for one in self._computed if one.value.columns <= cells.keys()])

    def after(self, op: Op, image: bytes | None, before: bytes | None = None) -> bytes | None:
        """Return what becomes of the image after a change. What it lacks, because it has not changed, is left out.

        What is computed is computed of the whole row, as far as the image before it has the rest of it; it has not
        changed where all that it depends on has not.

        Raises:
            PredicateError: An expression failed on it, or reads something that was not sent beside what was.
        """
        if image is None:
            return None
        cells = _CELLS.decode(image)
        changed = [one for one in self._computed if not one.value.columns or one.value.columns & cells.keys()]
        lacking = before is not None and any(not one.value.columns <= cells.keys() for one in changed)
        return self._image(op, completed(image, before) if lacking and before is not None else image, cells, changed)

    def _image(self, op: Op, image: bytes, cells: dict[str, msgspec.Raw], computed: Sequence[_Computed]) -> bytes:
        projected: dict[str, Any] = {name: cells[name] for name in self._names if name in cells}
        for one in computed:
            projected[one.column.name] = to_natural(one.value.of(op, image), one.column)
        return msgspec.json.encode(projected)


def compile_projection(parts: Sequence[str], schema: TableSchema) -> Projection:
    """Return a projection of the rows of one version of a table.

    Raises:
        InvalidPredicateError: A part cannot be read, names what the table does not have, or a column of the key is left
            out or computed.
    """
    names: list[str] = []
    computed: dict[str, _Computed] = {}
    for part in parts:
        found = _COMPUTED.fullmatch(part)
        if found is not None:
            value = compile_cel_value(found[2], schema)
            computed[found[1]] = _Computed(Column(found[1], value.kind), value)
        elif part.strip() == _ALL:
            names += [column.name for column in schema.columns if column.name not in names]
        elif (name := part.strip()).startswith("-") and schema.column(name[1:].strip()) is not None:
            names = [one for one in names if one != name[1:].strip()]
        elif schema.column(name) is not None:
            names += [name] if name not in names else []
        else:
            reason = f"table {schema.table.wire} has no such column; a part is *, NAME, -NAME or NAME = EXPRESSION"
            raise InvalidPredicateError(reason, text=part, place=0)
    if schema.identity is Identity.WHOLE_ROW:
        reason = f"the key of {schema.table.wire} is its whole row, which a projection would change"
        raise InvalidPredicateError(reason, text=", ".join(parts), place=0)
    names = [name for name in names if name not in computed]
    missing = [name for name in schema.key if name not in names]
    if missing:
        reason = f"the projection leaves out or computes {missing[0]!r}, which is of the key of {schema.table.wire}"
        raise InvalidPredicateError(reason, text=", ".join(parts), place=0)
    return Projection(schema, names, list(computed.values()))
