"""What SQL of clients may reach in an SQLite database: limits of a connection, and which actions are allowed.

A query may read tables of the main schema. A statement may also write and change the schema. Neither may read or write
what capture keeps (names that begin with `_tailrace_`), leave the database file, or change how the connection works.

SQLite asks an authorizer for each table, column, function and schema object while it compiles a statement. It does not
ask about the body of a new trigger or view, nor about the new name in ALTER TABLE … RENAME TO: `check_schema_change`
looks at the text of the statement for those.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import apsw

from tailrace.model.errors import InvalidRequestError
from tailrace.source.sqlite.change_table import PREFIX
from tailrace.source.sqlite.kv_table import KV
from tailrace.sql.sqlite.catalog import fold

__all__ = [
    "READING",
    "SQL_BYTES_MAX",
    "check_schema_change",
    "is_closed",
    "key_value_objects",
    "reading",
    "restrict",
    "writing",
]

_CELL_BYTES_MAX = 16 << 20
"""Largest text or blob that a client's SQL may make."""

SQL_BYTES_MAX = 1 << 20
"""Longest text of a statement."""

_PATTERN_BYTES_MAX = 4096
"""Longest pattern of LIKE and GLOB: a match is one instruction, and its cost grows with each wildcard."""

_LIMITS = {
    apsw.SQLITE_LIMIT_LENGTH: _CELL_BYTES_MAX,
    apsw.SQLITE_LIMIT_SQL_LENGTH: SQL_BYTES_MAX,
    apsw.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: _PATTERN_BYTES_MAX,
    apsw.SQLITE_LIMIT_ATTACHED: 0,
}
_SETTINGS = {
    apsw.SQLITE_DBCONFIG_DEFENSIVE: 1,  # no write to shadow tables, no PRAGMA writable_schema
    apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA: 0,  # triggers and views use harmless functions only
    apsw.SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION: 0,
}

READING = {apsw.SQLITE_SELECT, apsw.SQLITE_READ, apsw.SQLITE_FUNCTION, apsw.SQLITE_RECURSIVE}
"""What a query does."""

_CLOSED = ("sqlite_", "pragma_", PREFIX)
"""How the names of the tables begin that a query does not read."""

_CLOSED_MODULES = {"dbstat", "sqlite_dbpage", "sqlite_stmt", "fts3tokenize"}
"""Virtual tables that need no CREATE and show the file or the connection instead of rows."""

_CLOSED_FUNCTIONS = {"load_extension", "fts3_tokenizer", "sqlite_log"}

_FORBIDDEN = {
    apsw.SQLITE_ATTACH,
    apsw.SQLITE_DETACH,
    apsw.SQLITE_TRANSACTION,
    apsw.SQLITE_SAVEPOINT,
    apsw.SQLITE_CREATE_TEMP_INDEX,
    apsw.SQLITE_CREATE_TEMP_TABLE,
    apsw.SQLITE_CREATE_TEMP_TRIGGER,
    apsw.SQLITE_CREATE_TEMP_VIEW,
    apsw.SQLITE_CREATE_VTABLE,
}
_PRAGMAS = {"table_info", "table_xinfo", "table_list", "index_list", "index_info", "index_xinfo", "foreign_key_list"}
"""Pragmas that only tell about tables."""

_DROPPED_ALONG = {apsw.SQLITE_DROP_TRIGGER, apsw.SQLITE_DROP_INDEX, apsw.SQLITE_REINDEX}
"""Actions on triggers and indexes of ours that come with one on their table; capture is fitted to it at once."""

_TEMPORARY_SCHEMA = "sqlite_temp_master"
"""ALTER TABLE looks here for temporary triggers and views to rewrite; there are none."""


def restrict(connection: apsw.Connection) -> None:
    """Set the limits of a connection for the SQL of clients."""
    for limit, value in _LIMITS.items():
        connection.limit(limit, value)
    for setting, value in _SETTINGS.items():
        connection.config(setting, value)


@contextmanager
def reading(connection: apsw.Connection) -> Iterator[None]:
    """Have the connection prepare only what reads tables of the main schema."""
    with _authorized(connection, _authorize_reading):
        yield


@contextmanager
def writing(connection: apsw.Connection) -> Iterator[set[int]]:
    """Have the connection prepare only what clients may run. Give the set of actions that were asked for."""
    actions: set[int] = set()

    def authorize(action: int, first: Any, second: Any, schema: Any, context: Any) -> int:
        actions.add(action)
        return _authorize_writing(action, first, second, schema, context)

    with _authorized(connection, authorize):
        yield actions


def is_closed(table: str) -> bool:
    """Tell whether a query may not read a table: it is SQLite's, capture's, or shows no rows of the database."""
    name = fold(table)
    return name.startswith(_CLOSED) or name in _CLOSED_MODULES


def check_schema_change(sql: str) -> None:
    """Refuse a statement that changed the schema and has a name of capture's in its text.

    A name of an SQLite object is always spelled out in the statement that makes it, in letters of any case, so the
    text cannot hide one. A comment or a literal that has the prefix is refused too.

    Raises:
        InvalidRequestError: It has one.
    """
    if PREFIX in fold(sql):
        raise InvalidRequestError(
            f"names that begin with {PREFIX} are reserved: a statement that changes the schema cannot contain {PREFIX}"
        )


def key_value_objects(connection: apsw.Connection) -> set[tuple[Any, ...]]:
    """Return the table of keys and values with its indexes and triggers, but capture's.

    The server writes to it outside of the sandbox. A trigger or an expression there would run without limits, so no
    statement of a client may add to this set.
    """
    found: list[Any] = connection.execute(
        "SELECT type, name, sql FROM main.sqlite_schema WHERE ? IN (lower(name), lower(tbl_name))", (KV,)
    ).fetchall()
    return {row for row in found if not fold(row[1]).startswith(PREFIX)}


@contextmanager
def _authorized(connection: apsw.Connection, authorize: Callable[..., int]) -> Iterator[None]:
    connection.authorizer = authorize
    try:
        yield
    finally:
        connection.authorizer = None


def _authorize_reading(action: int, first: Any, second: Any, schema: Any, _context: Any) -> int:
    """Let a query read tables of the main schema, and nothing else."""
    if action not in READING:
        return apsw.SQLITE_DENY
    if action == apsw.SQLITE_READ:
        return apsw.SQLITE_DENY if schema not in (None, "", "main") or is_closed(first) else apsw.SQLITE_OK
    if action == apsw.SQLITE_FUNCTION and fold(second) in _CLOSED_FUNCTIONS:
        return apsw.SQLITE_DENY
    return apsw.SQLITE_OK


def _authorize_writing(action: int, first: Any, second: Any, schema: Any, context: Any) -> int:
    """Let a statement use the tables of the main schema, but nothing beyond the database and nothing of capture's."""
    # The context is the name of a trigger, a view or a common table expression. No client can make a trigger or a view
    # of our name, but a common table expression can have any name: it only reads, so nothing but INSERT may pass here.
    if action == apsw.SQLITE_INSERT and context is not None and fold(context).startswith(PREFIX):
        return apsw.SQLITE_OK
    if action == apsw.SQLITE_ALTER_TABLE:
        first, schema = second, first
    if action in _FORBIDDEN or schema not in (None, "", "main", "temp"):
        return apsw.SQLITE_DENY
    if schema == "temp" and (action not in (apsw.SQLITE_READ, apsw.SQLITE_UPDATE) or first != _TEMPORARY_SCHEMA):
        return apsw.SQLITE_DENY
    names = [fold(name) for name in (first, second) if isinstance(name, str)]
    if action not in _DROPPED_ALONG and any(name.startswith(PREFIX) for name in names):
        return apsw.SQLITE_DENY
    if action == apsw.SQLITE_PRAGMA:
        return apsw.SQLITE_OK if names[0] in _PRAGMAS else apsw.SQLITE_DENY
    if action == apsw.SQLITE_FUNCTION:
        return apsw.SQLITE_DENY if names[-1] in _CLOSED_FUNCTIONS else apsw.SQLITE_OK
    if action == apsw.SQLITE_READ and names[0] in _CLOSED_MODULES:
        return apsw.SQLITE_DENY
    return apsw.SQLITE_OK
