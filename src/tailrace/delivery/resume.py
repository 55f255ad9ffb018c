"""Where a feed begins, as each seed counts it. The only place that knows. Pure.

Seed B: `from_offset` and `Last-Event-ID` name the last change that the subscriber has seen. `from_offset` wins; without
either the cursor counts; and a feed never begins before the cursor.
"""

from tailrace.model.errors import InvalidRequestError
from tailrace.model.number import Offset
from tailrace.model.start import After

__all__ = ["RESNAPSHOT_REASON", "start_after", "start_of_stream"]

RESNAPSHOT_REASON = "wal_horizon_exceeded"
"""Seed B's word for a place that retention has removed."""

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
    if from_offset is not None:
        return start_after(_offset(from_offset, "invalid from_offset"), cursor)
    if last_event_id is not None:
        return start_after(_offset(last_event_id, "invalid Last-Event-ID header"), cursor)
    return After(cursor)


def _offset(text: str, complaint: str) -> Offset:
    if not (text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX):
        raise InvalidRequestError(complaint)
    return Offset(int(text))
