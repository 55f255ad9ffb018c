"""All rows of one SQLite table as one transaction sees them.

They are copied to a temporary file as fast as the disk allows, and handed out from there. So the transaction is short,
however slowly a subscriber reads: an open one keeps a write-ahead log from shrinking, or writers from writing at all.
"""
# ruff: noqa: S608 (identifiers are quoted)

import asyncio
import os
import threading
import time
from pathlib import Path

import apsw

from tailrace.model.commit import CommitId
from tailrace.model.errors import SourceUnavailableError, UnknownTableError
from tailrace.model.table import TableName, TableSchema
from tailrace.source.base import Barrier, Reader, SnapshotRows
from tailrace.source.row_spool import RowSpool
from tailrace.source.sqlite.barrier import Look, look, reached
from tailrace.source.sqlite.change_table import quote
from tailrace.source.sqlite.registry import load_versions
from tailrace.source.sqlite.row_encoder import RowEncoder
from tailrace.source.sqlite.schema import read_schema
from tailrace.source.sqlite.trigger import row_cells

__all__ = ["SqliteSnapshot", "begin_fitting", "copy_table"]

_BUSY_PAUSE_S = 0.002
"""How often to try a database that a writer has locked; short, since without a write-ahead log the gaps are."""

_FIT_PAUSE_S = 0.005
"""How often to look whether capture has followed a schema change."""

_CHECK_ROWS = 512
"""Rows between two looks whether they are still wanted."""


class SqliteSnapshot:
    """The rows of a table in a temporary file; satisfies `tailrace.source.base.TableSnapshot`."""

    def __init__(self, found: Look, schema: TableSchema, spool: RowSpool) -> None:
        self.schema = schema
        self._look = found
        self._spool = spool

    @property
    def barrier(self) -> Barrier:
        """Return what was committed when the rows were read."""
        return self._look.barrier

    def contains(self, commit: CommitId) -> bool:
        """Tell whether a commit is in the rows already."""
        return self._look.contains(commit)

    def complete(self, commit: CommitId | None) -> bool:
        """Tell whether the rows have nothing of the commits after this one."""
        return reached(self._look.barrier, commit.position if commit else None)

    async def rows(self) -> SnapshotRows | None:
        """Return the next rows; None when there are no more."""
        return await asyncio.to_thread(self._spool.read)

    def close(self) -> None:
        """Let go of the rows."""
        self._spool.close()


def copy_table(
    path: Path, reader: Reader, table: TableName, timeout_s: float, cancelled: threading.Event
) -> SqliteSnapshot:
    """Copy the rows of a table, for a thread; `cancelled` ends it early. See `QuerySource.snapshot`."""
    spool = RowSpool()
    try:
        connection = apsw.Connection(os.fspath(path), flags=apsw.SQLITE_OPEN_READONLY)
        try:
            deadline_s = time.monotonic() + timeout_s
            connection.set_busy_handler(lambda _: not cancelled.wait(_BUSY_PAUSE_S) and time.monotonic() < deadline_s)
            connection.execute("PRAGMA query_only = 1").fetchall()
            found, schema = _copy(connection, reader, table, deadline_s, spool, cancelled)
        finally:
            connection.close()
        spool.rewind()
    except BaseException as error:
        spool.close()
        if isinstance(error, apsw.Error | OSError):
            raise SourceUnavailableError(f"the rows of {table.wire} cannot be copied now: {error}") from error
        raise
    return SqliteSnapshot(found, schema, spool)


def _copy(
    connection: apsw.Connection,
    reader: Reader,
    table: TableName,
    deadline_s: float,
    spool: RowSpool,
    cancelled: threading.Event,
) -> tuple[Look, TableSchema]:
    found = begin_fitting(connection, reader, deadline_s, cancelled)
    version = next((entry for entry in load_versions(connection, live=True).values() if entry.name == table.name), None)
    listed = None if table.schema else read_schema(connection).tables.get(table.name)
    if version is None or listed is None:  # there is no other schema than the default one
        raise UnknownTableError(table.source, table.wire)
    encoder = RowEncoder(version)
    name = quote(table.name)
    for number, cells in enumerate(connection.execute(f"SELECT {','.join(row_cells(listed, name))} FROM {name}")):
        if number % _CHECK_ROWS == 0 and cancelled.is_set():
            raise SourceUnavailableError("the rows are no longer requested")
        spool.add(encoder.key(cells), encoder.image(cells))
    connection.execute("ROLLBACK")
    return found, version.schema(table.source, version.number)


def begin_fitting(connection: apsw.Connection, reader: Reader, deadline_s: float, cancelled: threading.Event) -> Look:
    """Begin a transaction that sees a schema which capture fits."""
    while True:
        connection.execute("BEGIN")
        found = look(connection, reader)
        if found is not None:
            return found
        connection.execute("ROLLBACK")
        if time.monotonic() > deadline_s or cancelled.wait(_FIT_PAUSE_S):
            raise SourceUnavailableError("capture does not fit the schema of the database yet")
