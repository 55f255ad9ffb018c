"""All rows of one SQLite table as one transaction sees them.

They are copied to a temporary file as fast as the disk allows, and handed out from there. So the transaction is short,
however slowly a subscriber reads: an open one keeps a write-ahead log from shrinking, or writers from writing at all.
"""
# ruff: noqa: S608 (identifiers are quoted)

import asyncio
import os
import struct
import tempfile
import threading
import time
from pathlib import Path
from typing import IO

import apsw

from tailrace.model.commit import CommitId
from tailrace.model.errors import SourceUnavailableError, UnknownTableError
from tailrace.model.table import TableName, TableSchema
from tailrace.source.base import Barrier, Reader, SnapshotRows
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

_BUFFER_BYTES = 1 << 18
_ROWS_MAX = 512
_BYTES_MAX = 128 << 10
"""Bounds of what is handed out at one time; one row may be larger."""

_LENGTHS = struct.Struct("=II")


class SqliteSnapshot:
    """The rows of a table in a temporary file; satisfies `tailrace.source.base.TableSnapshot`."""

    def __init__(self, found: Look, schema: TableSchema, file: IO[bytes]) -> None:
        self.schema = schema
        self._look = found
        self._file = file
        self._lock = threading.Lock()

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
        return await asyncio.to_thread(self._rows)

    def close(self) -> None:
        """Let go of the rows."""
        with self._lock:
            self._file.close()

    def _rows(self) -> SnapshotRows | None:
        taken = SnapshotRows([], [])
        size_bytes = 0
        with self._lock:
            if self._file.closed:
                return None
            while len(taken.keys) < _ROWS_MAX and size_bytes < _BYTES_MAX:
                lengths = self._file.read(_LENGTHS.size)
                if not lengths:
                    break
                key_bytes, image_bytes = _LENGTHS.unpack(lengths)
                taken.keys.append(self._file.read(key_bytes))
                taken.images.append(self._file.read(image_bytes))
                size_bytes += key_bytes + image_bytes
        return taken if taken.keys else None


def copy_table(
    path: Path, reader: Reader, table: TableName, timeout_s: float, cancelled: threading.Event
) -> SqliteSnapshot:
    """Copy the rows of a table, for a thread; `cancelled` ends it early. See `QuerySource.snapshot`."""
    file = tempfile.TemporaryFile(prefix="tailrace-snapshot-", buffering=_BUFFER_BYTES)  # noqa: SIM115 (given away)
    try:
        connection = apsw.Connection(os.fspath(path), flags=apsw.SQLITE_OPEN_READONLY)
        try:
            deadline_s = time.monotonic() + timeout_s
            connection.set_busy_handler(lambda _: not cancelled.wait(_BUSY_PAUSE_S) and time.monotonic() < deadline_s)
            connection.execute("PRAGMA query_only = 1").fetchall()
            found, schema = _copy(connection, reader, table, deadline_s, file, cancelled)
        finally:
            connection.close()
        file.seek(0)
    except BaseException as error:
        file.close()
        if isinstance(error, apsw.Error | OSError):
            raise SourceUnavailableError(f"the rows of {table.wire} cannot be copied now: {error}") from error
        raise
    return SqliteSnapshot(found, schema, file)


def _copy(
    connection: apsw.Connection,
    reader: Reader,
    table: TableName,
    deadline_s: float,
    file: IO[bytes],
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
        if number % _ROWS_MAX == 0 and cancelled.is_set():
            raise SourceUnavailableError("the rows are no longer requested")
        key, image = encoder.key(cells), encoder.image(cells)
        file.write(_LENGTHS.pack(len(key), len(image)))
        file.write(key)
        file.write(image)
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
