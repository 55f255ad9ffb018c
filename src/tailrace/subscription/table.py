"""Which table a name on the wires means. Pure."""

from collections.abc import Iterator, Mapping

from tailrace.model.errors import UnknownSourceError, UnknownTableError
from tailrace.model.table import TableName, TableSchema
from tailrace.subscription.log_view import LogView

__all__ = ["find_table", "known_table", "readings"]


def find_table(logs: Mapping[str, LogView], source: str, wire: str) -> TableSchema:
    """Return the newest schema of the table that has this name on the wires: `table` or `schema.table`.

    Raises:
        UnknownSourceError: No such source.
        UnknownTableError: It has no such table.
    """
    log = logs.get(source)
    if log is None:
        raise UnknownSourceError(source)
    latest = log.latest_schema(known_table(log, source, wire))
    if latest is None:
        raise UnknownTableError(source, wire)
    return latest[1]


def known_table(log: LogView, source: str, wire: str) -> TableName:
    """Return the first table that a name may mean of those that a log knows; the bare one where it knows none."""
    found = (table for table in readings(source, wire) if log.latest_schema(table) is not None)
    return next(found, TableName(source, wire))


def readings(source: str, wire: str) -> Iterator[TableName]:
    """Yield the tables that a name may mean: the bare one first, then every split at a dot."""
    yield TableName(source, wire)
    for place, letter in enumerate(wire):
        if letter == "." and place:
            yield TableName(source, wire[place + 1 :], wire[:place])
