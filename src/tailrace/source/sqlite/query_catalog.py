"""Reads the catalog that query analysis needs from an SQLite database, and asks the database what a query touches."""

import base64
import hashlib
from collections.abc import Iterable, Iterator
from typing import Any

import apsw
from msgspec import Struct

from tailrace.model.catalog import Affinity, CatalogColumn, CatalogTable, CatalogView, Footprint, Rowid, fold
from tailrace.model.errors import InvalidRequestError, SourceUnavailableError
from tailrace.source.sqlite.catalog import list_tables

__all__ = ["SqliteCatalog"]

_OWN = "_tailrace_"
"""How the names of the tables and indexes begin that capture keeps in the database."""

_CLOSED = ("sqlite_", "pragma_", _OWN)
"""How the names of the tables begin that queries do not read: their changes are in no log."""

_READING = {apsw.SQLITE_SELECT, apsw.SQLITE_READ, apsw.SQLITE_FUNCTION, apsw.SQLITE_RECURSIVE}

_PROGRAM_WIDTH = 8
"""Columns of what EXPLAIN gives."""

_AFFINITIES = (
    (("INT",), Affinity.NUMERIC),
    (("CHAR", "CLOB", "TEXT"), Affinity.TEXT),
    (("BLOB",), Affinity.NONE),
)
"""SQLite's rules for the affinity of a declared type, in order ("Datatypes", 3.1). REAL and the rest are numeric."""


class SqliteCatalog:
    """The main schema of a database as it was when this was made. Satisfies `tailrace.model.catalog.Catalog`.

    It uses the connection for `footprint` only, from one thread at a time, and sets its authorizer meanwhile. The
    connection should be read-only and have no temporary or attached tables.
    """

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
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
            SourceUnavailableError: The database is locked.
        """
        reads: set[str] = set()
        functions: set[str] = set()
        closed: list[str] = []

        def authorize(action: int, first: Any, second: Any, schema: Any, _trigger: Any) -> int:
            if action == apsw.SQLITE_READ:
                if schema not in (None, "main") or fold(first).startswith(_CLOSED):
                    closed.append(first)
                reads.add(first)
            elif action == apsw.SQLITE_FUNCTION:
                functions.add(second.lower())
            return apsw.SQLITE_OK if action in _READING else apsw.SQLITE_DENY

        self._connection.authorizer = authorize
        try:
            cursor = self._connection.execute(f"EXPLAIN {sql}", (None,) * arguments, can_cache=False)
            program = _instructions(cursor)
        except (apsw.BusyError, apsw.LockedError, apsw.IOError, apsw.SchemaChangeError) as error:
            raise SourceUnavailableError(str(error)) from error
        except apsw.Error as error:
            raise InvalidRequestError(f"the database rejected the query: {error}") from error
        finally:
            self._connection.authorizer = None
        if any(len(row) != _PROGRAM_WIDTH for row in program):
            raise InvalidRequestError("a query is one statement")
        if closed:
            raise InvalidRequestError(f"a query reads tables of the main schema, not {closed[0]}")
        opened = {self._roots[row[3]] for row in program if row[1] == "OpenRead" and row[3] in self._roots}
        named = {table.name for table in (self.table(name) for name in reads) if table is not None}
        return Footprint(frozenset(opened | named), frozenset(functions))


def _instructions(cursor: Iterator[Any]) -> list[Any]:
    """Return the program that SQLite made, without loads of BLOB literals, whose bytes it shows as text."""
    program: list[Any] = []
    while True:
        try:
            program.append(next(cursor))
        except UnicodeDecodeError:
            continue  # the next one follows
        except StopIteration:
            return program


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
            _affinity(declared or "", strict=bool(listed.strict)),
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


def _affinity(declared: str, *, strict: bool) -> Affinity:
    upper = declared.upper()
    if not upper or (strict and upper == "ANY"):
        return Affinity.NONE
    return next((affinity for words, affinity in _AFFINITIES if any(word in upper for word in words)), Affinity.NUMERIC)


def _binary(connection: apsw.Connection, listed: _Listed, column: str, encoding: str) -> bool:
    """Return whether text in a column compares by its code points, which UTF-16 in memory does not."""
    if listed.kind != "table" or encoding != "UTF-8":
        return False
    _, collation, *_ = connection.column_metadata("main", listed.name, column)
    return bool(collation.upper() == "BINARY")
