"""The hybrid clock: timestamps for commits that rise strictly, whatever the machine's clock does."""

import threading

from tailrace.model.number import hlc_at

__all__ = ["HybridClock"]


class HybridClock:
    """Gives out timestamps near the wall clock and above all that were given or observed. For any thread.

    The logs of one server share one, so that their commits are in one order. When the machine's clock goes back, or
    more come in a millisecond than the counter holds, timestamps run ahead of it until it has caught up.
    """

    def __init__(self, last: int = 0) -> None:
        self._lock = threading.Lock()
        self._last = last

    @property
    def last(self) -> int:
        """Return the largest timestamp that was given or observed; every later one is larger."""
        return self._last

    def take(self, count: int, now_us: int) -> int:
        """Return the first of `count` consecutive timestamps, which now belong to the caller."""
        with self._lock:
            first = max(self._last + 1, hlc_at(now_us))
            self._last = first + count - 1
            return first

    def observe(self, hlc: int) -> None:
        """Give out only larger ones from now on: this one is in a log."""
        with self._lock:
            self._last = max(self._last, hlc)
