"""Results of queries as JSON, and what of them goes along with an event. Pure."""

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct

from tailrace.model.subscription import Format
from tailrace.model.value import Json, to_literal, to_plain
from tailrace.source.base import ResultRows
from tailrace.subscription.query.delta import Row, difference

__all__ = ["InlineLimits", "inline_members", "rows_json"]

_OMITTED = b',"result_omitted":true'


class InlineLimits(Struct, frozen=True):
    """How much of a result may go along with an event."""

    rows_max: int
    bytes_max: int


def rows_json(rows: Sequence[Row], format_: Format) -> list[list[Json]]:
    """Return rows for JSON: lists of typed literals, or of ordinary values."""
    if format_ is Format.OBJECTS_JSON:
        return [[to_literal(cell) for cell in row] for row in rows]
    return [[to_plain(cell) for cell in row] for row in rows]


def inline_members(
    new: ResultRows | None, old: tuple[str, ResultRows] | None, format_: Format, limits: InlineLimits
) -> bytes:
    """Return the members of an event that tell the new result, None if it is too large to be known.

    `result` where it is small; else `delta` against the result `old`, given with its ETag, where that is small;
    else `result_omitted`.
    """
    if new is not None and len(new.rows) <= limits.rows_max:
        member = _member("result", {"columns": new.columns, "rows": rows_json(new.rows, format_)})
        if len(member) <= limits.bytes_max:
            return member
    if new is not None and old is not None and old[1].columns == new.columns:
        delta = difference(old[1].rows, new.rows, rows_max=limits.rows_max)
        if delta is not None:
            parts = {"added": rows_json(delta.added, format_), "removed": rows_json(delta.removed, format_)}
            member = _member("delta", {"since": old[0], **parts, "reordered": delta.reordered})
            if len(member) <= limits.bytes_max:
                return member
    return _OMITTED


def _member(name: str, value: dict[str, Any]) -> bytes:
    return b',"%s":%s' % (name.encode(), msgspec.json.encode(value))
