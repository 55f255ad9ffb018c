"""Filters of subscriptions to a source: tables by name, there or not, or all of them. Pure."""

from collections.abc import Iterator, Sequence

from tailrace.model.errors import PredicateError
from tailrace.model.number import SchemaId
from tailrace.model.subscription import FilterOptions, SourceTarget, TableTarget, Target
from tailrace.model.table import ANY_TABLE, TableName, TableSchema
from tailrace.sql.predicate import Equality
from tailrace.subscription.filter import Filter, RowFilter
from tailrace.subscription.table import readings

__all__ = ["FilterCache", "SourceFilter"]

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


class FilterCache:
    """Gives equal filters only once, so that each is compiled once. The least recently used goes first."""

    def __init__(self, filters_max: int) -> None:
        self._filters_max = filters_max
        self._filters: dict[Filter, Filter] = {}

    def get(self, target: Target, options: FilterOptions) -> Filter:
        """Return the filter that a target and options make. One that looks at no rows is cheap, and not kept."""
        kind = SourceFilter if isinstance(target, SourceTarget) else Filter
        made = kind(target, options)
        if not made.looks_at_rows:
            return made
        kept = self._filters.pop(made, made)
        self._filters[kept] = kept
        if len(self._filters) > self._filters_max:
            del self._filters[next(iter(self._filters))]
        return kept


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
