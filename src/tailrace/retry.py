"""Trying again, with growing pauses."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from msgspec import Struct

__all__ = ["Backoff", "retry"]

_T = TypeVar("_T")


class Backoff(Struct, frozen=True):
    """How long to pause: first, then doubled up to the longest; each is shortened by up to a half at random."""

    first_s: float = 0.05
    longest_s: float = 5.0

    def pause_s(self, failures: int, chance: float) -> float:
        """Return the pause after that many failures (from 1); `chance` lies in [0, 1)."""
        doubled = self.first_s * 2.0 ** min(failures - 1, 30)
        return min(doubled, self.longest_s) * (1 - chance / 2)


async def retry(
    attempt: Callable[[], Awaitable[_T]],
    *,
    on: type[Exception] | tuple[type[Exception], ...],
    notice: Callable[[Exception], None],
    backoff: Backoff,
) -> _T:
    """Return the result of the first attempt that succeeds; tell `notice` of each failure of the kinds in `on`.

    Any other exception passes through. Never gives up: cancel it to stop.
    """
    failures = 0
    while True:
        try:
            return await attempt()
        except on as error:
            failures += 1
            notice(error)
        await asyncio.sleep(backoff.pause_s(failures, random.random()))  # noqa: S311 (spread, not secrecy)
