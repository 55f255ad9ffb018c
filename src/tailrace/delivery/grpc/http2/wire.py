"""The sending half of a connection: its streams take turns on one socket and in the windows of its client."""

import asyncio
import struct
from collections import deque
from collections.abc import Callable, Iterable, Sequence

from h2.config import H2Configuration
from h2.connection import ConnectionState, H2Connection
from h2.errors import ErrorCodes
from h2.settings import SettingCodes, Settings

from tailrace.delivery.grpc.http2.header import Header
from tailrace.delivery.grpc.http2.options import TransportOptions

__all__ = ["Http2Wire", "SendBuffer"]

_FRAME = struct.Struct(">HBBBL")
"""Length in three bytes (two and one), type, flags, stream."""

_DATA = 0
_TURN_SHARES = 8
"""How many shares a connection sends before other connections have their turn."""

_ENCODER_TABLE_BYTES_MAX = 4096
"""How much of our own headers is remembered, whatever the client offers to remember."""

_DEFAULT_WINDOW_BYTES = 65_535
_PING_DATA = b"tailrace"


class SendBuffer:
    """The bytes that one stream has still to send."""

    def __init__(self, stream_id: int, drained: Callable[[], None]) -> None:
        self.stream_id = stream_id
        self.drained = drained
        self.left = memoryview(b"")
        self.waiting = False
        """Whether it has a place in the queue."""

        self._whole: bytes | memoryview = b""

    def load(self, data: bytes | memoryview) -> None:
        """Give it bytes to send: whole messages, each with its prefix."""
        self._whole = data
        self.left = memoryview(data)

    def cut(self) -> None:
        """Keep only the rest of the message that is on its way."""
        whole = memoryview(self._whole)
        sent = len(whole) - len(self.left)
        border = 0
        # Messages are cut at their five-byte prefixes. A status in the middle of one would reach the client as a broken
        # message, not as a status.
        while border < sent:
            border += 5 + int.from_bytes(whole[border + 1 : border + 5], "big")
        self.left = whole[sent:border]


class Http2Wire:
    """The sending half of one connection.

    Data frames are written past the h2 library, which keeps the windows and everything else: framing a piece of a
    message is nine bytes in front of it, without copying it. All writes go out in the order in which they were made.
    """

    def __init__(self, transport: asyncio.Transport, options: TransportOptions, sent: Callable[[int], None]) -> None:
        self.h2 = _server_side(options)
        self._transport = transport
        self._share_bytes = options.share_bytes
        self._sent = sent
        self._loop = asyncio.get_running_loop()
        self._parts: list[bytes | memoryview] = []
        self._queue: deque[SendBuffer] = deque()
        self._paused = False
        self._pumping: asyncio.Handle | None = None
        self.closed = False

    def send_headers(self, stream_id: int, headers: Sequence[Header], *, end: bool = False) -> None:
        """Send headers at the next flush, if the stream is still there."""
        if self._is_open(stream_id):
            self.h2.send_headers(stream_id, headers, end_stream=end)

    def offer(self, outgoing: SendBuffer) -> None:
        """Send what can be sent of it now, and the rest in its turns; `drained` is called when nothing is left."""
        # With nobody in the queue, send at once: a lone stream pays no turn of the loop. Otherwise it goes behind those
        # who wait, even if the socket has room, or it would pass them with each write.
        if not self._queue and not self._paused:
            self._send_share(outgoing)
        if outgoing.left:
            self._enqueue(outgoing)
            self._pump_soon()

    def drop(self, outgoing: SendBuffer) -> None:
        """Forget what a stream has still to send."""
        outgoing.left = memoryview(b"")

    def window_opened(self, streams: Iterable[SendBuffer]) -> None:
        """Go on: the client takes more on the connection, and on these streams of it."""
        for outgoing in streams:
            if outgoing.left:
                self._enqueue(outgoing)
        self._pump()

    def settings_changed(self) -> None:
        """Remember little of what was sent, whatever the client offers to remember."""
        if self.h2.encoder.header_table_size > _ENCODER_TABLE_BYTES_MAX:
            self.h2.encoder.header_table_size = _ENCODER_TABLE_BYTES_MAX

    def pause(self) -> None:
        """Wait: the socket takes no more for now."""
        self._paused = True

    def resume(self) -> None:
        """Go on: the socket takes more."""
        self._paused = False
        self._pump()

    def flush(self) -> None:
        """Hand everything to the socket."""
        if self.closed:
            return
        control = self.h2.data_to_send()
        if self._parts:
            if control:
                self._parts.append(control)
            parts, self._parts = self._parts, []
            self._transport.writelines(parts)
        elif control:
            self._transport.write(control)

    def reset(self, stream_id: int, code: ErrorCodes) -> None:
        """Break off a stream at the next flush, if it is still there."""
        if self._is_open(stream_id):
            self.h2.reset_stream(stream_id, code)

    def acknowledge(self, stream_id: int, size: int) -> None:
        """Let the client send this many bytes more, from the next flush on."""
        if size and not self.closed:
            self.h2.acknowledge_received_data(size, stream_id)

    def ping(self) -> None:
        """Ask the client for a sign of life."""
        self.h2.ping(_PING_DATA)
        self.flush()

    def go_away(self, code: ErrorCodes, text: str = "") -> None:
        """Tell the client to open no more streams here. Those that are open go on.

        Written past the h2 library, which takes this for the end of everything.
        """
        self.flush()
        body = struct.pack(">LL", self.h2.highest_inbound_stream_id, code) + text.encode()
        self._transport.write(_FRAME.pack(len(body) >> 8, len(body) & 0xFF, 7, 0, 0) + body)

    def close(self) -> None:
        """Send nothing more."""
        self.closed = True
        self._queue.clear()
        self._parts.clear()
        if self._pumping is not None:
            self._pumping.cancel()

    def client_leaves(self) -> None:
        """Go on with the streams that are open, after the client has said that it will open no more.

        The h2 library takes this for the end of everything.
        """
        self.h2.state_machine.state = ConnectionState.SERVER_OPEN

    def _is_open(self, stream_id: int) -> bool:
        stream = self.h2.streams.get(stream_id)
        return stream is not None and not stream.closed and not self.closed

    def _enqueue(self, outgoing: SendBuffer) -> None:
        if not outgoing.waiting:
            outgoing.waiting = True
            self._queue.append(outgoing)

    def _pump_soon(self) -> None:
        if self._pumping is None and self._queue and not self._paused and not self.closed:
            self._pumping = self._loop.call_soon(self._pump)

    def _pump(self) -> None:
        """Give streams their turns until the socket, the window or this connection's turn is used up."""
        self._pumping = None
        queue = self._queue
        for _ in range(_TURN_SHARES):
            if not queue or self._paused or self.closed or self.h2.outbound_flow_control_window <= 0:
                break
            outgoing = queue.popleft()
            outgoing.waiting = False
            if not outgoing.left:
                continue
            room = self._send_share(outgoing)
            if not outgoing.left:
                outgoing.drained()
            # A stream whose own window is full leaves the queue: it would take a turn each time without sending.
            # `window_opened` puts it back.
            elif room:
                self._enqueue(outgoing)
            # After each share and not after all of them: `pause` is noticed at once then, and no more than one share
            # waits beyond the transport's limit.
            self.flush()
        # With a closed window there is nothing to schedule: the client opens it with a frame, which calls
        # `window_opened`.
        if self.h2.outbound_flow_control_window > 0:
            self._pump_soon()

    def _send_share(self, outgoing: SendBuffer) -> bool:
        """Frame as much as the windows and its share allow; tell whether its own window takes more."""
        h2 = self.h2
        stream = h2.streams.get(outgoing.stream_id)
        if stream is None or stream.closed:
            self.drop(outgoing)
            return True
        left = outgoing.left
        # A share of fixed size and not a frame: 128 KiB amortize the cost of a turn, and a thousand streams still get
        # one each before any gets a second.
        size = min(len(left), self._share_bytes, h2.outbound_flow_control_window, stream.outbound_flow_control_window)
        if size <= 0:
            return stream.outbound_flow_control_window > 0
        # h2 keeps headers and window updates until they are fetched. They go first: data of a stream before its headers
        # would be an error of the protocol.
        control = h2.data_to_send()
        if control:
            self._parts.append(control)
        step = h2.max_outbound_frame_size
        frames = 0
        for begin in range(0, size, step):
            piece = left[begin : min(begin + step, size)]
            length = len(piece)
            self._parts.append(_FRAME.pack(length >> 8, length & 0xFF, _DATA, 0, outgoing.stream_id))
            self._parts.append(piece)
            frames += 1
        # h2 keeps the windows but did not see these frames: without this it would let us exceed what the client allows.
        h2.outbound_flow_control_window -= size
        stream.outbound_flow_control_window -= size
        outgoing.left = left[size:]
        self._sent(frames)
        return stream.outbound_flow_control_window > 0


def _server_side(options: TransportOptions) -> H2Connection:
    """Return a connection with our settings ready to be sent."""
    h2 = H2Connection(
        H2Configuration(client_side=False, validate_outbound_headers=False, normalize_outbound_headers=False)
    )
    values: dict[SettingCodes, int] = {
        SettingCodes.MAX_CONCURRENT_STREAMS: options.streams_max,
        SettingCodes.INITIAL_WINDOW_SIZE: options.stream_window_bytes,
        SettingCodes.MAX_FRAME_SIZE: options.frame_bytes_max,
        SettingCodes.MAX_HEADER_LIST_SIZE: options.headers_bytes_max,
        SettingCodes.ENABLE_CONNECT_PROTOCOL: 0,
    }
    h2.local_settings = Settings(client=False, initial_values=values)
    h2.max_inbound_frame_size = options.frame_bytes_max
    h2.decoder.max_header_list_size = options.headers_bytes_max
    h2.initiate_connection()
    h2.increment_flow_control_window(options.connection_window_bytes - _DEFAULT_WINDOW_BYTES)
    return h2
