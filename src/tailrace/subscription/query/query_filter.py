"""Filters of query subscriptions: the changes that can touch a result, less those that the subscriber does not want."""

from array import array
from collections.abc import Hashable
from functools import partial
from itertools import chain

from msgspec import Struct, structs

from tailrace.model.chunk import Chunk
from tailrace.model.errors import InvalidRequestError
from tailrace.model.number import Offset, SchemaId
from tailrace.model.op import ROWLESS, Op
from tailrace.model.subscription import FilterOptions, TableTarget
from tailrace.model.table import TableSchema
from tailrace.subscription.filter import Changes, Filter, RowFilter, Rows, compile_filter
from tailrace.subscription.query.etag import QueryState
from tailrace.subscription.query.invalidation import scan
from tailrace.subscription.query.tracker import QueryStanding
from tailrace.subscription.table import readings

__all__ = ["InvalidationMark", "QueryFilter"]


class InvalidationMark(Struct, frozen=True):
    """What an invalidation says besides its change. `extra` are further members of the last event of a batch."""

    query_id: str
    etag: str
    extra: bytes = b""


class QueryFilter(Filter):
    """Passes the changes after which the result of a query may be another.

    Every schema change passes: it may have changed a view. So does a truncation of a table that the query depends on,
    whatever ops are wanted. Of the row changes those pass that the standing's judge
    cannot rule out and that the options of the subscription let through. A table that lacks what the options ask for
    has no such changes. It is made for one look at the log: `mark` holds the ETag of that moment.
    """

    __slots__ = ("invalidating", "mark", "standing")

    lasting = False

    def __init__(self, options: FilterOptions, standing: QueryStanding, mark: InvalidationMark, source: str) -> None:
        # A dependency is a name on the wires. All tables that it may mean pass: the judge, too, goes by that name.
        tables = chain.from_iterable(readings(source, name) for name in standing.dependencies.tables)
        super().__init__(TableTarget(tuple(tables)), options)
        self.standing = standing
        self.mark = mark
        self.invalidating: tuple[int, ...] | None = None
        """The rows that a precise subscription gets events for; filters with other rows are not equal."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, QueryFilter) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    @property
    def _key(self) -> tuple[Hashable, ...]:
        return self.mark, self.invalidating, self.identity

    def select(self, chunk: Chunk) -> Rows:
        """Return the rows of a chunk that pass."""
        relevant = chunk.memo(("relevant", self.standing.identity), partial(_relevant, self.standing))
        changes = Changes.of_chunk(chunk) if relevant else None
        rows: list[int] = []
        by_schema: dict[SchemaId, list[int]] = {}
        for row in relevant:
            assert changes is not None
            if changes.ops[row] in ROWLESS:
                rows.append(row)
            else:
                by_schema.setdefault(changes.schemas[row], []).append(row)
        for schema_id, candidates in by_schema.items():
            assert changes is not None
            rows += self.for_schema(schema_id, chunk.schemas[schema_id]).narrow(changes, candidates)
        return range(len(chunk)) if len(rows) == len(chunk) else sorted(rows)

    def compile(self, schema: TableSchema) -> RowFilter:
        """Return the filter as it is for changes under that schema version; one that passes nothing if it cannot be."""
        try:
            return compile_filter(self.tables, _fitted(self.options, schema), schema)
        except InvalidRequestError:
            return RowFilter((), ())


def _relevant(standing: QueryStanding, chunk: Chunk) -> "array[int]":
    before = QueryState("", "", Offset(chunk.first - 1), {})
    found = {offset - chunk.first for offset in scan(before, standing.judge, chunk).relevant}
    ops = chunk.batch.column("op").to_pylist()
    return array("i", sorted(found.union(row for row, op in enumerate(ops) if op == Op.SCHEMA)))


def _fitted(options: FilterOptions, schema: TableSchema) -> FilterOptions:
    """Return the options without columns that the table lacks; an update cannot have changed any of those."""
    if not options.columns:
        return options
    columns = tuple(name for name in options.columns if schema.column(name) is not None)
    if columns:
        return structs.replace(options, columns=columns)
    return structs.replace(options, columns=(), ops=tuple(op for op in options.ops if op is not Op.UPDATE))
