"""Running one statement of a client, within limits. Blocking."""

import re
from collections.abc import Sequence
from typing import Any

import apsw

from tailrace.model.errors import InvalidRequestError, ResultTooLargeError
from tailrace.model.value import Value
from tailrace.source.result import RunLimits
from tailrace.sql.query import Stored

__all__ = ["describe", "refresh_schema", "run_one"]

_NUMBER_BYTES = 8
_SILENT = re.compile(r"\s+|;|--[^\n]*|/\*.*?(?:\*/|\Z)", re.DOTALL)
"""What a text may have besides a statement."""


def run_one(
    connection: apsw.Connection, sql: str, arguments: Sequence[Stored], limits: RunLimits
) -> tuple[tuple[str, ...], list[tuple[Value, ...]]]:
    """Return the names of a statement's columns and all its rows.

    Raises:
        InvalidRequestError: There is no statement or more than one; of several the first may have run.
        ResultTooLargeError: There are more rows or bytes than allowed.
    """
    columns: list[tuple[str, ...]] = []

    def trace(cursor: apsw.Cursor, text: str, _bindings: Any) -> bool:
        if columns and not _is_silent(text):
            raise InvalidRequestError("there is more than one statement: send one at a time")
        columns.append(_columns(cursor))
        return True

    cursor = connection.cursor()
    cursor.exec_trace = trace
    try:
        rows = _bounded(cursor.execute(_checked(sql), tuple(arguments), can_cache=False), limits)
        return columns[0], rows
    finally:
        cursor.close(force=True)  # rows that nobody takes hold locks


def refresh_schema(connection: apsw.Connection) -> None:
    """Have a connection know the newest schema. Otherwise it finds out on running a statement what it has prepared."""
    connection.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchall()


def describe(connection: apsw.Connection, sql: str, arguments: Sequence[Stored]) -> bool:
    """Prepare the first statement of a text without running it; tell whether it only reads."""
    reads_only: list[bool] = []

    def trace(cursor: apsw.Cursor, _text: str, _bindings: Any) -> bool:
        reads_only.append(cursor.is_readonly)
        return False

    cursor = connection.cursor()
    cursor.exec_trace = trace
    try:
        cursor.execute(_checked(sql), tuple(arguments), can_cache=False)
    except apsw.ExecTraceAbort:
        return reads_only[0]
    raise AssertionError("a statement was not traced")


def _bounded(cursor: apsw.Cursor, limits: RunLimits) -> list[tuple[Value, ...]]:
    rows: list[tuple[Value, ...]] = []
    size_bytes = 0
    for row in cursor:
        size_bytes += sum(len(cell) if isinstance(cell, str | bytes) else _NUMBER_BYTES for cell in row)
        if len(rows) >= limits.rows_max:
            raise ResultTooLargeError(f"the query gives more than {limits.rows_max} rows: add a LIMIT or a condition")
        if size_bytes > limits.bytes_max:
            raise ResultTooLargeError(f"the query gives more than {limits.bytes_max} bytes: ask for less")
        rows.append(row)
    return rows


def _checked(sql: str) -> str:
    if _is_silent(sql):
        raise InvalidRequestError("there is no statement")
    if "\0" in sql:
        raise InvalidRequestError("a statement cannot contain a NUL character: bind it as a value")
    return sql


def _is_silent(text: str) -> bool:
    return not _SILENT.sub("", text)


def _columns(cursor: apsw.Cursor) -> tuple[str, ...]:
    return tuple(entry[0] for entry in cursor.get_description())
