"""A process that runs SQL of clients for a server, one request after the other, until it is killed or the server ends.

One instruction of SQLite may take hours (a search for a long text in a long text), and no clock within the process can
end it. So the server kills the process instead. The operating system releases its locks, and what was not committed is
rolled back by whoever opens the database next.

The imports are few on purpose: they are most of the time that a process takes to start.
"""

import os
import resource
import select
import signal
import socket
import sys
import threading
import time
from pathlib import Path

import apsw
import msgspec

from tailrace.model.errors import ResultTooLargeError, SourceStateError, SourceUnavailableError, TailraceError
from tailrace.source.sqlite.client_query import open_reading, run_query, snapshot
from tailrace.source.sqlite.connection import FileId, file_id
from tailrace.source.sqlite.footprint import read_footprint
from tailrace.source.sqlite.one_statement import refresh_schema
from tailrace.source.sqlite.process_message import (
    HEADER,
    Answer,
    AskCommit,
    Commit,
    FootprintRequest,
    ProcessFailure,
    ProcessLimits,
    QueryAnswer,
    QueryRequest,
    Request,
    StatementRequest,
    Written,
    decode_request,
    encode,
    failure_of,
)

__all__ = ["main"]

_CHUNK_BYTES = 1 << 16


def main() -> None:
    """Serve the socket whose number is the first argument; then come the database and the limits."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to all; the server decides when this one ends
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    channel = socket.socket(fileno=int(sys.argv[1]))
    threading.Thread(target=_end_with_server, args=(channel.fileno(),), daemon=True).start()
    limits = msgspec.json.decode(sys.argv[3], type=ProcessLimits)
    _limit(resource.RLIMIT_AS, limits.memory_bytes)
    _limit(resource.RLIMIT_CORE, 0)
    apsw.hard_heap_limit(limits.heap_bytes)
    _Worker(channel, Path(sys.argv[2]), limits).run()


class _Worker:
    """Answers requests with a connection that is opened for the first one."""

    def __init__(self, channel: socket.socket, path: Path, limits: ProcessLimits) -> None:
        self._channel = channel
        self._path = path
        self._limits = limits
        self._open: tuple[apsw.Connection, FileId | None, bool] | None = None

    def run(self) -> None:
        """Answer until the server ends."""
        while True:
            self._channel.sendall(encode(self._answer(self._receive())))

    def _receive(self) -> Request:
        (size_bytes,) = HEADER.unpack(self._read(HEADER.size))
        return decode_request(self._read(size_bytes))

    def _read(self, size_bytes: int) -> bytearray:
        taken = bytearray()
        while len(taken) < size_bytes:
            part = self._channel.recv(min(size_bytes - len(taken), _CHUNK_BYTES))
            if not part:
                sys.exit(0)  # the server has ended
            taken += part
        return taken

    def _answer(self, request: Request) -> Answer:
        try:
            return self._carry_out(request)
        except TailraceError as error:
            if isinstance(error, SourceStateError):
                return _unusable(error)
            return failure_of(error)
        except (apsw.BusyError, apsw.LockedError, apsw.SchemaChangeError):
            return failure_of(SourceUnavailableError("another process has locked the database: try again"))
        except MemoryError:
            return failure_of(ResultTooLargeError("the query needs too much memory: ask for less"))
        except apsw.Error as error:
            return _unusable(error) if isinstance(request, StatementRequest) else _unreadable(error)

    def _carry_out(self, request: Request) -> Answer:
        deadline_s = time.monotonic() + getattr(request, "left_s", 0.0)
        match request:
            case QueryRequest():
                connection = self._connection(writable=False)
                found = run_query(connection, request.sql, request.arguments, request.limits, deadline_s)
                return QueryAnswer(found.columns, found.rows, found.catalog)
            case FootprintRequest():
                connection = self._connection(writable=False)
                with snapshot(connection):
                    refresh_schema(connection)
                    return read_footprint(connection, request.sql, request.arguments, deadline_s)
            case StatementRequest():
                # Only such a process needs what sets capture up.
                from tailrace.source.sqlite.client_statement import run_statement

                connection = self._connection(writable=True)
                done = run_statement(
                    connection,
                    request.reader,
                    request.sql,
                    request.arguments,
                    request.limits,
                    deadline_s,
                    self._ask_commit,
                )
                return Written(done.columns, done.rows, done.changes)
            case Commit():
                raise AssertionError("nothing was to be committed")

    def _ask_commit(self) -> None:
        self._channel.sendall(encode(AskCommit()))
        assert isinstance(self._receive(), Commit)

    def _connection(self, *, writable: bool) -> apsw.Connection:
        """Return the connection; a new one where another file has taken the place of the database."""
        file = file_id(self._path)
        if self._open is not None and self._open[1:] != (file, writable):
            self._close()
        if self._open is None:
            if writable:
                from tailrace.source.sqlite.client_statement import open_writing

                self._open = (open_writing(self._path), file, writable)
            else:
                _limit(resource.RLIMIT_FSIZE, self._limits.temporary_bytes)
                self._open = (open_reading(self._path), file, writable)
        return self._open[0]

    def _close(self) -> None:
        if self._open is not None:
            self._open[0].close()
            self._open = None


def _unusable(error: Exception) -> ProcessFailure:
    if isinstance(error, apsw.FullError):
        return failure_of(SourceUnavailableError("the disk of the database is full: free some space, then try again"))
    reason = SourceUnavailableError("the database cannot be used now: see the log of the server")
    return msgspec.structs.replace(failure_of(reason), detail=str(error))


def _unreadable(error: apsw.Error) -> ProcessFailure:
    """Return why a process that only reads failed. All it writes is temporary files."""
    if isinstance(error, apsw.FullError) or getattr(error, "extendedresult", 0) == apsw.SQLITE_IOERR_WRITE:
        return failure_of(ResultTooLargeError("the query needs too much temporary space: ask for less"))
    return _unusable(error)


def _limit(kind: int, soft: int) -> None:
    """Lower a limit of this process; where the system has none of that kind, there is none."""
    hard = resource.getrlimit(kind)[1]
    if hard == resource.RLIM_INFINITY or soft < hard:
        resource.setrlimit(kind, (soft, hard))


def _end_with_server(descriptor: int) -> None:
    """End this process when the other end of the channel is closed, whatever a query does: also at a kill -9.

    A query releases Python's lock while SQLite works, so this thread can always act.
    """
    poll = select.poll()
    poll.register(descriptor, 0)  # only that the other side has gone
    poll.poll()
    os._exit(0)
