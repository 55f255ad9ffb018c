"""The row alone: what it is after the change, and nothing (a tombstone) once it is gone.

A truncation is nothing as well, with `{}` as its key: the header `tailrace-op` beside it says that all rows are gone.
What the source did not send after an update is taken from the row before. Where that lacks it, too, it is left out, and
the header `tailrace-unchanged` beside the row names it.
"""

import json

import msgspec

from tailrace.envelope.base import Wrapped
from tailrace.envelope.plain import plain_image, plain_key_object
from tailrace.model.chunk import Change
from tailrace.model.image import completed, lacks_cells
from tailrace.model.op import Op

__all__ = ["UNCHANGED_HEADER", "RowEnvelope"]

UNCHANGED_HEADER = "tailrace-unchanged"
"""Names the columns that were left out, as a JSON array in ASCII."""

_GONE = frozenset({Op.DELETE, Op.TRUNCATE})


class RowEnvelope:
    """`{"id":1,…}`, keyed by `{"id":1}`."""

    tombstones = False

    def wrap(self, change: Change, id_: str, *, snapshot: bool = False, now_us: int | None = None) -> Wrapped:
        """Return the envelope of a change."""
        if change.op in _GONE:
            return Wrapped(None, plain_key_object(change))
        row, unsent = change.after, []
        if row is not None and lacks_cells(row, change.schema):
            row = row if change.before is None else completed(row, change.before)
            cells = msgspec.json.decode(row, type=dict[str, msgspec.Raw])
            unsent = [column.name for column in change.schema.columns if column.name not in cells]
        headers = ((UNCHANGED_HEADER, json.dumps(unsent)),) if unsent else ()
        return Wrapped(plain_image(row, change.schema), plain_key_object(change), headers)
