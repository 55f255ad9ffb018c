"""What change streams need of a log, besides what subscriptions need."""

from collections.abc import Sequence
from typing import Protocol

from tailrace.model.number import Index, Offset
from tailrace.subscription.log_view import LogView

__all__ = ["CommitLog", "Commits"]


class CommitLog(LogView, Protocol):
    """The reading side of one shard's log, by commits, and the one hold that consumers have on its retention."""

    @property
    def last_index(self) -> Index:
        """Return the index of the newest durable commit; 0 when there is none."""

    @property
    def segment_indexes(self) -> Sequence[Index]:
        """Return the first index of each segment, oldest first."""

    @property
    def hlc_complete(self) -> int:
        """Return a hybrid timestamp up to which no commit will be shown any more that is not shown now."""

    @property
    def commits(self) -> "Commits":
        """Return what finds commits."""

    def hold(self, floor: Offset | None) -> None:
        """Let retention remove no change from `floor` on, whatever its rules; None lets it go by its rules."""


class Commits(Protocol):
    """Finds the commits of a log."""

    async def first_index(self) -> Index:
        """Return the index of the oldest commit of which all changes can be read; `last_index` + 1 when none."""

    async def offset_before(self, index: Index) -> Offset:
        """Return the offset after which a commit begins, the one that comes next included.

        Raises:
            BehindHorizonError: Changes of it were removed by retention.
            BeyondHeadError: Commits before it are not in the log yet.
        """

    async def index_after_hlc(self, hlc: int) -> Index | None:
        """Return the index of the first commit with a larger timestamp, the one that comes next included.

        None where that may have been a commit that retention has removed.
        """

    async def size_after(self, offset: Offset) -> int:
        """Return about how many bytes of the log follow a change."""
