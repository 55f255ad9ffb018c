"""What a subscription may ask for, checked against the tables as they are now. Pure."""

from collections.abc import Mapping

from tailrace.model.errors import InvalidRequestError, UnknownSourceError, UnknownTableError
from tailrace.model.subscription import FilterOptions, SourceTarget, TableTarget
from tailrace.model.table import TableName, TableSchema
from tailrace.subscription.filter import compile_filter
from tailrace.subscription.log_view import LogView
from tailrace.subscription.predicate.sql import parse
from tailrace.subscription.source_filter import SourceFilter

__all__ = ["accept_source", "accept_tables"]


def accept_tables(target: TableTarget, options: FilterOptions, logs: Mapping[str, LogView], dialect: str) -> str:
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
        compile_filter(frozenset(target.tables), options, schema, dialect)
    return source


def accept_source(target: SourceTarget, options: FilterOptions, logs: Mapping[str, LogView], dialect: str) -> None:
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
        parse(options.where, dialect)
    wanted = SourceFilter(target, options, dialect)
    newest: dict[TableName, TableSchema] = {}
    for schema in log.schemas().values():
        if wanted.wants(schema.table) and schema.version >= newest.get(schema.table, schema).version:
            newest[schema.table] = schema
    misfit: InvalidRequestError | None = None
    for schema in newest.values():
        try:
            compile_filter(wanted.tables, options, schema, dialect)
        except InvalidRequestError as error:
            misfit = misfit or error
            if target.names:
                raise
        else:
            if not target.names:
                return
    if misfit is not None:
        raise misfit
