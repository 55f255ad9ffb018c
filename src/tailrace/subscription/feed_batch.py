"""A batch of a feed: changes of the log with the filter that says which of them are wanted. Pure."""

from msgspec import Struct, structs

from tailrace.model.chunk import Chunk
from tailrace.model.errors import PredicateError
from tailrace.model.number import Offset
from tailrace.subscription.filter import Filter, Rows

__all__ = ["FeedBatch"]


class FeedBatch(Struct, frozen=True):
    """The next changes to look at: those of `chunk` after the offset `after`. Some, all or none pass the filter.

    Where the reader may not see all, the chunk holds what it may, and the filter says so by being another.
    """

    source: str
    chunk: Chunk
    filter: Filter
    after: Offset
    passing: Rows | None = None
    """The rows that pass, where that is known already."""

    def rows(self) -> Rows:
        """Return the rows that pass, of the *whole* chunk: the same for every feed with this filter."""
        return self.filter.select(self.chunk) if self.passing is None else self.passing

    def before_failure(self) -> "FeedBatch":
        """Return the changes before the first on which the filter fails, of those after `after`.

        For a batch whose `rows` fails. What failed at or before `after` is over: the reader has continued after it.

        Raises:
            PredicateError: It fails on the very next change.
        """
        begin = self.after + 1 - self.chunk.first
        passing, failing = 0, len(self.chunk) - begin + 1  # this many changes pass, this many do not
        failure: PredicateError | None = None
        while passing + 1 < failing:
            middle = (passing + failing) // 2
            try:
                self.filter.select(self._part(begin, middle))
                passing = middle
            except PredicateError as error:
                failing, failure = middle, error
        if passing == 0 and failure is not None:
            raise failure
        return structs.replace(self, chunk=self._part(begin, passing))

    def _part(self, begin: int, count: int) -> Chunk:
        return Chunk(self.chunk.batch.slice(begin, count), self.chunk.schemas)
