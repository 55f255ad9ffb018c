"""A replication stream on the socket itself, for connections that are not encrypted.

libpq has connected and authenticated; from the command that begins the stream on, this speaks with the server. libpq
would hand over one message a call. Here, one call of the system fills a large buffer, and frames are used where they
lie in it.
"""

import errno
import os
import select
import socket
from struct import Struct as Layout

import psycopg

from tailrace.model.errors import SourceUnavailableError
from tailrace.source.postgres.frame import DATA, HEAD_BYTES, Frames, frame_bytes, pack_frames, whole_end

__all__ = ["SocketStream"]

_BUFFER_BYTES = 1 << 20
"""So much is read at once at most, unless a single frame is larger."""

_HEAD = Layout(">cI")
_COPY_DONE = _HEAD.pack(b"c", 4)
_COPY_BOTH, _ERROR, _READY, _DONE = b"WEZc"
_FIELD_STATE, _FIELD_TEXT, _FIELD_DETAIL, _FIELD_HINT = b"CMDH"


class SocketStream:
    """The socket of a connection on which nothing is under way. Calls do not block, but for `start`."""

    def __init__(self, descriptor: int) -> None:
        self._socket = socket.socket(fileno=os.dup(descriptor))
        self._socket.setblocking(False)
        self._buffer = bytearray(_BUFFER_BYTES)
        self._begin = self._end = 0
        self._unsent = b""
        self._finishing = False

    def start(self, command: bytes) -> None:
        """Send the command that begins a stream, and wait for it.

        Raises:
            psycopg.Error: The server refuses. It may be asked again.
        """
        self._send(_HEAD.pack(b"Q", 5 + len(command)) + command + b"\0")
        refusal: psycopg.Error | None = None
        while True:
            while (size := self._whole_message()) is None:
                select.select([self._socket], [], [])
                self._fill()
            kind = self._buffer[self._begin]
            body = bytes(self._buffer[self._begin + HEAD_BYTES : self._begin + size])
            self._begin += size
            if kind == _COPY_BOTH:
                return
            if kind == _ERROR:
                refusal = _error_of(body)
            if kind == _READY:
                raise refusal or psycopg.OperationalError("the server did not begin to stream")

    def receive(self) -> Frames:
        """Return the frames that have come, if any; they are good until the next call.

        Raises:
            psycopg.Error: The server ended the stream, and said why.
            SourceUnavailableError: It is closed.
        """
        self._fill()
        while True:
            begin, self._begin = self._begin, whole_end(self._buffer, self._begin, self._end)
            if self._begin > begin:
                return memoryview(self._buffer)[begin : self._begin]
            size = self._whole_message()
            if size is None:
                return b""
            self._rare(size)

    def send(self, payload: bytes) -> None:
        """Send a payload; what the network does not take goes with the next one."""
        self._send(pack_frames([payload]))

    def finish(self) -> None:
        """Say that no more will come. Then `receive` returns nothing until the server has ended the stream."""
        self._finishing = True
        self._send(_COPY_DONE)

    def close(self) -> None:
        """Let go of the socket; libpq closes the connection."""
        self._socket.close()

    def _send(self, data: bytes) -> None:
        self._unsent += data
        try:
            self._unsent = self._unsent[self._socket.send(self._unsent) :]
        except BlockingIOError:
            return
        except OSError as error:
            raise _broken(error) from error

    def _whole_message(self) -> int | None:
        """Return the length of the first message in the buffer, of whatever type; None where it is not all there."""
        have = self._end - self._begin
        if have < HEAD_BYTES:
            return None
        size = frame_bytes(self._buffer, self._begin)
        return size if size <= have else None

    def _fill(self) -> None:
        """Read what there is into the buffer, behind what is there and not used yet."""
        have = self._end - self._begin
        wanted = max(_BUFFER_BYTES, frame_bytes(self._buffer, self._begin) if have >= HEAD_BYTES else 0)
        if len(self._buffer) != wanted:  # for one large frame, and back
            larger = bytearray(wanted)
            larger[:have] = self._buffer[self._begin : self._end]
            self._buffer, self._begin, self._end = larger, 0, have
        elif self._begin:  # what is left is mostly less than a frame
            self._buffer[:have] = self._buffer[self._begin : self._end]
            self._begin, self._end = 0, have
        try:
            count = self._socket.recv_into(memoryview(self._buffer)[self._end :])
        except BlockingIOError:
            return
        except OSError as error:
            raise _broken(error) from error
        if not count:
            raise SourceUnavailableError("the server closed the replication connection")
        self._end += count

    def _rare(self, size: int) -> None:
        """Take a message that is no frame."""
        kind = self._buffer[self._begin]
        body = bytes(self._buffer[self._begin + HEAD_BYTES : self._begin + size])
        self._begin += size
        if kind == _ERROR:
            raise _error_of(body)
        if kind == _READY or (kind == _DONE and not self._finishing):
            raise SourceUnavailableError("the server ended the stream")
        if kind == DATA or size < HEAD_BYTES:
            raise SourceUnavailableError("the server sent a message of an impossible length")


def _broken(error: OSError) -> SourceUnavailableError:
    gone = error.errno in {errno.EPIPE, errno.ECONNRESET}
    return SourceUnavailableError(
        "the server closed the replication connection" if gone else f"the replication connection broke: {error}"
    )


def _error_of(body: bytes) -> psycopg.Error:
    """Return the error that the server sent: fields, each with its type, ended by a zero."""
    fields = {field[0]: field[1:].decode("utf-8", "replace") for field in body.split(b"\0") if field}
    state, text = fields.get(_FIELD_STATE, ""), fields.get(_FIELD_TEXT, "")
    more = fields.get(_FIELD_DETAIL) or fields.get(_FIELD_HINT)
    try:
        kind = psycopg.errors.lookup(state)
    except KeyError:
        kind = psycopg.OperationalError
    return kind(f"{text} ({more})" if more else text)
