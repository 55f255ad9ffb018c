"""The WebSocket protocol of a connection: uvicorn's, with frames sent as they are, and bounds that it lacks."""

import logging
from collections.abc import MutableMapping
from http import HTTPStatus
from typing import Any

from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import CloseCode
from websockets.http11 import Request
from websockets.protocol import OPEN

from tailrace.delivery.http.detach import DETACH, GONE, Detached, detached, head_of
from tailrace.delivery.http.protocol import unsent_bytes
from tailrace.delivery.http.unlocked import write

__all__ = ["FRAMES", "FramesProtocol"]

FRAMES = "tailrace.frames"
"""Type of an ASGI message whose `data` is whole frames, encoded already; they go out in one write."""

_UNSENT_BYTES_MAX = 1 << 20
"""Most bytes that may wait for a peer which sends pings and does not read our answers."""

_CLOSE_S_MAX = 15.0
"""Longest time that a connection may take to close; the peer has ten seconds of it to answer our last frame."""

_COMMANDS = "/api/"
"""Paths on which clients send short commands, for which the server's own limit is enough."""

_REQUEST_BYTES_MAX = 1 << 20
"""Largest message on all other paths, which are those of the gateway: it may carry a value or a statement."""

# The messages of uvicorn's protocol carry the URL, which may hold a token, and the frames, which hold row values.
logger = logging.getLogger(__name__)
logger.setLevel(logging.WARNING)


class FramesProtocol(WebSocketsSansIOProtocol):
    """Sends many frames in one write, refuses what is no handshake, and drops peers that are gone."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.logger = logger
        self.conn.logger = logger
        self.conn.debug = False
        self._is_read = False
        """Whether the client has taken what once waited for it."""

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        super().connection_lost(exc)
        if GONE in self.app_state:
            self.app_state[GONE]()

    async def send(self, message: MutableMapping[str, Any]) -> None:  # type: ignore[override]
        """Send an ASGI message; returns when the connection can take more.

        Raises:
            ClientDisconnected: The connection is closed or closing.
        """
        if message["type"] != FRAMES:
            await super().send(message)  # type: ignore[arg-type]
            if message["type"] == "websocket.close":
                self._cut_later()
            return
        await self.writable.wait()
        if self.disconnected or self.close_sent or self.conn.state is not OPEN:
            raise ClientDisconnected
        write(self.transport, (message["data"],), is_read=self._is_read)
        if not self.writable.is_set():
            await self.writable.wait()  # so that nobody makes more before there is room for it
            self._is_read = True

    def data_received(self, data: bytes) -> None:
        """Take what came from the socket."""
        super().data_received(data)
        if not self.handshake_initiated and self.conn.handshake_exc is not None:
            self._refuse()

    def handle_connect(self, event: Request) -> None:
        """Take the request for an upgrade."""
        if not event.path.isascii():
            self._refuse()
            return
        if not event.path.startswith(_COMMANDS):
            self.conn.max_message_size = _REQUEST_BYTES_MAX
        super().handle_connect(event)
        if self.response.status_code == HTTPStatus.SWITCHING_PROTOCOLS:
            self.scope["extensions"][DETACH] = self._detach  # type: ignore[assignment]

    def handle_ping(self) -> None:
        """Answer a ping."""
        super().handle_ping()
        if unsent_bytes(self.transport) > _UNSENT_BYTES_MAX:
            self.transport.abort()

    def send_receive_event_to_app(self) -> None:
        """Hand on a message that has come whole; text that is no UTF-8 closes the connection with 1007."""
        if self.curr_msg_data_type == "text" and not self.close_sent and not _is_text(b"".join(self.frames)):
            self.frames = []
            self.conn.fail(CloseCode.INVALID_DATA, "text must be UTF-8")
            self.handle_parser_exception()
            return
        super().send_receive_event_to_app()

    def handle_parser_exception(self) -> None:
        """Close: the peer has broken the rules."""
        super().handle_parser_exception()
        self._cut_later()

    def keepalive_timeout(self) -> None:
        """Drop a peer that has not answered a ping; what waits for it will never be read."""
        super().keepalive_timeout()
        if unsent_bytes(self.transport):
            self.transport.abort()

    def _detach(self) -> Detached | None:
        """Give away the connection with the request for an upgrade, which is not answered yet."""
        if self.handshake_complete or self.disconnected or self.conn.reader.buffer or not self.queue.empty():
            return None
        found = detached(self.transport, head_of("GET", self.request.path.encode(), "1.1", self.scope["headers"]))
        if found is not None:
            self.handshake_complete = self.close_sent = True
        return found

    def _cut_later(self) -> None:
        """Cut the connection of a peer that does not read the last bytes: closing alone would wait for that."""
        self.loop.call_later(_CLOSE_S_MAX, self.transport.abort)

    def _refuse(self) -> None:
        self.handshake_complete = self.close_sent = True
        self.transport.write(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        self.transport.close()


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
