"""Leaving out invalidations after which the result is the same as before. Pure.

A precise subscription keeps what it verified last: that every result which was handed out up to a number, and which no
event has invalidated since, has one ETag. When changes come that can touch the result, the query is run. They are left
out if the new ETag is that one, and so are those of all results that were handed out since: a result may have been
another one for a moment, and whoever got it then needs the event. See `docs/decisions/query-invalidation.md`.

What was left out stays left out when it is read again.
"""

from collections.abc import Collection

from msgspec import Struct, structs

from tailrace.model.number import Offset

__all__ = ["VerifiedResult", "is_invalidated", "moved_to", "passed", "verify"]


_SPANS_MAX = 64


class VerifiedResult(Struct, frozen=True):
    """What a precise subscription knows after all changes through `high`.

    Without `etag` it knows no result: the next invalidation is sent. `left_out` are the newest spans of offsets, each
    after its first number and up to its second, whose invalidations were left out.
    """

    high: Offset
    number: int = 0
    etag: str | None = None
    left_out: tuple[tuple[Offset, Offset], ...] = ()


def moved_to(verified: VerifiedResult | None, after: Offset) -> VerifiedResult:
    """Return what is known by a reader that stands at `after`: nothing if it skipped what nobody verified."""
    return VerifiedResult(after) if verified is None or after > verified.high else verified


def passed(verified: VerifiedResult, through: Offset) -> VerifiedResult:
    """Return what is known after changes of which none can touch the result."""
    return structs.replace(verified, high=max(verified.high, through))


def verify(
    verified: VerifiedResult, through: Offset, number: int, etag: str | None, given: Collection[str] | None
) -> VerifiedResult:
    """Return what is known after changes through `through`, of which some can touch the result.

    `etag` is the one of the new result, None where it cannot be had, and `given` are those of all results that were
    handed out after `verified.number`, up to `number`; None where that is not known.
    """
    spans = verified.left_out
    if etag is not None and given is not None and verified.etag == etag and all(one == etag for one in given):
        begin = verified.high
        if spans and spans[-1][1] == begin:
            begin, spans = spans[-1][0], spans[:-1]
        spans = (*spans, (begin, through))[-_SPANS_MAX:]
    return VerifiedResult(through, number, etag, spans)


def is_invalidated(verified: VerifiedResult, offset: Offset) -> bool:
    """Return whether an invalidation is sent."""
    return not any(begin < offset <= end for begin, end in verified.left_out)
