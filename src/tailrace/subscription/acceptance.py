"""What a subscription may ask for, checked against the tables as they are now. Pure."""

from collections.abc import Mapping

from tailrace.model.errors import InvalidRequestError, UnknownTableError
from tailrace.model.subscription import FilterOptions, TableTarget
from tailrace.subscription.filter import compile_filter
from tailrace.subscription.log_view import LogView

__all__ = ["accept_tables"]


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
