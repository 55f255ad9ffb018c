"""The catalog that query analysis needs, out of what an SQLite database says about its tables."""

import base64
import hashlib
import math
from collections.abc import Callable, Iterable
from typing import Any

import apsw

from tailrace.model.table import Column
from tailrace.source.sqlite.change_table import PREFIX
from tailrace.source.sqlite.footprint import read_footprint
from tailrace.source.sqlite.process_message import Touched
from tailrace.source.sqlite.schema import (
    ListedTable,
    SqliteTable,
    is_reserved,
    list_tables,
    parts_of_virtual,
    read_table,
)
from tailrace.sql.sqlite.affinity import affinity_of_column
from tailrace.sql.sqlite.catalog import (
    CatalogColumn,
    CatalogTable,
    CatalogView,
    Footprint,
    Rowid,
    SqliteCatalog,
    fold,
)

__all__ = ["QueryCatalog"]


class QueryCatalog(SqliteCatalog):
    """The main schema of a database as it was when this was made.

    `touch` tells what SQLite says about a statement with this many arguments, in the same version of the schema.
    Without it the connection is asked, for as long as that takes.
    """

    def __init__(self, connection: apsw.Connection, touch: Callable[[str, int], Touched] | None = None) -> None:
        self._touch = touch or (lambda sql, arguments: read_footprint(connection, sql, arguments, math.inf))
        with connection:
            objects: list[Any] = connection.execute(
                "SELECT type, name, tbl_name, coalesce(sql, ''), rootpage FROM main.sqlite_schema "
                "WHERE type IN ('table', 'view', 'index') ORDER BY type, name"
            ).fetchall()
            listed = list_tables(connection)
            encoding = str(connection.pragma("encoding"))
            objects = [row for row in objects if not fold(row[1]).startswith((PREFIX, "sqlite_stat"))]
            shadows = parts_of_virtual(listed)
            tables = [
                _analysed(connection, one, encoding, captured=not fold(one.name).startswith(shadows))
                for one in listed
                if one.kind != "view" and not is_reserved(one.name)
            ]
        self._tables = {fold(table.name): table for table in tables}
        self._views = {fold(name): CatalogView(name, sql) for type_, name, _, sql, _ in objects if type_ == "view"}
        self._roots = {root: table for type_, _, table, _, root in objects if root and type_ != "view"}
        texts = repr([encoding, *(row[:4] for row in objects)])
        self.version = base64.b32encode(hashlib.sha256(texts.encode()).digest()).decode().rstrip("=").lower()

    def table(self, name: str) -> CatalogTable | None:
        """Return the base table of that name, letters' case aside."""
        return self._tables.get(fold(name))

    def view(self, name: str) -> CatalogView | None:
        """Return the view of that name, letters' case aside."""
        return self._views.get(fold(name))

    def tables(self) -> Iterable[CatalogTable]:
        """Return all base tables."""
        return self._tables.values()

    def footprint(self, sql: str, arguments: int) -> Footprint:
        """Return what SQLite says that a statement touches: what it asked leave to read, and the trees it opens.

        Raises:
            InvalidRequestError: SQLite rejected the statement, or it is not one that only reads.
        """
        touched = self._touch(sql, arguments)
        opened = {self._roots[root] for root in touched.roots if root in self._roots}
        named = {table.name for table in (self.table(name) for name in touched.tables) if table is not None}
        return Footprint(frozenset(opened | named), frozenset(touched.functions))


def _analysed(connection: apsw.Connection, listed: ListedTable, encoding: str, *, captured: bool) -> CatalogTable:
    """Return a table as query analysis sees it. Text in UTF-16 does not compare by its code points."""
    table = read_table(connection, listed, "")
    comparable = listed.kind == "table" and encoding == "UTF-8"
    columns = tuple(
        CatalogColumn(
            column.name,
            affinity_of_column(Column(column.name, declared=column.declared, strict=column.strict)),
            comparable and not column.collation,
            column.generated,
        )
        for column in table.columns
    )
    return CatalogTable(
        table.name,
        columns,
        table.key,
        _rowid(table),
        table.alias or "",
        _ordering(connection, table),
        captured and listed.kind == "table",
    )


def _rowid(table: SqliteTable) -> Rowid:
    if table.without_rowid:
        return Rowid.NONE
    if table.alias is not None:
        return Rowid.COLUMN
    return Rowid.HIDDEN if table.key else Rowid.KEY


def _ordering(connection: apsw.Connection, table: SqliteTable) -> frozenset[str] | None:
    """Return the columns of a table's key and of its indexes, ours aside; None where an index has an expression."""
    terms: list[Any] = connection.execute(
        "SELECT term.name FROM pragma_index_list(?1, 'main') AS listed "
        "JOIN pragma_index_xinfo(listed.name, 'main') AS term WHERE listed.name NOT GLOB ?2 AND term.cid <> -1",
        (table.name, f"{PREFIX}*"),
    ).fetchall()
    names = [name for (name,) in terms]
    return None if None in names else frozenset([*names, *table.key])
