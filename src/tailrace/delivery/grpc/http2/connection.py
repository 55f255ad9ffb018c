"""One connection of a client: frames in, calls out."""

import asyncio
import logging
import select
from collections.abc import Coroutine, Iterable
from itertools import islice
from typing import Any, Protocol, cast

from h2.errors import ErrorCodes
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    RemoteSettingsChanged,
    RequestReceived,
    StreamEnded,
    StreamReset,
    WindowUpdated,
)
from h2.exceptions import ProtocolError

from tailrace.delivery.grpc.call import Method, StatusCode, StatusError
from tailrace.delivery.grpc.http2.header import BEGIN, NotGrpcError, read_request, status_headers
from tailrace.delivery.grpc.http2.meter import FrameMeter, FrameRefusedError
from tailrace.delivery.grpc.http2.options import TransportOptions
from tailrace.delivery.grpc.http2.stream import Held, Http2Stream
from tailrace.delivery.grpc.http2.turns import Account, ReadTurns
from tailrace.delivery.grpc.http2.wire import Http2Wire

__all__ = ["Connection", "Host"]

logger = logging.getLogger(__name__)


class Host(Protocol):
    """What a connection knows of its server."""

    options: TransportOptions
    held: Held
    turns: ReadTurns

    def find(self, path: str) -> Method | None:
        """Return the method at a path."""

    def handle(self, stream: Http2Stream, method: Method) -> Coroutine[Any, Any, None]:
        """Handle a call to its end. Raises nothing but CancelledError."""

    def joined(self, connection: "Connection") -> None:
        """Take note of a new connection."""

    def settled(self) -> None:
        """Take note that a call is over and its handler done."""

    def left(self, connection: "Connection") -> None:
        """Take note that a connection is gone."""


class Connection(asyncio.Protocol):
    """Reads the frames of one client and runs its calls.

    Nothing that a client sends raises out of here: what breaks the rules of HTTP/2, or our bounds, costs the client its
    connection.
    """

    def __init__(self, host: Host) -> None:
        self._host = host
        self._options = host.options
        self._loop = asyncio.get_running_loop()
        self.account = Account(self._options)
        self._meter = FrameMeter(self._options.frame_bytes_max, self._options.frames_a_step)
        self._held = Held(self._options.connection_held_bytes_max, host.held)
        self._transport: asyncio.Transport
        self._wire: Http2Wire
        self._peer = ""
        self._local: str | None = None
        self._descriptor = -1
        self._streams: dict[int, Http2Stream] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._backlog = memoryview(b"")
        self._spoken = False
        self._leaving = False
        self._closing = False
        self._heard_s = self._loop.time()
        self._asked_s = 0.0
        self._called_s = self._heard_s
        self._timer: asyncio.TimerHandle | None = None

    @property
    def calls(self) -> Iterable[Http2Stream]:
        """The calls that are under way."""
        return list(self._streams.values())

    @property
    def idle(self) -> bool:
        """Whether no call is under way, and no handler is still cleaning up."""
        return not self._streams and not self._tasks

    def leave(self) -> None:
        """Let the client open no more calls, and close when those that are open have ended."""
        if not self._leaving and not self._closing:
            self._leaving = True
            self._wire.go_away(ErrorCodes.NO_ERROR)
            self._close_when_idle()

    def abort(self) -> None:
        """Cut the connection."""
        self._transport.abort()

    # What the transport calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport = transport = cast("asyncio.Transport", transport)
        self._peer = _shown(transport.get_extra_info("peername"))
        self._descriptor = transport.get_extra_info("socket").fileno()
        own = transport.get_extra_info("sockname")
        self._local = own[0] if isinstance(own, tuple) else None
        transport.set_write_buffer_limits(high=self._options.write_bytes)
        self._wire = Http2Wire(transport, self._options, self._meter.sent)
        self._host.joined(self)
        self._timer = self._loop.call_later(self._options.handshake_s_max, self._tick)
        self._wire.flush()

    def data_received(self, data: bytes) -> None:
        """Read what came, as far as this turn goes."""
        if self._closing:
            return
        waiting = bool(self._backlog)
        self._backlog = memoryview(bytes(self._backlog) + data if waiting else data)
        if not waiting and not self._host.turns.offer(self):
            self._transport.pause_reading()

    def eof_received(self) -> None:
        """Close: a client that sends nothing more can acknowledge nothing more."""

    def connection_lost(self, error: Exception | None) -> None:
        """End all calls."""
        self._closing = True
        if self._timer is not None:
            self._timer.cancel()
        self._wire.close()
        self._end_calls()
        self._host.left(self)

    def pause_writing(self) -> None:
        """Send no more for now."""
        self._wire.pause()

    def resume_writing(self) -> None:
        """Send on."""
        self._wire.resume()

    # How frames are read.

    def read_share(self, end_s: float) -> bool:
        """Read what has come until a point in time, but some frames in any case; tell whether there is more."""
        if self._deserted():
            self._transport.abort()
            return False
        while self._backlog and not self._closing:
            if not self._read():
                return False
            if self._backlog and self._host.turns.now_s() >= end_s:
                return True
        if not self._closing and not self._transport.is_closing():
            self._transport.resume_reading()
        return False

    def _deserted(self) -> bool:
        """Tell whether the client has closed behind what it sent, and need not be heard out.

        While there is more to read we do not read the socket, and do not see its end. A client that is known to be of
        use is heard out; what others leave behind would only pile up.
        """
        if self._closing or self.account.is_light(self._host.turns.now_s()):
            return False
        poll = select.poll()
        poll.register(self._descriptor, select.POLLRDHUP)
        return bool(poll.poll(0))

    def _read(self) -> bool:
        """Read some frames of what has come; tell whether the connection goes on."""
        try:
            end = self._meter.measure(self._backlog, self._loop.time())
            data, self._backlog = bytes(self._backlog[:end]), self._backlog[end:]
            events = self._wire.h2.receive_data(data)
            for event in events:
                self._handle(event)
        except FrameRefusedError as error:
            self._wire.go_away(ErrorCodes.ENHANCE_YOUR_CALM, str(error))
            self._close()
        except ProtocolError:
            self._close()
        except Exception:
            logger.exception("a gRPC connection failed")
            self._close()
        else:
            if events:
                self._heard_s = self._loop.time()
            self._wire.flush()
            if self._transport.get_write_buffer_size() <= self._options.unread_bytes_max:
                return True
            self._transport.abort()
        return False

    def _handle(self, event: Event) -> None:
        match event:
            case DataReceived():
                stream = self._streams.get(event.stream_id)
                if stream is None:
                    self._wire.acknowledge(event.stream_id, event.flow_controlled_length)
                else:
                    stream.receive(event.data, event.flow_controlled_length)
            case RequestReceived():
                self._open(event)
            case StreamEnded():
                if (stream := self._streams.get(event.stream_id)) is not None:
                    stream.receive_end()
            case StreamReset():
                if (stream := self._streams.get(event.stream_id)) is not None:
                    hasty = not stream.answered
                    stream.lost()
                    if hasty:
                        self._offend()
            case WindowUpdated():
                stream = self._streams.get(event.stream_id)
                self._wire.window_opened(() if stream is None else (stream.outgoing,))
            case RemoteSettingsChanged():
                self._spoken = True
                self._wire.settings_changed()
                self._wire.window_opened(stream.outgoing for stream in self.calls)
            case ConnectionTerminated():
                self._wire.client_leaves()
                self._leaving = True
                self._close_when_idle()

    def _open(self, event: RequestReceived) -> None:
        stream_id = event.stream_id
        self._called_s = self._loop.time()
        if self._leaving:
            self._wire.reset(stream_id, ErrorCodes.REFUSED_STREAM)
            return
        try:
            request = read_request(event.headers)
            method = self._host.find(request.path)
            if method is None:
                raise StatusError(StatusCode.UNIMPLEMENTED, f"unknown method {request.path}")
        except NotGrpcError as error:
            self._refuse(event, [(b":status", b"%d" % error.status)])
        except StatusError as error:
            self._refuse(event, [*BEGIN, *status_headers(error.code, error.message, error.trailing)])
        else:
            stream = Http2Stream(self._wire, stream_id, request, self._peer, self._held, self._options, self._forget)
            stream.local = self._local
            self._streams[stream_id] = stream
            stream.task = task = self._loop.create_task(self._host.handle(stream, method))
            self._tasks.add(task)
            task.add_done_callback(self._done)
            self._host.turns.charge(self._options.call_s)

    def _refuse(self, event: RequestReceived, headers: list[tuple[bytes, bytes]]) -> None:
        self._wire.send_headers(event.stream_id, headers, end=True)
        if event.stream_ended is None:
            self._wire.reset(event.stream_id, ErrorCodes.NO_ERROR)
        self._offend()

    def _offend(self) -> None:
        """Take note of a call that was of no use.

        Raises:
            FrameRefusedError: There were too many of them.
        """
        if not self.account.offend(self._host.turns.now_s()):
            raise FrameRefusedError("too_many_calls_refused_or_reset")

    def _forget(self, stream: Http2Stream) -> None:
        self._streams.pop(stream.stream_id, None)
        self._called_s = self._loop.time()
        if stream.refused:
            if not self.account.offend(self._host.turns.now_s()) and not self._closing:
                self._wire.go_away(ErrorCodes.ENHANCE_YOUR_CALM, "too_many_calls_refused_or_reset")
                self._close()
        elif stream.admitted and stream.answered:
            self.account.proven = True
        self._host.settled()
        if self._leaving:
            self._close_when_idle()

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._host.settled()
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("a gRPC call failed", exc_info=error)

    # How it ends.

    def _tick(self) -> None:
        """Look after the connection from time to time: a client that is silent is asked for a sign of life, once."""
        now_s = self._loop.time()
        ping_sent = self._asked_s > self._heard_s
        if ping_sent or not self._spoken:
            self._transport.abort()
            return
        silent_s = now_s - self._heard_s
        next_s = self._options.keepalive_s - silent_s
        if next_s <= 0:
            self._asked_s = now_s
            self._wire.ping()
            next_s = self._options.keepalive_s_max
        if not self._streams and now_s - self._called_s >= self._options.idle_s_max:
            self.leave()
        else:
            self._timer = self._loop.call_later(next_s, self._tick)

    def _close_when_idle(self) -> None:
        if not self._streams:
            self._close()

    def _close(self) -> None:
        """Close after what waits to be sent, and when the client has closed too, lest it lose that; cut in time."""
        if self._closing:
            return
        self._closing = True
        self._wire.flush()
        self._wire.close()
        try:
            if self._transport.can_write_eof():
                self._transport.write_eof()
            else:
                self._transport.close()
        except OSError:
            self._transport.abort()
        self._loop.call_later(self._options.close_s_max, self._transport.abort)
        self._end_calls()

    def _end_calls(self) -> None:
        """End all calls, some in each turn of the loop: each has a handler that cleans up."""
        for stream in islice(list(self._streams.values()), self._options.ended_a_turn):
            stream.lost()
        if self._streams:
            self._loop.call_soon(self._end_calls)


def _shown(address: object) -> str:
    if not isinstance(address, tuple):
        return str(address)
    host, port = address[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
