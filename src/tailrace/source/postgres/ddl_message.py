"""What the event trigger in a database says of schema changes, in the transactions that make them. Pure.

Each is a logical message: which statement the client sent, how the tables look after it, and which ones are gone. See
`ddl_trigger`.
"""

import re

import msgspec
from msgspec import Struct

from tailrace.source.postgres.pgoutput import Relation, RelationColumn

__all__ = [
    "DDL_PREFIX",
    "Ddl",
    "DescribedColumn",
    "DescribedTable",
    "DroppedTable",
    "decode_ddl",
    "is_drop",
    "relation_of",
]

DDL_PREFIX = "tailrace.ddl"
"""Prefix of the messages."""


class DescribedColumn(Struct, frozen=True, array_like=True):
    """A column: `identity` tells whether it is a part of the replica identity."""

    name: str
    type_oid: int
    type_modifier: int
    generated: str
    identity: bool


class DescribedTable(Struct, frozen=True):
    """A table as it was right after the statement."""

    oid: int
    schema: str
    name: str
    identity: str
    columns: tuple[DescribedColumn, ...] = ()


class DroppedTable(Struct, frozen=True):
    """A table that the statement removed."""

    oid: int
    schema: str
    name: str


class Ddl(Struct, frozen=True):
    """One statement: its text as the client sent it, maybe with others, and what it did."""

    sql: str
    tables: tuple[DescribedTable, ...] = ()
    dropped: tuple[DroppedTable, ...] = ()


_DECODER = msgspec.json.Decoder(Ddl)
_DROP = re.compile(r"\s*drop\s+table\b", re.IGNORECASE)


def decode_ddl(content: bytes) -> Ddl | None:
    """Return what a message says; None where it is none of ours: anyone may write messages with any prefix."""
    try:
        return _DECODER.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def is_drop(sql: str) -> bool:
    """Tell whether a statement begins like one that removes a table."""
    return _DROP.match(sql) is not None


def relation_of(table: DescribedTable, *, with_generated: bool) -> Relation:
    """Return the description that the server would give of a table, were all its columns published."""
    columns = tuple(
        RelationColumn(one.name, one.type_oid, one.type_modifier, one.identity)
        for one in table.columns
        if not one.generated or (with_generated and one.generated == "s")
    )
    return Relation(table.oid, table.schema, table.name, table.identity, columns)
