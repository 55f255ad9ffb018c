"""One shard as change streams see it: its log by commits, its terms, its edge tables."""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from tailrace.interface.coordinode.options import EdgeTable
from tailrace.model.number import Index, Offset
from tailrace.subscription.log_view import LogView

__all__ = ["CommitLog", "StreamShard", "Terms"]


class Terms:
    """The terms of one shard, by the first index of each. A commit before all of them is of the first."""

    def __init__(self, begun: Sequence[tuple[Index, int]]) -> None:
        assert begun
        self._firsts = [first for first, _ in begun]
        self._terms = [term for _, term in begun]

    @property
    def current(self) -> int:
        """Return the term of commits to come."""
        return self._terms[-1]

    def of(self, index: Index) -> int:
        """Return the term of a commit."""
        return self._terms[max(0, bisect_right(self._firsts, index) - 1)]


class CommitLog(LogView, Protocol):
    """The reading side of one shard's log, by commits, and the hold that consumers have on its retention."""

    @property
    def segment_indexes(self) -> Sequence[Index]:
        """Return the first index of each segment, oldest first."""

    @property
    def hlc_complete(self) -> int:
        """Return a hybrid timestamp up to which no commit will be shown any more that is not shown now."""

    def hold(self, floor: Offset | None, *, holder: str = "") -> None:
        """Keep retention from removing changes from `floor` on; None lets its rules apply.

        Each holder has a floor of its own: the lowest counts.
        """


class StreamShard(Struct, frozen=True):
    """A shard: its number, the source that it holds the log of, its terms, and which of its tables hold edges."""

    number: int
    source: str
    log: CommitLog
    terms: Terms
    edges: Mapping[str, EdgeTable] = {}
