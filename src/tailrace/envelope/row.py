"""The row alone: what it is after the change, and nothing (a tombstone) once it is gone.

A truncation is nothing as well, with `{}` as its key: the header `tailrace-op` beside it says that all rows are gone.
What the source did not send after an update is taken from the row before. Where that lacks it, too, it is left out.
"""

from tailrace.envelope.base import Wrapped
from tailrace.envelope.plain import plain_image, plain_key_object
from tailrace.model.chunk import Change
from tailrace.model.image import completed, lacks_cells
from tailrace.model.op import Op

__all__ = ["RowEnvelope"]

_GONE = frozenset({Op.DELETE, Op.TRUNCATE})


class RowEnvelope:
    """`{"id":1,…}`, keyed by `{"id":1}`."""

    tombstones = False

    def wrap(self, change: Change, id_: str, *, snapshot: bool = False, now_us: int | None = None) -> Wrapped:
        """Return the envelope of a change."""
        value = None if change.op in _GONE else plain_image(_whole(change), change.schema)
        return Wrapped(value, plain_key_object(change))


def _whole(change: Change) -> bytes | None:
    after, before = change.after, change.before
    if after is None or before is None or not lacks_cells(after, change.schema):
        return after
    return completed(after, before)
