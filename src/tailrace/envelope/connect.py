"""Types of columns in the words of Kafka Connect's JSON schemas, as Debezium uses them. Pure."""

import base64
import math
import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from functools import partial
from types import MappingProxyType
from typing import Any, Literal

import msgspec
from msgspec import Struct, structs

from tailrace.model.table import Column, Kind
from tailrace.model.value import Array, Item, Text, Value, to_literal, to_plain

__all__ = ["SOURCE", "ConnectColumn", "connect_columns", "envelope_schema", "struct_schema"]


class ConnectColumn(Struct, frozen=True):
    """One column: its name, its type, and how a value is written. `more` are members of its schema besides these."""

    name: str
    type: str
    optional: bool
    form: Callable[[Value], Any]
    more: Mapping[str, Any] = MappingProxyType({})

    @property
    def schema(self) -> dict[str, Any]:
        """Return the schema of its values."""
        return {"type": self.type, "optional": self.optional, **self.more}


def connect_columns(columns: Sequence[Column]) -> list[ConnectColumn]:
    """Return the types of columns."""
    return [_connect_column(column) for column in columns]


def _connect_column(column: Column) -> ConnectColumn:
    """Return the type of a column. Where Debezium has no type that holds all of its values exactly, it is text."""
    name, optional = column.name, column.nullable
    match column.kind:
        case Kind.ENUM:
            allowed = {"parameters": {"allowed": ",".join(column.labels)}} if column.labels else {}
            meaning = "EnumSet" if _SET.match(column.declared) else "Enum"
            return ConnectColumn(
                name, "string", optional, _string, {**_named(f"io.debezium.data.{meaning}"), **allowed}
            )
        case Kind.BIT if length := _BITS.fullmatch(column.declared):
            parameters = {"parameters": {"length": length[1]}}
            bits = partial(_bits, length=int(length[1]))
            return ConnectColumn(name, "bytes", optional, bits, {**_named("io.debezium.data.Bits"), **parameters})
        case Kind.GEOMETRY:
            return ConnectColumn(name, "struct", optional, _geometry, _GEOMETRY)
        case Kind.FOREIGN:
            meaning = _FOREIGN.get(column.declared, "")
            return ConnectColumn(name, "string", optional, _string, _named(meaning) if meaning else {})
        case Kind.ARRAY if column.element is not None and column.dimensions:
            item = _connect_column(structs.replace(column.element, nullable=True))
            items = item.schema
            for _ in range(column.dimensions - 1):
                items = {"type": "array", "optional": True, "items": items}
            form = partial(_array, form=item.form, dimensions=column.dimensions)
            return ConnectColumn(name, "array", optional, form, {"items": items})
        case kind:
            type_, meaning, plain = _TYPES[kind]
            return ConnectColumn(name, type_, optional, plain, _named(meaning) if meaning else {})


def _named(meaning: str) -> dict[str, Any]:
    return {"name": meaning, "version": 1}


_SET = re.compile(r"set\s*\(", re.IGNORECASE)
_BITS = re.compile(r"bit\s*\(\s*(\d+)\s*\)", re.IGNORECASE)
_FOREIGN = {
    "ltree": "io.debezium.data.Ltree",
    "tsvector": "io.debezium.data.Tsvector",
    "xml": "io.debezium.data.Xml",
}
"""Types of databases by their names that Debezium has a meaning for, with the same text."""

_GEOMETRY = {
    **_named("io.debezium.data.geometry.Geometry"),
    "fields": [
        {"type": "bytes", "optional": False, "field": "wkb"},
        {"type": "int32", "optional": True, "field": "srid"},
    ],
}


def struct_schema(name: str, columns: Sequence[ConnectColumn], *, optional: bool, field: str = "") -> dict[str, Any]:
    """Return the schema of a row."""
    return {
        "type": "struct",
        "fields": [{**one.schema, "field": one.name} for one in columns],
        "optional": optional,
        "name": name,
        **({"field": field} if field else {}),
    }


def envelope_schema(name: str, columns: Sequence[Column]) -> dict[str, Any]:
    """Return the schema of an envelope around rows with these columns."""
    row = connect_columns(columns)
    source = [{"type": type_, "optional": optional, "field": field} for field, type_, optional in SOURCE]
    transaction = [
        {"type": "string", "optional": False, "field": "id"},
        {"type": "int64", "optional": False, "field": "total_order"},
        {"type": "int64", "optional": False, "field": "data_collection_order"},
    ]
    return {
        "type": "struct",
        "fields": [
            struct_schema(f"{name}.Value", row, optional=True, field="before"),
            struct_schema(f"{name}.Value", row, optional=True, field="after"),
            {"type": "struct", "fields": source, "optional": False, "name": "tailrace.Source", "field": "source"},
            {
                "type": "struct",
                "fields": transaction,
                "optional": True,
                "name": "event.block",
                "version": 1,
                "field": "transaction",
            },
            {"type": "string", "optional": False, "field": "op"},
            *({"type": "int64", "optional": True, "field": field} for field in ("ts_ms", "ts_us", "ts_ns")),
        ],
        "optional": False,
        "name": f"{name}.Envelope",
        "version": 2,
    }


SOURCE = (
    ("version", "string", False),
    ("connector", "string", False),
    ("name", "string", False),
    ("ts_ms", "int64", False),
    ("snapshot", "string", True),
    ("db", "string", False),
    ("sequence", "string", True),
    ("ts_us", "int64", True),
    ("ts_ns", "int64", True),
    ("schema", "string", False),
    ("table", "string", False),
    ("txId", "int64", True),
    ("lsn", "int64", True),
)
"""Members of `source`, with their types and whether they may be missing."""


def _whole(value: Value) -> int:
    if type(value) is not int or not -(2**63) <= value < 2**63:
        raise ValueError
    return value


def _float(value: Value) -> float:
    """Return a number. JSON has no other ones than finite ones."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise TypeError
    return float(value)


def _boolean(value: Value) -> bool:
    if value is True or value is False:
        return value
    if type(value) is int and value in {0, 1}:
        return bool(value)
    raise TypeError


def _bytes(value: Value) -> str:
    if not isinstance(value, bytes):
        raise TypeError
    return base64.b64encode(value).decode()


def _bits(value: Value, length: int) -> str:
    """Return a string of bits as Debezium has them: bytes, the last bit the lowest of the first byte."""
    if not isinstance(value, Text) or len(value.text) != length:
        raise ValueError
    return _bytes(int(value.text, 2).to_bytes((length + 7) // 8, "little"))


def _geometry(value: Value) -> dict[str, Any]:
    """Return a geometry; the number of its reference system is in the bytes where they are EWKB."""
    if not isinstance(value, bytes):
        raise TypeError
    srid = None
    if len(value) >= _EWKB_HEAD_BYTES:
        order: Literal["little", "big"] = "little" if value[0] == 1 else "big"
        if int.from_bytes(value[1:5], order) & _EWKB_HAS_SRID:
            srid = int.from_bytes(value[5:9], order, signed=True)
    return {"wkb": _bytes(value), "srid": srid}


_EWKB_HEAD_BYTES = 9
_EWKB_HAS_SRID = 0x20000000


def _array(value: Value, form: Callable[[Value], Any], dimensions: int) -> list[Any]:
    """Return an array. Those with other dimensions or lower bounds than declared have no place in the schema."""
    if not isinstance(value, Array) or value.lower:
        raise TypeError
    return _items(value.items, form, dimensions)


def _items(items: "tuple[Item, ...]", form: Callable[[Value], Any], dimensions: int) -> list[Any]:
    if dimensions > 1:
        return [_items(item, form, dimensions - 1) if isinstance(item, tuple) else _refuse(item) for item in items]
    return [None if item is None else _refuse(item) if isinstance(item, tuple) else form(item) for item in items]


def _refuse(item: Item) -> list[Any]:
    raise TypeError(item)


def _text(value: Value) -> str:
    """Return a value of any kind as text, bytes in base64, arrays as JSON."""
    match value:
        case Array(_, lower):
            return msgspec.json.encode(to_literal(value) if lower else to_plain(value)).decode()
        case Text(_, text):
            return text
        case bytes():
            return _bytes(value)
        case bool():
            return "true" if value else "false"
        case float():
            return repr(value)
        case _:
            return str(value)


def _decimal(value: Value) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise TypeError
    return str(value)


def _string(value: Value) -> str:
    if isinstance(value, bytes):
        raise TypeError
    return _text(value)


# Dates, times and intervals have no declared meaning: texts of Debezium's own meanings (IsoDate and so on) end with a
# zone or are ISO 8601, and its consumers fail on others, while ours are the database's own.
_TYPES: dict[Kind, tuple[str, str, Callable[[Value], Any]]] = {
    Kind.ANY: ("string", "", _text),
    Kind.BOOL: ("boolean", "", _boolean),
    Kind.I64: ("int64", "", _whole),
    Kind.U64: ("string", "", _text),
    Kind.F64: ("double", "", _float),
    Kind.DEC: ("string", "", _decimal),
    Kind.STR: ("string", "", _string),
    Kind.BYTES: ("bytes", "", _bytes),
    Kind.JSON: ("string", "io.debezium.data.Json", _string),
    Kind.DATE: ("string", "", _string),
    Kind.TIME: ("string", "", _string),
    Kind.DATETIME: ("string", "", _string),
    Kind.UUID: ("string", "io.debezium.data.Uuid", _string),
    Kind.INTERVAL: ("string", "", _string),
    Kind.BIT: ("string", "", _string),
    Kind.NETWORK: ("string", "", _string),
    Kind.RANGE: ("string", "", _string),
    Kind.COMPOSITE: ("string", "", _string),
    Kind.ARRAY: ("string", "io.debezium.data.Json", _string),
}
"""Types of the kinds whose columns are all alike, and of the others where too little is known of a column."""
