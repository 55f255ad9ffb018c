"""The HTTP/1.1 protocol of a connection: uvicorn's, with bounds on the size and the time of each part of a request."""

import asyncio
import logging
from enum import Enum
from functools import partial
from typing import Any

from msgspec import Struct
from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from tailrace.delivery.http.detach import DETACH, GONE, Detached, detached, head_of
from tailrace.delivery.http.unlocked import write

__all__ = ["PIECES", "BoundedProtocol", "ConnectionLimits", "unsent_bytes"]

PIECES = "tailrace.pieces"
"""Name of an ASGI extension: sends a part of a body as it is, and returns when the connection can take more.

uvicorn itself copies what it sends, so a thousand clients that do not read would hold a thousand copies.
"""

_UNSENT_BYTES_MAX = 16 << 10
"""How much may wait in a connection of ours before its writers wait; the last write may be larger."""

_PIECE_BYTES = 1 << 10
"""How much is parsed at once, the body of a request aside: what a client sends ahead may be thousands of requests."""

# A request that is not HTTP is answered with an error; a line in the log for each would let strangers fill it.
logger = logging.getLogger(__name__)
logger.setLevel(logging.ERROR)


class ConnectionLimits(Struct, frozen=True):
    """Bounds of one HTTP connection."""

    head_bytes_max: int = 64 << 10
    """Most bytes of a request line and its headers."""

    headers_max: int = 256
    """Most headers of a request: each look for one of them passes all others."""

    head_s_max: float = 20.0
    """Longest time until the first byte of a connection, and from the first byte of a head to its last."""

    body_s_max: float = 60.0
    """Longest time that the body of a request may take to arrive, wanted or not."""

    stall_s_max: float = 60.0
    """Longest time in which a client takes nothing of what waits for it; then it counts as gone."""


class _Part(Enum):
    """The part of a request that is on its way."""

    HEAD = "head"
    BODY = "body"


_LATE = (
    b"HTTP/1.1 408 Request Timeout\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: 42\r\n"
    b"connection: close\r\n\r\nThe head of the request came not in time.\n"
)


class BoundedProtocol(HttpToolsProtocol):
    """Refuses a request whose head is too large or whose parts come too slowly, and drops clients that do not read.

    The parser takes in a head for ever, and uvicorn waits for ever: it stops its only clock, that of idle connections,
    at the first byte that comes. It also parses all requests that have come, however many wait for their answers, and
    reads on after each answer. Here one waits at most, or as many as came in one piece; what is behind them stays
    unparsed, and then in the socket.
    """

    def __init__(self, *arguments: Any, limits: ConnectionLimits, head: bytes = b"", **options: Any) -> None:
        """Take `head` as the first bytes: the request of a connection that was taken from another protocol."""
        super().__init__(*arguments, **options)
        self.logger = logger
        self._limits = limits
        self._given = head
        self._head_bytes = 0
        self._body_bytes = 0
        self._unparsed = memoryview(b"")
        self._running: RequestResponseCycle | None = None
        self._part: _Part | None = _Part.HEAD
        self._awaited: _Part | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._stall: asyncio.TimerHandle | None = None
        self._unsent_bytes = 0
        self._is_read = False
        """Whether the client has taken what once waited for it."""

        self._unanswered = 0
        self._upgraded = False

    # What the transport calls.

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin."""
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=_UNSENT_BYTES_MAX)
        self._await(_Part.HEAD)
        if self._given:
            given, self._given = self._given, b""
            self.data_received(given)

    def data_received(self, data: bytes) -> None:
        """Take what came from the socket."""
        self._unparsed = memoryview(bytes(self._unparsed) + data if self._unparsed else data)
        self._parse()

    def _parse(self) -> None:
        """Parse what has come, up to a request that must wait for the answers to those before it."""
        while self._unparsed and not self.pipeline and not self._is_over():
            # What belongs to a body holds no requests, and may be large.
            size = max(_PIECE_BYTES, self._body_bytes)
            piece, self._unparsed = self._unparsed[:size], self._unparsed[size:]
            self._parse_piece(piece)
        if self._unparsed and self.pipeline and not self._is_over():
            self.flow.pause_reading()

    def _is_over(self) -> bool:
        """Tell whether nothing more is parsed here."""
        return self._upgraded or self.transport.is_closing()

    def _parse_piece(self, piece: memoryview) -> None:
        super().data_received(piece)  # type: ignore[arg-type]
        if self._is_over():
            return
        if self._part is _Part.HEAD:
            self._head_bytes += len(piece)
            if self._head_bytes > self._limits.head_bytes_max:
                self.send_400_response("The head of the request is too large.")
                return
        self._await(self._part)
        if self._part is None and not self._unanswered and self.timeout_keep_alive_task is None:
            # Blank lines, or the rest of a body that nobody wanted: the connection is as idle as it was.
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        self._stop_clocks()
        self._unset_keepalive_if_required()
        super().connection_lost(exc)
        # uvicorn tells the newest request alone; it is an older one that runs where others wait behind it.
        if self._running is not None:
            self._running.disconnected = not self._running.response_complete
            self._running.message_event.set()
        self._unparsed = memoryview(b"")
        self.pipeline.clear()
        if GONE in self.app_state:
            self.app_state[GONE]()

    def pause_writing(self) -> None:
        """Wait for the client to read."""
        super().pause_writing()
        self._watch_stall()

    def resume_writing(self) -> None:
        """Go on."""
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None
        super().resume_writing()

    # What the parser calls.

    def on_message_begin(self) -> None:
        """Begin with the head of a request."""
        super().on_message_begin()
        self._head_bytes = self._body_bytes = 0
        self._await(None)
        self._part = _Part.HEAD

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header; the parser refuses the request where this raises."""
        if len(self.headers) >= self._limits.headers_max:
            raise ValueError("too many headers")
        if name.lower() == b"content-length":
            self._body_bytes = int(value)
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Go on with its body."""
        self._part = _Part.BODY
        self._unanswered += 1
        scope = self.scope
        super().on_headers_complete()
        # An upgrade to a WebSocket has no cycle.
        if self.cycle is not None and self.cycle.scope is scope:  # type: ignore[redundant-expr]
            scope["extensions"] = {
                PIECES: partial(self._send_piece, self.cycle),  # type: ignore[dict-item]
                DETACH: partial(self._detach, self.cycle),  # type: ignore[dict-item]
            }

    def on_body(self, body: bytes) -> None:
        """Take a part of its body."""
        self._body_bytes -= len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Have the whole request."""
        self._part = None
        self._body_bytes = 0
        super().on_message_complete()

    # What uvicorn calls.

    def handle_websocket_upgrade(self) -> None:
        """Leave the connection to the WebSocket's protocol, which has clocks of its own."""
        self._upgraded = True
        self._stop_clocks()
        super().handle_websocket_upgrade()

    def on_response_complete(self) -> None:
        """Have answered a request; what is closed must still be read by the client."""
        self._unanswered -= 1
        super().on_response_complete()
        if self.transport.is_closing():
            self._watch_stall()
        elif self.pipeline:
            self.flow.pause_reading()  # uvicorn reads on after each answer
        else:
            self._parse()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._running = cycle
        super()._start_asgi_task(cycle, app)

    def timeout_keep_alive_handler(self) -> None:
        """Close a connection that is idle; what it has not read by now, it never will."""
        if unsent_bytes(self.transport):
            self.transport.abort()
        super().timeout_keep_alive_handler()

    def _detach(self, cycle: RequestResponseCycle) -> Detached | None:
        """Give away the connection with the one request that is on it."""
        alone = cycle is self.cycle and not (self.pipeline or self._unparsed)
        if not alone or self._part is not None or cycle.response_started or cycle.disconnected:
            return None
        version = self.scope["http_version"]
        found = detached(self.transport, head_of(self.scope["method"], self.url, version, self.scope["headers"]))
        if found is not None:
            self._stop_clocks()
            self._unset_keepalive_if_required()
            cycle.disconnected = True
        return found

    async def _send_piece(self, cycle: RequestResponseCycle, data: bytes) -> None:
        if cycle.disconnected:
            return
        parts = (b"%x\r\n" % len(data), data, b"\r\n") if cycle.chunked_encoding else (data,)
        write(self.transport, parts, is_read=self._is_read)
        if self.flow.write_paused:
            await self.flow.drain()
            self._is_read = True

    # The clocks.

    def _await(self, part: _Part | None) -> None:
        """Have a deadline for a part, which it keeps from its first byte to its last."""
        if part is self._awaited:
            return
        self._awaited = part
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        if part is not None:
            self._deadline = self.loop.call_later(self._limit_s(part), self._late, part)

    def _limit_s(self, part: _Part) -> float:
        return self._limits.head_s_max if part is _Part.HEAD else self._limits.body_s_max

    def _late(self, part: _Part) -> None:
        if self.flow.read_paused:  # it is we who do not read
            self._deadline = self.loop.call_later(self._limit_s(part), self._late, part)
            return
        self._deadline = None
        if part is _Part.HEAD and self._head_bytes and not self._unanswered:
            self.transport.write(_LATE)
        self.transport.close()
        self._watch_stall()

    def _watch_stall(self) -> None:
        """Cut the connection unless the client reads on."""
        self._unsent_bytes = unsent_bytes(self.transport)
        if self._unsent_bytes and self._stall is None:
            self._stall = self.loop.call_later(self._limits.stall_s_max, self._stalled)

    def _stalled(self) -> None:
        self._stall = None
        left = unsent_bytes(self.transport)
        if left and left >= self._unsent_bytes:
            self.transport.abort()
        else:
            self._watch_stall()

    def _stop_clocks(self) -> None:
        self._await(None)
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None


def unsent_bytes(transport: asyncio.Transport) -> int:
    """Return how many bytes wait to be sent; none where it is TLS that was closed twice, as uvicorn does.

    Such a transport has let go of its session, and raises. The session's own deadline for closing ends it.
    """
    try:
        return transport.get_write_buffer_size()
    except AttributeError:
        return 0
