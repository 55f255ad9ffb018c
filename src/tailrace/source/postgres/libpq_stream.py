"""A replication stream by libpq, for connections that are encrypted: libpq alone can read them."""

import select

import psycopg
from psycopg import pq

from tailrace.model.errors import SourceUnavailableError
from tailrace.source.postgres.frame import Frames, pack_frames

__all__ = ["LibpqStream"]

_BATCH_BYTES = 1 << 20
"""About so much is returned at once."""

_CLOSED = "the server closed the replication connection"


class LibpqStream:
    """A connection on which nothing is under way. Calls do not block, but for `start`; see `SocketStream`."""

    def __init__(self, connection: "pq.abc.PGconn") -> None:
        self._pg = connection

    def start(self, command: bytes) -> None:
        """Send the command that begins a stream, and wait for it.

        Raises:
            psycopg.Error: The server refuses. It may be asked again.
        """
        self._pg.send_query(command)
        while self._pg.flush():
            select.select([], [self._pg.socket], [])
        while self._pg.is_busy():
            select.select([self._pg.socket], [], [])
            self._pg.consume_input()
        result = self._pg.get_result()
        if result is None or result.status != pq.ExecStatus.COPY_BOTH:
            raise _error_of(result)
        self._pg.nonblocking = 1

    def receive(self) -> Frames:
        """Return the frames that have come, if any.

        Raises:
            psycopg.Error: The server ended the stream, and said why.
            SourceUnavailableError: It is closed.
        """
        found = self._drain()
        if not found:
            self._pg.consume_input()
            found = self._drain()
        return found

    def _drain(self) -> bytes:
        found: list[bytes] = []
        size_bytes = 0
        get = self._pg.get_copy_data
        while size_bytes < _BATCH_BYTES:
            count, data = get(1)
            if count <= 0:
                break
            found.append(bytes(data))
            size_bytes += count
        else:
            return pack_frames(found)
        if count < 0 and not found:
            # What is still under way may never come, and libpq would wait for it.
            result = None if self._pg.is_busy() else self._pg.get_result()
            if result is not None and result.status == pq.ExecStatus.FATAL_ERROR:
                raise _error_of(result)
            raise SourceUnavailableError(_CLOSED)
        return pack_frames(found)

    def send(self, payload: bytes) -> None:
        """Send a payload; what the network does not take goes with the next one."""
        self._pg.put_copy_data(payload)
        self._pg.flush()

    def finish(self) -> None:
        """Say that no more will come."""
        self._pg.put_copy_end()
        self._pg.flush()

    def close(self) -> None:
        """Do nothing: the connection is closed by whoever has it."""


def _error_of(result: "pq.abc.PGresult | None") -> psycopg.Error:
    """Return the error that a result is."""
    if result is None:
        return psycopg.OperationalError(_CLOSED)
    state = result.error_field(pq.DiagnosticField.SQLSTATE)
    text = result.error_message.decode("utf-8", "replace")
    kind = psycopg.errors.lookup(state.decode()) if state else psycopg.OperationalError
    return kind(text, info=result)
