"""Giving memory back to the system when it is no longer used."""

import asyncio
import ctypes
import gc
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from tailrace.library_pages import drop_library_pages

__all__ = ["Reclaimer", "open_descriptors", "settle_down", "trim"]

_SETTLE_S = 1.0
"""So long after the start, what only starting needed is given back."""

_LOOK_S = 5.0
"""How often connections are counted."""

_TRIM_LOOKS = 12
"""At each this many looks, unused memory is given back in any case."""

_GONE_MIN = 500
"""This many connections must have gone, and more than there are left, before their garbage is collected at once."""


class Reclaimer:
    """Collects garbage soon after many connections have gone, and gives back what the allocator keeps.

    A server collects old garbage seldom, because looking through all objects holds up everything else
    (`tailrace.cli.process`). So what thousands of connections leave behind in cycles would stay for hours. The look is
    short when most objects are that garbage, which is why it waits until more have gone than are left.
    """

    def __init__(
        self,
        count: Callable[[], int] | None = None,
        collect: Callable[[], object] = gc.collect,
        give_back: Callable[[], None] | None = None,
        settle: Callable[[], None] | None = None,
    ) -> None:
        self._count = count or open_descriptors
        self._collect = collect
        self._give_back = give_back or trim
        self._settle = settle or settle_down
        self._most = 0
        self._looks = 0

    async def run(self) -> None:
        """Give back what starting took; then look from time to time, until cancelled."""
        await asyncio.sleep(_SETTLE_S)
        await asyncio.to_thread(self._settle)
        while True:
            await asyncio.sleep(_LOOK_S)
            await self.look()

    async def look(self) -> None:
        """Count connections, and reclaim memory where it is worth it."""
        count = await asyncio.to_thread(self._count)
        self._most = max(self._most, count)
        self._looks += 1
        gone = self._most - count
        if gone >= _GONE_MIN and gone > count:
            self._most = count
            self._looks = 0
            self._collect()
        if self._looks % _TRIM_LOOKS == 0:
            await asyncio.to_thread(self._give_back)


def open_descriptors() -> int:
    """Return how many descriptors this process has open, which are mostly connections; 0 where nobody can tell."""
    for directory in ("/proc/self/fd", "/dev/fd"):
        with suppress(OSError):
            return sum(1 for _ in Path(directory).iterdir())
    return 0


def settle_down() -> None:
    """Give back what only starting needed: memory of the C library, and pages of libraries."""
    trim()
    drop_library_pages()


def trim() -> None:
    """Give memory back that the C library keeps for later; where the library is another one, do nothing."""
    library = ctypes.CDLL(None)
    if hasattr(library, "malloc_trim"):
        library.malloc_trim(0)
