"""The rows that capture keeps about itself: its identity, the table versions, the readers."""
# ruff: noqa: S608 (the statements are put together from our own constants)

import os
from pathlib import Path

import apsw
from msgspec import Struct

from tailrace.source.reader import Reader
from tailrace.source.sqlite.change_table import CAPTURE, CHANGE, READER, TABLE, ChangeCode, header
from tailrace.source.sqlite.connection import rows
from tailrace.source.sqlite.history import fresh_mark
from tailrace.source.sqlite.table_version import TableVersion, decode_version, encode_version

__all__ = [
    "Capture",
    "ReaderRow",
    "add_reader",
    "is_alive",
    "leave_reader",
    "load_versions",
    "mark_reader",
    "next_numbers",
    "note",
    "read_capture",
    "read_entry",
    "read_outline",
    "read_readers",
    "save_outline",
    "save_version",
    "upgrade_readers",
    "user_trigger_versions",
    "window",
]

_ABSENT_S = 60.0
"""How long a reader whose process is not found counts as reading after it was last seen."""


class Capture(Struct, frozen=True):
    """The identity of a capture, its layout, the schema version it fits, and the ephemeral reader that set it up."""

    capture: str
    format: int
    width: int
    schema_version: int
    owner: str | None


class ReaderRow(Struct, frozen=True):
    """One reader. `pid` and `started` name the process of an ephemeral one.

    Of a durable one `started` names the process that reads for it, with its id before it; None when that has left.
    `seen` is when it last entered or confirmed, and `age_s` how long ago that was.
    """

    name: str
    confirmed: int
    pid: int | None
    started: str | None
    seen: float
    age_s: float

    @property
    def alive(self) -> bool:
        """Return whether the reader still counts: it is durable, or its process runs."""
        return self.pid is None or is_alive(self.pid, self.started)

    @property
    def reading(self) -> bool:
        """Return whether a process reads for it now, as far as can be known.

        One that has not left, but is not found, may be gone or run in another container: it counts for a while.
        """
        if self.pid is not None:
            return self.alive
        if self.started is None:
            return False
        pid, _, started = self.started.partition(" ")
        return is_alive(int(pid), started or None) or self.age_s < _ABSENT_S


def read_capture(connection: apsw.Connection) -> Capture | None:
    """Return the capture of the database, None when none is set up."""
    if not connection.execute("SELECT 1 FROM sqlite_schema WHERE name = ?", (CAPTURE,)).get:
        return None
    row = connection.execute(f"SELECT capture, format, width, schema_version, owner FROM {CAPTURE}").fetchone()
    return Capture(*row) if row is not None else None


def window(connection: apsw.Connection) -> tuple[int, int]:
    """Return the numbers of the oldest and the newest row of the change table, which is never empty."""
    ((first, last),) = rows(connection, f"SELECT (SELECT min(id) FROM {CHANGE}), (SELECT max(id) FROM {CHANGE})")
    return first or 0, last or 0


def note(connection: apsw.Connection, version: int, code: ChangeCode, cell: int | None = None) -> None:
    """Add a row that no trigger wrote."""
    connection.execute(f"INSERT INTO {CHANGE}(h, c0) VALUES(?, ?)", (header(version, code), cell))


def load_versions(connection: apsw.Connection, *, live: bool) -> dict[int, TableVersion]:
    """Return the table versions by number, only those of existing tables when `live`."""
    found = rows(connection, f"SELECT v, body FROM {TABLE} WHERE v > 0{' AND live' if live else ''} ORDER BY v")
    return {number: decode_version(body) for number, body in found}


def user_trigger_versions(connection: apsw.Connection) -> frozenset[int]:
    """Return the versions of tables that have triggers of the user's."""
    return frozenset(number for (number,) in rows(connection, f"SELECT v FROM {TABLE} WHERE user_triggers"))


def save_version(connection: apsw.Connection, version: TableVersion, *, user_triggers: bool) -> None:
    """Keep a live version, new or changed."""
    connection.execute(
        f"INSERT OR REPLACE INTO {TABLE}(v, name, live, user_triggers, body) VALUES(?, ?, 1, ?, ?)",
        (version.version, version.name, int(user_triggers), encode_version(version)),
    )


def read_outline(connection: apsw.Connection) -> str | None:
    """Return what `save_outline` kept last."""
    found: str | None = connection.execute(f"SELECT body FROM {TABLE} WHERE v = 0").get
    return found


def save_outline(connection: apsw.Connection, outline: str) -> None:
    """Keep what the views and indexes look like, under the number that no version has."""
    connection.execute(
        f"INSERT OR REPLACE INTO {TABLE}(v, name, live, user_triggers, body) VALUES(0, '', 0, 0, ?)", (outline,)
    )


def next_numbers(connection: apsw.Connection, name: str) -> tuple[int, int]:
    """Return the number of a new version, and its rank among the versions of that table name, from 1."""
    version = connection.execute(f"SELECT ifnull(max(v), 0) + 1 FROM {TABLE}").get
    rank = connection.execute(f"SELECT count(*) + 1 FROM {TABLE} WHERE name = ?", (name,)).get
    return int(version), int(rank)


def read_readers(connection: apsw.Connection) -> list[ReaderRow]:
    """Return all readers, also those whose process is gone."""
    age_s = "(julianday('now') - seen) * 86400"
    found = rows(connection, f"SELECT name, confirmed, pid, started, seen, {age_s} FROM {READER} ORDER BY name")
    return [ReaderRow(*row) for row in found]


def add_reader(connection: apsw.Connection, reader: Reader) -> None:
    """Enter a reader that begins after the newest change, unless it is known; drop readers whose process is gone.

    A known one is read by this process from now on, or the one that it names.
    """
    for row in read_readers(connection):
        if not row.alive:
            connection.execute(f"DELETE FROM {READER} WHERE name = ?", (row.name,))
    pid = reader.pid or os.getpid()
    started = _started(pid)
    process = (pid, started) if reader.ephemeral else (None, f"{pid} {started or ''}")
    connection.execute(
        f"INSERT INTO {READER}(name, confirmed, pid, started, seen, mark) "
        f"VALUES(?, (SELECT max(id) FROM {CHANGE}), ?, ?, julianday('now'), ?) "
        "ON CONFLICT(name) DO UPDATE SET started = excluded.started, seen = excluded.seen "
        "WHERE started IS NOT excluded.started",
        (reader.name, *process, fresh_mark()),
    )


def upgrade_readers(connection: apsw.Connection) -> bool:
    """Add what earlier versions did not keep about readers; return whether anything was missing."""
    if any(name == "mark" for _, name, *_ in rows(connection, f"PRAGMA table_info({READER})")):
        return False
    connection.execute(f"ALTER TABLE {READER} ADD COLUMN mark TEXT")
    return True


def read_entry(connection: apsw.Connection, name: str) -> tuple[int, str | None] | None:
    """Return through which row a reader has confirmed, and the mark of the history up to there; None for no reader.

    The mark is None when an earlier version entered the reader.
    """
    found = rows(connection, f"SELECT * FROM {READER} WHERE name = ?", (name,))
    if not found:
        return None
    _, confirmed, _, _, _, *mark = found[0]  # a copy from before the upgrade has no mark
    return int(confirmed), mark[0] if mark else None


def mark_reader(connection: apsw.Connection, name: str, confirmed: int, mark: str) -> None:
    """Set through which row a reader has confirmed, and the mark of the history up to there."""
    connection.execute(f"UPDATE {READER} SET confirmed = ?, mark = ? WHERE name = ?", (confirmed, mark, name))


def leave_reader(connection: apsw.Connection, name: str) -> None:
    """Note that no process reads for a durable reader any more."""
    connection.execute(f"UPDATE {READER} SET started = NULL WHERE name = ?", (name,))


def is_alive(pid: int, started: str | None) -> bool:
    """Return whether the process that had this id when it `started` still runs."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    now = _started(pid)
    return started is None or now is None or now == started


def _started(pid: int) -> str | None:
    """Return when a process started, in the kernel's own unit; None where the system does not tell."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return text.rpartition(")")[2].split()[19]
