"""Which table a name on the wires means. Pure."""

from collections.abc import Iterator, Mapping

from tailrace.model.errors import UnknownSourceError, UnknownTableError
from tailrace.model.table import TableName, TableSchema
from tailrace.subscription.log_view import LogView

__all__ = ["find_table", "readings"]


def find_table(logs: Mapping[str, LogView], source: str, wire: str) -> TableSchema:
    """Return the newest schema of the table that has this name on the wires: `table` or `schema.table`.

    Raises:
        UnknownSourceError: No such source.
        UnknownTableError: It has no such table.
    """
    log = logs.get(source)
    if log is None:
        raise UnknownSourceError(source)
    for name in readings(source, wire):
        latest = log.latest_schema(name)
        if latest is not None:
            return latest[1]
    raise UnknownTableError(source, wire)


def readings(source: str, wire: str) -> Iterator[TableName]:
    """Yield the tables that a name may mean: the bare one first, then every split at a dot."""
    yield TableName(source, wire)
    for place, letter in enumerate(wire):
        if letter == "." and place:
            yield TableName(source, wire[place + 1 :], wire[:place])
