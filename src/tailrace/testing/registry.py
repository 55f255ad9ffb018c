"""A registry of schemas in memory."""

from tailrace.model.number import SchemaId
from tailrace.model.table import TableName, TableSchema

__all__ = ["MemoryRegistry"]


class MemoryRegistry:
    """Keeps schemas like the log does, for sources under test."""

    def __init__(self) -> None:
        self.schemas: dict[SchemaId, TableSchema] = {}

    async def put_schema(self, schema: TableSchema) -> SchemaId:
        """Keep a schema version; the same version gives the same number, another text under its number is a bug."""
        for number, known in self.schemas.items():
            if (known.table, known.version) == (schema.table, schema.version):
                assert known == schema, f"version {schema.version} of {schema.table.wire} was announced differently"
                return number
        number = SchemaId(len(self.schemas) + 1)
        self.schemas[number] = schema
        return number

    def latest_schema(self, table: TableName) -> tuple[SchemaId, TableSchema] | None:
        """Return the newest known version of a table's schema."""
        known = [(number, schema) for number, schema in self.schemas.items() if schema.table == table]
        return max(known, key=lambda pair: pair[1].version, default=None)
