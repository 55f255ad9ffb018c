"""Threads with a connection each, for what blocks."""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

import psycopg

from tailrace.model.errors import SourceStateError, SourceUnavailableError
from tailrace.source.postgres.catalog import Catalog

__all__ = ["Lane", "LaneConnection"]

_T = TypeVar("_T")
_ConnectionT = TypeVar("_ConnectionT", bound="LaneConnection")

_STOPS = "the database is no longer used: the server stops"


class LaneConnection(Catalog):
    """A connection of a lane. For one thread at a time; `interrupt` may be called by any."""

    @property
    def lives(self) -> bool:
        """Tell whether the server still answers: it may have been restarted since."""
        with contextlib.suppress(SourceStateError, SourceUnavailableError):
            self.rows("SELECT 1")
        return not self._connection.closed

    def interrupt(self) -> None:
        """Have the server end what runs now."""
        with contextlib.suppress(psycopg.Error):
            self._connection.cancel_safe(timeout=2.0)


class Lane(Generic[_ConnectionT]):
    """Threads of one purpose, each with its own connection, which is made when it is first needed.

    Once `stopping` is set, nothing more is begun.
    """

    def __init__(self, connect: Callable[[], _ConnectionT], threads: int, name: str, stopping: threading.Event) -> None:
        self._connect = connect
        self._stopping = stopping
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._own = threading.local()
        self._connections: set[_ConnectionT] = set()

    async def call(self, use: Callable[[_ConnectionT], _T]) -> _T:
        """Return `use(connection)`, run in one of the threads.

        Raises:
            SourceUnavailableError: The database cannot be reached or refuses, or the lane is closed.
        """
        if self._stopping.is_set():
            raise SourceUnavailableError(_STOPS)
        calling = asyncio.get_running_loop().run_in_executor(self._executor, self._call, use)
        try:
            return await calling
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if self._stopping.is_set() and task is not None and not task.cancelling():
                raise SourceUnavailableError(_STOPS) from None  # no thread had come to it
            raise

    async def close(self, *, interrupt: bool = True) -> None:
        """End what runs, or let it finish, and disconnect."""
        await asyncio.to_thread(self._close, interrupt)

    def _close(self, interrupt: bool) -> None:
        for connection in tuple(self._connections) if interrupt else ():
            connection.interrupt()
        self._executor.shutdown(cancel_futures=interrupt)
        for connection in self._connections:
            connection.close()
        self._connections.clear()

    def _call(self, use: Callable[[_ConnectionT], _T]) -> _T:
        try:
            return use(self._connected())
        except SourceStateError as error:  # rights can be granted, and settings corrected, while we run
            raise SourceUnavailableError(str(error)) from error
        except SourceUnavailableError as error:
            if self._stopping.is_set():
                raise SourceUnavailableError(_STOPS) from error
            raise

    def _connected(self) -> _ConnectionT:
        connection: _ConnectionT | None = getattr(self._own, "connection", None)
        if connection is not None and connection.lives:
            return connection
        if connection is not None:
            self._connections.discard(connection)
        made = self._own.connection = self._connect()
        self._connections.add(made)
        return made
