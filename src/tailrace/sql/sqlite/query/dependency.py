"""What a query's result depends on: mentions of base tables, with the columns read and the rows that matter. Pure.

Sound first. Where the query is not understood it depends on every table with all columns; where the database names a
table that we did not see, that is a dependency too.
"""

from msgspec import Struct
from sqlglot import exp

from tailrace.model.errors import InvalidRequestError
from tailrace.sql.sqlite.catalog import CatalogTable, Footprint, Rowid, SqliteCatalog, fold
from tailrace.sql.sqlite.query.columns import Marker
from tailrace.sql.sqlite.query.condition import Condition
from tailrace.sql.sqlite.query.function import volatile_names
from tailrace.sql.sqlite.query.reader import QueryReader
from tailrace.sql.sqlite.query.relation import NotUnderstoodError, Reference
from tailrace.sql.sqlite.query.statement import Query

__all__ = ["Dependency", "QueryDependencies", "analyse"]


class Dependency(Struct, frozen=True):
    """One mention of a base table.

    `columns` are those whose values the result may depend on. `conditions` must all be possible for a row to matter;
    their columns are those of reference `reference`. With `every_update`, an update matters even if no column differs.
    """

    table: str
    columns: frozenset[str]
    conditions: tuple[Condition, ...] = ()
    reference: int = 0
    every_update: bool = False


class QueryDependencies(Struct, frozen=True):
    """Everything that one query depends on, as of one version of the catalog.

    `volatile` says why the result may change while no row does; empty where it cannot. `understood` is false where the
    query depends on whole tables because we could not follow it.
    """

    dependencies: tuple[Dependency, ...]
    catalog_version: str
    volatile: str = ""
    understood: bool = True

    @property
    def tables(self) -> tuple[str, ...]:
        """Return the names of the base tables, in order."""
        return tuple(sorted({dependency.table for dependency in self.dependencies}))


def analyse(statement: Query, catalog: SqliteCatalog) -> QueryDependencies:
    """Return what a query depends on.

    Raises:
        InvalidRequestError: It names a table that does not exist or lies outside the main schema, or the database does
            not take it.
    """
    footprint = catalog.footprint(statement.text, statement.arguments)
    if statement.tree is None and footprint is None:
        raise InvalidRequestError(f"the query cannot be read: {statement.problem}")
    reader = QueryReader(catalog)
    marker = Marker(reader)
    try:
        if statement.tree is None:
            raise NotUnderstoodError(statement.problem)
        marker.mark(statement.tree)
    except (NotUnderstoodError, RecursionError):
        return _whole_tables(statement, catalog, footprint)
    usages = [statement.usage, *reader.usages]
    choosing = marker.scalar or reader.recursive or any(usage.choosing for usage in usages)
    shown = {fold(column.name) for tree in [statement.tree, *reader.trees] for column in tree.find_all(exp.Column)}
    names = frozenset[str]().union(*(usage.names for usage in usages)) - shown
    for reference in reader.references:
        _mark_hidden(reference, names)
    _add_footprint(reader, footprint, catalog)
    functions = frozenset[str]().union(*(usage.functions for usage in usages), footprint.functions if footprint else ())
    dependencies = tuple(_dependency(reference, choosing=choosing) for reference in reader.references)
    volatile = _volatile(functions, [reference.table for reference in reader.references])
    if not volatile and any(reference.hidden_rowid for reference in reader.references):
        volatile = "it reads row numbers that are not a column"
    return QueryDependencies(dependencies, catalog.version, volatile)


def _whole_tables(statement: Query, catalog: SqliteCatalog, footprint: Footprint | None) -> QueryDependencies:
    """Return the dependencies of a query that we do not understand: every table, as views may hide any."""
    tables = [table for table in catalog.tables() if table.captured]
    functions = statement.usage.functions | (footprint.functions if footprint else frozenset())
    known = [catalog.table(name) for name in (footprint.tables if footprint else ())]
    volatile = _volatile(functions, [table for table in known if table is not None])
    if footprint is None and not volatile:
        volatile = "the query is not understood"
    dependencies = tuple(
        Dependency(
            table.name, frozenset(column.name for column in table.columns if not column.generated), every_update=True
        )
        for table in tables
    )
    return QueryDependencies(dependencies, catalog.version, volatile, understood=False)


def _dependency(reference: Reference, *, choosing: bool) -> Dependency:
    """Return what the analysis found about one reference.

    A query that chooses between rows depends on the order in which the database visits them: on the columns of all
    indexes, and on the row number. Where that is hidden, an update may change it unseen.
    """
    table = reference.table
    if choosing and table.ordering is None:
        reference.mark_all()
    elif choosing:
        for column in table.columns:
            if column.name in (table.ordering or ()):
                reference.mark(column)
    every_update = reference.hidden_rowid or (choosing and table.rowid is Rowid.HIDDEN)
    return Dependency(table.name, frozenset(reference.read), reference.conditions, reference.number, every_update)


def _mark_hidden(reference: Reference, names: frozenset[str]) -> None:
    """Mark columns whose names stand in a text while sqlglot's tree shows them nowhere as columns."""
    for column in reference.table.columns:
        if fold(column.name) in names:
            reference.mark(column)


def _add_footprint(reader: QueryReader, footprint: Footprint | None, catalog: SqliteCatalog) -> None:
    """Add those tables as a whole which the database says that the query touches while we saw them nowhere."""
    if footprint is None:
        return
    for name in sorted(footprint.tables - {reference.table.name for reference in reader.references}):
        table = catalog.table(name)
        if table is not None:
            extra = Reference(len(reader.references), table)
            extra.mark_all()
            reader.references.append(extra)


def _volatile(functions: frozenset[str], tables: list[CatalogTable]) -> str:
    names = volatile_names(functions)
    if names:
        return f"{names[0]}() may give another value each time"
    uncaptured = sorted(table.name for table in tables if not table.captured)
    return f"changes of {uncaptured[0]} are not captured" if uncaptured else ""
