"""What SQLite says that a query touches. Blocking."""

import time
from collections.abc import Iterator
from typing import Any

import apsw

from tailrace.model.errors import InvalidRequestError, QueryTimeoutError
from tailrace.source.sqlite.client_query import STEPS
from tailrace.source.sqlite.process_message import Touched
from tailrace.source.sqlite.sandbox import READING, is_closed

__all__ = ["read_footprint"]

_PROGRAM_WIDTH = 8
"""Columns of what EXPLAIN gives."""


def read_footprint(connection: apsw.Connection, sql: str, arguments: int, deadline_s: float) -> Touched:
    """Return what SQLite asked leave to read for a statement, and the trees it opens, in the caller's transaction.

    Sets the authorizer and the progress handler meanwhile.

    Raises:
        InvalidRequestError: SQLite rejected the statement, or it is not one that only reads.
        QueryTimeoutError: It cannot be compiled until the `deadline_s` of the monotonic clock.
        apsw.Error: The database is locked or cannot be read.
    """
    reads: set[str] = set()
    functions: set[str] = set()
    closed: list[str] = []

    def authorize(action: int, first: Any, second: Any, schema: Any, _context: Any) -> int:
        if action == apsw.SQLITE_READ:
            if schema not in (None, "main") or is_closed(first):
                closed.append(first)
            reads.add(first)
        elif action == apsw.SQLITE_FUNCTION:
            functions.add(second.lower())
        return apsw.SQLITE_OK if action in READING else apsw.SQLITE_DENY

    version = str(connection.pragma("schema_version"))
    connection.set_progress_handler(lambda: time.monotonic() > deadline_s, STEPS)
    connection.authorizer = authorize
    try:
        program = _instructions(connection.execute(f"EXPLAIN {sql}", (None,) * arguments, can_cache=False))
    except (apsw.BusyError, apsw.LockedError, apsw.IOError, apsw.SchemaChangeError, apsw.ReadOnlyError):
        raise
    except apsw.InterruptError as error:
        raise QueryTimeoutError("the query takes too long to prepare: make it simpler") from error
    except (apsw.Error, UnicodeEncodeError, ValueError) as error:
        raise InvalidRequestError(f"the database rejected the query: {error}") from error
    finally:
        connection.authorizer = None
        connection.set_progress_handler(None)
    if any(len(row) != _PROGRAM_WIDTH for row in program):
        raise InvalidRequestError("a query is one statement")
    if closed:
        raise InvalidRequestError(f"a query reads tables of the main schema, not {closed[0]}")
    roots = sorted({row[3] for row in program if row[1] == "OpenRead"})
    return Touched(sorted(reads), sorted(functions), roots, version)


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
