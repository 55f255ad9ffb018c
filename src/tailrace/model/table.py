"""Tables: their names and the versions of their schemas."""

from enum import StrEnum

from msgspec import Struct

__all__ = ["ANY_TABLE", "Column", "Kind", "TableName", "TableSchema"]


class TableName(Struct, frozen=True, order=True):
    """Name of a table. `schema` is empty in the database's default schema."""

    source: str
    name: str
    schema: str = ""

    @property
    def wire(self) -> str:
        """Return the name as every wire shows it: bare, or `schema.table` outside the default schema."""
        return f"{self.schema}.{self.name}" if self.schema else self.name

    @property
    def truncate_statement(self) -> str:
        """Return a truncation of the table as SQL, for interfaces that can tell of one as DDL only."""
        parts = (self.schema, self.name) if self.schema else (self.name,)
        return "TRUNCATE TABLE " + ".".join('"' + part.replace('"', '""') + '"' for part in parts)


ANY_TABLE = TableName("", "")
"""Stands for all tables of a source, those to come included, where filters name tables. No table has this name."""


class Kind(StrEnum):
    """Declared type of a column, by the tags that typed literals use. `ANY` is a column without one type."""

    ANY = "any"
    BOOL = "bool"
    I64 = "i64"
    U64 = "u64"
    F64 = "f64"
    DEC = "dec"
    STR = "str"
    BYTES = "bytes"
    JSON = "json"
    DATE = "date"
    TIME = "time"
    DATETIME = "datetime"
    UUID = "uuid"


class Column(Struct, frozen=True, omit_defaults=True):
    """One column. `declared` is the type as the database writes it, for people and for `describe`.

    `collation` names the rule by which the database compares its text; empty where it goes by code points. A `strict`
    column holds values of its declared type alone.
    """

    name: str
    kind: Kind = Kind.ANY
    declared: str = ""
    nullable: bool = True
    generated: bool = False
    collation: str = ""
    strict: bool = False


class TableSchema(Struct, frozen=True, omit_defaults=True):
    """One version of a table's schema. Two versions of one table differ in `version`, from 1 upwards.

    `key` names the columns that identify a row, in key order. A table without a primary key is identified by a hidden
    row number: then `key` is empty and each change's key is that one number.
    """

    table: TableName
    version: int
    columns: tuple[Column, ...]
    key: tuple[str, ...] = ()
    ddl: str = ""
    dialect: str = "sqlite"
    """What the database means by SQL. The default is that of schemas which were stored before there were others."""

    def column(self, name: str) -> Column | None:
        """Return the column of that name, or None."""
        return next((column for column in self.columns if column.name == name), None)

    @property
    def key_columns(self) -> tuple[Column, ...]:
        """Return the columns of the key in key order; one hidden 64-bit column where there is no primary key."""
        if not self.key:
            return (Column("rowid", Kind.I64, nullable=False),)
        by_name = {column.name: column for column in self.columns}
        return tuple(by_name[name] for name in self.key)
