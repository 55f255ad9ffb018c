"""What capture has received, for those who read rows: which commits a reader's transaction sees.

A server makes commits visible in another order than it writes them down: one that has its place in the write-ahead log
may still wait for a disk or a standby while later ones are seen. So a place in the log does not say what a transaction
sees, and the transaction's own list of those that still run does. `CommitWatch.cut` compares it with the commits that
capture has received, and finds the place up to which all are seen and after which none is, or says that there is none.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from msgspec import Struct

from tailrace.model.commit import CommitId, Draft, Progress
from tailrace.model.errors import SourceStateError
from tailrace.model.number import Position
from tailrace.model.table import TableName, TableSchema
from tailrace.source.base import Barrier
from tailrace.source.postgres.position import parse_position

__all__ = ["CommitWatch", "Look", "Seen"]

_COMMITS_MAX = 65_536
"""Commits that are remembered while nobody reads. Older ones count as seen by all."""

_EPOCH = 1 << 32
_HALF_EPOCH = 1 << 31


class Seen(Struct, frozen=True):
    """What one transaction sees: its `pg_current_snapshot()`, and how far the server's log was just after it."""

    xmax: int
    running: frozenset[int]
    lsn: int
    catalog: str

    def sees(self, xid: int) -> bool:
        """Tell whether it sees a transaction that was committed, by the 32-bit number that the stream has of it.

        Numbers in use are never further apart than half an epoch, so the nearest one to our own is meant.
        """
        full = self.xmax - self.xmax % _EPOCH + xid
        if full > self.xmax + _HALF_EPOCH:
            full -= _EPOCH
        elif full < self.xmax - _HALF_EPOCH:
            full += _EPOCH
        return full < self.xmax and full not in self.running


class Look(Struct, frozen=True):
    """What rows contain: all commits up to a place in the log of one cluster, and none after it."""

    barrier: Barrier
    system: int
    lsn: int

    def contains(self, commit: CommitId) -> bool:
        """Tell whether a commit is in the rows."""
        try:
            place = parse_position(commit.position)
        except SourceStateError:
            return False
        return place.system == self.system and place.lsn <= self.lsn


class _Commit(Struct, frozen=True):
    lsn: int
    xid: int
    position: Position


class CommitWatch:
    """Remembers the commits that capture hands over, until every reader sees them. Safe for many threads."""

    def __init__(self) -> None:
        self.find_schema: Callable[[TableName], TableSchema | None] = lambda _: None
        """Returns the newest version of a table's schema that the log has."""

        self._moved = threading.Condition()
        self._waiting = 0
        self._arrived: deque[tuple[Position, int]] = deque()
        self._commits: deque[_Commit] = deque()
        self._reached: Position | None = None
        self._settled: Position | None = None
        """The last commit that is no longer remembered."""

        self._tickets = 0
        self._readers: set[int] = set()
        self._prunable: tuple[int, int] | None = None
        """A place up to which a reader sees everything, and the last reader who may have begun before it did."""

    # For capture

    def begin(self, after: Position | None) -> None:
        """Note that a stream begins after a position. What had come beyond it comes again, or was lost."""
        with self._moved:
            self._gather()
            if after is None or self._system_of(self._reached) not in {None, parse_position(after).system}:
                self._commits.clear()
                self._settled = None
            else:
                end = parse_position(after).lsn
                self._commits = deque(commit for commit in self._commits if commit.lsn <= end)
                if self._settled is not None and parse_position(self._settled).lsn > end:
                    self._settled = after
            self._reached = after
            self._moved.notify_all()

    def note(self, group: Sequence[Draft] | Progress) -> None:
        """Note what came. Runs once for each group, in the reading thread of capture: it does little."""
        if isinstance(group, Progress):
            reached = group.position
        else:
            self._arrived.extend([(draft.position, draft.txid) for draft in group if not draft.more])
            if group[-1].more:
                return
            reached = group[-1].position
        self._reached = reached
        if self._waiting or len(self._arrived) > _COMMITS_MAX:
            with self._moved:
                self._gather()
                self._moved.notify_all()

    # For readers

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Have what comes remembered for a reader whose transaction begins inside."""
        with self._moved:
            self._tickets += 1
            ticket = self._tickets
            self._readers.add(ticket)
        try:
            yield
        finally:
            with self._moved:
                self._readers.discard(ticket)
                self._prune()

    def wait(self, lsn: int, deadline_s: float, stopping: threading.Event) -> bool:
        """Wait until capture has received all commits up to a place; tell whether it has."""
        with self._moved:
            self._waiting += 1
            try:
                while not self._has(lsn):
                    left_s = deadline_s - time.monotonic()
                    if left_s <= 0 or stopping.is_set():
                        return False
                    self._moved.wait(min(left_s, 0.05))
            finally:
                self._waiting -= 1
        return True

    def newest(self, lsn: int, catalog: str) -> Barrier:
        """Return the last commit up to a place that capture has reached; see `QuerySource.newest`."""
        with self._moved:
            self._gather()
            found = [commit.position for commit in self._commits if commit.lsn <= lsn]
            return Barrier(found[-1] if found else self._settled, catalog)

    def cut(self, seen: Seen) -> Look | None:
        """Return what a transaction sees of the log; None where that is no place in it, as it sees a later commit only.

        Capture has received everything up to `seen.lsn`.
        """
        with self._moved:
            self._gather()
            position = self._settled
            first_unseen: int | None = None
            for commit in self._commits:
                if commit.lsn > seen.lsn:
                    break
                if not seen.sees(commit.xid):
                    first_unseen = first_unseen or commit.lsn
                elif first_unseen is not None:
                    return None
                else:
                    position = commit.position
            end = seen.lsn if first_unseen is None else first_unseen - 1
            if self._prunable is None and position != self._settled:
                self._prunable = (end, self._tickets)
            system = self._system_of(self._reached)
            assert system is not None
            return Look(Barrier(position, seen.catalog), system, end)

    def _has(self, lsn: int) -> bool:
        return self._reached is not None and parse_position(self._reached).lsn >= lsn

    def _gather(self) -> None:
        """Take over what came; commits that came already come again where a stream begins again."""
        while self._arrived:
            position, xid = self._arrived.popleft()
            lsn = parse_position(position).lsn
            if not self._commits or lsn > self._commits[-1].lsn:
                self._commits.append(_Commit(lsn, xid, position))
        while len(self._commits) > _COMMITS_MAX:
            self._settled = self._commits.popleft().position

    def _prune(self) -> None:
        """Forget commits that all readers see, those of now and those to come."""
        if self._prunable is None or any(ticket <= self._prunable[1] for ticket in self._readers):
            return
        end, self._prunable = self._prunable[0], None
        while self._commits and self._commits[0].lsn <= end:
            self._settled = self._commits.popleft().position

    @staticmethod
    def _system_of(position: Position | None) -> int | None:
        return None if position is None else parse_position(position).system
