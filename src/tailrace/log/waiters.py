"""Everybody who waits for the head to move, woken at once."""

import asyncio
from collections.abc import Callable

from tailrace.model.errors import LogClosedError

__all__ = ["Waiters"]


class Waiters:
    """One future per waiter and no polling: idle waiters cost nothing, a move costs one callback each."""

    def __init__(self) -> None:
        self._futures: set[asyncio.Future[bool]] = set()
        self._listeners: list[Callable[[], None]] = []

    def listen(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Have something called by each `wake` and by `close`, from now on; return what ends that."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    async def wait(self, timeout_s: float) -> bool:
        """Return True after the next `wake`, False after the timeout.

        Raises:
            LogClosedError: `close` was called meanwhile.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[bool] = loop.create_future()
        expiry = loop.call_later(timeout_s, _answer, future, False)
        self._futures.add(future)
        try:
            return await future
        finally:
            expiry.cancel()
            self._futures.discard(future)

    async def wait_until(self, reached: Callable[[], bool], timeout_s: float) -> bool:
        """Return True as soon as something is `reached`, which is asked after each `wake`; False after the timeout.

        Raises:
            LogClosedError: `close` was called meanwhile.
        """
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + timeout_s
        while not reached():
            left_s = deadline_s - loop.time()
            if left_s <= 0 or not await self.wait(left_s):
                return reached()
        return True

    def wake(self) -> None:
        """Let everybody go on."""
        for future in self._futures:
            _answer(future, True)
        self._futures.clear()
        for listener in self._listeners:
            listener()

    def close(self) -> None:
        """Let everybody know that there will be no more."""
        for future in self._futures:
            if not future.done():
                future.set_exception(LogClosedError("the log is closed"))
        self._futures.clear()
        for listener in self._listeners:
            listener()


def _answer(future: asyncio.Future[bool], answer: bool) -> None:
    if not future.done():
        future.set_result(answer)
