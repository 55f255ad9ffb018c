"""What operators do to capture in a database, and what is reported to them. Imports nothing heavy."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Protocol

from msgspec import Struct

__all__ = ["Administration", "CaptureStatus", "Finding", "ReaderStatus", "Severity"]


class ReaderStatus(Struct, frozen=True):
    """One reader: how many changes wait for it, whether it still counts, and whether a process reads for it now.

    `waiting_bytes` is how much of its log a server keeps for it, where it counts bytes and not changes.
    """

    name: str
    waiting: int
    ephemeral: bool
    alive: bool
    reading: bool
    waiting_bytes: int | None = None


class CaptureStatus(Struct, frozen=True):
    """What capture is doing in a database. Without capture, all is empty. A kind may add fields of its own."""

    capture: str | None
    tables: tuple[str, ...] = ()
    waiting: int = 0
    size_bytes: int = 0
    readers: tuple[ReaderStatus, ...] = ()

    def facts(self) -> Mapping[str, str]:
        """Return what a kind has added, by labels for people."""
        return {}


class Severity(StrEnum):
    """How bad a finding is. Only a problem keeps capture from working."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


class Finding(Struct, frozen=True, omit_defaults=True):
    """One thing that was checked: what is the case, and what to do about it unless it is all right."""

    check: str
    severity: Severity
    message: str
    remedy: str = ""


class Administration(Protocol):
    """What an operator does to capture in one database. Blocking.

    Every method raises `SourceStateError` where the database does not allow it, and `SourceUnavailableError` where it
    cannot be reached.
    """

    def set_up(self) -> Sequence[str]:
        """Set capture up: from now on every write of any process is recorded. Safe to repeat. Return advice."""

    def remove(self, *, force: bool) -> bool:
        """Remove all that capture added, also changes that nobody has read. Return whether there was any.

        Raises:
            SourceStateError: Someone reads it now, who would fail; unless `force`.
        """

    def remove_reader(self, name: str, *, force: bool) -> None:
        """Forget a reader that will not come back, so that changes are no longer kept for it.

        Raises:
            NotFoundError: There is no such reader.
            SourceStateError: It reads now; unless `force`.
        """

    def status(self) -> CaptureStatus:
        """Return what capture is doing; changes nothing."""

    def execute(self, sql: str, *, bulk: bool) -> None:
        """Run schema changes that capture is in the way of; with `bulk`, any statements, marked as moved data.

        Raises:
            InvalidRequestError: The statements are of another sort, or the database rejected one.
            SourceAbilityError: This kind of source has no use for it.
        """

    def doctor(self) -> Sequence[Finding]:
        """Return what is wrong or risky with the database for capture; changes nothing.

        What keeps the database from being looked at is a finding, not an error.
        """
