"""The cells that a predicate needs, out of an image's bytes, as SQLite's values. Pure."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from functools import lru_cache
from types import NoneType
from typing import Any

import msgspec
from msgspec import Struct

from tailrace.model.errors import InvalidValueError, PredicateError
from tailrace.model.table import Column, Kind, TableSchema
from tailrace.model.value import Array, Text, from_natural
from tailrace.sql.predicate import SqlValue
from tailrace.sql.sqlite.affinity import Affinity, Classes, affinity_of_column, with_facts
from tailrace.sql.sqlite.predicate.value import numeric

__all__ = ["CellPlan", "cell_plan", "cell_reader", "image_decoder", "sql_value"]

_UNSENT: Any = object()
"""Stands for a cell that an image does not have."""

_NOT_TEXT = frozenset({Kind.BYTES, Kind.DEC})
"""Kinds whose JSON string is something else than text."""

_DECODERS_KEPT = 1024
_ODD_NAME = re.compile(r'["\\\x00-\x1f]')
"""Names with these characters cannot be those of a msgspec field."""

_TYPES: dict[Classes, Any] = {
    Classes.NUMBER: int | float | None,
    Classes.TEXT: str | None,
    Classes.BLOB: bytes | None,
}


class CellPlan(Struct, frozen=True):
    """How a cell is decoded.

    `asked` is the type that the decoder asks for; another makes it raise `msgspec.ValidationError`. Where it asks for
    none, cells whose Python type is in `plain` are what they are, and others go through `convert`.
    """

    asked: Any
    classes: Classes
    plain: frozenset[type] = frozenset()
    convert: Callable[[Any], SqlValue] | None = None


def cell_plan(column: Column, *, typed: bool) -> CellPlan:
    """Return how to decode a column: by its declared type if `typed` and it has one, else whatever it holds."""
    expected = _expected(column, affinity_of_column(column)) if typed else None
    if expected is not None:
        return CellPlan(_TYPES[expected], Classes.NULL | expected)
    plain = {int, float, NoneType} | (set() if column.kind in _NOT_TEXT else {str})
    return CellPlan(Any, Classes.ALL, frozenset(plain), lambda natural: sql_value(natural, column))


def image_decoder(columns: Iterable[tuple[str, CellPlan]]) -> Callable[[bytes], Any]:
    """Return a function that decodes these columns of an image into the attributes c0, c1, ….

    The function raises `msgspec.ValidationError` where one of them is missing or of another type than its plan asks
    for. That costs nothing where all are there, as they nearly always are.
    """
    return _decoder(tuple((name, plan.asked) for name, plan in columns))


@lru_cache(_DECODERS_KEPT)
def _decoder(columns: tuple[tuple[str, Any], ...], default: Any = msgspec.NODEFAULT) -> Callable[[bytes], Any]:
    if any(_ODD_NAME.search(name) for name, _ in columns):
        return _mapping_decoder(columns, default)
    fields = [
        (f"c{number}", asked, msgspec.field(name=name, default=default)) for number, (name, asked) in enumerate(columns)
    ]
    return msgspec.json.Decoder(msgspec.defstruct("Cells", fields, gc=False)).decode


def _mapping_decoder(columns: tuple[tuple[str, Any], ...], default: Any) -> Callable[[bytes], Any]:
    """Return a decoder for names that msgspec does not take for a field's."""
    fields = [(f"c{number}", asked, msgspec.field(default=default)) for number, (_, asked) in enumerate(columns)]
    cells = msgspec.defstruct("Cells", fields, gc=False)
    decode = msgspec.json.Decoder(dict[str, Any]).decode

    def decode_cells(image: bytes) -> Any:
        found = decode(image)
        there = {f"c{number}": found[name] for number, (name, _) in enumerate(columns) if name in found}
        return msgspec.convert(there, cells)

    return decode_cells


def cell_reader(columns: Sequence[str], schema: TableSchema) -> Callable[[bytes], Mapping[str, SqlValue]]:
    """Return a function that reads these columns of an image as SQLite would compare them, numbers as numbers.

    A column that the schema lacks is read as NULL; one that an image lacks, which the source did not send, is left out.
    The function raises `PredicateError` on an image or a cell that is not of the natural form.
    """
    schema = with_facts(schema)
    known = [schema.column(name) or Column(name) for name in columns]
    plans = [cell_plan(column, typed=False) for column in known]
    decode = _decoder(tuple(zip(columns, (plan.asked for plan in plans), strict=True)), _UNSENT)
    lacking = {name: None for name in columns if schema.column(name) is None}
    places = [
        (f"c{place}", name, plan.convert, affinity_of_column(column) >= Affinity.NUMERIC)
        for place, (name, plan, column) in enumerate(zip(columns, plans, known, strict=True))
    ]

    def read(image: bytes) -> Mapping[str, SqlValue]:
        try:
            cells = decode(image)
        except msgspec.DecodeError as error:
            raise PredicateError("an image is not valid JSON") from error
        values: dict[str, SqlValue] = {**lacking}
        for place, name, convert, number in places:
            value = getattr(cells, place)
            if value.__class__ is not int and convert is not None:
                if value is _UNSENT:
                    continue
                value = convert(value)
                value = numeric(value) if number else value
            values[name] = value
        return values

    return read


def sql_value(natural: Any, column: Column) -> SqlValue:
    """Return SQLite's value of a cell in its natural form.

    Raises:
        PredicateError: SQLite has no such value.
    """
    try:
        value = from_natural(natural, column)
    except InvalidValueError as error:
        raise PredicateError("a cell is not of the natural form") from error
    match value:
        case bool():
            return int(value)
        case float():
            return None if value != value else value
        case Text(_, text):
            return text
        case Decimal():
            raise PredicateError("SQLite has no decimal numbers")
        case Array():
            raise PredicateError("SQLite has no arrays")
        case _:
            return value


def _expected(column: Column, affinity: Affinity) -> Classes | None:
    if affinity >= Affinity.NUMERIC:
        return Classes.NUMBER
    if affinity is Affinity.TEXT and column.kind not in _NOT_TEXT:
        return Classes.TEXT
    return Classes.BLOB if affinity is Affinity.BLOB and column.kind is Kind.BYTES else None
