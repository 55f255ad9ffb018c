"""Leaving out the rows before updates that nobody needs: those whose key is the same afterwards. Pure."""

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.model.errors import ConfigError
from tailrace.pipeline.sink.base import ChangeType

__all__ = ["moved_alone"]


def moved_alone(rows: pa.RecordBatch, key: Sequence[str]) -> pa.RecordBatch:
    """Return rows of changes without the rows before updates that keep their key. Each is followed by the row after it.

    Raises:
        ConfigError: A column of the key, or the kind of change, is not among the columns.
    """
    for name in ("_change_type", *key):
        if name not in rows.schema.names:
            raise ConfigError(f"option preimages needs the column {name!r}: read it, too")
    if rows.num_rows < 2:
        return rows
    words = rows.column("_change_type")
    same = pc.equal(words[:-1], str(ChangeType.UPDATE_PREIMAGE))
    for name in key:
        column = rows.column(name)
        same = pc.and_(same, pc.fill_null(pc.equal(column[:-1], column[1:]), fill_value=False))
    kept = pa.concat_arrays([pc.invert(same), pa.array([True])])
    return rows.filter(kept)
