"""Keeps out of the way of writers in rollback-journal mode, by looking at the files alone.

There a reader locks writers out: a commit during a read is refused, at once where the application has
no busy timeout. In WAL mode nobody waits for readers. So, without WAL, we read only when something was written, and not
while a transaction is being written, unless that lasts long.
"""

import time
from contextlib import suppress
from pathlib import Path

from tailrace.clock import Clock

__all__ = ["RollbackJournal"]

_MAGIC = bytes.fromhex("d9d505f920a163d7")
"""What the journal begins with while a transaction is written; see "The Rollback Journal" in SQLite's documentation."""

_LOOK_S = 0.25
"""How long to stay away from a transaction that is being written."""

_TRUST_S = 1.0
"""How long to trust that a file whose time is the same was not written."""

_STAMP_S = 0.02
"""How much later than another one a write must be to have another time for certain."""

_GAP_S = 0.02
_SPIN_S = 0.0005


class RollbackJournal:
    """Whether a program writes to a database just now. Used by one thread at a time."""

    def __init__(self, database: Path, clock: Clock) -> None:
        self._database = database
        self._wal = Path(f"{database}-wal")
        self._journal = Path(f"{database}-journal")
        self._clock = clock
        self._in_wal = False
        self._seen: tuple[int, int] | None = None
        self._looked_s = -_TRUST_S

    @property
    def in_wal(self) -> bool:
        """Return whether readers are in nobody's way. A database that is open cannot leave WAL mode."""
        self._in_wal = self._in_wal or self._wal.exists()
        return self._in_wal

    def reset(self) -> None:
        """Forget all: the database was closed."""
        self._in_wal = False
        self._seen = None

    def may_look(self) -> bool:
        """Return whether there may be something new that can be read without being in the way."""
        if self.in_wal:
            return True
        now_s = self._clock.monotonic_s()
        waited_s = now_s - self._looked_s
        stamp = self._stamp()
        if stamp is not None and stamp == self._seen and waited_s < _TRUST_S:
            return False
        if self.writing() and waited_s < _LOOK_S:
            return False
        # A write that follows at once may get the same time: such a stamp does not tell that there was none.
        self._seen = stamp if self._age_s(stamp) > _STAMP_S else None
        self._looked_s = now_s
        return True

    def wait_for_gap(self) -> None:
        """Wait for the end of the transaction that is being written, but not for long."""
        if self.in_wal:
            return
        deadline_s = self._clock.monotonic_s() + _GAP_S
        while self.writing() and self._clock.monotonic_s() < deadline_s:
            time.sleep(_SPIN_S)

    def writing(self) -> bool:
        """Return whether a transaction is being written, as far as the journal tells."""
        with suppress(OSError), self._journal.open("rb") as file:
            return file.read(len(_MAGIC)) == _MAGIC
        return False

    def rests(self, seconds: float) -> bool:
        """Return whether nobody has written for a while."""
        return self.in_wal or (not self.writing() and self._age_s(self._stamp()) > seconds)

    def _stamp(self) -> tuple[int, int] | None:
        with suppress(OSError):
            found = self._database.stat()
            return found.st_mtime_ns, found.st_size
        return None

    def _age_s(self, stamp: tuple[int, int] | None) -> float:
        return (self._clock.now_us() - stamp[0] // 1000) / 1e6 if stamp is not None else 0.0
