"""One source as pullers of ranges see it."""

from typing import Protocol

from msgspec import Struct

from tailrace.model.errors import SourceAbilityError
from tailrace.model.number import Offset
from tailrace.source.base import CAPTURE_ONLY, QuerySource
from tailrace.subscription.query.tracker import QueryLog

__all__ = ["RangeLog", "RangeShard"]


class RangeLog(QueryLog, Protocol):
    """What pullers need of a log: they hold its retention back."""

    def hold(self, floor: Offset | None, *, holder: str = "") -> None:
        """Keep retention from removing changes from `floor` on; None lets its rules apply.

        Each holder has a floor of its own: the lowest counts.
        """


class RangeShard(Struct, frozen=True):
    """A source: its number, its name, its reading side, None where it has none, and its log."""

    number: int
    name: str
    reads: QuerySource | None
    log: RangeLog

    @property
    def source(self) -> QuerySource:
        """Return the reading side.

        Raises:
            SourceAbilityError: The source can only be captured.
        """
        if self.reads is None:
            raise SourceAbilityError(self.name, CAPTURE_ONLY)
        return self.reads
