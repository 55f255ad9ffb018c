"""Types of PostgreSQL: what kind of column each is, and how its text becomes the natural form of our values. Pure.

Values stay the server's own text wherever a kind is text (see `tailrace.model.value`), so nothing is parsed and written
again that could come out otherwise. What is converted: booleans, whole numbers, floating point, bytes, geometries and
arrays. The session that writes the text has the settings of `TEXT_SETTINGS`.
"""

import base64
import re
from collections.abc import Callable, Mapping

from msgspec import Struct, structs
from msgspec import json as msgspec_json

from tailrace.model.table import Column, Kind
from tailrace.model.value import Array, Item, Json, from_natural, to_literal
from tailrace.source.postgres.array_text import ArrayItem, parse_array

__all__ = ["TEXT_SETTINGS", "WAYS", "ColumnFacts", "Encoder", "TypeInfo", "column_of", "encoder_of", "way_of"]

TEXT_SETTINGS: Mapping[str, str] = {
    "client_encoding": "UTF8",
    "datestyle": "ISO,MDY",
    "intervalstyle": "postgres",
    "timezone": "UTC",
    "bytea_output": "hex",
    "extra_float_digits": "1",
    "lc_monetary": "C",
    "search_path": "public",
}
"""Settings on which the text of values and the names of types depend."""

Encoder = Callable[[bytes], bytes]
"""Makes the natural JSON form of a value out of its text."""


class ColumnFacts(Struct, frozen=True):
    """What the catalog knows of a column besides its type."""

    nullable: bool = True
    generated: bool = False
    collation: str = ""
    dimensions: int = 0


_NO_FACTS = ColumnFacts()


class TypeInfo(Struct, frozen=True):
    """A type as the catalog has it. `category` is `pg_type.typtype`; `name` is what `format_type` writes.

    `element` is the type of an array's elements, `base` that of a domain; 0 for all others.
    """

    oid: int
    name: str
    category: str
    short_name: str
    element: int = 0
    base: int = 0
    base_modifier: int = -1
    dimensions: int = 0
    delimiter: str = ","
    labels: tuple[str, ...] = ()
    extension: str = ""


_KINDS = {
    "bool": Kind.BOOL,
    **dict.fromkeys(("int2", "int4", "int8", "oid"), Kind.I64),
    **dict.fromkeys(("float4", "float8"), Kind.F64),
    "numeric": Kind.DEC,
    **dict.fromkeys(("text", "varchar", "bpchar", "name", "char"), Kind.STR),
    "bytea": Kind.BYTES,
    **dict.fromkeys(("json", "jsonb"), Kind.JSON),
    "date": Kind.DATE,
    **dict.fromkeys(("time", "timetz"), Kind.TIME),
    **dict.fromkeys(("timestamp", "timestamptz"), Kind.DATETIME),
    "uuid": Kind.UUID,
    "interval": Kind.INTERVAL,
    **dict.fromkeys(("bit", "varbit"), Kind.BIT),
    **dict.fromkeys(("inet", "cidr", "macaddr", "macaddr8"), Kind.NETWORK),
}
"""Kinds of the types that are built in, by their short names."""

_ZONES = {"time": False, "timetz": True, "timestamp": False, "timestamptz": True}
_BY_CATEGORY = {"e": Kind.ENUM, "r": Kind.RANGE, "m": Kind.RANGE, "c": Kind.COMPOSITE}
_OF_EXTENSION = {
    ("citext", "citext"): Kind.STR,
    ("postgis", "geometry"): Kind.GEOMETRY,
    ("postgis", "geography"): Kind.GEOMETRY,
}

_FIRST_NORMAL_OID = 16384
"""Types below are built in, those from here on were made by users and extensions."""

_DEPTH_MAX = 32
"""Domains over domains that are followed."""


def column_of(
    name: str,
    type_: TypeInfo,
    types: Mapping[int, TypeInfo],
    *,
    declared: str = "",
    facts: ColumnFacts | None = None,
) -> Column:
    """Return the column that a type makes. `declared` is the type with its modifier."""
    bare, domain = type_, None
    for _ in range(_DEPTH_MAX):
        if bare.category != "d" or bare.base not in types:
            break
        domain, bare = bare, types[bare.base]
    kind = _kind_of(bare)
    facts = facts or _NO_FACTS
    column = Column(
        name,
        kind,
        declared or type_.name,
        nullable=facts.nullable,
        generated=facts.generated,
        collation=facts.collation if kind is Kind.STR else "",
        strict=True,
        zone=_ZONES.get(bare.short_name) if kind in {Kind.TIME, Kind.DATETIME} else None,
        base=bare.name if domain is not None else "",
        labels=bare.labels,
    )
    if kind is not Kind.ARRAY:
        return column
    element = types.get(bare.element) or TypeInfo(bare.element, "unknown", "b", "unknown")
    dims = facts.dimensions or (domain.dimensions if domain is not None else 0)
    return structs.replace(column, element=column_of("", element, types), dimensions=dims)


def _kind_of(type_: TypeInfo) -> Kind:
    if type_.element:
        return Kind.ARRAY
    if type_.oid < _FIRST_NORMAL_OID and type_.short_name in _KINDS:
        return _KINDS[type_.short_name]
    extension = _OF_EXTENSION.get((type_.extension, type_.short_name))
    return extension or _BY_CATEGORY.get(type_.category, Kind.FOREIGN)


def encoder_of(column: Column, type_: TypeInfo, types: Mapping[int, TypeInfo]) -> Encoder:
    """Return what makes natural JSON of the text of values in a column."""
    if column.kind is not Kind.ARRAY:
        return _ENCODERS.get(column.kind, _encode_text)
    for _ in range(_DEPTH_MAX):
        if type_.category != "d" or type_.base not in types:
            break
        type_ = types[type_.base]
    element = column.element
    assert element is not None
    element_type = types.get(type_.element) or TypeInfo(0, "unknown", "b", "unknown")
    # The element says how elements are separated: those of `box` by semicolons.
    return _array_encoder(column, encoder_of(element, element_type, types), element_type.delimiter)


def _encode_text(text: bytes) -> bytes:
    try:
        return _encode(text.decode())
    except UnicodeDecodeError:  # a database with the encoding SQL_ASCII holds any bytes
        return _JSON.encode(to_literal(text))


_JSON = msgspec_json.Encoder()
_encode = _JSON.encode


def _encode_plain(text: bytes) -> bytes:
    """Encode a text that holds nothing that JSON escapes."""
    return b'"%b"' % text


def _encode_bool(text: bytes) -> bytes:
    return b"true" if text == b"t" else b"false"


_WHOLE = re.compile(rb"-?\d+")


def _encode_float(text: bytes) -> bytes:
    if text[-1:].isdigit():
        # A float always has a point or an exponent: that tells it from an integer.
        return b"%b.0" % text if _WHOLE.fullmatch(text) else text
    return b'{"t":"f64","v":"%b"}' % text  # NaN, Infinity, -Infinity


def _encode_bytes(text: bytes) -> bytes:
    return b'"%b"' % base64.b64encode(bytes.fromhex(text[2:].decode()))


def _encode_geometry(text: bytes) -> bytes:
    return b'"%b"' % base64.b64encode(bytes.fromhex(text.decode()))


_ENCODERS: dict[Kind, Encoder] = {
    Kind.BOOL: _encode_bool,
    Kind.I64: bytes,
    Kind.F64: _encode_float,
    Kind.DEC: _encode_plain,
    Kind.BYTES: _encode_bytes,
    Kind.GEOMETRY: _encode_geometry,
    Kind.DATE: _encode_plain,
    Kind.TIME: _encode_plain,
    Kind.DATETIME: _encode_plain,
    Kind.UUID: _encode_plain,
    Kind.INTERVAL: _encode_plain,
    Kind.BIT: _encode_plain,
    Kind.NETWORK: _encode_plain,
}
"""All other kinds are any text."""

WAYS = ("call", "raw", "plain", "bool", "float", "bytes", "geometry", "text")
"""How the compiled helper makes the natural form: as the encoder beside it does, or by calling it. In its order."""

_WAYS: dict[Encoder, str] = {
    bytes: "raw",
    _encode_plain: "plain",
    _encode_bool: "bool",
    _encode_float: "float",
    _encode_bytes: "bytes",
    _encode_geometry: "geometry",
    _encode_text: "text",
}


def way_of(encoder: Encoder) -> int:
    """Return the number of the way that does what an encoder does."""
    return WAYS.index(_WAYS.get(encoder, "call"))


def _array_encoder(column: Column, element: Encoder, delimiter: str) -> Encoder:
    element_column = column.element
    assert element_column is not None
    is_nested = element_column.kind is Kind.ARRAY

    def encode_item(item: ArrayItem) -> bytes:
        if item is None:
            return b"null"
        if isinstance(item, list):
            return b"[%b]" % b",".join(map(encode_item, item))
        natural = element(item.encode())
        # A JSON array within an array is a dimension: an array that is an element is a literal.
        return _JSON.encode(to_literal(_read(natural), element_column)) if is_nested else natural

    def _read(natural: bytes) -> Array:
        value = from_natural(msgspec_json.decode(natural), element_column)
        assert isinstance(value, Array)
        return value

    def encode(text: bytes) -> bytes:
        items, lower = parse_array(text.decode(), delimiter)
        natural = b"[%b]" % b",".join(map(encode_item, items))
        if not lower:
            return natural
        array = Array(_tuples(msgspec_json.decode(natural), element_column), lower)
        return _JSON.encode(to_literal(array, column))

    return encode


def _tuples(items: list[Json], element: Column) -> "tuple[Item, ...]":
    return tuple(_tuples(one, element) if isinstance(one, list) else from_natural(one, element) for one in items)
