"""A connection to a server that streams its changes: the streaming replication protocol on libpq.

libpq connects, encrypts and authenticates (TLS, SCRAM, GSSAPI, password files, several hosts), as every PostgreSQL user
knows it. Reading goes by its non-blocking calls and `select`.
"""

import contextlib
import os
import select
import threading
import time
from typing import Any

import psycopg
from psycopg import pq
from psycopg.conninfo import make_conninfo

from tailrace.model.errors import SourceStateError, SourceUnavailableError
from tailrace.source.postgres.failure import translated
from tailrace.source.postgres.position import System, parse_history, parse_lsn

__all__ = ["ReplicationConnection"]

_BATCH_BYTES = 1 << 20
"""About so much is returned by one `read`."""

_CLOSED = "the server closed the replication connection"


class ReplicationConnection:
    """One connection in replication mode. One thread reads; `send` and `wake` may be called by any thread.

    libpq allows one thread at a time: `_lock` is held for single calls that do not block, so that status updates get
    through while the reading thread waits for a disk.
    """

    def __init__(self, url: str, parameters: dict[str, str], connect_timeout_s: float) -> None:
        """Connect. Blocking.

        Raises:
            SourceStateError, SourceUnavailableError: The server refuses, or cannot be reached.
        """
        conninfo = make_conninfo(url, **{**parameters, "replication": "database"})
        with translated():
            self._connection = psycopg.Connection[tuple[Any, ...]].connect(
                conninfo, autocommit=True, connect_timeout=round(connect_timeout_s)
            )
        self._pg = self._connection.pgconn
        self._lock = threading.Lock()
        self._is_closed = False
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        os.set_blocking(self._wake_write, False)

    def query(self, sql: str) -> list[tuple[str | None, ...]]:
        """Run a command of the replication protocol, or a statement, before streaming."""
        with translated():
            cursor = self._connection.execute(sql.encode())
            return [tuple(None if cell is None else str(cell) for cell in row) for row in cursor.fetchall()]

    def identify(self) -> System:
        """Return who the server is, and how its timeline came about."""
        system, timeline, lsn, *_ = self.query("IDENTIFY_SYSTEM")[0]
        assert system is not None
        assert timeline is not None
        assert lsn is not None
        number = int(timeline)
        history: tuple[tuple[int, int], ...] = ()
        if number > 1:
            with translated():
                cursor = self._connection.execute(f"TIMELINE_HISTORY {number}".encode(), binary=False)
                row = cursor.fetchone()
            content = row[1] if row else ""
            history = parse_history(content.decode() if isinstance(content, bytes) else str(content))
        return System(int(system), number, parse_lsn(lsn), history)

    def start(self, command: str) -> None:
        """Begin streaming.

        Raises:
            SourceStateError, SourceUnavailableError: The server refuses.
        """
        with translated():
            self._pg.send_query(command.encode())
            while self._pg.flush():
                select.select([], [self._pg.socket], [])
            while self._pg.is_busy():
                select.select([self._pg.socket], [], [])
                self._pg.consume_input()
            result = self._pg.get_result()
            if result is None or result.status != pq.ExecStatus.COPY_BOTH:
                raise _error_of(result)
        self._pg.nonblocking = 1

    def read(self, wait_s: float) -> list[bytes]:
        """Return the payloads that have come; wait for some, unless someone calls `wake`, for as long.

        Raises:
            SourceStateError, SourceUnavailableError: The stream has ended.
        """
        found = self._drain()
        if found:
            return found
        ready, _, _ = select.select([self._pg.socket, self._wake_read], [], [], max(0.0, wait_s))
        if self._wake_read in ready:
            os.read(self._wake_read, 4096)
        if self._pg.socket in ready:
            with translated(), self._lock:
                self._pg.consume_input()
            return self._drain()
        return []

    def _drain(self) -> list[bytes]:
        found: list[bytes] = []
        size_bytes = 0
        get = self._pg.get_copy_data
        with translated(), self._lock:
            while size_bytes < _BATCH_BYTES:
                count, data = get(1)
                if count <= 0:
                    break
                found.append(bytes(data))
                size_bytes += count
            else:
                return found
            if count < 0 and not found:
                # What is still under way may never come, and libpq would wait for it.
                result = None if self._pg.is_busy() else self._pg.get_result()
                if result is not None and result.status == pq.ExecStatus.FATAL_ERROR:
                    raise _error_of(result)
                raise SourceUnavailableError(_CLOSED)
        return found

    def send(self, payload: bytes) -> None:
        """Send a payload, without waiting for a network that does not take it: then it goes with the next one.

        Raises:
            SourceUnavailableError: The connection is broken.
        """
        with translated(), self._lock:
            self._pg.put_copy_data(payload)
            self._pg.flush()

    def wake(self) -> None:
        """Have `read` return."""
        with self._lock:  # a closed pipe's number may be that of another file by now
            if self._is_closed:
                return
            with contextlib.suppress(BlockingIOError):  # then it is awake
                os.write(self._wake_write, b"\0")

    def finish(self, payload: bytes, wait_s: float) -> None:
        """Send a last payload and say that no more will come; wait until the server has ended the stream, for as long.

        So the server has read it, and has let go of the slot.
        """
        end_s = time.monotonic() + wait_s
        self.send(payload)
        with translated(), self._lock:
            self._pg.put_copy_end()
            self._pg.flush()
        try:
            while time.monotonic() < end_s:
                self.read(end_s - time.monotonic())
        except (SourceStateError, SourceUnavailableError):
            return

    def cancel(self) -> None:
        """Have the server end the statement that another thread waits for."""
        self._connection.cancel_safe(timeout=5)

    def close(self) -> None:
        """Disconnect. Safe to repeat."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            self._connection.close()
            os.close(self._wake_read)
            os.close(self._wake_write)


def _error_of(result: "pq.abc.PGresult | None") -> psycopg.Error:
    """Return the error that a result is."""
    if result is None:
        return psycopg.OperationalError(_CLOSED)
    state = result.error_field(pq.DiagnosticField.SQLSTATE)
    text = result.error_message.decode("utf-8", "replace")
    kind = psycopg.errors.lookup(state.decode()) if state else psycopg.OperationalError
    return kind(text, info=result)
