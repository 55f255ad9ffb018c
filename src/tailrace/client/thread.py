"""A thread with an event loop in it, for callers that do not await."""

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future, wait
from typing import Any, TypeVar

__all__ = ["LoopThread"]

_T = TypeVar("_T")

_END_S_MAX = 10.0
"""Longest time that an interrupted coroutine may take to end."""


class LoopThread:
    """Runs coroutines on its own event loop and gives their results. Any thread but its own may call it."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="tailrace-client", daemon=True)
        self._thread.start()

    @property
    def closed(self) -> bool:
        """Tell whether the thread has ended."""
        return self._loop.is_closed()

    def run(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        """Run a coroutine to its end and return its result or raise its error.

        When the waiting is interrupted, by Ctrl-C for example, the coroutine is cancelled, and has ended on return.
        """
        future: Future[_T] = Future()
        tasks: list[asyncio.Task[_T]] = []

        def start() -> None:
            tasks.append(self._loop.create_task(coroutine))
            tasks[0].add_done_callback(lambda task: _hand_over(task, future))

        def cancel() -> None:
            tasks[0].cancel()

        self._loop.call_soon_threadsafe(start)
        try:
            return future.result()
        except BaseException:
            if not future.done():
                self._loop.call_soon_threadsafe(cancel)
                wait([future], _END_S_MAX)
            raise

    def close(self) -> None:
        """Cancel what still runs and end the thread."""
        if self.closed:
            return
        self.run(_cancel_others())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


def _hand_over(task: asyncio.Task[_T], future: Future[_T]) -> None:
    """Give a task's outcome to the thread that waits for it."""
    if task.cancelled():
        future.set_exception(asyncio.CancelledError())
        return
    error = task.exception()
    if error is None:
        future.set_result(task.result())
    else:
        future.set_exception(error)


async def _cancel_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_asyncgens()
