"""SQLite's typing of columns: storage classes, affinities and collations. Pure.

https://www.sqlite.org/datatype3.html, chapters 2, 3 and 7.
"""

import re
from collections.abc import Callable, Mapping
from enum import IntEnum, IntFlag

from msgspec import structs

from tailrace.model.table import Column, Kind, TableSchema

__all__ = [
    "FOLDS",
    "STORED_KINDS",
    "Affinity",
    "Classes",
    "affinity_of_column",
    "affinity_of_type",
    "classes_of",
    "columns_with_facts",
    "small_letters",
    "with_facts",
]


class Classes(IntFlag):
    """Storage classes that a value may be of."""

    NONE = 0
    NULL = 1
    INTEGER = 2
    REAL = 4
    TEXT = 8
    BLOB = 16
    NUMBER = 6
    ALL = 31


class Affinity(IntEnum):
    """What an operand of a comparison would rather be. From NUMERIC on they are numeric."""

    NONE = 0
    BLOB = 1
    TEXT = 2
    NUMERIC = 3
    INTEGER = 4
    REAL = 5


_DECLARED = {
    Affinity.BLOB: Classes.ALL,
    Affinity.TEXT: Classes.NULL | Classes.TEXT,
    Affinity.NUMERIC: Classes.NULL | Classes.NUMBER,
    Affinity.INTEGER: Classes.NULL | Classes.INTEGER,
    Affinity.REAL: Classes.NULL | Classes.REAL,
}

_KINDS = {
    Kind.ANY: Affinity.BLOB,
    Kind.BOOL: Affinity.INTEGER,
    Kind.I64: Affinity.INTEGER,
    Kind.U64: Affinity.INTEGER,
    Kind.F64: Affinity.REAL,
    Kind.DEC: Affinity.NUMERIC,
    Kind.BYTES: Affinity.BLOB,
}
"""Affinity of a column whose declared type is not known; kinds that are not here are text."""

STORED_KINDS = frozenset({*_KINDS, Kind.STR, Kind.JSON, Kind.DATE, Kind.TIME, Kind.DATETIME, Kind.UUID})
"""Kinds whose values SQLite can keep. Values of all others are compared by rules that it does not have."""


def small_letters(text: str) -> str:
    """Return a text with the letters of ASCII made small, others as they are."""
    if text.isascii():
        return text.lower()
    return text.encode(errors="surrogatepass").lower().decode(errors="surrogatepass")  # of bytes, ASCII alone


def _nocase(text: str) -> str:
    """Return what NOCASE compares: the letters up to a NUL character, then the number of bytes alone."""
    head, nul, _ = text.partition("\0")
    return small_letters(head) + (f"\0{len(text.encode()):020d}" if nul else "")


FOLDS: Mapping[str, Callable[[str], str] | None] = {
    "BINARY": None,
    "NOCASE": _nocase,
    "RTRIM": lambda text: text.rstrip(" "),
}
"""What each collation does to a text before it is compared by its bytes; None where it does nothing."""


def affinity_of_type(declared: str) -> Affinity:
    """Return the affinity of a declared type (chapter 3.1)."""
    name = declared.upper()
    if "INT" in name:
        return Affinity.INTEGER
    if any(part in name for part in ("CHAR", "CLOB", "TEXT")):
        return Affinity.TEXT
    if "BLOB" in name or not name:
        return Affinity.BLOB
    if any(part in name for part in ("REAL", "FLOA", "DOUB")):
        return Affinity.REAL
    return Affinity.NUMERIC


def affinity_of_column(column: Column) -> Affinity:
    """Return the affinity of a column; that of its kind where the schema does not tell the declared type."""
    if column.strict and column.declared.upper() == "ANY":
        return Affinity.BLOB
    if not column.declared and column.kind is not Kind.ANY:
        return _KINDS.get(column.kind, Affinity.TEXT)
    return affinity_of_type(column.declared)


def classes_of(column: Column, affinity: Affinity) -> Classes:
    """Return the storage classes that a column's type declares; in a table that is not STRICT it may hold others."""
    if affinity is Affinity.BLOB and (column.kind is Kind.BYTES or "BLOB" in column.declared.upper()):
        return Classes.NULL | Classes.BLOB
    return _DECLARED[affinity]


_STRICT = re.compile(r"\)[^)]*\bSTRICT\b[^)]*\Z", re.IGNORECASE)
_UNKNOWN = "?"
"""A collation of which nothing is known."""


def with_facts(schema: TableSchema) -> TableSchema:
    """Return a schema whose columns tell their collations and whether they are strict.

    Schemas that were stored before columns had these fields have both in their DDL alone.
    """
    columns = columns_with_facts(schema.columns, schema.ddl)
    return schema if columns is schema.columns else structs.replace(schema, columns=columns)


def columns_with_facts(columns: tuple[Column, ...], ddl: str) -> tuple[Column, ...]:
    """Return the same for the columns of a table."""
    if any(column.collation or column.strict for column in columns):
        return columns
    strict, collations = bool(_STRICT.search(ddl)), _collations(ddl)
    if not strict and collations == {}:
        return columns
    return tuple(
        structs.replace(
            column,
            strict=strict,
            collation=_UNKNOWN if collations is None else collations.get(small_letters(column.name), ""),
        )
        for column in columns
    )


def _collations(ddl: str) -> dict[str, str] | None:
    """Return the collation of each column that declares one other than BINARY, by its name in small letters.

    None where the DDL names collations and cannot be read.
    """
    if "collate" not in ddl.lower():
        return {}
    import sqlglot
    from sqlglot.errors import TokenError

    try:
        words = [token.text for token in sqlglot.tokenize(ddl, read="sqlite")]
    except TokenError:
        return None
    found: dict[str, str] = {}
    depth, column = 0, ""
    for place, word in enumerate(words[:-1]):
        depth += (word == "(") - (word == ")")
        if depth == 1 and word in {"(", ","}:
            column = small_letters(words[place + 1])
        elif depth == 1 and word.upper() == "COLLATE":
            found[column] = words[place + 1].upper()
    return {column: name for column, name in found.items() if name != "BINARY"}
