"""The channel between the main process and a worker: messages and connections over a pair of Unix sockets."""

import asyncio
import errno
import logging
import socket
from collections import deque
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

import msgspec
from msgspec import Struct

from tailrace.worker.message import Framer, framed

__all__ = ["Channel"]

logger = logging.getLogger(__name__)

_M = TypeVar("_M")

_READ_BYTES = 1 << 16
_CONNECTIONS_A_READ = 8
_READS_A_TURN = 16
"""Reads before others have their turn."""


class Channel(Generic[_M]):
    """One end of a channel. For one event loop.

    `received` is called with each message, and the connection that came along where one was sent: None where the
    system had no descriptor for it. `lost` is called once, when the other end is gone or says what is no message.
    Neither may raise.
    """

    def __init__(
        self,
        end: socket.socket,
        decoder: msgspec.json.Decoder[_M],
        received: Callable[[_M, socket.socket | None], None],
        lost: Callable[[], None],
    ) -> None:
        self._end = end
        self._decoder = decoder
        self._received = received
        self._lost = lost
        self._framer = Framer()
        self._connections: deque[socket.socket | None] = deque()
        self._unsent: deque[tuple[memoryview, socket.socket | None]] = deque()
        self._newest: dict[Hashable, Callable[[], Struct]] = {}
        self._loop = asyncio.get_running_loop()
        self.closed = False
        self.unsent_bytes = 0
        end.setblocking(False)
        self._loop.add_reader(end, self._read)

    def send(self, message: Struct, connection: socket.socket | None = None) -> None:
        """Send a message, and a connection, which is closed here as soon as it is on its way."""
        if self.closed:
            if connection is not None:
                connection.close()
            return
        data = framed(message, with_connection=connection is not None)
        self._unsent.append((memoryview(data), connection))
        self.unsent_bytes += len(data)
        if len(self._unsent) == 1:
            self._write()

    def post(self, key: Hashable, message: Callable[[], Struct]) -> None:
        """Send a message of which only the newest of its key counts: what waits is replaced, not queued.

        It is made when it can be sent, so that it says how things are then.
        """
        if self._unsent:
            self._newest[key] = message
        else:
            self.send(message())

    def close(self) -> None:
        """Close this end."""
        if self.closed:
            return
        self.closed = True
        self._loop.remove_reader(self._end)
        self._loop.remove_writer(self._end)
        self._end.close()
        for connection in [*self._connections, *(connection for _, connection in self._unsent)]:
            if connection is not None:
                connection.close()
        self._connections.clear()
        self._unsent.clear()
        self._newest.clear()

    def _read(self) -> None:
        for _ in range(_READS_A_TURN):
            try:
                data, descriptors, flags, _ = socket.recv_fds(self._end, _READ_BYTES, _CONNECTIONS_A_READ)
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                data, descriptors, flags = b"", [], 0
            # The system gives a descriptor with the first byte of its message, and never two messages' at once.
            self._connections += [socket.socket(fileno=descriptor) for descriptor in descriptors]
            if flags & socket.MSG_CTRUNC and not descriptors:
                self._connections.append(None)
            if not data or not self._take(data):
                self._end_here()
                return
            if self.closed or len(data) < _READ_BYTES:
                return

    def _take(self, data: bytes) -> bool:
        try:
            framed_messages = list(self._framer.feed(data))
            messages = [(self._decoder.decode(message), taken) for message, taken in framed_messages]
        except (ValueError, msgspec.MsgspecError):
            logger.exception("what came over a channel is no message")
            return False
        for message, with_connection in messages:
            connection = self._connections.popleft() if with_connection else None
            if self.closed:
                if connection is not None:
                    connection.close()
            else:
                self._received(message, connection)
        return True

    def _write(self) -> None:
        while self._unsent and not self.closed:
            data, connection = self._unsent[0]
            try:
                if connection is None:
                    count = self._end.send(data)
                else:
                    count = socket.send_fds(self._end, [data], [connection.fileno()])
            except (BlockingIOError, InterruptedError):
                self._loop.add_writer(self._end, self._write)
                return
            except OSError as error:
                if error.errno == errno.ETOOMANYREFS:  # more connections are under way than the system allows
                    self._loop.call_later(0.01, self._write)
                    return
                self._end_here()
                return
            self.unsent_bytes -= count
            if connection is not None:
                connection.close()
            if count < len(data):
                self._unsent[0] = (data[count:], None)
            else:
                self._unsent.popleft()
            if not self._unsent and self._newest:
                newest, self._newest = self._newest, {}
                for message in newest.values():
                    encoded = framed(message())
                    self._unsent.append((memoryview(encoded), None))
                    self.unsent_bytes += len(encoded)
        if not self.closed:
            self._loop.remove_writer(self._end)

    def _end_here(self) -> None:
        if not self.closed:
            self.close()
            self._lost()
