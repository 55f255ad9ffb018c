"""What every predicate offers, whatever language it is written in. Pure."""

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Protocol

from msgspec import Struct

from tailrace.sql.query import Stored as SqlValue

__all__ = ["CellReader", "Equality", "Image", "Predicate", "RowPredicate", "SqlValue"]

CellReader = Callable[[bytes], Mapping[str, SqlValue]]
"""Reads some columns of an image; raises `PredicateError` on one that is not of the natural form."""


class Image(StrEnum):
    """Which row image a cell is of."""

    ROW = "row"
    """The row: each image in turn, or the newer one where the predicate speaks of before or after as well."""

    BEFORE = "before"
    AFTER = "after"


class Equality(Struct, frozen=True):
    """A condition that every passing change meets: this column has this value in this image.

    `Image.ROW` is either image of the change. The value is to be compared with what a `CellReader` reads.
    """

    image: Image
    column: str
    value: SqlValue


class Predicate(Protocol):
    """A compiled condition on changes of one table. Keeps nothing between calls: it may be shared.

    A cell that an image lacks, and the image before an update or a deletion where it is missing, were not sent by the
    source. A cell that is missing after an update has not changed: it is what it was before. Where nothing says what
    it was, the condition is undecided.
    """

    canonical: str
    """Equal for predicates that choose the same changes for the same reason: spaces, brackets and case aside."""

    columns: frozenset[str]
    """The columns that it reads."""

    costly: bool
    """Whether it is slow enough to be evaluated outside the event loop."""

    equalities: tuple[Equality, ...]
    """Conditions by which an index may find it: a change that surely does not meet all of them does not pass."""

    def select(self, ops: Sequence[int], befores: Sequence[bytes | None], afters: Sequence[bytes | None]) -> list[bool]:
        """Tell for each change whether it passes: also where that is undecided, so that nothing is lost.

        Schema changes pass: they have no row.

        Raises:
            PredicateError: It failed on one of them.
        """


class RowPredicate(Predicate, Protocol):
    """A predicate in SQL. `pairs` tells that it is about the change, by `before`, `after` or `op`, and not one row."""

    pairs: bool

    def decide(
        self, ops: Sequence[int], befores: Sequence[bytes | None], afters: Sequence[bytes | None]
    ) -> list[bool | None]:
        """Do what `select` does, with None for each change for which the source did not send what would decide.

        Raises:
            PredicateError: It failed on one of them.
        """
