"""All that a subscription asks of a change, compiled: table, op, key, changed columns and predicates, ANDed. Pure."""

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from tailrace.model.chunk import Chunk
from tailrace.model.number import SchemaId
from tailrace.model.op import Op
from tailrace.model.table import TableName
from tailrace.sql.predicate import Predicate
from tailrace.subscription.columns import ChangedColumns
from tailrace.subscription.key_filter import ExactKey, KeyBounds

__all__ = ["Changes", "RowFilter"]


class Changes(Struct, frozen=True):
    """Consecutive changes by columns, as lists of one length."""

    ops: Sequence[int]
    schemas: Sequence[SchemaId]
    keys: Sequence[bytes]
    befores: Sequence[bytes | None]
    afters: Sequence[bytes | None]

    @classmethod
    def of_chunk(cls, chunk: Chunk) -> "Changes":
        """Return the changes of a chunk."""
        return cls(*(chunk.batch.column(name).to_pylist() for name in ("op", "schema", "key", "before", "after")))


class RowFilter:
    """One compiled filter. Two are equal when they choose the same changes, so that work for one serves the other.

    The parts were compiled for one version of the table's schema; when that changes, compile and add them again.
    """

    __slots__ = ("bounds", "columns", "key", "ops", "predicates", "tables")

    def __init__(
        self,
        tables: Iterable[TableName],
        ops: Iterable[Op],
        *,
        key: ExactKey | None = None,
        bounds: KeyBounds | None = None,
        columns: ChangedColumns | None = None,
        predicates: Iterable[Predicate] = (),
    ) -> None:
        self.tables = frozenset(tables)
        self.ops = frozenset(ops)
        self.key = key
        self.bounds = bounds
        self.columns = columns
        self.predicates = tuple(predicates)

    @property
    def costly(self) -> bool:
        """Tell whether it is slow enough to be evaluated outside the event loop."""
        return any(predicate.costly for predicate in self.predicates)

    @property
    def cheap(self) -> "RowFilter":
        """Return the filter without what is slow: all that pass this one pass that, and perhaps others."""
        if not self.costly:
            return self
        return RowFilter(
            self.tables,
            self.ops,
            key=self.key,
            bounds=self.bounds,
            columns=self.columns,
            predicates=[predicate for predicate in self.predicates if not predicate.costly],
        )

    @property
    def canonical(self) -> tuple[Any, ...]:
        """Return what equal filters have in common."""
        parts: Sequence[Any] = (self.key, self.bounds, self.columns, *self.predicates)
        return (self.tables, self.ops, *(part.canonical for part in parts if part is not None))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RowFilter) and self.canonical == other.canonical

    def __hash__(self) -> int:
        return hash(self.canonical)

    def narrow(self, changes: Changes, rows: Sequence[int], *, key_known: bool = False) -> Sequence[int]:
        """Return those of the rows that pass. Their tables are known to be wanted, as are their keys if `key_known`.

        Raises:
            PredicateError: A predicate failed on one of them.
        """
        ops, keys, befores, afters = changes.ops, changes.keys, changes.befores, changes.afters
        wanted = self.ops
        rows = [row for row in rows if ops[row] in wanted]
        for by_key in (None if key_known else self.key, self.bounds):
            if by_key is not None and rows:
                rows = _kept(rows, by_key.select([keys[row] for row in rows]))
        for by_image in (self.columns, *self.predicates):
            if by_image is not None and rows:
                images = [befores[row] for row in rows], [afters[row] for row in rows]
                rows = _kept(rows, by_image.select([ops[row] for row in rows], *images))
        return rows

    def narrow_chunk(self, chunk: Chunk, places: Any) -> list[int]:
        """Return those of a chunk's rows that pass. Their tables and ops are known to be wanted.

        `places` is an Arrow array of rows, rising; None for all. Keys are compared by Arrow, and only what is left by
        then is taken out of the chunk.

        Raises:
            PredicateError: A predicate failed on one of them.
        """
        keys = chunk.batch.column("key")
        for by_key in (self.key, self.bounds):
            if by_key is not None and (places is None or len(places)):
                mask = by_key.mask(keys if places is None else keys.take(places))
                places = pc.indices_nonzero(mask) if places is None else places.filter(mask)
        rows: list[int] = list(range(len(chunk))) if places is None else places.to_pylist()
        for by_image in (self.columns, *self.predicates):
            if by_image is not None and rows:
                places = pa.array(rows, pa.int64())
                taken = [chunk.batch.column(name).take(places).to_pylist() for name in ("op", "before", "after")]
                rows = _kept(rows, by_image.select(*taken))
        return rows


def _kept(rows: Sequence[int], passing: Sequence[bool]) -> list[int]:
    return [row for row, passes in zip(rows, passing, strict=True) if passes]
