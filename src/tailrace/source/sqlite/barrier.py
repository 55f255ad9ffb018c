"""What an SQLite database has committed at the moment of a read transaction."""
# ruff: noqa: S608 (the statements are put together from our own constants)

import apsw
from msgspec import Struct

from tailrace.model.commit import CommitId
from tailrace.model.errors import SourceStateError
from tailrace.model.number import Position
from tailrace.source.base import Barrier, Reader
from tailrace.source.sqlite.change_table import CAPTURE, CHANGE, READER, ChangeCode, format_position, parse_position

__all__ = ["Look", "look", "reached"]

_CHANGES = (ChangeCode.INSERT, ChangeCode.UPDATE, ChangeCode.DELETE, ChangeCode.SCHEMA)
"""Rows of the change table that become changes in the log; all others wait for one of these or mean nothing."""

_NEWEST = (
    f"SELECT id FROM {CHANGE} WHERE h & 7 IN ({', '.join(str(int(code)) for code in _CHANGES)}) "
    "ORDER BY id DESC LIMIT 1"
)


class Look(Struct, frozen=True):
    """What one look found. `last` is the newest row of the change table, whether it becomes a change or not."""

    barrier: Barrier
    capture: str
    last: int

    def contains(self, commit: CommitId) -> bool:
        """Tell whether a commit was there already."""
        try:
            return parse_position(commit.position, self.capture) <= self.last
        except SourceStateError:
            return False


def look(connection: apsw.Connection, reader: Reader) -> Look | None:
    """Return what the transaction of a connection sees; None while capture does not fit the schema."""
    version = int(connection.pragma("schema_version"))
    if not connection.execute("SELECT 1 FROM sqlite_schema WHERE name = ?", (CAPTURE,)).get:
        return None
    capture, fitted = connection.execute(f"SELECT capture, schema_version FROM {CAPTURE}").fetchone() or ("", -1)
    if fitted != version:
        return None
    newest = connection.execute(_NEWEST).get
    last = connection.execute(f"SELECT max(id) FROM {CHANGE}").get
    confirmed = connection.execute(f"SELECT confirmed FROM {READER} WHERE name = ?", (reader.name,)).get
    if confirmed is None:
        return None
    position = None if newest is None or newest <= confirmed else format_position(capture, newest)
    return Look(Barrier(position, str(version)), capture, last or 0)


def reached(barrier: Barrier, position: Position | None) -> bool:
    """Tell whether a log that ends at `position` has everything that the barrier stands for."""
    if barrier.position is None:
        return True
    if position is None:
        return False
    capture, _, number = barrier.position.rpartition("-")
    try:
        return parse_position(position, capture) >= int(number)
    except SourceStateError:
        return False
