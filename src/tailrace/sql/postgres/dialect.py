"""The dialect of PostgreSQL: how keys are ordered. There are no predicates and queries yet: they are refused."""

import re
from collections.abc import Sequence

from tailrace.model.table import Column, Kind, TableSchema
from tailrace.model.value import Text, Value
from tailrace.sql.dialect import WithoutSql
from tailrace.sql.query import Catalog

__all__ = ["PostgresDialect"]

_LIMITS = {"smallint": 2**15, "integer": 2**31, "bigint": 2**63}
_UUID = re.compile("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


class PostgresDialect(WithoutSql):
    """The SQL of PostgreSQL; satisfies `tailrace.sql.dialect.Dialect`."""

    def __init__(self) -> None:
        super().__init__("postgresql")

    def orders_as_bytes(self, schema: TableSchema, catalog: Catalog) -> bool:
        """Tell whether keys are in the order of their bytes: text is, in collations that go by code points."""
        return bool(schema.key) and all(map(_is_plain, schema.key_columns))

    def keeps(self, key: Sequence[Value], schema: TableSchema, catalog: Catalog) -> bool:
        """Tell whether the columns of a key have values that are written exactly so."""
        return len(key) == len(schema.key) and all(map(_is_kept, key, schema.key_columns))


def _type_of(column: Column) -> str:
    return column.base or column.declared


def _is_plain(column: Column) -> bool:
    match column.kind:
        case Kind.BOOL | Kind.BYTES | Kind.UUID:
            return True
        case Kind.I64:
            return _type_of(column) in _LIMITS
        case Kind.STR:  # other types of text leave case or blanks out of account
            return not column.collation and _type_of(column).partition("(")[0] in {"text", "character varying"}
        case _:
            return False


def _is_kept(value: Value, column: Column) -> bool:
    if not _is_plain(column):
        return False
    match value:
        case bool():
            return column.kind is Kind.BOOL
        case int():
            limit = _LIMITS.get(_type_of(column), 0)
            return column.kind is Kind.I64 and -limit <= value < limit
        case str():
            return column.kind is Kind.STR and "\0" not in value
        case bytes():
            return column.kind is Kind.BYTES
        case Text(Kind.UUID, text):
            return column.kind is Kind.UUID and _UUID.fullmatch(text) is not None
        case _:
            return False
