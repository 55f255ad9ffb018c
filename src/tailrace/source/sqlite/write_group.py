"""Writes of many clients in few transactions: those that came while one was under way make up the next."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import apsw
from msgspec import Struct

from tailrace.model.errors import SourceUnavailableError, TailraceError
from tailrace.source.sqlite.connection_thread import ConnectionThread

__all__ = ["Write", "WriteGroup"]

_T = TypeVar("_T")

_WAITING_MAX = 4096
"""Writes that may wait for their transaction; later ones are asked to try again."""

_GROUP_MAX = 256
"""Most writes in one transaction."""

_GROUP_BYTES_MAX = 8 << 20
"""Most bytes in one transaction; one write may be larger."""


class Write(Struct, frozen=True):
    """One write: what it does in the transaction, and about how much it writes."""

    run: Callable[[apsw.Connection], Any]
    size_bytes: int = 0


Transact = Callable[[apsw.Connection, Sequence[Write]], list[Any]]
"""Runs writes in one transaction and returns their results. It raises when nothing of them was kept."""


class WriteGroup:
    """Runs writes in their order, as many in one transaction as have come. For tasks of one event loop.

    A write that fails fails alone: the others of its transaction are run again without it.
    """

    def __init__(self, thread: ConnectionThread, transact: Transact) -> None:
        self._thread = thread
        self._transact = transact
        self._waiting: deque[tuple[Write, asyncio.Future[Any]]] = deque()
        self._idle = asyncio.Event()
        self._idle.set()
        self._closed = False

    async def run(self, write: Write) -> Any:
        """Return the result of a write; it is on disk then. Cancelled before its turn, it is not made.

        Raises:
            SourceUnavailableError: Too many writes wait, or the database cannot be written now.
        """
        if self._closed:
            raise SourceUnavailableError("the server stops")
        if len(self._waiting) >= _WAITING_MAX:
            raise SourceUnavailableError("too many writes are waiting for the database: try again later")
        done = asyncio.get_running_loop().create_future()
        self._waiting.append((write, done))
        if self._idle.is_set():
            self._begin()
        return await done

    async def close(self) -> None:
        """Refuse more writes, and return when those that wait are made."""
        self._closed = True
        await self._idle.wait()

    def _begin(self) -> None:
        """Start the transaction of those that wait."""
        group: list[tuple[Write, asyncio.Future[Any]]] = []
        size_bytes = 0
        while self._waiting and len(group) < _GROUP_MAX:
            write, done = self._waiting[0]
            if group and size_bytes + write.size_bytes > _GROUP_BYTES_MAX:
                break
            self._waiting.popleft()
            if not done.done():
                group.append((write, done))
                size_bytes += write.size_bytes
        if not group:
            self._idle.set()
        else:
            self._idle.clear()
            futures = [done for _, done in group]
            running = self._thread.submit(lambda connection: self._outcomes(connection, [write for write, _ in group]))
            running.add_done_callback(lambda finished: self._finish(finished, futures))

    def _finish(self, finished: asyncio.Future[list[Any]], futures: Sequence[asyncio.Future[Any]]) -> None:
        """Tell each who waits what came of it, and start the next transaction."""
        error = finished.exception()
        outcomes = [error] * len(futures) if error is not None else finished.result()
        for outcome, done in zip(outcomes, futures, strict=True):
            if done.done():
                continue
            if isinstance(outcome, BaseException):
                done.set_exception(outcome)
            else:
                done.set_result(outcome)
        self._begin()

    def _outcomes(self, connection: apsw.Connection, writes: Sequence[Write]) -> list[Any]:
        """Return for each write its result or its error. Runs in the thread of the connection."""
        try:
            return self._transact(connection, writes)
        except TailraceError as error:
            if len(writes) == 1 or isinstance(error, SourceUnavailableError):
                return [error] * len(writes)
        return [outcome for write in writes for outcome in self._outcomes(connection, [write])]
