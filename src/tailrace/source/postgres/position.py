"""Places in the write-ahead log of a PostgreSQL server, and whether a log may go on from one. Pure.

A position is `SYSTEM:TIMELINE:LSN`, e.g. `7573312345678901234:1:0/16B3748`: the number of the cluster, the timeline on
which the server wrote at that time, and the end of the last commit that the log has.
"""

import re
from collections.abc import Sequence

from msgspec import Struct

from tailrace.model.errors import SourceStateError
from tailrace.model.number import Position

__all__ = [
    "NEW_LOG",
    "Place",
    "Slot",
    "System",
    "format_lsn",
    "format_position",
    "parse_history",
    "parse_lsn",
    "parse_position",
    "require_resumable",
    "require_usable",
]

NEW_LOG = "begin a new log with 'tailrace log reset', see docs/how-to/restore.md"

_LSN = re.compile(r"([0-9A-Fa-f]{1,8})/([0-9A-Fa-f]{1,8})")
_POSITION = re.compile(r"(\d{1,20}):(\d{1,10}):([0-9A-Fa-f]{1,8}/[0-9A-Fa-f]{1,8})")
_HISTORY = re.compile(r"\s*(\d+)\s+([0-9A-Fa-f]+/[0-9A-Fa-f]+)")


class Place(Struct, frozen=True):
    """A position, taken apart."""

    system: int
    timeline: int
    lsn: int


class System(Struct, frozen=True):
    """The server as `IDENTIFY_SYSTEM` tells: its cluster, its timeline, and how far its log is on disk.

    `history` has the timelines before this one, each with the place where it was left.
    """

    system: int
    timeline: int
    flushed_lsn: int
    history: tuple[tuple[int, int], ...] = ()


class Slot(Struct, frozen=True):
    """A replication slot as the server shows it. `lost` is the server's reason where it is invalid; empty otherwise."""

    name: str
    plugin: str
    database: str
    confirmed_lsn: int
    restart_lsn: int = 0
    active_pid: int | None = None
    two_phase: bool = False
    lost: str = ""
    temporary: bool = False
    retained_bytes: int = 0
    safe_bytes: int | None = None
    lag_bytes: int = 0
    failover: bool = False


def parse_lsn(text: str) -> int:
    """Return the number of a place in the log that is written like `0/16B3748`.

    Raises:
        ValueError: It is not written so.
    """
    match = _LSN.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is no place in a log of PostgreSQL")
    return int(match[1], 16) << 32 | int(match[2], 16)


def format_lsn(lsn: int) -> str:
    """Return a place in the log as PostgreSQL writes it."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def format_position(system: int, timeline: int, lsn: int) -> Position:
    """Return a position."""
    return Position(f"{system}:{timeline}:{format_lsn(lsn)}")


def parse_position(position: Position) -> Place:
    """Return the parts of a position.

    Raises:
        SourceStateError: It is of another kind of source.
    """
    match = _POSITION.fullmatch(position)
    if match is None:
        raise SourceStateError(f"the log ends at {position!r}, which is no position of PostgreSQL; {NEW_LOG}")
    return Place(int(match[1]), int(match[2]), parse_lsn(match[3]))


def parse_history(text: str) -> tuple[tuple[int, int], ...]:
    """Return the timelines of a history file, each with the place where it was left."""
    found = (_HISTORY.match(line) for line in text.splitlines())
    return tuple((int(match[1]), parse_lsn(match[2])) for match in found if match)


def require_usable(slot: Slot, database: str) -> None:
    """Look whether a slot can give us changes at all.

    Raises:
        SourceStateError: It cannot; the message says what to do.
    """
    drop = f"SELECT pg_drop_replication_slot('{slot.name}');"
    if slot.lost:
        raise SourceStateError(
            f"replication slot {slot.name} was invalidated by the server ({slot.lost}): changes that the log does not "
            f"have are gone. Drop it with {drop} then {NEW_LOG}"
        )
    if slot.plugin != "pgoutput":
        raise SourceStateError(
            f"replication slot {slot.name} uses {slot.plugin or 'physical replication'}, not pgoutput: "
            "name another one with the option slot"
        )
    if slot.database != database:
        raise SourceStateError(
            f"replication slot {slot.name} belongs to database {slot.database}: name another one with the option slot"
        )
    if slot.two_phase:
        raise SourceStateError(
            f"replication slot {slot.name} sends prepared transactions before they are committed (two_phase): "
            f"drop it with {drop} capture makes one without"
        )


def require_resumable(after: Place, system: System, slot: Slot) -> None:
    """Look whether the changes that follow a position can all be had from a slot.

    Raises:
        SourceStateError: Some cannot; the message says why.
    """
    shown = format_lsn(after.lsn)
    if after.system != system.system:
        raise SourceStateError(
            f"the log is of the PostgreSQL cluster {after.system}, and this one is {system.system}: it was made anew, "
            f"or the URL names another server; {NEW_LOG}"
        )
    left = _left_at(after.timeline, system)
    if left is None:
        raise SourceStateError(
            f"the log was written on timeline {after.timeline}, which is not in the history of timeline "
            f"{system.timeline}: the server was restored or another one was promoted; {NEW_LOG}"
        )
    if after.lsn > left:
        raise SourceStateError(
            f"the log has changes up to {shown}, and the server left timeline {after.timeline} at {format_lsn(left)}: "
            f"after a restore or a failover it does not have them; {NEW_LOG}"
        )
    if after.lsn > system.flushed_lsn:
        raise SourceStateError(
            f"the log has changes up to {shown}, and the server ends at {format_lsn(system.flushed_lsn)}: "
            f"it was restored from an older copy; {NEW_LOG}"
        )
    if slot.confirmed_lsn > after.lsn:
        raise SourceStateError(
            f"replication slot {slot.name} begins at {format_lsn(slot.confirmed_lsn)}, beyond the log's end {shown}: "
            f"it was dropped and made again, or someone else reads it, so changes are missing; {NEW_LOG}"
        )


def _left_at(timeline: int, system: System) -> int | None:
    """Return how far a timeline is a part of the server's history; None where it is none."""
    if timeline == system.timeline:
        return 2**64 - 1
    history: Sequence[tuple[int, int]] = system.history
    return next((left for number, left in history if number == timeline), None)
