"""Truncations for sinks that keep rows or their versions: the deletion of each row that is gone. Pure.

A table that is dropped loses its rows as one that is truncated does, unless a pipeline is to do otherwise (`OnDrop`).

A truncation does not say which rows it removes. Those are the rows that the target has, and those that the changes
before it in the same batch have put there. Once that is written out as deletions, folds and merges need not know more.
"""

from collections.abc import Callable, Iterable

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import structs

from tailrace.meta.pipeline import Mode, OnDrop
from tailrace.model.errors import TailraceError
from tailrace.pipeline.errors import TableDroppedError
from tailrace.pipeline.evolve import fitted
from tailrace.pipeline.sink.base import ChangeType, TableChanges
from tailrace.pipeline.sink.row import key_names

__all__ = ["TruncationMetError", "has_truncation", "is_truncation", "spelled_out", "without_drops"]

_EMPTYING = pa.array([ChangeType.TRUNCATE, ChangeType.DROP], pa.string())
_OF_CHANGE = ("_offset", "_commit_version", "_commit_timestamp")


class TruncationMetError(TailraceError):
    """Tasks that write the rows of a sink have met a truncation: let the driver apply the batch, which has the sink."""


def is_truncation(changes: pa.Table) -> pa.ChunkedArray:
    """Tell for each row of changes whether it is a truncation: no row of the table is left, or the table is gone."""
    return pc.is_in(changes["_change_type"], value_set=_EMPTYING)


def has_truncation(changes: pa.Table) -> bool:
    """Tell whether there is a truncation among changes."""
    return bool(pc.any(is_truncation(changes)).as_py())


def without_drops(rows: pa.Table, on_drop: OnDrop, name: str) -> pa.Table:
    """Return rows of changes, in the layout `json`, as pipeline `name` is to see that tables were dropped.

    Raises:
        TableDroppedError: It is to stop there.
    """
    dropped = pc.equal(rows["_change_type"], str(ChangeType.DROP))
    if on_drop is OnDrop.MIRROR or not pc.any(dropped).as_py():
        return rows
    if on_drop is OnDrop.STOP:
        first = rows.filter(dropped).slice(0, 1).to_pylist()[0]
        raise TableDroppedError(name, first["_table"], first["_offset"])
    return rows.filter(pc.invert(dropped))


def spelled_out(one: TableChanges, mode: Mode, held: Callable[[], Iterable[pa.RecordBatch]]) -> TableChanges:
    """Return changes of a table in which deletions take the place of truncations; in mode `append` they stay.

    `held` gives the rows that the target has, and is asked only if there is a truncation. A key that the target has
    from a later change is deleted at the truncation's offset all the same: what is newer than that, the target keeps.
    """
    if mode is Mode.APPEND or not has_truncation(one.changes):
        return one
    key = key_names(one.schema)
    changes = one.changes.take(pc.sort_indices(one.changes["_offset"]))
    columns = pa.schema([changes.schema.field(name) for name in key])
    live = [fitted(pa.table(batch).select(key), columns) for batch in held()]
    parts: list[pa.Table] = []
    begin = 0
    for place in [*pc.indices_nonzero(is_truncation(changes)).to_pylist(), changes.num_rows]:
        before = changes.slice(begin, place - begin)
        parts.append(before)
        live.append(before.select(key))
        if place < changes.num_rows:
            parts.append(_deletions(pa.concat_tables(live), changes.slice(place, 1)))
            live = []
        begin = place + 1
    return structs.replace(one, changes=pa.concat_tables(parts))


def _deletions(keys: pa.Table, truncation: pa.Table) -> pa.Table:
    """Return the deletion of each of these keys, once, as the truncation did it."""
    gone = keys.group_by(keys.column_names).aggregate([])
    columns = {name: gone[name] for name in keys.column_names}
    columns |= {name: pa.repeat(truncation[name][0], gone.num_rows) for name in _OF_CHANGE}
    columns["_change_type"] = pa.repeat(pa.scalar(str(ChangeType.DELETE), pa.string()), gone.num_rows)
    arrays = [columns.get(field.name, pa.nulls(gone.num_rows, field.type)) for field in truncation.schema]
    return pa.table(arrays, schema=truncation.schema)
