"""The results of one query that were handed out, by their ETags and in order.

Whoever leaves out an invalidation must know that nobody holds another result than the present one. So every result that
goes out is noted here with a number, and so is every 304, which renews one.
"""

import asyncio
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

__all__ = ["Given"]

_KEPT_MAX = 256

_NUMBERS = count(1)
"""For all queries of the process: what started over cannot be taken for what was before."""


class Given:
    """Numbers what is handed out. For tasks of one event loop."""

    def __init__(self) -> None:
        self.number = next(_NUMBERS)
        """The number of the result that was handed out last."""

        self._etags: deque[tuple[str, int]] = deque()
        self._forgotten = self.number
        self._running: set[asyncio.Future[None]] = set()

    def note(self, etag: str) -> None:
        """Note that a result is handed out. One that is the same as the last takes no more room."""
        self.number = next(_NUMBERS)
        if self._etags and self._etags[-1][0] == etag:
            self._etags.pop()
        self._etags.append((etag, self.number))
        if len(self._etags) > _KEPT_MAX:
            self._forgotten = self._etags.popleft()[1]

    def since(self, number: int) -> frozenset[str] | None:
        """Return the ETags that were handed out after a number; None where that is not known any more."""
        if number < self._forgotten:
            return None
        return frozenset(etag for etag, last in self._etags if last > number)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Let others see that a run is under way whose result will be noted, if there is one."""
        done = asyncio.get_running_loop().create_future()
        self._running.add(done)
        try:
            yield
        finally:
            self._running.discard(done)
            done.set_result(None)

    async def settle(self) -> None:
        """Wait until all runs that are under way have ended: they may have seen the database as it was before."""
        if self._running:
            await asyncio.wait(set(self._running))
