"""Filters of subscriptions to a source: tables by name, there or not, or all of them. Pure."""

from collections.abc import Iterator, Sequence

from tailrace.model.errors import PredicateError
from tailrace.model.number import SchemaId
from tailrace.model.subscription import FilterOptions, SourceTarget, TableTarget, Target
from tailrace.model.table import ANY_TABLE, TableName, TableSchema
from tailrace.sql.predicate import Equality
from tailrace.subscription.filter import Filter
from tailrace.subscription.row_filter import RowFilter
from tailrace.subscription.table import readings

__all__ = ["SourceFilter"]

_VERSIONS_KEPT = 4096
"""Compiled forms that a filter keeps: one for each version of each table."""


class SourceFilter(Filter):
    """Passes changes of the tables that have one of the names on the wires, or of all tables where there is no name.

    Where all tables are wanted, one that lacks what the options ask for has no changes that pass. A table that was
    asked for by name fails instead, like any filter that no longer fits.
    """

    __slots__ = ("_by_schema",)

    def __init__(self, target: Target, options: FilterOptions) -> None:
        assert isinstance(target, SourceTarget)
        super().__init__(TableTarget(tuple(_tables(target))), options)
        self._by_schema: dict[SchemaId, RowFilter] = {}

    def for_schema(self, schema_id: SchemaId, schema: TableSchema) -> RowFilter:
        """Return the filter as it is for changes under that schema version; see `Filter.for_schema`."""
        compiled = self._by_schema.get(schema_id)
        if compiled is None:
            if len(self._by_schema) >= _VERSIONS_KEPT:
                self._by_schema.clear()
            compiled = self._by_schema[schema_id] = self.compile(schema)
        return compiled

    def compile(self, schema: TableSchema) -> RowFilter:
        """Return what `for_schema` keeps.

        Raises:
            PredicateError: A table that was asked for by name does not have what the filter asks for.
        """
        try:
            return super().compile(schema)
        except PredicateError:
            if ANY_TABLE not in self.tables:
                raise
            return RowFilter(self.tables, self.ops, predicates=[_Nothing()])


class _Nothing:
    """A predicate that no change passes."""

    canonical = "nothing"
    columns: frozenset[str] = frozenset()
    costly = False
    equalities: tuple[Equality, ...] = ()

    def select(self, ops: Sequence[int], befores: Sequence[bytes | None], afters: Sequence[bytes | None]) -> list[bool]:
        """Let no change pass."""
        return [False] * len(ops)


def _tables(target: SourceTarget) -> Iterator[TableName]:
    """Yield the tables that names on the wires may mean."""
    if not target.names:
        yield ANY_TABLE
    for name in target.names:
        yield from readings(target.source, name)
