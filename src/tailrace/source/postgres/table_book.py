"""The tables that a log knows of, as its source has announced them."""

from collections.abc import Callable, Mapping, Sequence

from msgspec import structs

from tailrace.model.number import SchemaId
from tailrace.model.table import TableName, TableSchema
from tailrace.source.base import SchemaRegistry
from tailrace.source.postgres.catalog import Catalog
from tailrace.source.postgres.ddl_message import Ddl, is_drop, relation_of
from tailrace.source.postgres.pgoutput import Relation
from tailrace.source.postgres.table_shape import DEFAULT_SCHEMA, quoted_name, schema_of, shape_of
from tailrace.source.postgres.transactions import Learnt, SchemaChange

__all__ = ["TableBook"]

_Put = Callable[[Sequence[TableSchema]], list[tuple[SchemaId, TableSchema]]]


def _dropping(schema: TableSchema, sql: str) -> tuple[str, bool]:
    """Return the statement that removed a table, and whether it is derived: a table may go with its schema."""
    return (sql, False) if is_drop(sql) else (f"DROP TABLE {quoted_name(schema.table)}", True)


class TableBook:
    """Announces versions of tables to one log, and says which of them the log must hear of as a change.

    A table that the log knows stays as the log knows it until the stream describes it: changes that wait in the server
    were made with the older schema, and the catalog has the newest one. A version is news until the commit that says so
    is confirmed, also when the stream begins again meanwhile.
    """

    def __init__(self, source: str, registry: SchemaRegistry) -> None:
        self._source = source
        self._registry = registry
        self._unsaid: dict[SchemaId, int | None] = {}
        """Versions that are news, and where the commit that says so ends; None before that is known."""

        self._said: set[SchemaId] = set()
        self._gone: set[TableName] = set()
        self._names: dict[int, TableName] = {}
        """What relations were called when we last heard of them."""

        self.live: dict[TableName, TableSchema] = {}

    async def announce(self, schemas: Sequence[TableSchema]) -> None:
        """Announce the tables that there are now, but those that the log knows."""
        self.live.clear()
        for schema in schemas:
            known = self._registry.latest_schema(schema.table)
            if known is None:
                ((_, kept),) = await self._registry.put_schemas([schema])
                known = (SchemaId(0), kept)
            self.live[schema.table] = known[1]

    def know(self, tables: Mapping[int, TableName]) -> None:
        """Note what relations are called now."""
        self._names.update(tables)

    def begin(self) -> None:
        """Note that a stream begins: what was not confirmed is said again."""
        self._said.clear()

    def learn(self, catalog: Catalog, relation: Relation, type_names: Mapping[int, str], put: _Put) -> Learnt:
        """Return the shape of a table that the stream has described; `put` announces versions to the log."""
        facts = catalog.facts(relation, type_names)
        schema = schema_of(self._source, relation, facts)
        self._names[relation.oid] = schema.table
        known = self._registry.latest_schema(schema.table)
        if known is not None and structs.replace(known[1], version=1) == schema:
            number, kept = known
        else:
            ((number, kept),) = put([schema])
            self._unsaid[number] = None
        self.live[schema.table] = kept
        news = number in self._unsaid and number not in self._said
        if news:
            self._said.add(number)
        return Learnt(shape_of(kept, number, relation, facts), news)

    def hear(self, catalog: Catalog, publication: str, ddl: Ddl, put: _Put) -> list[SchemaChange]:
        """Return what a statement is announced as: tables that are new or changed, and such as have lost their name."""
        said = []
        with_generated = catalog.publishes_generated(publication) if ddl.tables else False
        for table in ddl.tables:
            if catalog.publishes_whole(publication, table.oid):
                said += self._hear_of(catalog, relation_of(table, with_generated=with_generated), ddl.sql, put)
        for gone in ddl.dropped:
            name = TableName(self._source, gone.name, "" if gone.schema == DEFAULT_SCHEMA else gone.schema)
            known = self._registry.latest_schema(name)
            if known is not None:
                self._names.pop(gone.oid, None)
                self._gone.add(name)
                self.live.pop(name, None)
                said.append(SchemaChange(known[0], *_dropping(known[1], ddl.sql), dropped=True))
        return said

    def _hear_of(self, catalog: Catalog, relation: Relation, sql: str, put: _Put) -> list[SchemaChange]:
        before = self._names.get(relation.oid)
        learnt = self.learn(catalog, relation, {}, put)
        schema = learnt.shape.schema
        said = []
        old = None if before is None or before == schema.table else self._registry.latest_schema(before)
        if before is not None and old is not None:
            self.live.pop(before, None)
            said.append(SchemaChange(old[0], sql, renamed=schema.table.wire))
        if learnt.news or schema.table in self._gone:  # one that is made again may be as it was
            self._gone.discard(schema.table)
            # A text that begins with another statement must not look like the end of this table.
            derived = is_drop(sql)
            said.append(SchemaChange(learnt.shape.number, schema.ddl if derived else sql, derived=derived))
        return said

    def handed_over(self, end_lsn: int) -> None:
        """Note that all news so far are in commits up to this place."""
        for number in self._said:
            if self._unsaid.get(number, 0) is None:
                self._unsaid[number] = end_lsn

    def confirmed(self, lsn: int) -> None:
        """Note that the log has everything up to this place."""
        if self._unsaid:
            self._unsaid = {number: end for number, end in self._unsaid.items() if end is None or end > lsn}
