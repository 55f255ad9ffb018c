"""Rate limits: how many calls a principal may make. Pure but for the clock.

Each principal has a bucket that holds at most `burst` tokens and is filled at `rate` a second; a call takes one.
"""

import math
from collections import OrderedDict

from tailrace.clock import Clock
from tailrace.model.errors import RateLimitError

__all__ = ["RateLimits"]

_BUCKETS_MAX = 10_000
"""Most principals whose buckets are kept, least recently seen out first; one that comes again has a full bucket."""


class RateLimits:
    """The buckets of all principals. For tasks of one event loop."""

    def __init__(self, rate: float, burst: int, clock: Clock) -> None:
        self._rate = rate
        self._burst = float(burst)
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, name: str) -> None:
        """Count a call of the principal of that name.

        Raises:
            RateLimitError: It has made too many.
        """
        now_s = self._clock.monotonic_s()
        left, then_s = self._buckets.pop(name, (self._burst, now_s))
        left = min(self._burst, left + (now_s - then_s) * self._rate)
        refused = left < 1
        self._buckets[name] = (left if refused else left - 1, now_s)
        if len(self._buckets) > _BUCKETS_MAX:
            self._buckets.popitem(last=False)
        if refused:
            raise RateLimitError(retry_after_ms=max(1, math.ceil((1 - left) / self._rate * 1000)))
