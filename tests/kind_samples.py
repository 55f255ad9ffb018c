"""One or more values of each kind in a column of its own, with all of their forms, for every consumer of values."""

import base64
from decimal import Decimal
from typing import Any

from msgspec import Struct
from msgspec import json as msgspec_json

from tailrace.model.chunk import Change
from tailrace.model.image import encode_image, encode_key
from tailrace.model.number import Index, Offset
from tailrace.model.op import Op
from tailrace.model.table import Column, Kind, TableName, TableSchema
from tailrace.model.value import Array, Text, Value

EWKB = bytes.fromhex("0101000020e6100000000000000000f03f0000000000000040")
"""POINT(1 2) in the reference system 4326."""

WKB = bytes.fromhex("0101000000000000000000f03f0000000000000040")


class Sample(Struct, frozen=True):
    """A value, and what it is in its column."""

    name: str
    column: Column
    value: Value
    natural: Any
    literal: Any
    plain: Any

    def __repr__(self) -> str:
        return self.name

    @property
    def schema(self) -> TableSchema:
        """A table with a key and the column."""
        columns = (Column("id", Kind.I64, nullable=False), self.column)
        return TableSchema(TableName("app", "things"), 1, columns, ("id",))

    @property
    def keyed(self) -> TableSchema:
        """A table whose key is the column."""
        return TableSchema(TableName("app", "things"), 1, (self.column, Column("n", Kind.I64)), (self.column.name,))

    @property
    def image(self) -> bytes:
        """A row of the first table."""
        return encode_image({"id": 1, self.column.name: self.value}, self.schema)

    @property
    def insert(self) -> Change:
        """The insertion of that row."""
        return Change(
            Offset(7),
            Index(3),
            1_700_000_000_000_000,
            5,
            Op.INSERT,
            self.schema,
            encode_key([1], self.schema),
            None,
            self.image,
        )


def _text(kind: Kind, text: str, declared: str = "", member: str = "v", **facts: Any) -> Sample:
    column = Column("c", kind, declared, **facts)
    return Sample(f"{kind} {declared}", column, Text(kind, text), text, {"t": str(kind), member: text}, text)


def _literal(kind: Kind, value: Any, declared: str = "") -> Sample:
    return Sample(str(kind), Column("c", kind, declared), value, value, {"t": str(kind), "v": value}, value)


def _bytes(kind: Kind, data: bytes, name: str) -> Sample:
    text = base64.b64encode(data).decode()
    return Sample(name, Column("c", kind, str(kind)), data, text, {"t": str(kind), "b64": text}, text)


def _foreign(type_: str, text: str) -> Sample:
    literal = {"t": "foreign", "type": type_, "v": text}
    return Sample(
        f"foreign {type_}", Column("c", Kind.FOREIGN, type_), Text(Kind.FOREIGN, text, type_), text, literal, text
    )


def _array(name: str, element: Column, dimensions: int = 1) -> Column:
    return Column("c", Kind.ARRAY, name, element=element, dimensions=dimensions)


_INTEGERS = Column("", Kind.I64, "bigint")
_DOCUMENT = '{"a":[1,2]}'
_ONE, _TWO = {"t": "i64", "v": 1}, {"t": "i64", "v": 2}

SAMPLES = (
    _literal(Kind.BOOL, value=True),
    _literal(Kind.I64, -5),
    _literal(Kind.U64, 2**64 - 1),
    _literal(Kind.F64, 1.5),
    _literal(Kind.STR, "naïve"),
    Sample("dec", Column("c", Kind.DEC, "numeric(10,2)"), Decimal("1.10"), "1.10", {"t": "dec", "v": "1.10"}, "1.10"),
    _bytes(Kind.BYTES, b"\x00\xff", "bytes"),
    Sample(
        "json",
        Column("c", Kind.JSON, "jsonb"),
        Text(Kind.JSON, _DOCUMENT),
        _DOCUMENT,
        {"t": "json", "v": {"a": [1, 2]}},
        {"a": [1, 2]},
    ),
    _text(Kind.DATE, "2026-01-31", "date", "iso"),
    _text(Kind.TIME, "24:00:00", "time without time zone", "iso", zone=False),
    _text(Kind.TIME, "12:00:00+02", "time with time zone", "iso", zone=True),
    _text(Kind.DATETIME, "2026-01-31 12:00:00", "datetime(6)", "iso", zone=False),
    _text(Kind.DATETIME, "2026-01-31 12:00:00.5+02", "timestamp with time zone", "iso", zone=True),
    _text(Kind.UUID, "7f3c6f3e-8d2b-4f63-9b1a-0d3a7a1c2b4d", "uuid"),
    _text(Kind.INTERVAL, "1 year 2 mons -3 days +04:05:06.7", "interval"),
    _text(Kind.ENUM, "in stock", "stock", labels=("in stock", "sold out")),
    _text(Kind.ENUM, "a,c", "set('a','b','c')", labels=("a", "b", "c")),
    _text(Kind.BIT, "0101000011", "bit(10)"),
    _text(Kind.BIT, "0101", "bit varying"),
    _text(Kind.NETWORK, "2001:db8::1/64", "inet"),
    _text(Kind.NETWORK, "10.0.0.0/8", "cidr"),
    _text(Kind.NETWORK, "08:00:2b:01:02:03", "macaddr"),
    _text(Kind.RANGE, "[1,10)", "int4range"),
    _text(Kind.RANGE, "{[1,3),[5,7)}", "int4multirange"),
    _text(Kind.COMPOSITE, '(1,"a ""b""",)', "address"),
    _foreign("ltree", "top.science"),
    _foreign("tsvector", "'a':1 'b':2"),
    _foreign("money", "$1,000.00"),
    _bytes(Kind.GEOMETRY, WKB, "geometry"),
    _bytes(Kind.GEOMETRY, EWKB, "geometry with a reference system"),
    Sample(
        "array of integers",
        _array("bigint[]", _INTEGERS),
        Array((1, None, 2)),
        [1, None, 2],
        {"t": "array", "v": [_ONE, {"t": "null"}, _TWO]},
        [1, None, 2],
    ),
    Sample("empty array", _array("bigint[]", _INTEGERS), Array(()), [], {"t": "array", "v": []}, []),
    Sample(
        "array of two dimensions",
        _array("bigint[][]", _INTEGERS, 2),
        Array(((1, None), (2, 1))),
        [[1, None], [2, 1]],
        {"t": "array", "v": [[_ONE, {"t": "null"}], [_TWO, _ONE]]},
        [[1, None], [2, 1]],
    ),
    Sample(
        "array of dates",
        _array("date[]", Column("", Kind.DATE, "date")),
        Array((Text(Kind.DATE, "2026-01-31"), None)),
        ["2026-01-31", None],
        {"t": "array", "v": [{"t": "date", "iso": "2026-01-31"}, {"t": "null"}]},
        ["2026-01-31", None],
    ),
    Sample(
        "array of documents",
        _array("jsonb[]", Column("", Kind.JSON, "jsonb")),
        Array((Text(Kind.JSON, _DOCUMENT),)),
        [_DOCUMENT],
        {"t": "array", "v": [{"t": "json", "v": {"a": [1, 2]}}]},
        [{"a": [1, 2]}],
    ),
    Sample(
        "array of texts",
        _array("text[]", Column("", Kind.STR, "text")),
        Array(('quote " comma , \\ {}', "", "NULL", None)),
        ['quote " comma , \\ {}', "", "NULL", None],
        {
            "t": "array",
            "v": [
                {"t": "str", "v": 'quote " comma , \\ {}'},
                {"t": "str", "v": ""},
                {"t": "str", "v": "NULL"},
                {"t": "null"},
            ],
        },
        ['quote " comma , \\ {}', "", "NULL", None],
    ),
    Sample(
        "array of a foreign type, of any dimensions",
        Column("c", Kind.ARRAY, "ltree[]", element=Column("", Kind.FOREIGN, "ltree")),
        Array((Text(Kind.FOREIGN, "a.b", "ltree"),)),
        ["a.b"],
        {"t": "array", "v": [{"t": "foreign", "type": "ltree", "v": "a.b"}]},
        ["a.b"],
    ),
    Sample(
        "array with lower bounds",
        _array("bigint[]", _INTEGERS),
        Array((1, 2), (0,)),
        {"t": "array", "v": [_ONE, _TWO], "lower": [0]},
        {"t": "array", "v": [_ONE, _TWO], "lower": [0]},
        [1, 2],
    ),
)


def wire(value: Any) -> bytes:
    """Return JSON as the log writes it."""
    return msgspec_json.encode(value)
