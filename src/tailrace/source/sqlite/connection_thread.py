"""A connection with a thread of its own, for what clients ask for."""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import apsw

from tailrace.model.errors import SourceStateError, SourceUnavailableError
from tailrace.source.sqlite.connection import FileId, file_id

__all__ = ["ConnectionThread", "for_clients"]

logger = logging.getLogger(__name__)

_T = TypeVar("_T")


class ConnectionThread:
    """Runs functions of a connection one after the other. The connection is made when it is first needed."""

    def __init__(self, connect: Callable[[], apsw.Connection], name: str) -> None:
        self._connect = connect
        self._executor = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._connection: apsw.Connection | None = None
        self._file: FileId | None = None

    def submit(self, use: Callable[[apsw.Connection], _T]) -> asyncio.Future[_T]:
        """Return the future of `use(connection)`.

        Raises:
            SourceUnavailableError: The database cannot be reached, is locked or is full. From the future, as all else.
        """
        return asyncio.get_running_loop().run_in_executor(self._executor, self._call, use)

    async def close(self) -> None:
        """Finish what was submitted, and disconnect."""
        await asyncio.to_thread(self._executor.shutdown)
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def interrupt(self) -> None:
        """End the statement that runs now."""
        if self._connection is not None:
            self._connection.interrupt()

    def _call(self, use: Callable[[apsw.Connection], _T]) -> _T:
        with for_clients():
            if self._connection is not None and file_id(Path(self._connection.filename)) != self._file:
                self._connection.close()  # another file was put in the place of the one that we have open
                self._connection = None
            if self._connection is None:
                self._connection = self._connect()
                self._file = file_id(Path(self._connection.filename))
            return use(self._connection)


@contextlib.contextmanager
def for_clients() -> Iterator[None]:
    """Turn SQLite's errors into ours, in words that tell a client nothing about the server's files."""
    try:
        yield
    except (apsw.BusyError, apsw.LockedError, apsw.SchemaChangeError) as error:
        raise SourceUnavailableError("the database is locked by another program: try again") from error
    except apsw.FullError as error:
        raise SourceUnavailableError("the disk of the database is full: free some space, then try again") from error
    except (apsw.CantOpenError, apsw.IOError, apsw.CorruptError, apsw.NotADBError, SourceStateError) as error:
        logger.warning("a database cannot be used", extra={"reason": str(error)})
        raise SourceUnavailableError("the database cannot be used now: see the log of the server") from error
