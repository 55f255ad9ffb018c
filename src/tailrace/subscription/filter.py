"""Filters: which changes of a chunk a subscription wants. Pure; evaluated over whole chunks at once."""

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.model.chunk import Chunk
from tailrace.model.number import SchemaId
from tailrace.model.op import Op
from tailrace.model.subscription import FilterOptions, Target
from tailrace.model.table import TableName, TableSchema

__all__ = ["Filter", "Rows"]

Rows = range | list[int]
"""Rows of a chunk by their number in it, rising. A range where they are consecutive."""

_ROWS_FEW = 16
"""Below so many rows, going through them in Python costs less than calling Arrow."""


class Filter:
    """The compiled form of a subscription's target and filter options.

    Two filters are equal when they choose the same changes of one source; so work done for one serves the other.
    """

    __slots__ = ("_op_numbers", "_schema_known", "_schema_wanted", "key")

    def __init__(self, target: Target, options: FilterOptions) -> None:
        self.key: tuple[frozenset[TableName], frozenset[Op]] = (frozenset(target.tables), frozenset(options.ops))
        self._op_numbers = pa.array(sorted(options.ops), pa.int8())
        self._schema_known: set[SchemaId] = set()
        self._schema_wanted: set[SchemaId] = set()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Filter) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def select(self, chunk: Chunk) -> Rows:
        """Return the rows of a chunk that pass."""
        if len(chunk) < _ROWS_FEW:
            return self._select_few(chunk)
        masks = [mask for mask in (self._table_mask(chunk), self._op_mask(chunk)) if mask is not None]
        if not masks:
            return range(len(chunk))
        mask = masks[0] if len(masks) == 1 else pc.and_(*masks)
        rows: list[int] = pc.indices_nonzero(mask).to_pylist()
        if rows and rows[-1] - rows[0] == len(rows) - 1:
            return range(rows[0], rows[-1] + 1)
        return rows

    def wants_table(self, schema_id: SchemaId, schema: TableSchema) -> bool:
        """Tell whether changes under that schema version can pass. The answer is kept: versions never change."""
        if schema_id not in self._schema_known:
            self._schema_known.add(schema_id)
            if schema.table in self.key[0]:
                self._schema_wanted.add(schema_id)
        return schema_id in self._schema_wanted

    def _select_few(self, chunk: Chunk) -> Rows:
        schema_ids = chunk.batch.column("schema").to_pylist()
        ops = chunk.batch.column("op").to_pylist()
        wanted_ops = self.key[1]
        rows = [
            row
            for row, (schema_id, op) in enumerate(zip(schema_ids, ops, strict=True))
            if op in wanted_ops and self.wants_table(schema_id, chunk.schemas[schema_id])
        ]
        return range(len(chunk)) if len(rows) == len(chunk) else rows

    def _table_mask(self, chunk: Chunk) -> Any:
        """Return a mask of the wanted tables, or None when all rows are of such."""
        column = chunk.batch.column("schema")
        present: list[SchemaId] = pc.unique(column).to_pylist()
        wanted = [schema_id for schema_id in present if self.wants_table(schema_id, chunk.schemas[schema_id])]
        if len(wanted) == len(present):
            return None
        return pc.is_in(column, value_set=pa.array(wanted, column.type))

    def _op_mask(self, chunk: Chunk) -> Any:
        column = chunk.batch.column("op")
        present = pc.unique(column).to_pylist()
        if all(op in self.key[1] for op in present):
            return None
        return pc.is_in(column, value_set=self._op_numbers)
