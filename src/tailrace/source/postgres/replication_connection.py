"""A connection to a server that streams its changes: the streaming replication protocol on libpq.

libpq connects, encrypts and authenticates (TLS, SCRAM, GSSAPI, password files, several hosts), as every PostgreSQL user
knows it. The stream itself is read by libpq where it is encrypted, and from the socket otherwise.
"""

import contextlib
import os
import select
import threading
import time
from typing import Any

import psycopg
from psycopg.conninfo import make_conninfo

from tailrace.model.errors import SourceStateError, SourceUnavailableError
from tailrace.source.postgres.failure import translated
from tailrace.source.postgres.frame import Frames
from tailrace.source.postgres.libpq_stream import LibpqStream
from tailrace.source.postgres.position import System, parse_history, parse_lsn
from tailrace.source.postgres.socket_stream import SocketStream

__all__ = ["ReplicationConnection"]


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
        self._stream: SocketStream | LibpqStream | None = None
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
        if self._stream is None:
            self._stream = self._stream_of()
        with translated():
            self._stream.start(command.encode())

    def _stream_of(self) -> "SocketStream | LibpqStream":
        query = "SELECT encrypted FROM pg_stat_gssapi WHERE pid = pg_backend_pid() AND encrypted"
        encrypted = self._pg.ssl_in_use or self.query(query)
        return LibpqStream(self._pg) if encrypted else SocketStream(self._pg.socket)

    def read(self, wait_s: float) -> Frames:
        """Return the frames that have come; wait for some, unless someone calls `wake`, for as long.

        They are good until the next call.

        Raises:
            SourceStateError, SourceUnavailableError: The stream has ended.
        """
        found = self._receive()
        if found:
            return found
        ready, _, _ = select.select([self._pg.socket, self._wake_read], [], [], max(0.0, wait_s))
        if self._wake_read in ready:
            os.read(self._wake_read, 4096)
        return self._receive() if self._pg.socket in ready else b""

    def _receive(self) -> Frames:
        with translated(), self._lock:
            return self._opened().receive()

    def _opened(self) -> "SocketStream | LibpqStream":
        assert self._stream is not None
        return self._stream

    def send(self, payload: bytes) -> None:
        """Send a payload, without waiting for a network that does not take it: then it goes with the next one.

        Raises:
            SourceUnavailableError: The connection is broken.
        """
        with translated(), self._lock:
            if not self._is_closed:
                self._opened().send(payload)

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
            self._opened().finish()
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
            if self._stream is not None:
                self._stream.close()
            self._connection.close()
            os.close(self._wake_read)
            os.close(self._wake_write)
