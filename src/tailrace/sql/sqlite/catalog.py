"""What a query's analysis must know about its database: base tables, views and a version of both. Pure."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from enum import StrEnum

from msgspec import Struct

from tailrace.sql.sqlite.affinity import Affinity

__all__ = [
    "ROWID_NAMES",
    "CatalogColumn",
    "CatalogTable",
    "CatalogView",
    "Footprint",
    "Rowid",
    "SqliteCatalog",
    "fold",
]

ROWID_NAMES = ("rowid", "_rowid_", "oid")
"""Names of the row number, where no column has them."""


class Rowid(StrEnum):
    """How a table numbers its rows beside its declared columns."""

    COLUMN = "column"
    """The row number is the declared column that `CatalogTable.rowid_column` names."""
    KEY = "key"
    """The row number is hidden and is the table's key: it identifies a row in the log."""
    HIDDEN = "hidden"
    """The row number is hidden and beside the key: the log does not tell when it changes."""
    NONE = "none"
    """Rows have no number."""


class CatalogColumn(Struct, frozen=True):
    """One column of a base table. `binary` tells that text compares by its code points: no other collation."""

    name: str
    affinity: Affinity = Affinity.NONE
    binary: bool = True
    generated: bool = False


class CatalogTable(Struct, frozen=True):
    """One base table.

    `name` is the name that the log gives it (`TableName.wire`). `ordering` names the columns that decide in which order
    the database may visit the rows: those of its indexes and of its key; None where that is any column. A table that
    is not `captured` has no changes in the log.
    """

    name: str
    columns: tuple[CatalogColumn, ...]
    key: tuple[str, ...] = ()
    rowid: Rowid = Rowid.NONE
    rowid_column: str = ""
    ordering: frozenset[str] | None = None
    captured: bool = True

    def column(self, name: str) -> CatalogColumn | None:
        """Return the column of that name, letters' case aside."""
        folded = fold(name)
        return next((column for column in self.columns if fold(column.name) == folded), None)


class CatalogView(Struct, frozen=True):
    """One view with the statement that made it (`CREATE VIEW …`)."""

    name: str
    sql: str


class Footprint(Struct, frozen=True):
    """What the database itself says a statement touches; never more than it does, perhaps less.

    It backs up our own reading of the statement: a table that it names is a dependency even where we saw none.
    """

    tables: frozenset[str]
    functions: frozenset[str] = frozenset()


class SqliteCatalog(ABC):
    """The schema of one SQLite database at one moment; see `tailrace.sql.query.Catalog`."""

    version: str

    @abstractmethod
    def table(self, name: str) -> CatalogTable | None:
        """Return the base table of that name, letters' case aside."""

    @abstractmethod
    def view(self, name: str) -> CatalogView | None:
        """Return the view of that name, letters' case aside."""

    @abstractmethod
    def tables(self) -> Iterable[CatalogTable]:
        """Return all base tables."""

    @abstractmethod
    def footprint(self, sql: str, arguments: int) -> Footprint | None:
        """Return what the database says that a statement with this many arguments touches; None if it cannot say.

        Raises:
            InvalidRequestError: The database does not take the statement, or it is not one that only reads.
        """


_UPPER = {ord(upper): ord(upper) + 32 for upper in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"}


def fold(name: str) -> str:
    """Return a name as it is compared: SQLite takes the letters A to Z as a to z, and no others."""
    return name.translate(_UPPER)
