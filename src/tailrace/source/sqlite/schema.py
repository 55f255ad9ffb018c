"""What a database says about its tables, in our words: all that capture and query analysis know of them."""

from collections.abc import Iterable, Sequence

import apsw
from msgspec import Struct

from tailrace.model.errors import SourceStateError
from tailrace.model.table import Column, Kind
from tailrace.source.sqlite.change_table import PREFIX, quote
from tailrace.source.sqlite.connection import rows
from tailrace.source.sqlite.index_text import parse_index
from tailrace.sql.sqlite.affinity import Affinity, affinity_of_type
from tailrace.sql.sqlite.catalog import ROWID_NAMES, fold

__all__ = [
    "ListedTable",
    "SqliteColumn",
    "SqliteSchema",
    "SqliteTable",
    "Term",
    "Trigger",
    "Unique",
    "is_reserved",
    "kind_of",
    "list_tables",
    "parts_of_virtual",
    "read_schema",
    "read_table",
]


class ListedTable(Struct, frozen=True):
    """A table or a view as SQLite lists it. `kind` is `table`, `view`, `virtual` or `shadow`."""

    name: str
    kind: str
    without_rowid: bool
    strict: bool


class SqliteColumn(Struct, frozen=True):
    """One column. `default` is SQL text; `key_rank` counts the columns of the primary key from 1, 0 outside it."""

    name: str
    declared: str
    not_null: bool
    default: str | None
    key_rank: int
    generated: bool
    collation: str = ""
    """Empty for BINARY."""
    strict: bool = False


class Term(Struct, frozen=True):
    """One term of a unique index: a column's name, or the text of an expression."""

    text: str
    collation: str
    column: bool


class Unique(Struct, frozen=True):
    """Rows may not agree in all terms. A partial index counts rows of which `where` holds."""

    terms: tuple[Term, ...]
    where: str | None = None


class SqliteTable(Struct, frozen=True):
    """One table.

    `alias` is the column that stands for the row number (INTEGER PRIMARY KEY). `rowid` is a name by which the row
    number can be had in SQL, None where there is none: the table is WITHOUT ROWID, or columns have all of its names.
    `indexed` tells whether it has an index of its own.
    """

    name: str
    ddl: str
    columns: tuple[SqliteColumn, ...]
    alias: str | None
    rowid: str | None
    uniques: tuple[Unique, ...]
    indexed: bool
    without_rowid: bool

    @property
    def key(self) -> tuple[str, ...]:
        """Return the columns of the primary key in key order."""
        ranked = sorted((column for column in self.columns if column.key_rank), key=lambda column: column.key_rank)
        return tuple(column.name for column in ranked)

    @property
    def model_columns(self) -> tuple[Column, ...]:
        """Return the columns as the log knows them."""
        return tuple(
            Column(
                column.name,
                kind_of(column.declared),
                column.declared,
                nullable=not column.not_null and column.name != self.alias,
                generated=column.generated,
                collation=column.collation,
                strict=column.strict,
            )
            for column in self.columns
        )


class Trigger(Struct, frozen=True):
    """One trigger. `age` grows with each trigger made: SQLite fires the newest first."""

    name: str
    table: str
    age: int
    sql: str


class SqliteSchema(Struct, frozen=True):
    """The tables that can be captured and all triggers and our indexes of a database at one schema version."""

    schema_version: int
    tables: dict[str, SqliteTable]
    triggers: tuple[Trigger, ...]
    keepers: dict[str, str]
    """Our own indexes: table by index name."""

    def user_triggers(self, table: str) -> list[Trigger]:
        """Return the triggers on a table that are not ours."""
        return [trigger for trigger in self.triggers if trigger.table == table and not trigger.name.startswith(PREFIX)]

    def own_triggers(self, version: int) -> list[Trigger]:
        """Return our triggers of one table version."""
        return [trigger for trigger in self.triggers if trigger.name.startswith(f"{PREFIX}{version}_")]


_KINDS = {
    Affinity.INTEGER: Kind.I64,
    Affinity.TEXT: Kind.STR,
    Affinity.BLOB: Kind.BYTES,
    Affinity.REAL: Kind.F64,
}
"""Kinds by affinity. A column of any other may hold anything, as may one that declares no type."""


def kind_of(declared: str) -> Kind:
    """Return the kind of a column by its affinity."""
    return _KINDS.get(affinity_of_type(declared), Kind.ANY) if declared else Kind.ANY


def read_schema(connection: apsw.Connection) -> SqliteSchema:
    """Return the tables, triggers and indexes as of the connection's transaction.

    Raises:
        SourceStateError: A table cannot be captured.
    """
    schema_version = int(connection.pragma("schema_version"))
    listed = list_tables(connection)
    shadows = parts_of_virtual(listed)
    texts = dict(rows(connection, "SELECT name, sql FROM main.sqlite_schema WHERE type = 'table'"))
    tables = {
        one.name: _capturable(read_table(connection, one, texts[one.name]))
        for one in listed
        if one.kind == "table"
        and one.name in texts
        and not is_reserved(one.name)
        and not fold(one.name).startswith(shadows)
    }
    triggers = rows(
        connection, "SELECT name, tbl_name, rowid, sql FROM main.sqlite_schema WHERE type = 'trigger' ORDER BY rowid"
    )
    indexes = rows(connection, "SELECT name, tbl_name FROM main.sqlite_schema WHERE type = 'index'")
    keepers = {name: table for name, table in indexes if name.startswith(PREFIX)}
    return SqliteSchema(schema_version, tables, tuple(Trigger(*row) for row in triggers), keepers)


def list_tables(connection: apsw.Connection) -> list[ListedTable]:
    """Return each table and view of the main schema.

    Views are switched off meanwhile. SQLite would expand each one to count its columns, and its time doubles with each
    view of a view that joins another one twice: twenty of them would stop capture.
    """
    enabled = connection.config(apsw.SQLITE_DBCONFIG_ENABLE_VIEW, -1)
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_VIEW, 0)
    try:
        found = rows(connection, "SELECT name, type, wr, strict FROM pragma_table_list WHERE schema = 'main'")
    finally:
        connection.config(apsw.SQLITE_DBCONFIG_ENABLE_VIEW, enabled)
    return [ListedTable(name, kind, bool(without_rowid), bool(strict)) for name, kind, without_rowid, strict in found]


def is_reserved(name: str) -> bool:
    """Tell whether a table is SQLite's or ours."""
    return fold(name).startswith(("sqlite_", PREFIX))


def parts_of_virtual(listed: Iterable[ListedTable]) -> tuple[str, ...]:
    """Return how the folded names begin of tables that keep the data of a virtual table."""
    return tuple(f"{fold(one.name)}_" for one in listed if one.kind == "virtual")


def read_table(connection: apsw.Connection, listed: ListedTable, ddl: str) -> SqliteTable:
    """Return what SQLite says about a table; `ddl` is the statement that made it."""
    name = listed.name
    info = rows(
        connection,
        """SELECT name, type, "notnull", dflt_value, pk, hidden FROM pragma_table_xinfo(?, 'main')
        WHERE hidden <> 1 ORDER BY cid""",
        (name,),
    )
    columns = tuple(
        SqliteColumn(
            column,
            declared or "",
            bool(not_null),
            default,
            rank,
            hidden in (2, 3),
            _collation(connection, name, column) if listed.kind == "table" else "",
            listed.strict,
        )
        for column, declared, not_null, default, rank, hidden in info
    )
    indexes = rows(
        connection, """SELECT name, "unique", origin FROM pragma_index_list(?, 'main') ORDER BY seq DESC""", (name,)
    )
    alias = None if listed.without_rowid or any(origin == "pk" for _, _, origin in indexes) else _alias(columns)
    rowid = None if listed.without_rowid else _rowid_name(columns, alias)
    uniques = tuple(_read_unique(connection, index) for index, unique, _ in indexes if unique)
    indexed = any(not index.startswith(PREFIX) for index, _, _ in indexes)
    return SqliteTable(name, ddl, columns, alias, rowid, uniques, indexed, listed.without_rowid)


def _capturable(table: SqliteTable) -> SqliteTable:
    if table.rowid is None and not table.key:
        raise SourceStateError(
            f"table {table.name!r} has no primary key and hides its row number behind columns named "
            f"{', '.join(ROWID_NAMES)}; rename one of them or add a primary key"
        )
    return table


def _collation(connection: apsw.Connection, table: str, column: str) -> str:
    _, collation, *_ = connection.column_metadata("main", table, column)
    return "" if collation.upper() == "BINARY" else collation.upper()


def _alias(columns: Sequence[SqliteColumn]) -> str | None:
    keys = [column for column in columns if column.key_rank]
    return keys[0].name if len(keys) == 1 and keys[0].declared.upper() == "INTEGER" else None


def _rowid_name(columns: Sequence[SqliteColumn], alias: str | None) -> str | None:
    if alias is not None:
        return quote(alias)
    taken = {fold(column.name) for column in columns}
    return next((name for name in ROWID_NAMES if name not in taken), None)


def _read_unique(connection: apsw.Connection, index: str) -> Unique:
    texts = rows(connection, "SELECT sql FROM main.sqlite_schema WHERE type = 'index' AND name = ?", (index,))
    text = parse_index(texts[0][0]) if texts and texts[0][0] else None
    listed = rows(connection, "SELECT seqno, name, coll FROM pragma_index_xinfo(?, 'main') WHERE key", (index,))
    terms = []
    for rank, column, collation in listed:
        if column is not None:
            terms.append(Term(column, collation, column=True))
        else:
            assert text is not None  # only CREATE INDEX makes expressions
            terms.append(Term(text.terms[rank], collation, column=False))
    return Unique(tuple(terms), text.where if text else None)
