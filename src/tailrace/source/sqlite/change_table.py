"""The tables that capture adds to a database: their names, their layout, and the numbers in them. Pure.

    _tailrace_change    one row for each change and note, in order of `id`
        id   INTEGER PRIMARY KEY, dense; the newest row is never removed, so numbers are never reused
        h    8 * table version + code (`ChangeCode`)
        c0.. cells; untyped columns keep the storage class of every value
    _tailrace_table     the versions of captured tables that `h` refers to
    _tailrace_reader    who reads, how far each has confirmed, and the mark of the history up to there (`history`)
    _tailrace_capture   one row: the identity of this capture and the schema version it was last fitted to

A row of more than `CELLS_MAX` cells is written as several rows: the first one with its code, the others with `MORE`.
An insert or delete has the cells of the new or old row, an update those of the old row and then those of the new.
A note whose cell says `MIGRATION` begins a bulk load: what follows moves data, up to a note that says `MIGRATION_END`
or the end of the transaction. Anybody may write such notes into a transaction: `INSERT INTO _tailrace_change(h, c0)
VALUES(0, 'migration')`.

A candidate is noted *before* a row is written, one for each other row that stands in its way: the cells of that row,
then those of the row to be written. SQLite fires no trigger when REPLACE removes such a row; see `decode`.
"""

from enum import IntEnum
from typing import NamedTuple

from tailrace.model.errors import SourceStateError
from tailrace.model.number import Position

__all__ = [
    "CAPTURE",
    "CELLS_MAX",
    "CHANGE",
    "CODE_BITS",
    "FORMAT",
    "MIGRATION",
    "MIGRATION_END",
    "NEW_LOG",
    "PREFIX",
    "READER",
    "TABLE",
    "Border",
    "ChangeCode",
    "cell_names",
    "create_statements",
    "format_position",
    "header",
    "in_migration",
    "insert_statements",
    "mark_of",
    "marked",
    "parse_position",
    "quote",
]

PREFIX = "_tailrace_"
CHANGE = f"{PREFIX}change"
TABLE = f"{PREFIX}table"
READER = f"{PREFIX}reader"
CAPTURE = f"{PREFIX}capture"

FORMAT = 1
"""Version of this layout, kept in the database."""

CELLS_MAX = 32
"""Most cells in one row of the change table."""

CODE_BITS = 3

MIGRATION = "migration"
MIGRATION_END = "migration end"

NEW_LOG = "begin a new log with 'tailrace log reset', see docs/how-to/restore.md"
"""What to do when a log and a database do not belong together any more."""

_IN_MIGRATION = "m"
"""Follows the number of a position in the middle of a bulk load: what follows is part of it, too."""

_MARK = "."
"""Comes before the mark of a position."""


class Border(NamedTuple):
    """The last row of a transaction, and when that was committed, as near as we know."""

    number: int
    time_us: int


class ChangeCode(IntEnum):
    """What a row of the change table says. The numbers are in the triggers of live databases: they never change."""

    NOTE = 0
    INSERT = 1
    UPDATE = 2
    DELETE = 3
    INSERT_CANDIDATE = 4
    UPDATE_CANDIDATE = 5
    SCHEMA = 6
    MORE = 7


def header(version: int, code: ChangeCode) -> int:
    """Return the `h` of a row."""
    return version << CODE_BITS | code


def quote(identifier: str) -> str:
    """Return an identifier as SQL."""
    return '"' + identifier.replace('"', '""') + '"'


def cell_names(width: int) -> list[str]:
    """Return the names of the first cells."""
    return [f"c{number}" for number in range(width)]


def create_statements(width: int) -> list[str]:
    """Return the statements that make the tables."""
    cells = "".join(f", {name}" for name in cell_names(width))
    return [
        f"CREATE TABLE {CHANGE}(id INTEGER PRIMARY KEY, h{cells})",
        f"CREATE TABLE {TABLE}(v INTEGER PRIMARY KEY, name TEXT, live INTEGER, user_triggers INTEGER, body TEXT)",
        f"CREATE TABLE {READER}(name TEXT PRIMARY KEY, confirmed INTEGER, pid INTEGER, started TEXT, seen REAL, "
        "mark TEXT)",
        f"CREATE TABLE {CAPTURE}(capture TEXT, format INTEGER, width INTEGER, schema_version INTEGER, owner TEXT)",
    ]


def insert_statements(version: int, code: ChangeCode, cells: list[str], source: str = "") -> list[str]:
    """Return the statements that write one change whose cells are SQL expressions.

    `source` is what follows them: nothing in a trigger's VALUES, or ` FROM … WHERE …` that gives at most one row.
    """
    statements = []
    for start in range(0, len(cells), CELLS_MAX):
        part = cells[start : start + CELLS_MAX]
        names = ",".join(["h", *cell_names(len(part))])
        values = ",".join([str(header(version, ChangeCode.MORE if start else code)), *part])
        rows = f"SELECT {values}{source}" if source else f"VALUES({values})"
        statements.append(f"INSERT INTO {CHANGE}({names}) {rows}")
    return statements


def format_position(capture: str, number: int, *, migration: bool = False) -> Position:
    """Return the position of a row of the change table, perhaps in the middle of a bulk load."""
    return Position(f"{capture}-{number}{_IN_MIGRATION if migration else ''}")


def in_migration(position: Position) -> bool:
    """Tell whether a position is in the middle of a bulk load."""
    return position.partition(_MARK)[0].endswith(_IN_MIGRATION)


def marked(position: Position, mark: str) -> Position:
    """Return a position with the mark of the history up to it."""
    return Position(f"{position}{_MARK}{mark}")


def mark_of(position: Position) -> str | None:
    """Return the mark of a position; None for one that an earlier version wrote."""
    return position.partition(_MARK)[2] or None


def parse_position(position: Position, capture: str) -> int:
    """Return the number of the row that a position stands for.

    Raises:
        SourceStateError: It is not a position of this capture.
    """
    name, _, number = position.partition(_MARK)[0].removesuffix(_IN_MIGRATION).rpartition("-")
    if name != capture or not number.isdecimal():
        raise SourceStateError(
            f"the log ends at {position!r}, which is not a position of capture {capture!r} in this database: "
            f"capture was removed and set up again, or this is another database; {NEW_LOG}"
        )
    return int(number)
