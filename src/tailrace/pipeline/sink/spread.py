"""The seam to sinks that tasks write: the changes of a batch stay with the tasks that have them.

A sink plans on the driver, gives functions that are run in tasks, over Arrow and picklable, and commits on the driver
what the tasks reported. Who runs the tasks is none of its business: `Spread` is.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Generic, Protocol, TypeVar

from msgspec import Struct

from tailrace.model.table import TableSchema
from tailrace.pipeline.sink.base import TableChanges

__all__ = ["Divide", "Spread", "SpreadBatch", "Tally", "TaskResults", "TaskWriting"]

_T = TypeVar("_T")
_I = TypeVar("_I")

Divide = Callable[[TableChanges], Iterator[tuple[int, TableChanges]]]
"""Cuts changes into buckets, from 0: yields each with its number."""


class Tally(Struct, frozen=True):
    """What a run over the changes of a batch met."""

    offset: int = 0
    """Highest offset of the changes; 0 where there are none."""

    counts: dict[str, int] = {}
    """Rows by the name of what they were read from."""

    @property
    def rows(self) -> int:
        """Return how many rows there are."""
        return sum(self.counts.values())


class TaskResults(Struct, Generic[_T], frozen=True):
    """What the tasks of a run made, and what they met."""

    results: list[_T]
    tally: Tally


class Spread(Protocol):
    """The changes of one batch, which tasks have. They are the same each time, and may be cut otherwise.

    What is run in tasks may be run twice, of which one counts, and may be run in another process: it is picklable, and
    leaves nothing behind but files that nobody refers to. An error of ours in a task is raised here.
    """

    def each(self, work: Callable[[Iterator[TableChanges]], Iterator[_T]]) -> TaskResults[_T]:
        """Run `work` in each task over the changes that it has."""

    def gathered(
        self, divide: Divide, buckets: int, work: Callable[[int, list[TableChanges]], Iterator[_T]]
    ) -> TaskResults[_T]:
        """Bring the changes of each bucket together, and run `work` over each bucket that has any."""

    def over(self, items: Sequence[_I], work: Callable[[_I], Iterator[_T]]) -> list[_T]:
        """Run `work` over each item, in tasks."""


class SpreadBatch(Struct, frozen=True):
    """What a sink is given at once when tasks have the changes; see `Batch`."""

    pipeline: str
    number: int
    source: str
    changes: Spread
    changes_max: int
    """About how many changes there may be, to cut the work by."""

    offset: int | None = None
    """Last offset that is in the sink after this batch; None for the highest of the changes."""

    fresh: bool = False
    """Whether these are rows of a snapshot of which the sink can have none."""

    proceed: Callable[[], None] | None = None
    """To be called before each commit: it raises when this worker may write no more."""


class TaskWriting(Protocol):
    """A sink that tasks can write. What it promises of `apply` it promises of `apply_spread`."""

    def takes_spread(self, schemas: Sequence[TableSchema]) -> bool:
        """Tell whether batches of these tables can be spread. If not, `apply` takes them."""

    def apply_spread(self, batch: SpreadBatch) -> Tally:
        """Apply one batch, wholly or not at all; nothing happens where the sink has its changes. See `Sink.apply`."""
