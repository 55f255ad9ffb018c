"""Tables: their names and the versions of their schemas."""

from enum import StrEnum

from msgspec import Struct, structs

__all__ = ["ANY_COLUMN", "ANY_TABLE", "Column", "Identity", "Kind", "TableName", "TableSchema"]


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
    """Declared type of a column, by the tags that typed literals use. `ANY` is a column without one type.

    From `INTERVAL` on, values are written in the database's own text, but those of `ARRAY` and `GEOMETRY`.
    """

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
    INTERVAL = "interval"
    ENUM = "enum"
    """One of the labels of a column; of a SET of MySQL some of them, with commas between."""

    BIT = "bit"
    """A string of the digits 0 and 1."""

    NETWORK = "network"
    """An address of a host, of a network or of a device."""

    RANGE = "range"
    """A range or a multirange."""

    COMPOSITE = "composite"
    """A row as a value."""

    FOREIGN = "foreign"
    """Any other type. Its name is a part of each value."""

    ARRAY = "array"
    GEOMETRY = "geometry"
    """Bytes: WKB, or EWKB where the reference system is known."""


class Column(Struct, frozen=True, omit_defaults=True):
    """One column. `declared` is the type as the database writes it, for people and for `describe`.

    `collation` names the rule by which the database compares its text; empty where it goes by code points. A `strict`
    column holds values of its declared type alone.

    `zone` says whether times have a time zone, and is None where that is not known or the column has no times. `base`
    is the type that a domain is made of. `labels` are those of an enumeration, in its order.

    `element` is what the elements of an array are, as a column without a name; `dimensions` is how many an array is
    declared to have, 0 where that is not known. A database need not hold values to that.

    `as_type` is the type that a reader declares for its values; empty for that of the source.
    """

    name: str
    kind: Kind = Kind.ANY
    declared: str = ""
    nullable: bool = True
    generated: bool = False
    collation: str = ""
    strict: bool = False
    zone: bool | None = None
    base: str = ""
    labels: tuple[str, ...] = ()
    element: "Column | None" = None
    dimensions: int = 0
    as_type: str = ""

    @property
    def has_documents(self) -> bool:
        """Tell whether the natural form of its values is, or has within, JSON documents as text."""
        return self.kind is Kind.JSON or (self.element is not None and self.element.has_documents)


ANY_COLUMN = Column("")
"""Stands for the column of a value that is in none, or in one of any kind."""


class Identity(StrEnum):
    """What tells the rows of a table apart, and so what the key of a change is."""

    PRIMARY_KEY = "primary_key"
    """The columns of `TableSchema.key`."""

    UNIQUE_INDEX = "unique_index"
    """The columns of `TableSchema.key`, which a unique index keeps apart."""

    ROW_NUMBER = "row_number"
    """A hidden 64-bit number, which is the key of each change. `TableSchema.key` is empty."""

    WHOLE_ROW = "whole_row"
    """All columns. Rows may be alike: a key may be that of several rows, and an update is a deletion and an insert."""

    NONE = "none"
    """Nothing: changes have an empty key. Only inserts can be captured."""

    @property
    def is_unique(self) -> bool:
        """Tell whether a key is that of one row at most, so that a copy of the table can be kept by keys."""
        return self in _UNIQUE


_UNIQUE = frozenset({Identity.PRIMARY_KEY, Identity.UNIQUE_INDEX, Identity.ROW_NUMBER})
_BY_COLUMNS = frozenset({Identity.PRIMARY_KEY, Identity.UNIQUE_INDEX})


class TableSchema(Struct, frozen=True, omit_defaults=True):
    """One version of a table's schema. Two versions of one table differ in `version`, from 1 upwards.

    `key` names the columns that identify a row, in key order; it is empty unless `identity` is a primary key or a
    unique index. Older logs know no other identity than a primary key and, where that has no columns, a row number:
    that is what a schema without columns of a key and without an identity means.
    """

    table: TableName
    version: int
    columns: tuple[Column, ...]
    key: tuple[str, ...] = ()
    ddl: str = ""
    dialect: str = "sqlite"
    """What the database means by SQL. The default is that of schemas which were stored before there were others."""

    identity: Identity = Identity.PRIMARY_KEY

    def __post_init__(self) -> None:
        if self.identity is Identity.PRIMARY_KEY and not self.key:
            structs.force_setattr(self, "identity", Identity.ROW_NUMBER)
        if bool(self.key) != (self.identity in _BY_COLUMNS):
            raise ValueError(f"table {self.table.wire}: columns of a key and the identity {self.identity} do not agree")

    def column(self, name: str) -> Column | None:
        """Return the column of that name, or None."""
        return next((column for column in self.columns if column.name == name), None)

    @property
    def key_names(self) -> tuple[str, ...]:
        """Return the names of the table's own columns that a key has the values of, in key order."""
        return tuple(column.name for column in self.columns) if self.identity is Identity.WHOLE_ROW else self.key

    @property
    def key_columns(self) -> tuple[Column, ...]:
        """Return what the values of a key are, in key order: columns of the table, or one hidden 64-bit number."""
        match self.identity:
            case Identity.PRIMARY_KEY | Identity.UNIQUE_INDEX:
                by_name = {column.name: column for column in self.columns}
                return tuple(by_name[name] for name in self.key)
            case Identity.ROW_NUMBER:
                return (Column("rowid", Kind.I64, nullable=False),)
            case Identity.WHOLE_ROW:
                return self.columns
            case Identity.NONE:
                return ()
