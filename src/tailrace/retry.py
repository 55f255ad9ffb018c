"""Retries: how long to pause after a failure, when to give up, and the loops around that, blocking and not."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from msgspec import Struct

__all__ = ["Backoff", "Retry", "resting"]

_T = TypeVar("_T")

_LOOK_S = 0.5
"""How often a pause looks whether it is still wanted."""


class Backoff(Struct, frozen=True):
    """How long to pause: first, then doubled up to the longest; each is shortened by up to a half at random."""

    first_s: float = 0.05
    longest_s: float = 5.0

    def pause_s(self, failures: int, chance: float) -> float:
        """Return the pause after that many failures (from 1); `chance` lies in [0, 1)."""
        # Bounded, as an outage of days would overflow a float.
        doubled = self.first_s * 2.0 ** min(failures - 1, 30)
        # Shortened at random, never lengthened: clients that failed together come back apart, and `longest_s` stays a
        # true bound.
        return min(doubled, self.longest_s) * (1 - chance / 2)


class Retry:
    """The failures of one thing that is retried. For one thread or task.

    An outage begins with its first failure and ends with `recovered`. It starts over, with the first pause, where
    `progress` has grown since the failure before: what gets on between failures is not away.
    """

    def __init__(
        self,
        backoff: Backoff,
        *,
        outage_s_max: float | None = None,
        progress: Callable[[], int] = lambda: 0,
        monotonic_s: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] = random.random,
    ) -> None:
        """Make one that never gives up, or gives up when an outage has lasted for `outage_s_max`."""
        self.failures = 0
        """Failures since the outage began; 0 when there is none."""
        self._backoff = backoff
        self._outage_s_max = outage_s_max
        self._progress = progress
        self._monotonic_s = monotonic_s
        self._chance = chance
        self._begin_s = 0.0
        self._progress_before = 0

    def failed(self, error: Exception) -> float:
        """Count a failure; return how long to pause before the next attempt.

        Raises:
            Exception: That error, where the outage has lasted for long enough.
        """
        progress = self._progress()
        # A target that takes something between two failures is slow, not away. Without this, a long batch to a busy
        # target would run into the limit of an outage although each attempt gets further.
        if not self.failures or progress > self._progress_before:
            self.failures, self._begin_s, self._progress_before = 0, self._monotonic_s(), progress
        # Time decides and not the number of attempts: how many fit into an outage depends on how long each one takes to
        # fail.
        if self._outage_s_max is not None and self._monotonic_s() - self._begin_s >= self._outage_s_max:
            raise error
        self.failures += 1
        return self._backoff.pause_s(self.failures, self._chance())

    def recovered(self) -> bool:
        """End the outage; return whether there was one."""
        failures, self.failures = self.failures, 0
        return failures > 0

    def call(
        self,
        attempt: Callable[[], _T],
        *,
        on: type[Exception] | tuple[type[Exception], ...],
        rest: Callable[[float, Exception], bool],
    ) -> _T:
        """Return the result of the first attempt that succeeds, pausing with `rest` after each failure in `on`.

        `rest` takes the pause and the error; where it returns False, nobody wants another attempt.

        Raises:
            Exception: The last error, where it gives up or no other attempt is wanted; any that is not in `on`.
        """
        while True:
            try:
                result = attempt()
            except on as error:
                if not rest(self.failed(error), error):
                    raise
            else:
                self.recovered()
                return result

    async def call_async(
        self,
        attempt: Callable[[], Awaitable[_T]],
        *,
        on: type[Exception] | tuple[type[Exception], ...],
        notice: Callable[[Exception], None],
    ) -> _T:
        """Return the result of the first attempt that succeeds; `notice` gets each failure in `on`. Cancel it to stop.

        Raises:
            Exception: The last error, where it gives up; any that is not in `on`.
        """
        while True:
            try:
                result = await attempt()
            except on as error:
                pause_s = self.failed(error)
                notice(error)
                await asyncio.sleep(pause_s)
            else:
                self.recovered()
                return result


def resting(wanted: Callable[[], bool], sleep: Callable[[float], object] = time.sleep) -> Callable[[float], bool]:
    """Return a pause that ends early, and returns False, as soon as nobody has `wanted` the end of it."""

    def rest(pause_s: float) -> bool:
        end_s = time.monotonic() + pause_s
        while wanted():
            left_s = end_s - time.monotonic()
            if left_s <= 0:
                return True
            sleep(min(_LOOK_S, left_s))
        return False

    return rest
