"""A registry of schemas in memory."""

from collections.abc import Sequence

from tailrace.log.schemas import numbered
from tailrace.model.number import SchemaId
from tailrace.model.table import TableName, TableSchema

__all__ = ["MemoryRegistry"]


class MemoryRegistry:
    """Keeps schemas like the log does, for sources under test."""

    def __init__(self) -> None:
        self.schemas: dict[SchemaId, TableSchema] = {}

    async def put_schemas(self, history: Sequence[TableSchema]) -> list[tuple[SchemaId, TableSchema]]:
        """Keep versions of one table's schema, numbered as the log does it."""
        known = [schema for schema in self.schemas.values() if schema.table == history[0].table]
        versions = numbered(known, history)
        for schema in versions:
            if schema not in known:
                self.schemas[SchemaId(len(self.schemas) + 1)] = schema
        ids = {schema: number for number, schema in self.schemas.items()}
        return [(ids[schema], schema) for schema in versions]

    def latest_schema(self, table: TableName) -> tuple[SchemaId, TableSchema] | None:
        """Return the newest known version of a table's schema."""
        known = [(number, schema) for number, schema in self.schemas.items() if schema.table == table]
        return max(known, key=lambda pair: pair[1].version, default=None)
