"""A thread with an event loop in it, for callers that do not await."""

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeVar

from tailrace.client.errors import ConnectionFailed

__all__ = ["LoopThread"]

_T = TypeVar("_T")

_DISCONNECTED = "the client was disconnected"

_LOOK_S = 0.5
"""How often a waiting thread wakes, so that a signal that came just before the wait is noticed too."""

_END_S_MAX = 10.0
"""Longest time that an interrupted coroutine may take to end."""


class LoopThread:
    """Runs coroutines on its own event loop and gives their results. Any thread but its own may call it."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="tailrace-client", daemon=True)
        self._lock = threading.Lock()
        self._closed = False
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        """Run a coroutine to its end and return its result or raise its error.

        When the waiting is interrupted, by Ctrl-C for example, the coroutine is cancelled, and has ended on return.

        Raises:
            ConnectionFailed: The thread was closed, before or meanwhile.
        """
        run = _Run(self._loop, coroutine)
        try:
            with self._lock:
                if self._closed:
                    run.refuse()
                else:
                    self._loop.call_soon_threadsafe(run.start)
            while not run.wait(_LOOK_S):
                pass
            return run.future.result()
        except BaseException:
            if not run.future.done():
                self._loop.call_soon_threadsafe(run.cancel)
                run.wait(_END_S_MAX)
            raise

    def close(self) -> None:
        """Cancel what still runs and end the thread."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            end = _Run(self._loop, _cancel_others())
            self._loop.call_soon_threadsafe(end.start)
        end.future.result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class _Run(Generic[_T]):
    """One coroutine on its way: started and cancelled in the loop's thread, waited for in another.

    Its outcome is in `future`, which is to be asked for it at the end alone: waiting for a future takes a lock that an
    interrupt can leave taken, and then the loop's thread waits for it for ever.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, _T]) -> None:
        self.future: Future[_T] = Future()
        self._loop = loop
        self._coroutine = coroutine
        self._task: asyncio.Task[_T] | None = None
        self._ended: SimpleQueue[None] = SimpleQueue()

    def wait(self, timeout_s: float) -> bool:
        """Wait until there is an outcome, and tell so once; or that there is none in time."""
        try:
            self._ended.get(timeout=timeout_s)
        except Empty:
            return False
        return True

    def start(self) -> None:
        self._task = self._loop.create_task(self._coroutine)
        self._task.add_done_callback(self._hand_over)

    def cancel(self) -> None:
        """End the coroutine; it may have been interrupted before it was started."""
        if self._task is None:
            self.refuse()
        else:
            self._task.cancel()

    def refuse(self) -> None:
        """End the coroutine before it began."""
        self._coroutine.close()
        self._fail(ConnectionFailed(_DISCONNECTED))

    def _hand_over(self, task: asyncio.Task[_T]) -> None:
        """Give the outcome to the thread that waits for it."""
        error = ConnectionFailed(_DISCONNECTED) if task.cancelled() else task.exception()
        if error is None:
            self.future.set_result(task.result())
            self._ended.put(None)
        else:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        self.future.set_exception(error)
        self._ended.put(None)


async def _cancel_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_asyncgens()
