"""Cells that the source did not send: listed beside the columns, and filled from what was there before.

A column of a version of a table that an image lacks is `UNCHANGED` (`tailrace.model.image`). A typed column cannot say
that, so its cell is null there and a further column, `UNCHANGED`, names such columns of the row: a JSON array, null
where the row is whole. It is there only if a row of the changes lacks something; sources that send whole rows never
meet it. A change that does not have a cell takes it from the change before it of the same key, else from the row that
the target has, so that an update leaves that column alone.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.model.errors import InvalidValueError
from tailrace.model.table import TableSchema
from tailrace.pipeline.evolve import fitted
from tailrace.pipeline.typed import DecodedImages

__all__ = ["UNCHANGED", "Held", "UnsentError", "filled", "lacking", "patched", "unsent", "with_unsent"]

UNCHANGED = "_tailrace_unchanged"
"""Column that names the columns of a row that the source did not send."""


class UnsentError(InvalidValueError):
    """The source did not send cells of a row, and nothing is there to tell that from null."""

    def __init__(self, table: str, key: str, columns: str) -> None:
        super().__init__(
            f"the source did not send the columns {columns} of the row with key {key} of table {table}, which have not "
            f"changed: name {UNCHANGED} in option columns, which tells that, or choose the layout json"
        )
        self.table = table
        self.key = key


logger = logging.getLogger(__name__)

_IMAGE = msgspec.json.Decoder(dict[str, msgspec.Raw])
_NAMES = msgspec.json.Decoder(list[str])

Held = Callable[[pa.Table, Sequence[str]], pa.Table]
"""Returns, of the rows with these keys that a target has, the columns of the key and the named ones."""


def unsent(images: pa.Array, decoded: DecodedImages, wanted: pa.Schema, version: TableSchema) -> pa.Array | None:
    """Return which columns of `wanted` each image lacks, as `UNCHANGED` tells it; None where all images are whole.

    Only where a column that was decoded is null can something be missing. An image that says so names the column
    before the word null, which no text in it can do, as its quotation marks are escaped. So images are read again only
    where they do not.
    """
    if decoded.whole:
        return None
    doubtful = np.zeros(len(images), bool)
    for field, column in zip(wanted, decoded.columns, strict=True):
        if not column.null_count or version.column(field.name) is None:
            continue
        nulls = column.is_null().to_numpy(zero_copy_only=False)
        said = pc.match_substring(images.filter(pa.array(nulls)), msgspec.json.encode(field.name).decode() + ":null")
        if said.false_count:
            doubtful[np.flatnonzero(nulls)[~said.to_numpy(zero_copy_only=False)]] = True
    if not doubtful.any():
        return None
    names = [field.name for field in wanted if version.column(field.name) is not None]
    lacking_names: list[str | None] = [None] * len(images)
    for row in np.flatnonzero(doubtful).tolist():
        cells = _IMAGE.decode(images[row].as_py())
        missing = [name for name in names if name not in cells] if cells else []  # a truncation has no row
        lacking_names[row] = msgspec.json.encode(missing).decode() if missing else None
    return pa.array(lacking_names, pa.string()) if any(lacking_names) else None


def with_unsent(parts: Sequence[tuple[pa.Table, pa.Array | None]]) -> pa.Table:
    """Return tables of changes as one, with the column `UNCHANGED` if a row of them lacks something."""
    if all(lacking_names is None for _, lacking_names in parts):
        return pa.concat_tables([part for part, _ in parts])
    return pa.concat_tables(
        part.append_column(UNCHANGED, pa.nulls(part.num_rows, pa.string()) if lacking_names is None else lacking_names)
        for part, lacking_names in parts
    )


def lacking(rows: pa.Table) -> dict[str, Any]:
    """Return for each column that some row lacks which rows do, as an array of booleans."""
    if UNCHANGED not in rows.column_names:
        return {}
    lacking_names = rows[UNCHANGED].combine_chunks().dictionary_encode()
    codes = lacking_names.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    masks: dict[str, Any] = {}
    for code, text in enumerate(lacking_names.dictionary.to_pylist()):
        here = codes == code
        for name in _NAMES.decode(text):
            if name in rows.column_names:
                masks[name] = masks[name] | here if name in masks else here
    return masks


def filled(changes: pa.Table, key: Sequence[str]) -> pa.Table:
    """Return changes, in order, with what they lack taken from the last change before them of the same key that has it.

    What no change has is still listed in `UNCHANGED`; without such a row there is no such column.
    """
    if UNCHANGED not in changes.column_names:
        return changes
    masks = lacking(changes)
    order, begins = _by_key(changes, key)
    places = np.arange(changes.num_rows)
    left = {}
    for name, mask in masks.items():
        last = np.maximum.accumulate(np.where(mask[order], -1, places))
        found = last >= begins
        taken = np.empty_like(order)
        taken[order] = order[np.where(found, last, places)]
        still = np.empty(len(order), bool)
        still[order] = ~found
        changes = _replaced(changes, name, changes[name].take(pa.array(taken)))
        if still.any():
            left[name] = still
    return _with_markers(changes, left)


def patched(changes: pa.Table, key: Sequence[str], held: Held) -> pa.Table:
    """Return changes that `filled` has filled, with what they still lack taken from the rows that the target has.

    Nothing is listed as missing afterwards: cells of rows that the target does not have stay null, with a warning.
    """
    masks = lacking(changes)
    if not masks:
        return changes.drop_columns([UNCHANGED]) if UNCHANGED in changes.column_names else changes
    wanted = np.logical_or.reduce(list(masks.values()))
    keys = changes.select(list(key)).filter(pa.array(wanted)).group_by(list(key)).aggregate([]).select(list(key))
    columns = pa.schema([changes.schema.field(name) for name in (*key, *masks)])
    rows = fitted(held(keys, list(masks)), columns)
    found = _found(changes, rows, key)
    for name, mask in masks.items():
        known = mask & (found >= 0)
        cells = rows[name].take(pa.array(found[known]))
        # By places, for Arrow has no `replace_with_mask` of lists.
        both = pa.chunked_array([*changes[name].chunks, *cells.chunks], changes.schema.field(name).type)
        places = np.arange(changes.num_rows)
        places[known] = changes.num_rows + np.arange(int(known.sum()))
        changes = _replaced(changes, name, both.take(pa.array(places)))
    lost = int((wanted & (found < 0)).sum())
    if lost:
        logger.warning("changes lack cells, and the sink has no row to take them from: null", extra={"changes": lost})
    return changes.drop_columns([UNCHANGED])


def _found(changes: pa.Table, rows: pa.Table, key: Sequence[str]) -> Any:
    """Return for each change the place of the row with its key, -1 for none."""
    placed = changes.select(list(key)).append_column("_place", pa.array(np.arange(changes.num_rows)))
    others = rows.select(list(key)).append_column("_row", pa.array(np.arange(rows.num_rows)))
    pairs = placed.join(others, list(key), join_type="inner")
    found = np.full(changes.num_rows, -1)
    found[pairs["_place"].to_numpy()] = pairs["_row"].to_numpy()
    return found


def _by_key(changes: pa.Table, key: Sequence[str]) -> tuple[Any, Any]:
    """Return the places of rows by key, those of one key in order, and for each where those of its key begin."""
    numbers = np.zeros(changes.num_rows, np.int64)
    for name in key:
        codes = changes[name].combine_chunks().dictionary_encode(null_encoding="encode").indices.to_numpy()
        _, numbers = np.unique(numbers * (int(codes.max(initial=0)) + 1) + codes, return_inverse=True)
    order = np.argsort(numbers, kind="stable")
    ordered = numbers[order]
    first = np.ones(len(order), bool)
    first[1:] = ordered[1:] != ordered[:-1]
    return order, np.maximum.accumulate(np.where(first, np.arange(len(order)), 0))


def _with_markers(changes: pa.Table, left: dict[str, Any]) -> pa.Table:
    changes = changes.drop_columns([UNCHANGED])
    if not left:
        return changes
    lacking_names: list[str | None] = [None] * changes.num_rows
    for row in np.flatnonzero(np.logical_or.reduce(list(left.values()))).tolist():
        lacking_names[row] = msgspec.json.encode([name for name in left if left[name][row]]).decode()
    return changes.append_column(UNCHANGED, pa.array(lacking_names, pa.string()))


def _replaced(table: pa.Table, name: str, column: Any) -> pa.Table:
    place = table.schema.get_field_index(name)
    return table.set_column(place, table.schema.field(place), column)
