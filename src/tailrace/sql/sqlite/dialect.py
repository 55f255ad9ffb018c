"""SQLite's dialect behind the seam. Pure.

What reads queries is imported when there is one: its parser takes half a second and 25 MB, which a server without
prepared queries does not need. `parse_query`, `query_of_tree` and `analyse` are where a statement begins; none of them
is for an event loop.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tailrace.model.table import Identity, TableSchema
from tailrace.model.value import Json, Value
from tailrace.sql.predicate import CellReader, RowPredicate
from tailrace.sql.query import Catalog, Dependencies, Judge, Statement, Stored
from tailrace.sql.sqlite.catalog import SqliteCatalog, fold
from tailrace.sql.sqlite.predicate.cells import cell_reader
from tailrace.sql.sqlite.predicate.compile import compile_where
from tailrace.sql.sqlite.predicate.sql import parse as parse_predicate
from tailrace.sql.sqlite.query.argument import bind
from tailrace.sql.sqlite.query.comparison import UNKNOWN, storage

if TYPE_CHECKING:
    from tailrace.sql.sqlite.query.dependency import QueryDependencies
    from tailrace.sql.sqlite.query.statement import Query

__all__ = ["SqliteDialect"]


class SqliteDialect:
    """Satisfies `tailrace.sql.dialect.Dialect`."""

    name = "sqlite"

    def fold(self, name: str) -> str:
        """Return a name with A to Z as a to z."""
        return fold(name)

    def check_where(self, text: str) -> None:
        """Refuse a predicate that cannot be read."""
        parse_predicate(text)

    def compile_where(self, text: str, schema: TableSchema) -> RowPredicate:
        """Return the predicate that an expression over a table's rows is."""
        return compile_where(text, schema)

    def cell_reader(self, columns: Sequence[str], schema: TableSchema) -> CellReader:
        """Return what reads columns of images as SQLite compares them."""
        return cell_reader(columns, schema)

    def parse_query(self, sql: str) -> "Query":
        """Return the statement of a query's text."""
        from tailrace.sql.sqlite.query.statement import parse

        return parse(sql)

    def query_of_tree(self, tree: Json, source: str) -> str:
        """Return the text of a query that came as a tree."""
        from tailrace.sql.sqlite.query.ast_form import to_sql

        return to_sql(tree, source)

    def analyse(self, statement: Statement, catalog: Catalog) -> "QueryDependencies":
        """Return what a query depends on."""
        from tailrace.sql.sqlite.query.dependency import analyse
        from tailrace.sql.sqlite.query.statement import Query

        assert isinstance(statement, Query)
        return analyse(statement, _own(catalog))

    def independent(self, catalog: Catalog) -> "QueryDependencies":
        """Return the dependencies of what depends on no table."""
        from tailrace.sql.sqlite.query.dependency import QueryDependencies

        return QueryDependencies((), catalog.version)

    def judge(self, dependencies: Dependencies, arguments: Sequence[Stored]) -> Judge:
        """Return what tells which changes matter."""
        from tailrace.sql.sqlite.query.dependency import QueryDependencies
        from tailrace.sql.sqlite.query.relevance import QueryJudge

        assert isinstance(dependencies, QueryDependencies)
        return QueryJudge(dependencies, arguments)

    def bind(self, arguments: Sequence[Value], expected: int) -> tuple[Stored, ...]:
        """Return arguments as SQLite binds them."""
        return bind(arguments, expected)

    def orders_as_bytes(self, schema: TableSchema, catalog: Catalog) -> bool:
        """Tell whether SQLite has the keys of a table in the order of their bytes.

        It has not where text is compared by another rule than its code points, nor where a key may be null: a
        comparison with null is neither true nor false.
        """
        if schema.identity is Identity.ROW_NUMBER:
            return True
        listed = _own(catalog).table(schema.table.wire)
        if listed is None or any(column.nullable for column in schema.key_columns):
            return False
        columns = [listed.column(name) for name in schema.key]
        return all(column is not None and column.binary for column in columns)

    def keeps(self, key: Sequence[Value], schema: TableSchema, catalog: Catalog) -> bool:
        """Tell whether the columns of a key have an affinity that leaves its values as they are."""
        listed = _own(catalog).table(schema.table.wire)
        columns = [None if listed is None else listed.column(name) for name in schema.key]
        pairs = zip(key, columns, strict=False)  # a hidden row number has no column
        return all(column is not None and storage(value, column.affinity) is not UNKNOWN for value, column in pairs)


def _own(catalog: Catalog) -> SqliteCatalog:
    """Return a catalog as what it is: the source that has this dialect gave it."""
    assert isinstance(catalog, SqliteCatalog)
    return catalog
