"""Reads the catalog that query analysis needs from an SQLite database."""

import base64
import hashlib
import math
from collections.abc import Callable, Iterable
from typing import Any

import apsw
from msgspec import Struct

from tailrace.model.table import Column
from tailrace.source.sqlite.catalog import list_tables
from tailrace.source.sqlite.footprint import read_footprint
from tailrace.source.sqlite.process_message import Touched
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

_OWN = "_tailrace_"
"""How the names of the tables and indexes begin that capture keeps in the database."""


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
            listed = [_Listed(*row) for row in list_tables(connection)]
            encoding = str(connection.pragma("encoding"))
            objects = [row for row in objects if not fold(row[1]).startswith((_OWN, "sqlite_stat"))]
            virtual = tuple(f"{fold(table.name)}_" for table in listed if table.kind == "virtual")
            tables = [
                _read_table(connection, table, encoding, captured=not fold(table.name).startswith(virtual))
                for table in listed
                if table.kind != "view" and not fold(table.name).startswith((_OWN, "sqlite_"))
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


class _Listed(Struct):
    """A table as SQLite lists it."""

    name: Any
    kind: Any
    without_rowid: Any
    strict: Any


def _read_table(connection: apsw.Connection, listed: _Listed, encoding: str, *, captured: bool) -> CatalogTable:
    name = listed.name
    info: list[Any] = connection.execute(
        "SELECT name, type, pk, hidden FROM pragma_table_xinfo(?, 'main') WHERE hidden <> 1 ORDER BY cid", (name,)
    ).fetchall()
    columns = tuple(
        CatalogColumn(
            column,
            affinity_of_column(Column(column, declared=declared or "", strict=bool(listed.strict))),
            _binary(connection, listed, column, encoding),
            hidden in (2, 3),
        )
        for column, declared, _, hidden in info
    )
    ranked = sorted((rank, column) for column, _, rank, _ in info if rank)
    key = tuple(column for _, column in ranked)
    indexes: list[Any] = connection.execute(
        "SELECT name, origin FROM pragma_index_list(?, 'main') WHERE name NOT GLOB ?", (name, f"{_OWN}*")
    ).fetchall()
    terms: list[Any] = [
        column
        for index, _ in indexes
        for (column,) in connection.execute("SELECT name FROM pragma_index_xinfo(?, 'main') WHERE cid <> -1", (index,))
    ]
    numbered = [column for column, declared, rank, _ in info if rank and declared.upper() == "INTEGER"]
    alias = key[0] if list(key) == numbered and not any(origin == "pk" for _, origin in indexes) and key else ""
    rowid = _rowid(listed, key, alias)
    ordering = None if None in terms else frozenset([*terms, *key])
    return CatalogTable(
        name, columns, key, rowid, alias if rowid is Rowid.COLUMN else "", ordering, captured and listed.kind == "table"
    )


def _rowid(listed: _Listed, key: tuple[str, ...], alias: str) -> Rowid:
    if listed.without_rowid:
        return Rowid.NONE
    if alias:
        return Rowid.COLUMN
    return Rowid.HIDDEN if key else Rowid.KEY


def _binary(connection: apsw.Connection, listed: _Listed, column: str, encoding: str) -> bool:
    """Return whether text in a column compares by its code points, which UTF-16 in memory does not."""
    if listed.kind != "table" or encoding != "UTF-8":
        return False
    _, collation, *_ = connection.column_metadata("main", listed.name, column)
    return bool(collation.upper() == "BINARY")
