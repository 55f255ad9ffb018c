"""Base of targets whose client library is asynchronous: its event loop runs in a thread of its own.

The loop has to run between two calls as well: such clients answer keep-alive messages of their server by themselves.
"""

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import Collection, Coroutine, Sequence
from concurrent.futures import CancelledError
from typing import Any, ClassVar, TypeVar

from tailrace.message.base import Message, Refusal, TargetTraits
from tailrace.model.errors import SinkError
from tailrace.model.table import TableName, TableSchema

__all__ = ["LoopTarget", "TargetThread"]

_T = TypeVar("_T")


class LoopTarget(ABC):
    """A target that keeps no mark. After any failure its connection is closed; the next call connects again."""

    traits = TargetTraits()

    failures: ClassVar[tuple[type[Exception], ...]]
    """What the client raises that is a failure of the sink."""

    def __init__(self, name: str) -> None:
        self._loop = TargetThread(name)

    def open(self, schemas: Sequence[TableSchema]) -> None:
        """Connect, and make the places that are missing."""
        self._run(self._prepare({schema.table for schema in schemas}))

    def mark(self) -> bytes | None:
        """It keeps none."""
        return None

    def send(self, messages: Sequence[Message], mark: bytes) -> Sequence[Refusal]:
        """Publish messages and wait until all are confirmed."""
        return self._run(self._publish(messages)) if messages else []

    def close(self) -> None:
        """Disconnect, and end the thread that answers the server's questions."""
        self._loop.close(self._disconnected())

    @abstractmethod
    async def _prepare(self, tables: Collection[TableName]) -> None:
        """Connect if need be, and make the places of tables that are missing."""

    @abstractmethod
    async def _publish(self, messages: Sequence[Message]) -> list[Refusal]:
        """Connect if need be, publish messages, and return what was refused."""

    @abstractmethod
    def _disconnected(self) -> Coroutine[Any, Any, None] | None:
        """Forget the connection; return what closes it, if there is one."""

    @abstractmethod
    def _failure(self, error: Exception) -> SinkError:
        """Return what an error of the client means."""

    def _run(self, work: Coroutine[Any, Any, _T]) -> _T:
        try:
            return self._loop.run(work)
        except SinkError:
            self.close()
            raise
        except self.failures as error:
            self.close()
            raise self._failure(error) from None


class TargetThread:
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
