"""Terms: which opening of a shard's log a commit belongs to. Pure."""

from bisect import bisect_right
from collections.abc import Sequence

from tailrace.model.number import Index

__all__ = ["Terms"]


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
