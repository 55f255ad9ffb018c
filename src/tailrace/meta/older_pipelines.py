"""The file in which older versions kept pipelines, taken over into the one metadata database.

Nothing is lost wherever a process is killed, as each step is done once the one before it is durable:

    | step                                             | killed after it, the next process            |
    |--------------------------------------------------|----------------------------------------------|
    | the rows and a mark are written, in one transaction | sees the mark, and only renames the file     |
    | the file is renamed                              | sees that there is no file, removes the mark |
    | the mark is removed                              | has nothing to do                            |

The renamed file stays as a copy. A file that an older version makes again is taken over, too. One that has versions is
a whole metadata database, which is named by its URL, and stays as it is.
"""

import contextlib
import os
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sqlalchemy import Connection, Engine, Table, delete, func, insert, inspect, select
from sqlalchemy.exc import IntegrityError

from tailrace.clock import Clock
from tailrace.meta.engine import SQLITE_REASONS, transact
from tailrace.meta.migration import OLDER_SINK_STATE
from tailrace.meta.table import dead_letter, migration, pipeline, pipeline_range, progress, subscribe, taken_over
from tailrace.model.errors import MetadataError

__all__ = ["take_over_pipelines"]

_NAME = "pipelines"
_BUSY_S = 5.0
_IN_USE = "another process has it open; stop the workers and servers of the older version, then try again"
_TABLES = (pipeline, pipeline_range, progress, subscribe, dead_letter)


def take_over_pipelines(engine: Engine, file: Path, clock: Clock) -> None:
    """Take the pipelines of an older version's file over into an SQLite database of the newest version.

    Safe for several processes at once.

    Raises:
        MetadataError: A process of the older version still has the file, both have a pipeline of one name, or the file
            cannot be read. Then everything is as it was.
    """
    if not file.exists() and not transact(engine, _is_marked):
        return
    try:
        transact(engine, lambda connection: _copy(connection, file, clock))
    except MetadataError as error:
        if isinstance(error.__cause__, IntegrityError):
            raise MetadataError(
                f"{file} has a pipeline or a dead letter that the metadata database has, too: remove one of them with "
                "the version that made it, or move the file away to keep those of the metadata database"
            ) from error
        raise
    transact(engine, lambda connection: _finish(connection, file))


def _copy(connection: Connection, file: Path, clock: Clock) -> None:
    """Write the rows of the file and a mark that they are there."""
    connection.exec_driver_sql("BEGIN IMMEDIATE")
    if _is_marked(connection) or not _is_older(file):
        return
    with _alone(file) as older:
        for table in _TABLES:
            rows = list(_rows(older, table))
            if table is dead_letter:
                _renumber(connection, rows)
            if rows:
                connection.execute(insert(table), rows)
        connection.execute(insert(taken_over).values(name=_NAME, time_us=clock.now_us()))


def _finish(connection: Connection, file: Path) -> None:
    """Set the file aside and remove the mark."""
    connection.exec_driver_sql("BEGIN IMMEDIATE")
    if _is_marked(connection):
        _set_aside(file)
        connection.execute(delete(taken_over).where(taken_over.c.name == _NAME))


def _set_aside(file: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        file.replace(_free(file))
        descriptor = os.open(file.parent, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _free(file: Path) -> Path:
    """Return a name beside the file that no other has."""
    names = (file.with_name(f"{file.name}.taken-over{number or ''}") for number in range(1000))
    return next(name for name in names if not name.exists())


def _is_marked(connection: Connection) -> bool:
    if not inspect(connection).has_table(taken_over.name):
        return False
    return connection.execute(select(taken_over.c.name).where(taken_over.c.name == _NAME)).first() is not None


@contextlib.contextmanager
def _alone(file: Path) -> Iterator[sqlite3.Connection]:
    """Open the file so that nobody else has it, as one file without a write-ahead log."""
    with _connected(file) as older:
        older.row_factory = sqlite3.Row
        # Fails while any other process is connected, even one that does nothing now: it would go on with the old file.
        older.execute("PRAGMA journal_mode = DELETE")
        older.execute("BEGIN EXCLUSIVE")
        yield older
        older.execute("ROLLBACK")


def _is_older(file: Path) -> bool:
    """Tell whether there is a file of pipelines alone."""
    if not file.exists():
        return False
    with _connected(file) as older:
        return not _has_table(older, migration)


def _has_table(older: sqlite3.Connection, table: Table) -> bool:
    return older.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (table.name,)).fetchone() is not None


@contextlib.contextmanager
def _connected(file: Path) -> Iterator[sqlite3.Connection]:
    """Connect to the file; what SQLite fails with is an error of ours."""
    place = f"file:{quote(str(file))}?mode=rw"  # never makes a file that another process has just set aside
    try:
        connected = sqlite3.connect(place, uri=True, timeout=_BUSY_S, isolation_level=None)
        with contextlib.closing(connected) as older:
            yield older
    except sqlite3.DatabaseError as error:
        code = error.sqlite_errorcode & 0xFF
        reason = _IN_USE if code == sqlite3.SQLITE_BUSY else SQLITE_REASONS.get(code, type(error).__name__)
        raise MetadataError(f"{file} cannot be taken over into the metadata database: {reason}") from error


def _rows(older: sqlite3.Connection, table: Table) -> Iterator[dict[str, Any]]:
    """Yield the rows of a table, where the file has it."""
    if _has_table(older, table):
        numbered = any(row["name"] == "number_min" for row in older.execute(f"PRAGMA table_info({table.name})"))
        more = f", {OLDER_SINK_STATE} AS sink_state" if numbered else ""
        for row in older.execute(f"SELECT *{more} FROM {table.name}"):  # noqa: S608 (constants of ours)
            yield {name: row[name] for name in row.keys() if name in table.c}  # noqa: SIM118 (a row yields its values)


def _renumber(connection: Connection, rows: Sequence[dict[str, Any]]) -> None:
    """Give dead letters numbers behind those that are there, in their order."""
    highest = connection.execute(select(func.max(dead_letter.c.id))).scalar()
    if highest is not None:  # otherwise they keep those that people know
        for number, letter in enumerate(sorted(rows, key=lambda one: one["id"]), start=highest + 1):
            letter["id"] = number
