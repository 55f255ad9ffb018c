"""Tells the log about table versions, each once and in order."""

from collections.abc import Iterable, Sequence

from tailrace.model.number import SchemaId
from tailrace.model.table import TableName, TableSchema
from tailrace.source.base import SchemaRegistry
from tailrace.source.sqlite.table_version import TableVersion

__all__ = ["Announcer", "number_before"]


class Announcer:
    """Keeps which schema number each table version has in one log."""

    def __init__(self, source: str, registry: SchemaRegistry) -> None:
        self._source = source
        self._registry = registry
        self._before: dict[str, int] = {}
        self.ids: dict[int, SchemaId] = {}
        self.schemas: dict[int, TableSchema] = {}

    async def announce(self, versions: Iterable[TableVersion]) -> None:
        """Enter versions that are new here, oldest first. The log has them on disk afterwards."""
        ordered = sorted(versions, key=lambda version: version.version)
        for version in ordered:
            if version.version in self.ids:
                continue
            if version.name not in self._before:
                latest = self._registry.latest_schema(TableName(self._source, version.name))
                same_name = [other for other in ordered if other.name == version.name]
                self._before[version.name] = number_before(latest[1] if latest else None, same_name)
            schema = version.schema(self._source, version.number + self._before[version.name])
            self.ids[version.version] = await self._registry.put_schema(schema)
            self.schemas[version.version] = schema


def number_before(latest: TableSchema | None, versions: Sequence[TableVersion]) -> int:
    """Return by how much the log's version numbers of a table are ahead of the database's own.

    They are equal unless capture was removed and set up again: then the database counts from 1 again, and the log goes
    on from the last version it knows.
    """
    if latest is None:
        return 0
    source = latest.table.source
    same = [version.number for version in versions if version.schema(source, latest.version) == latest]
    if latest.version in same:
        return 0
    known = [number for number in same if number < latest.version]
    return latest.version - max(known) if known else latest.version
