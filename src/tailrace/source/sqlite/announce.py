"""Tells the log about table versions, each once and in order."""

from collections.abc import Iterable

from tailrace.model.number import SchemaId
from tailrace.model.table import TableSchema
from tailrace.source.base import SchemaRegistry
from tailrace.source.sqlite.table_version import TableVersion

__all__ = ["Announcer"]


class Announcer:
    """Keeps which schema number each table version has in one log."""

    def __init__(self, source: str, registry: SchemaRegistry) -> None:
        self._source = source
        self._registry = registry
        self.ids: dict[int, SchemaId] = {}
        self.schemas: dict[int, TableSchema] = {}

    async def announce(self, versions: Iterable[TableVersion]) -> None:
        """Enter versions that are new here, given with all older ones. The log has them on disk afterwards."""
        histories: dict[str, list[TableVersion]] = {}
        for version in sorted(versions, key=lambda version: version.version):
            histories.setdefault(version.name, []).append(version)
        for history in histories.values():
            if all(version.version in self.ids for version in history):
                continue
            told = [version.schema(self._source, version.number) for version in history]
            kept = await self._registry.put_schemas(told)
            for version, (number, schema) in zip(history, kept, strict=True):
                self.ids[version.version] = number
                self.schemas[version.version] = schema
