"""The tables that a log knows of, as its source has announced them."""

from collections.abc import Callable, Mapping, Sequence

from msgspec import structs

from tailrace.model.number import SchemaId
from tailrace.model.table import TableName, TableSchema
from tailrace.source.base import SchemaRegistry
from tailrace.source.postgres.catalog import Catalog
from tailrace.source.postgres.pgoutput import Relation
from tailrace.source.postgres.table_shape import schema_of, shape_of
from tailrace.source.postgres.transactions import Learnt

__all__ = ["TableBook"]

_Put = Callable[[Sequence[TableSchema]], list[tuple[SchemaId, TableSchema]]]


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

    def begin(self) -> None:
        """Note that a stream begins: what was not confirmed is said again."""
        self._said.clear()

    def learn(self, catalog: Catalog, relation: Relation, type_names: Mapping[int, str], put: _Put) -> Learnt:
        """Return the shape of a table that the stream has described; `put` announces versions to the log."""
        facts = catalog.facts(relation, type_names)
        schema = schema_of(self._source, relation, facts)
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

    def handed_over(self, end_lsn: int) -> None:
        """Note that all news so far are in commits up to this place."""
        for number in self._said:
            if self._unsaid.get(number, 0) is None:
                self._unsaid[number] = end_lsn

    def confirmed(self, lsn: int) -> None:
        """Note that the log has everything up to this place."""
        if self._unsaid:
            self._unsaid = {number: end for number, end in self._unsaid.items() if end is None or end > lsn}
