"""What a subscription may ask for, checked against the tables as they are now. Pure."""

from collections.abc import Mapping

from tailrace.model.errors import InvalidRequestError, UnknownSourceError, UnknownTableError
from tailrace.model.subscription import FilterOptions, QueryTarget, SourceTarget, TableTarget
from tailrace.model.table import Column, TableName, TableSchema
from tailrace.model.value import from_literal
from tailrace.sql.dialect import Dialects, require_readable
from tailrace.subscription.filter import compile_filter
from tailrace.subscription.key_filter import KeyBounds
from tailrace.subscription.log_view import LogView
from tailrace.subscription.source_filter import SourceFilter
from tailrace.subscription.table import find_table

__all__ = ["accept_query", "accept_source", "accept_tables"]

_KEY_WIDTH_MAX = 64
_ANY_TABLE = TableSchema(
    TableName("", "any"),
    1,
    tuple(Column(f"k{number}") for number in range(_KEY_WIDTH_MAX)),
    tuple(f"k{number}" for number in range(_KEY_WIDTH_MAX)),
)
"""Stands for the tables of a query, of which each has a key of its own."""


def accept_tables(target: TableTarget, options: FilterOptions, logs: Mapping[str, LogView]) -> str:
    """Return the source of a target whose filter fits its tables.

    Raises:
        UnknownTableError: A table is not captured.
        InvalidRequestError: The tables are of several sources, or the filter asks for what a table does not have.
    """
    sources = {table.source for table in target.tables}
    if len(sources) != 1:
        raise InvalidRequestError("a subscription is for tables of one source")
    source = sources.pop()
    schemas = []
    for table in target.tables:
        latest = logs[source].latest_schema(table) if source in logs else None
        if latest is None:
            raise UnknownTableError(source, table.wire)
        schemas.append(latest[1])
    for schema in schemas:
        compile_filter(frozenset(target.tables), options, schema)
    return source


def accept_source(
    target: SourceTarget, options: FilterOptions, logs: Mapping[str, LogView], dialects: Dialects
) -> None:
    """Check that a filter fits each table that was asked for by name and is there, or where all are, some table.

    Raises:
        UnknownSourceError: There is no such source.
        InvalidPredicateError: The predicate cannot be read, or does not fit.
        InvalidRequestError: The filter asks for what a table does not have.
    """
    log = logs.get(target.source)
    if log is None:
        raise UnknownSourceError(target.source)
    if options.where is not None:
        require_readable(options.where, [dialects[target.source]] if target.source in dialects else [])
    wanted = SourceFilter(target, options)
    newest: dict[TableName, TableSchema] = {}
    for schema in log.schemas().values():
        if wanted.wants(schema.table) and schema.version >= newest.get(schema.table, schema).version:
            newest[schema.table] = schema
    misfit: InvalidRequestError | None = None
    for schema in newest.values():
        try:
            compile_filter(wanted.tables, options, schema)
        except InvalidRequestError as error:
            misfit = misfit or error
            if target.names:
                raise
        else:
            if not target.names:
                return
    if misfit is not None:
        raise misfit


def accept_query(target: QueryTarget, options: FilterOptions, logs: Mapping[str, LogView]) -> None:
    """Refuse a filter that is wrong whatever the table, or a predicate that fits none of a query's tables.

    Where a predicate does not fit one of them, no change of that table passes.

    Raises:
        InvalidRequestError: The filter is wrong.
    """
    for literal in options.key:
        from_literal(literal)
    if options.bounds is not None:
        KeyBounds(options.bounds, _ANY_TABLE)
    if options.where is None and options.cel is None:
        return
    problem: InvalidRequestError | None = None
    wanted = FilterOptions(options.ops, where=options.where, cel=options.cel)
    for table in target.tables:
        schema = find_table(logs, table.source, table.wire)
        try:
            compile_filter(frozenset(target.tables), wanted, schema)
        except InvalidRequestError as error:
            problem = problem or error
        else:
            return
    raise problem or InvalidRequestError("the query reads no table that a predicate could be about")
