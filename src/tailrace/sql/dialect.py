"""Dialects: what a kind of database means by SQL. The rest of the server knows them by this seam alone.

A dialect promises to mean exactly what its database means. What it cannot promise it refuses when a client asks for it,
never later: a predicate when it is compiled, a query when it is parsed or analysed.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import NoReturn, Protocol

from tailrace.model.errors import InvalidPredicateError, InvalidRequestError
from tailrace.model.table import TableSchema
from tailrace.model.value import Json, Value
from tailrace.sql.predicate import CellReader, RowPredicate
from tailrace.sql.query import Catalog, Dependencies, Judge, Statement, Stored

__all__ = ["DIALECTS", "Dialect", "Dialects", "WithoutSql", "dialect_for", "dialect_of", "require_readable"]


class Dialect(Protocol):
    """The SQL of one kind of database. Pure, and the same for all sources of that kind."""

    @property
    def name(self) -> str:
        """Return its name, as `TableSchema.dialect` has it."""

    def fold(self, name: str) -> str:
        """Return a name of a table as the database compares it: names with equal results are the same table.

        The name is as the log has it, with its schema where that is not the default one (`TableName.wire`).
        """

    def check_where(self, text: str) -> None:
        """Refuse a predicate that no table could fit.

        Raises:
            InvalidPredicateError: It cannot be read, or the dialect has no predicates.
        """

    def compile_where(self, text: str, schema: TableSchema) -> RowPredicate:
        """Return the predicate that an expression over a table's rows is.

        Raises:
            InvalidPredicateError: It cannot be read, names what is not there, can never make sense, or the dialect
                cannot promise to mean what the database means by it.
        """

    def cell_reader(self, columns: Sequence[str], schema: TableSchema) -> CellReader:
        """Return what reads columns of a table's images as the equalities of predicates compare them."""

    def parse_query(self, sql: str) -> Statement:
        """Return the statement of a query's text. Takes a moment: not for an event loop.

        Raises:
            InvalidRequestError: It is not one statement that only reads, is too large, or the dialect has no queries.
        """

    def query_of_tree(self, tree: Json, source: str) -> str:
        """Return the text of a query that came as a tree of JSON (SkeinQL); its tables are those of the source.

        Takes a moment: not for an event loop.

        Raises:
            InvalidRequestError: The tree is malformed; the message begins with the place of the fault.
        """

    def analyse(self, statement: Statement, catalog: Catalog) -> Dependencies:
        """Return what a query depends on.

        Raises:
            InvalidRequestError: It names what is not there, or the database rejected it.
        """

    def independent(self, catalog: Catalog) -> Dependencies:
        """Return the dependencies of what depends on no table."""

    def judge(self, dependencies: Dependencies, arguments: Sequence[Stored]) -> Judge:
        """Return what tells which changes matter to a query with its arguments bound."""

    def bind(self, arguments: Sequence[Value], expected: int) -> tuple[Stored, ...]:
        """Return arguments as the database is given them.

        Raises:
            InvalidRequestError: There are more or fewer than expected, or the database has no such value.
        """

    def orders_as_bytes(self, schema: TableSchema, catalog: Catalog) -> bool:
        """Tell whether the database has the keys of a table in the order of their bytes (`ordered_key`)."""

    def keeps(self, key: Sequence[Value], schema: TableSchema, catalog: Catalog) -> bool:
        """Tell whether the key columns of a table keep these values as they are, converting none of them."""


class WithoutSql:
    """The dialect of a source that is only captured: it refuses all SQL. A dialect may begin as this one."""

    def __init__(self, name: str) -> None:
        self.name = name

    def fold(self, name: str) -> str:
        """Take all names for the same that may be: what was written to hide rows must not miss their table."""
        return name.casefold()

    def check_where(self, text: str) -> None:
        """Refuse the predicate."""
        raise InvalidPredicateError(
            f"there are no SQL predicates for {self.name} sources: write the condition in CEL", text=text, place=0
        )

    def compile_where(self, text: str, schema: TableSchema) -> RowPredicate:
        """Refuse the predicate."""
        self.check_where(text)
        raise AssertionError

    def cell_reader(self, columns: Sequence[str], schema: TableSchema) -> CellReader:
        """Return nothing: without predicates there are no equalities."""
        raise AssertionError("no predicate of this dialect exists")

    def parse_query(self, sql: str) -> Statement:
        """Refuse the query."""
        self._refuse_query()

    def query_of_tree(self, tree: Json, source: str) -> str:
        """Refuse the query."""
        self._refuse_query()

    def analyse(self, statement: Statement, catalog: Catalog) -> Dependencies:
        """Refuse the query."""
        self._refuse_query()

    def independent(self, catalog: Catalog) -> Dependencies:
        """Refuse the query."""
        self._refuse_query()

    def judge(self, dependencies: Dependencies, arguments: Sequence[Stored]) -> Judge:
        """Refuse the query."""
        self._refuse_query()

    def bind(self, arguments: Sequence[Value], expected: int) -> tuple[Stored, ...]:
        """Refuse the query."""
        self._refuse_query()

    def orders_as_bytes(self, schema: TableSchema, catalog: Catalog) -> bool:
        """Promise nothing."""
        return False

    def keeps(self, key: Sequence[Value], schema: TableSchema, catalog: Catalog) -> bool:
        """Promise nothing."""
        return False

    def _refuse_query(self) -> NoReturn:
        raise InvalidRequestError(f"there are no queries for {self.name} sources: subscribe to tables instead")


Dialects = Mapping[str, Dialect]
"""The dialect of each source, by the source's name."""


def _sqlite() -> Dialect:
    from tailrace.sql.sqlite.dialect import SqliteDialect

    return SqliteDialect()


def _postgresql() -> Dialect:
    from tailrace.sql.postgres.dialect import PostgresDialect

    return PostgresDialect()


DIALECTS: Mapping[str, Callable[[], Dialect]] = {"sqlite": _sqlite, "postgresql": _postgresql}
"""Makes the dialect of each name."""


@cache
def dialect_of(name: str) -> Dialect:
    """Return the dialect of a name; one that refuses all SQL where there is none of that name."""
    make = DIALECTS.get(name)
    return WithoutSql(name) if make is None else make()


def dialect_for(source: str, dialects: Dialects) -> Dialect:
    """Return the dialect of a source; one that refuses all SQL where it is not known."""
    return dialects.get(source) or WithoutSql("unknown")


def require_readable(text: str, dialects: Sequence[Dialect]) -> None:
    """Refuse a predicate that none of these dialects can read; where there are none, none that there is.

    Raises:
        InvalidPredicateError: None can; the error is that of the first.
    """
    refusals: list[InvalidPredicateError] = []
    candidates = dialects or [dialect_of(name) for name in DIALECTS]
    for dialect in candidates:
        try:
            dialect.check_where(text)
        except InvalidPredicateError as error:
            refusals.append(error)
    if len(refusals) == len(candidates):
        raise refusals[0]
