"""Puts the changes of a row in the order in which they happened, where the database's own triggers mixed it up. Pure.

Our triggers note a change when they fire. A trigger of the user's that changes the same row again may have its change
noted first (when it is newer than ours, until we have seen it), or work on a row that a BEFORE trigger has changed
meanwhile, so that our note carries an outdated old row. In both cases the notes of one row do not fit together: each
`before` should be the `after` of the one before it. Such notes are ordered so that they do, as far as possible, and the
`before` that still does not fit is replaced by what is known.
"""

from collections import Counter
from collections.abc import Container, Sequence

from tailrace.model.commit import Draft
from tailrace.model.number import SchemaId
from tailrace.model.op import Op

__all__ = ["repair"]

_Image = bytes | None
"""A row image, None where there is no row."""


def repair(draft: Draft, schemas: Container[SchemaId]) -> None:
    """Fix the changes of rows of the given table versions, in place. Rows that fit are left alone."""
    places: dict[tuple[SchemaId, bytes], list[int]] = {}
    for place, (op, schema, key) in enumerate(zip(draft.ops, draft.schemas, draft.keys, strict=True)):
        if schema in schemas and op != Op.SCHEMA:
            places.setdefault((schema, key), []).append(place)
    for row in places.values():
        steps = [(draft.befores[place], draft.afters[place]) for place in row]
        if any(steps[rank][0] != steps[rank - 1][1] for rank in range(1, len(steps))):
            for place, (before, after) in zip(row, _chained(steps), strict=True):
                draft.ops[place] = _op(before, after)
                draft.befores[place] = before
                draft.afters[place] = after


def _chained(steps: Sequence[tuple[_Image, _Image]]) -> list[tuple[_Image, _Image]]:
    """Return the steps as a path: each begins where the last one ended."""
    state = _start(steps)
    waiting = list(steps)
    path: list[tuple[_Image, _Image]] = []
    while waiting:
        rank = next((rank for rank, (before, _) in enumerate(waiting) if before == state), 0)
        before, after = waiting.pop(rank)
        path.append((before if state is None else state, after))
        state = after
    return path


def _start(steps: Sequence[tuple[_Image, _Image]]) -> _Image:
    """Return the image that a path through all steps begins with: the one left more often than reached."""
    balance = Counter(before for before, _ in steps)
    balance.subtract(after for _, after in steps)
    return next((before for before, _ in steps if balance[before] > 0), steps[0][0])


def _op(before: _Image, after: _Image) -> Op:
    if before is None:
        return Op.INSERT
    return Op.UPDATE if after is not None else Op.DELETE
