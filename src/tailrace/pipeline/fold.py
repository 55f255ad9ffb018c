"""Folding changes: what a table, or its history, is after a batch of them. Pure.

Changes are ordered by offset here, whatever their order in the batch; of the two rows of an update the row before it
comes first, and a row that was read at an offset comes after the change of that offset. So a change that is delivered
twice, or late, counts once and in its place.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from tailrace.pipeline.sink.base import ChangeType
from tailrace.pipeline.unchanged import UNCHANGED, Held, filled, patched

__all__ = [
    "CHANGE_COLUMNS",
    "DELETED",
    "OFFSET",
    "VALIDITY",
    "FoldedHistory",
    "fold_current",
    "fold_history",
    "lacks_now",
    "last_changes",
    "last_known",
    "ordered",
    "row_columns",
    "whole_changes",
]

OFFSET = "_offset"
"""Column of the offset of the change that made a row."""

DELETED = "_deleted"
"""Column that tells whether the last change of a key removed its row."""

CHANGE_COLUMNS = ("_change_type", OFFSET, "_commit_version", "_commit_timestamp")

VALIDITY = pa.schema(
    [
        pa.field("valid_from", pa.timestamp("us", tz="UTC")),
        pa.field("valid_to", pa.timestamp("us", tz="UTC")),
        pa.field("valid_from_offset", pa.int64()),
        pa.field("valid_to_offset", pa.int64()),
    ]
)
"""Columns of a version: the commits that made and ended it, by time and by offset. An open version has no end."""

_REMOVING = pa.array([ChangeType.DELETE, ChangeType.UPDATE_PREIMAGE], pa.string())


_ROOM_PER_ROW_MAX = 16
"""How sparse keys may be, at most, to be looked up in an array."""


class FoldedHistory(Struct, frozen=True):
    """What a batch adds to the versions of a table."""

    closings: pa.Table
    """The key and when its open version ends, if it has one: `valid_to`, `valid_to_offset`. One row per key."""

    versions: pa.Table
    """The rows and the validity of each new version."""


def fold_current(changes: pa.Table, key: Sequence[str]) -> pa.Table:
    """Return the last state of each key that changed: its row, `_offset`, and `_deleted`, in order of offsets.

    A row that is deleted shows the key that is gone; its other columns mean nothing. What no change tells of a row
    that is not is listed in `UNCHANGED`.
    """
    rows = last_changes(changes, key)
    deleted = pc.is_in(rows["_change_type"], _REMOVING)
    markers = [UNCHANGED] if UNCHANGED in rows.column_names else []
    return rows.select([*row_columns(changes), OFFSET, *markers]).append_column(DELETED, deleted)


def last_changes(changes: pa.Table, key: Sequence[str]) -> pa.Table:
    """Return the last change of each key, as changes: folded later with others they count as much as all would."""
    return _last(filled(ordered(changes), key), key)


def whole_changes(changes: pa.Table, key: Sequence[str], held: Held) -> pa.Table:
    """Return changes without `UNCHANGED`, each row with all its cells; see `tailrace.pipeline.unchanged`.

    As they are where nothing is missing. Of rows that are removed only the key counts: they are not filled.
    """
    if UNCHANGED not in changes.column_names:
        return changes
    whole = filled(ordered(changes), key)
    if UNCHANGED in whole.column_names:
        unsent = pc.if_else(_removed(whole), pa.scalar(None, pa.string()), whole[UNCHANGED])
        whole = patched(whole.drop_columns([UNCHANGED]).append_column(UNCHANGED, unsent), key, held)
    return whole


def lacks_now(changes: pa.Table) -> bool:
    """Tell whether a row that is there after its change lacks cells that the source did not send."""
    if UNCHANGED not in changes.column_names:
        return False
    return bool(pc.any(pc.and_(pc.invert(_removed(changes)), changes[UNCHANGED].is_valid())).as_py())


def fold_history(changes: pa.Table, key: Sequence[str], known: pa.Table | None = None) -> FoldedHistory:
    """Return the versions that a batch makes and the ends that it puts to older ones.

    A commit makes at most one version of a key: what it held in between nobody has seen. `known` has the key and, as
    `_known`, the last offset that the history already has of it: changes up to there are left out.
    """
    events = _last(filled(ordered(changes), key), [*key, "_commit_version"])
    if known is not None:
        # Places are joined, not rows: Arrow cannot join tables with lists.
        placed = events.select([*key, OFFSET]).append_column("_place", pa.array(range(events.num_rows), pa.int64()))
        joined = placed.join(known, list(key), join_type="left outer")
        late = pc.fill_null(pc.less_equal(joined[OFFSET], joined["_known"]), fill_value=False)
        events = events.take(joined.filter(pc.invert(late))["_place"])
    events = events.take(pc.sort_indices(events, [(name, "ascending") for name in [*key, OFFSET]]))
    first, final = _runs(events, key)
    begin, offset = events["_commit_timestamp"], events[OFFSET]
    versions = events.select(row_columns(changes))
    for field, column in zip(VALIDITY, (begin, _next(begin, final), offset, _next(offset, final)), strict=True):
        versions = versions.append_column(field, column.cast(field.type))
    closings = events.select([*key, "_commit_timestamp", OFFSET]).filter(first)
    live = pc.invert(pc.is_in(events["_change_type"], _REMOVING))
    return FoldedHistory(closings.rename_columns([*key, "valid_to", "valid_to_offset"]), versions.filter(live))


def last_known(versions: pa.Table, key: Sequence[str]) -> pa.Table:
    """Return what `fold_history` takes as `known` from the versions that a history has."""
    latest = pc.max_element_wise(versions["valid_from_offset"], versions["valid_to_offset"])
    offsets = versions.select(list(key)).append_column("_known", latest)
    grouped = offsets.group_by(list(key), use_threads=False).aggregate([("_known", "max")])
    return grouped.rename_columns([*key, "_known"])


def row_columns(changes: pa.Table) -> list[str]:
    """Return the names of the columns that are the row's own."""
    return [name for name in changes.column_names if name not in CHANGE_COLUMNS and name != UNCHANGED]


def ordered(changes: pa.Table) -> pa.Table:
    """Return the changes in order of offsets, the row before an update first; as they are where they are in order."""
    before, read = (
        pc.equal(changes["_change_type"], pa.scalar(str(kind))).cast(pa.int64())
        for kind in (ChangeType.UPDATE_PREIMAGE, ChangeType.READ)
    )
    order = pc.add(pc.subtract(pc.multiply(changes[OFFSET], 4), before), read).combine_chunks()
    if len(order) < 2 or not pc.any(pc.less(order[1:], order[:-1])).as_py():
        return changes
    return changes.take(pc.sort_indices(order))


def _removed(changes: pa.Table) -> Any:
    """Tell which rows are of before their change, so that only their key counts."""
    return pc.is_in(changes["_change_type"], _REMOVING)


def _last(changes: pa.Table, key: Sequence[str]) -> pa.Table:
    """Return the last row of each key; those rows stay in order."""
    mask = np.zeros(changes.num_rows, dtype=bool)
    mask[_last_places(changes, key)] = True
    return changes.filter(pa.array(mask))


def _last_places(changes: pa.Table, key: Sequence[str]) -> Any:
    """Return the places of the last row of each key.

    Whole numbers that lie close together, as numbered rows do, are looked up in an array: that takes a fifth of the
    time that hashing them does.
    """
    places = np.arange(changes.num_rows)
    column = changes[key[0]]
    if len(key) == 1 and pa.types.is_int64(column.type) and changes.num_rows and not column.null_count:
        ends = pc.min_max(column).as_py()
        room = ends["max"] - ends["min"] + 1
        if room <= _ROOM_PER_ROW_MAX * changes.num_rows:
            last = np.full(room, -1)
            np.maximum.at(last, column.to_numpy() - ends["min"], places)
            return last[last >= 0]
    placed = changes.select(list(key)).append_column("_place", pa.array(places))
    found = placed.group_by(list(key), use_threads=False).aggregate([("_place", "max")])
    return found["_place_max"].to_numpy()


def _runs(rows: pa.Table, key: Sequence[str]) -> tuple[Any, Any]:
    """Return of each row whether it is the first, and whether it is the final one, of a run of rows of one key."""
    edge = np.zeros(max(rows.num_rows - 1, 0), dtype=bool)
    for name in key:
        column = rows[name].combine_chunks()
        differs = pc.fill_null(pc.not_equal(column[1:], column[:-1]), fill_value=True)
        edge |= differs.to_numpy(zero_copy_only=False)
    ends = np.ones(min(rows.num_rows, 1), dtype=bool)
    return pa.array(np.concatenate([ends, edge])), pa.array(np.concatenate([edge, ends]))


def _next(column: Any, final: Any) -> Any:
    """Return the value of the next row; null in the final row of a run."""
    moved = pa.concat_arrays([column.combine_chunks()[1:], pa.nulls(min(len(column), 1), column.type)])
    return pc.if_else(final, pa.scalar(None, column.type), moved)
