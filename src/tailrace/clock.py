"""Time as an argument."""

import time
from typing import Protocol

__all__ = ["Clock", "SystemClock"]


class Clock(Protocol):
    """Tells the time. Everything that needs it takes a clock, so that tests can hold it still."""

    def now_us(self) -> int:
        """Return microseconds since the Unix epoch. May go back when the machine's clock is set."""

    def monotonic_s(self) -> float:
        """Return seconds that never go back, for measuring spans."""


class SystemClock:
    """The machine's clock."""

    def now_us(self) -> int:
        """Return microseconds since the Unix epoch."""
        return time.time_ns() // 1000

    def monotonic_s(self) -> float:
        """Return seconds since some fixed moment."""
        return time.monotonic()
