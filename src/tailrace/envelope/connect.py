"""Types of columns in the words of Kafka Connect's JSON schemas, as Debezium uses them. Pure."""

import base64
import math
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

from msgspec import Struct

from tailrace.model.table import Column, Kind
from tailrace.model.value import Text, Value

__all__ = ["SOURCE", "ConnectColumn", "connect_columns", "envelope_schema", "struct_schema"]


class ConnectColumn(Struct, frozen=True):
    """One column: its name, its type, the meaning of that where there is one, and how a value is written."""

    name: str
    type: str
    meaning: str
    optional: bool
    form: Callable[[Value], Any]


def connect_columns(columns: Sequence[Column]) -> list[ConnectColumn]:
    """Return the types of columns."""
    described = []
    for column in columns:
        type_, meaning, form = _TYPES[column.kind]
        described.append(ConnectColumn(column.name, type_, meaning, column.nullable, form))
    return described


def struct_schema(name: str, columns: Sequence[ConnectColumn], *, optional: bool, field: str = "") -> dict[str, Any]:
    """Return the schema of a row."""
    fields = []
    for one in columns:
        schema: dict[str, Any] = {"type": one.type, "optional": one.optional}
        if one.meaning:
            schema |= {"name": one.meaning, "version": 1}
        fields.append({**schema, "field": one.name})
    return {
        "type": "struct",
        "fields": fields,
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


def _text(value: Value) -> str:
    """Return a value of any kind as text, bytes in base64."""
    match value:
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


# Dates and times have no declared meaning: texts of Debezium's own meanings (IsoDate and so on) end with a zone, and
# its consumers fail on others, while ours are the database's own.
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
}
