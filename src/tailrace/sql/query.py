"""What every dialect tells of a query: its text, what it depends on, and which changes can touch its result. Pure.

Statements, catalogs and dependencies are made by a dialect and its source, and go back to the same dialect; what else
they hold is its own business.
"""

from collections.abc import Mapping
from typing import Protocol

from tailrace.model.op import Op
from tailrace.model.value import Value

__all__ = ["Catalog", "Dependencies", "Judge", "RowImage", "Statement", "Stored"]

Stored = None | int | float | str | bytes
"""A value as a database is given it and as predicates compare it. What has no such form is text, or is refused."""

RowImage = Mapping[str, Value]
"""A row image, decoded: column name to value."""


class Catalog(Protocol):
    """The schema of one database at one moment. It does not change; a changed schema is a new catalog."""

    @property
    def version(self) -> str:
        """Return a text that differs whenever a table, a view or an index differs."""


class Statement(Protocol):
    """One query that only reads. Two queries with the same text are the same and have the same `query_id`."""

    @property
    def text(self) -> str:
        """Return its canonical form, which is what the database runs."""

    @property
    def arguments(self) -> int:
        """Return how many arguments it takes."""

    @property
    def query_id(self) -> str:
        """Return the name of its text."""

    @property
    def ordered(self) -> bool:
        """Tell whether the order of rows belongs to the result."""


class Dependencies(Protocol):
    """Everything that one query depends on, as of one version of the catalog."""

    @property
    def tables(self) -> tuple[str, ...]:
        """Return the base tables by their names on the wires (`TableName.wire`) as the log has them, in order."""

    @property
    def catalog_version(self) -> str:
        """Return the version of the catalog."""

    @property
    def volatile(self) -> str:
        """Return why the result may change while no row does; empty where it cannot."""


class Judge(Protocol):
    """Judges changes for one query with its arguments bound. Safe to share: it keeps nothing of what it judged."""

    def concerns(self, table: str) -> bool:
        """Return whether the query depends on a table at all, by its name on the wire."""

    def columns(self, table: str) -> frozenset[str]:
        """Return the columns of a table that a judgement needs; images may lack all others."""

    def relevant(self, table: str, op: Op, before: RowImage | None, after: RowImage | None) -> bool:
        """Return whether a change can touch the result; False is a proof that it cannot."""
