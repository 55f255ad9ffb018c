"""Where a feed begins, as each interface counts it. The only place that knows. Pure.

SkeinDB: `from_offset` and `Last-Event-ID` name the last change that the subscriber has seen. `from_offset` wins;
without either the cursor counts; and a feed never begins before the cursor.
"""

from tailrace.model.errors import InvalidRequestError
from tailrace.model.number import Offset
from tailrace.model.start import After
from tailrace.model.subscription import Subscription

__all__ = ["RESNAPSHOT_REASON", "begins_with_snapshot", "seen_in", "start_after", "start_of_stream"]

RESNAPSHOT_REASON = "wal_horizon_exceeded"
"""SkeinDB's word for a place that retention has removed."""

_DIGITS_MAX = 20
"""Length of the largest unsigned 64-bit number."""


def start_after(from_offset: Offset, cursor: Offset) -> After:
    """Return the start of a subscriber that has seen everything up to `from_offset`."""
    return After(max(from_offset, cursor))


def start_of_stream(from_offset: str | None, last_event_id: str | None, cursor: Offset) -> After:
    """Return the start of a stream from its query parameter and its header, as they came.

    Raises:
        InvalidRequestError: The one that counts is not an offset.
    """
    return start_after(seen_in(from_offset, last_event_id) or Offset(0), cursor)


def seen_in(from_offset: str | None, last_event_id: str | None) -> Offset | None:
    """Return the last offset that a subscriber says it has seen; None where it says nothing.

    Raises:
        InvalidRequestError: The one that counts is not an offset.
    """
    if from_offset is not None:
        return _offset(from_offset, "invalid from_offset")
    if last_event_id is not None:
        return _offset(last_event_id, "invalid Last-Event-ID header")
    return None


def begins_with_snapshot(subscription: Subscription, seen: Offset | None) -> bool:
    """Tell whether the rows of the table come first. Rows have no id: who names a place after them has had them."""
    return subscription.snapshot and (seen is None or seen < subscription.cursor)


def _offset(text: str, complaint: str) -> Offset:
    if not (text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX):
        raise InvalidRequestError(complaint)
    return Offset(int(text))
