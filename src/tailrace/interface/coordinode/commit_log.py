"""What change streams need of a log, besides what subscriptions need."""

from collections.abc import Sequence
from typing import Protocol

from tailrace.model.number import Index, Offset
from tailrace.subscription.log_view import LogView

__all__ = ["CommitLog"]


class CommitLog(LogView, Protocol):
    """The reading side of one shard's log, by commits, and the hold that consumers have on its retention."""

    @property
    def segment_indexes(self) -> Sequence[Index]:
        """Return the first index of each segment, oldest first."""

    @property
    def hlc_complete(self) -> int:
        """Return a hybrid timestamp up to which no commit will be shown any more that is not shown now."""

    def hold(self, floor: Offset | None, *, holder: str = "") -> None:
        """Let retention remove no change from `floor` on, whatever its rules; None lets it go by its rules.

        Each holder has a floor of its own: the lowest counts.
        """
