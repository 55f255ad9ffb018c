"""Types of PostgreSQL as kinds, and their text as the natural form of values."""

import json

import pytest

from tailrace.model.table import Kind
from tailrace.model.value import Array, Text, from_natural
from tailrace.source.postgres.type_info import TypeInfo, column_of, encoder_of

TYPES = {
    one.oid: one
    for one in [
        TypeInfo(16, "boolean", "b", "bool"),
        TypeInfo(20, "bigint", "b", "int8"),
        TypeInfo(701, "double precision", "b", "float8"),
        TypeInfo(1700, "numeric", "b", "numeric"),
        TypeInfo(25, "text", "b", "text"),
        TypeInfo(17, "bytea", "b", "bytea"),
        TypeInfo(1184, "timestamp with time zone", "b", "timestamptz"),
        TypeInfo(1009, "text[]", "b", "_text", element=25),
        TypeInfo(1016, "bigint[]", "b", "_int8", element=20),
        TypeInfo(790, "money", "b", "money"),
        TypeInfo(20000, "tags", "d", "tags", base=1009),
        TypeInfo(20001, "tags[]", "b", "_tags", element=20000),
        TypeInfo(20002, "mood", "e", "mood", labels=("a", "b")),
        TypeInfo(20003, "text", "b", "text"),
        TypeInfo(20004, "gone", "b", "", element=0),
        TypeInfo(20005, "geometry", "b", "geometry", extension="postgis"),
        TypeInfo(20006, "unknowable[]", "b", "_unknowable", element=99999),
    ]
}


def natural(oid, text):
    """Return the column of a type, and the value that the natural form of a text stands for."""
    column = column_of("c", TYPES[oid], TYPES)
    encoded = encoder_of(column, TYPES[oid], TYPES)(text.encode() if isinstance(text, str) else text)
    return column, from_natural(json.loads(encoded), column)


@pytest.mark.parametrize(
    ("oid", "text", "kind", "value"),
    [
        (16, "t", Kind.BOOL, True),
        (20, "-9223372036854775808", Kind.I64, -(2**63)),
        (701, "1", Kind.F64, 1.0),
        (701, "1e+20", Kind.F64, 1e20),
        (701, "-Infinity", Kind.F64, float("-inf")),
        (25, 'a "b"\n\\', Kind.STR, 'a "b"\n\\'),
        (25, b"\xff\xfe", Kind.STR, b"\xff\xfe"),
        (17, "\\x00ff", Kind.BYTES, b"\x00\xff"),
        (1184, "infinity", Kind.DATETIME, Text(Kind.DATETIME, "infinity")),
        (1009, '{a,NULL,"b c"}', Kind.ARRAY, Array(("a", None, "b c"))),
        (1016, "[0:1]={1,2}", Kind.ARRAY, Array((1, 2), (0,))),
        (1016, "[2:3][5:5]={{1},{NULL}}", Kind.ARRAY, Array(((1,), (None,)), (2, 5))),
        (790, "$1.00", Kind.FOREIGN, Text(Kind.FOREIGN, "$1.00", "money")),
        (20000, "{a}", Kind.ARRAY, Array(("a",))),
        (20001, '{"{a,b}"}', Kind.ARRAY, Array((Array(("a", "b")),))),
        (20002, "b", Kind.ENUM, Text(Kind.ENUM, "b")),
        (20003, "x", Kind.FOREIGN, Text(Kind.FOREIGN, "x", "text")),
        (20004, "x", Kind.FOREIGN, Text(Kind.FOREIGN, "x", "gone")),
        (20005, "0101000000", Kind.GEOMETRY, bytes.fromhex("0101000000")),
        (20006, "{x}", Kind.ARRAY, Array((Text(Kind.FOREIGN, "x", "unknown"),))),
    ],
)
def test_texts_become_values_without_loss(oid, text, kind, value):
    column, found = natural(oid, text)
    assert column.kind is kind
    assert found == value
    assert type(found) is type(value)


def test_a_float_that_is_whole_stays_a_float():
    column = column_of("c", TYPES[701], TYPES)
    encode = encoder_of(column, TYPES[701], TYPES)
    assert [encode(text) for text in (b"1", b"-0", b"1.5", b"1e-05")] == [b"1.0", b"-0.0", b"1.5", b"1e-05"]


def test_domains_have_a_base_and_enumerations_their_labels():
    domain = column_of("c", TYPES[20000], TYPES)
    assert (domain.declared, domain.base, domain.element.kind) == ("tags", "text[]", Kind.STR)
    assert column_of("c", TYPES[20002], TYPES).labels == ("a", "b")
    assert column_of("c", TYPES[1184], TYPES).zone is True
