"""The rows that a table has after all changes that a sink has kept of it, in bounded memory. Pure."""

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.model.errors import SinkRefusedError
from tailrace.model.table import TableSchema
from tailrace.pipeline.evolve import fitted, united
from tailrace.pipeline.fold import DELETED, OFFSET, fold_current, row_columns
from tailrace.pipeline.sink.base import ChangeType
from tailrace.pipeline.sink.row import key_names
from tailrace.pipeline.truncation import is_truncation
from tailrace.pipeline.unchanged import UNCHANGED

__all__ = ["column_names", "replayed"]

_CHANGES_FOLDED_MIN = 1_000_000
"""How many changes are gathered before they are folded: folding costs as much as there are rows already."""


def replayed(changes: Iterable[pa.Table], schema: TableSchema) -> Iterator[pa.RecordBatch]:
    """Return the rows that these changes make, whatever their order. Holds no more than the rows and one gathering.

    Raises:
        SinkRefusedError: The table has no key that identifies its rows.
    """
    if not schema.identity.is_unique:
        reason = "it has no key that identifies its rows, so it is not known which of them are left"
        raise SinkRefusedError(reason, table=schema.table.wire)
    state: list[pa.Table] = []
    waiting: list[pa.Table] = []
    floor = -1
    """Offset of the newest truncation so far: nothing up to it is left."""
    for part in changes:
        truncations = part.filter(is_truncation(part))
        some = part.filter(pc.invert(is_truncation(part)))
        if truncations.num_rows:
            floor = max(floor, pc.max(truncations[OFFSET]).as_py())
            state, waiting = ([_after(one, floor) for one in tables] for tables in (state, waiting))
        waiting.append(_after(some, floor))
        held = sum(one.num_rows for one in state)
        if sum(one.num_rows for one in waiting) >= max(_CHANGES_FOLDED_MIN, held):
            state, waiting = [_folded([*state, *waiting], schema)], []
    if not state and not waiting:
        return iter(())
    rows = _folded([*state, *waiting], schema)
    live = rows.filter(pc.not_equal(rows["_change_type"], str(ChangeType.DELETE)))
    return iter(live.select([name for name in column_names(schema) if name in live.column_names]).to_batches())


def _after(changes: pa.Table, floor: int) -> pa.Table:
    """Return the changes after a truncation. A row that was read at its offset was read after it."""
    if floor < 0:
        return changes
    read = pc.and_(pc.equal(changes[OFFSET], floor), pc.equal(changes["_change_type"], str(ChangeType.READ)))
    return changes.filter(pc.or_(pc.greater(changes[OFFSET], floor), read))


def column_names(schema: TableSchema) -> list[str]:
    """Return the names of a table's columns in a sink: a hidden key first, then those of the schema."""
    names = [column.name for column in schema.columns]
    return [*(name for name in key_names(schema) if name not in names), *names]


def _folded(changes: Sequence[pa.Table], schema: TableSchema) -> pa.Table:
    """Return the last change of each key, in the form of changes; keys that are gone stay known as such."""
    columns: pa.Schema | None = None
    for some in changes:
        columns = united(columns, some.schema)
    last = fold_current(pa.concat_tables([fitted(some, columns) for some in changes]), key_names(schema))
    kinds = pc.if_else(last[DELETED], str(ChangeType.DELETE), str(ChangeType.READ))
    markers = [UNCHANGED] if UNCHANGED in last.column_names else []
    names = [OFFSET, *row_columns(last.drop_columns([DELETED])), *markers]
    return last.select(names).append_column("_change_type", kinds)
