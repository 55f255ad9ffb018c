"""A clock that stands still until it is moved."""

__all__ = ["FakeClock"]


class FakeClock:
    """Shows the times that were set. The time of day may be turned back, as a machine's may; `monotonic_s` may not."""

    def __init__(self, now_us: int = 1_700_000_000_000_000, monotonic_s: float = 0.0) -> None:
        self._now_us = now_us
        self._monotonic_s = monotonic_s

    def now_us(self) -> int:
        """Return the time that was set."""
        return self._now_us

    def monotonic_s(self) -> float:
        """Return the seconds that were advanced."""
        return self._monotonic_s

    def set_us(self, now_us: int) -> None:
        """Set the time of day, forward or back."""
        self._now_us = now_us

    def advance(self, seconds: float) -> None:
        """Let time pass on both scales."""
        assert seconds >= 0
        self._now_us += round(seconds * 1_000_000)
        self._monotonic_s += seconds
