"""An event loop in a thread of its own, for clients that are written for one and answer their server in between."""

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import CancelledError
from typing import Any, TypeVar

__all__ = ["LoopThread"]

_T = TypeVar("_T")


class LoopThread:
    """Runs what one thread gives it in another one, which starts when it is needed and ends with `close`."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Return the result of a coroutine.

        Raises:
            ConnectionAbortedError: The client has cancelled it, as some do with what waits when they are disconnected.
        """
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=_serve, args=(self._loop,), name=self._name, daemon=True)
            self._thread.start()
        try:
            return asyncio.run_coroutine_threadsafe(work, self._loop).result()
        except CancelledError:
            raise ConnectionAbortedError from None

    def close(self, last: Coroutine[Any, Any, None] | None = None) -> None:
        """Run one thing more, then end the loop, whatever is left in it, and the thread. Safe to repeat."""
        if self._loop is None or self._thread is None:
            return
        if last is not None:
            self.run(last)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop = self._thread = None


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    loop.run_forever()
    loop.run_until_complete(_end_tasks())
    loop.close()


async def _end_tasks() -> None:
    left: set[asyncio.Task[Any]] = {task for task in asyncio.all_tasks() if task is not asyncio.current_task()}
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)
