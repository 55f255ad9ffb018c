"""What the answers of receivers of web hooks mean. Pure."""

import email.utils

from tailrace.message.base import BusyError
from tailrace.model.errors import SinkRefusedError

__all__ = ["RETRY_AFTER_S_MAX", "judged"]

RETRY_AFTER_S_MAX = 600.0
"""Longest time for which a receiver that asks for it (`Retry-After`) is left alone."""

_BUSY = frozenset({408, 421, 425, 429})
"""Answers that mean: not now. So does everything from 500 on."""

_STOPPING = {
    401: "it does not accept the credentials",
    403: "it does not accept the credentials",
    404: "there is nothing at this address",
    405: "it takes no POST requests",
    410: "it wants no more messages",
}
"""Answers that are about all messages."""


def judged(status: int, retry_after: str, now_s: float) -> str:
    """Return why a receiver does not take a request, or nothing where it does.

    Raises:
        BusyError: It is busy, for as long as the header `Retry-After` says, if it is there.
        SinkRefusedError: It takes nothing more at all.
    """
    if status < 300:
        return ""
    if status in _STOPPING:
        raise SinkRefusedError(f"the web hook answers {status}: {_STOPPING[status]}")
    if status < 400:
        raise SinkRefusedError(f"the web hook answers {status}: it has moved; name its new address")
    if status in _BUSY or status >= 500:
        raise BusyError(f"the web hook answers {status}", _asked_s(retry_after, now_s))
    return f"the web hook answers {status}"


def _asked_s(text: str, now_s: float) -> float:
    """Return how long a receiver asks to be left alone, which it says in seconds or as a date; within bounds."""
    try:
        asked_s = float(text) if text.isdecimal() else email.utils.parsedate_to_datetime(text).timestamp() - now_s
    except (ValueError, OverflowError):
        return 0.0
    return min(max(asked_s, 0.0), RETRY_AFTER_S_MAX)
