"""One call on a connection: what comes in, what goes out, and how it ends."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable

from h2.errors import ErrorCodes

from tailrace.access.principal import ANONYMOUS, Principal
from tailrace.delivery.grpc.call import Metadata, StatusCode, StatusError, prefixed
from tailrace.delivery.grpc.http2.header import BEGIN, RequestHeaders, metadata_headers, status_headers
from tailrace.delivery.grpc.http2.message import MessageReader
from tailrace.delivery.grpc.http2.options import TransportOptions
from tailrace.delivery.grpc.http2.wire import Http2Wire, SendBuffer

__all__ = ["Held", "Http2Stream"]


class Held:
    """Bytes of requests in memory, bounded: one count for a server, and below it one for each connection."""

    def __init__(self, size_max: int, above: "Held | None" = None) -> None:
        self._size_max = size_max
        self._above = above
        self.size = 0

    def take(self, size: int) -> bool:
        """Count more bytes, here and above; tell whether all bounds are kept. Give back what was taken in any case."""
        self.size += size
        within = self._above is None or self._above.take(size)
        return within and self.size <= self._size_max

    def give(self, size: int) -> None:
        """Count fewer bytes, here and above."""
        self.size -= size
        if self._above is not None:
            self._above.give(size)


_WRITE_COST_BYTES = 4096
"""What a write counts at least, however small, towards its share of the loop."""

_TIMEOUT_S_MAX = 365 * 86_400.0


class Http2Stream:
    """One call, as its handler sees it (`Call`) and as its connection does.

    Ends once: by `finish`, by `end` from outside, or when its client goes (`lost`). Whatever ends it, `closed` is
    called when nothing more will be sent.
    """

    def __init__(
        self,
        wire: Http2Wire,
        stream_id: int,
        request: RequestHeaders,
        peer: str,
        held: Held,
        options: TransportOptions,
        closed: Callable[["Http2Stream"], None],
    ) -> None:
        self.path = request.path
        self.metadata: Metadata = request.metadata
        self.authority = request.authority
        self.local: str | None = None
        """The address that its connection came to."""

        self.peer = peer
        self.principal: Principal = ANONYMOUS
        self.stream_id = stream_id
        self.outgoing = SendBuffer(stream_id, self._drained)
        self.task: asyncio.Task[None] | None = None
        self.ended = False
        """Whether its status is decided: nothing more is written."""

        self.admitted = False
        """Whether its caller has shown who they are, or need not."""

        self.refused = False
        """Whether its caller was not admitted."""

        self.answered = False
        """Whether an answer was begun, or a status sent."""

        self._wire = wire
        self._options = options
        self._closed = closed
        self._loop = asyncio.get_running_loop()
        self._reader = MessageReader(options.message_bytes_max, request.encoding)
        self._messages: deque[bytes] = deque()
        self._messages_bytes = 0
        self._owed_bytes = 0
        self._held = held
        self._held_bytes = 0
        self._complete = False
        self._arrived: asyncio.Future[None] | None = None
        self._begun = False
        self._unyielded = 0
        self._writers: list[asyncio.Future[None]] = []
        self._trailers: list[tuple[bytes, bytes]] | None = None
        self._timers: list[asyncio.TimerHandle] = []
        if request.timeout_s is not None:
            self._timer(min(request.timeout_s, _TIMEOUT_S_MAX), self._expire)

    # What the handler calls.

    def header(self, name: str) -> str | None:
        """Return the first text value of a name in the client's metadata."""
        for key, value in self.metadata:
            if key == name and isinstance(value, str):
                return value
        return None

    def begin(self, metadata: Metadata = ()) -> None:
        """Send the initial metadata now."""
        self._begin(metadata)
        self._wire.flush()

    async def write(self, messages: bytes | memoryview) -> None:
        """Send messages; return when the connection can take more."""
        while self.outgoing.left and not self.ended:
            await self._writer()
        self._offer(messages)
        self._wire.flush()
        while self.outgoing.left and not self.ended:
            await self._writer()
        self._unyielded += max(len(messages), _WRITE_COST_BYTES)
        if self._unyielded >= self._options.share_bytes:
            self._unyielded = 0
            await asyncio.sleep(0)

    async def answer(self, message: bytes) -> None:
        """Send the only message of an answer; `finish` sends it on its way together with the status."""
        self._offer(prefixed(message))
        while self.outgoing.left and not self.ended:
            await self._writer()

    async def only_message(self) -> bytes:
        """Return the message of a request that has exactly one.

        Raises:
            StatusError: It has none or more, or did not arrive in time.
        """
        if not self._complete:
            timer = self._timer(self._options.request_s_max, self._expire)
            while not self._complete:
                await self._arrival()
            timer.cancel()
        if len(self._messages) != 1:
            raise StatusError(
                StatusCode.UNIMPLEMENTED, f"the method takes one message; {len(self._messages)} were sent"
            )
        return self._take()

    async def all_messages(self) -> AsyncIterator[bytes]:
        """Yield the messages of a request as they come, until the client has sent the last."""
        while True:
            while self._messages:
                yield self._take()
            if self._complete:
                return
            await self._arrival()

    def finish(self, code: StatusCode, message: str = "", trailing: Metadata = ()) -> None:
        """End the call with a status, after what is on its way; nothing happens where it has ended.

        Raises:
            ValueError: The trailing metadata cannot be sent.
        """
        if self.ended:
            return
        self._trailers = status_headers(code, message, trailing)
        self.refused = code is StatusCode.UNAUTHENTICATED
        self._decide()
        if self.outgoing.left:
            self.outgoing.cut()
        if self.outgoing.left:
            self._timer(self._options.close_s_max, self._break_off)
        else:
            self._send_trailers()
        self._wire.flush()

    def end(self, error: StatusError) -> None:
        """End the call from outside its handler, whose task is cancelled."""
        self.finish(error.code, error.message, error.trailing)
        if self.task is not None:
            self.task.cancel()

    # What the connection calls.

    def receive(self, data: bytes, size: int) -> None:
        """Take bytes of the request, and how much of the windows they used."""
        if self.ended:
            self._wire.acknowledge(self.stream_id, size)
            return
        try:
            messages = self._reader.feed(data)
        except StatusError as error:
            self._wire.acknowledge(self.stream_id, size)
            self.end(error)
            return
        self._messages.extend(messages)
        self._messages_bytes += sum(map(len, messages))
        if not self._hold():
            self._wire.acknowledge(self.stream_id, size)
            self.end(StatusError(StatusCode.RESOURCE_EXHAUSTED, "too many bytes of requests wait for their handlers"))
            return
        self._owed_bytes += size
        self._acknowledge()
        if messages:
            self._wake_reader()

    def receive_end(self) -> None:
        """Take note that the client has sent everything."""
        self._complete = True
        if self._reader.held_bytes and not self.ended:
            self.end(StatusError(StatusCode.INTERNAL, "the request ended within a message"))
        self._wake_reader()

    def lost(self) -> None:
        """Take note that the client has gone, or no longer wants an answer."""
        self._trailers = None
        if not self.ended:
            self._decide()
        self._close()
        if self.task is not None:
            self.task.cancel()

    # How it is done.

    def _begin(self, metadata: Metadata = ()) -> None:
        if self._begun:
            raise RuntimeError("the call has begun already")
        if not self.ended:
            self._wire.send_headers(self.stream_id, [*BEGIN, *metadata_headers(metadata)])
            self._begun = self.answered = True

    def _offer(self, messages: bytes | memoryview) -> None:
        if self.ended:
            raise StatusError(StatusCode.CANCELLED, "the call has ended")
        if not self._begun:
            self._begin()
        self.outgoing.load(messages)
        self._wire.offer(self.outgoing)

    def _send_trailers(self) -> None:
        if self._trailers is not None:
            self.answered = True
            headers = self._trailers if self._begun else [*BEGIN, *self._trailers]
            self._wire.send_headers(self.stream_id, headers, end=True)
            if not self._complete:
                self._wire.reset(self.stream_id, ErrorCodes.NO_ERROR)
        self._trailers = None
        self._close()

    def _break_off(self) -> None:
        """Give up on a client that does not take the rest of what is on its way."""
        self._wire.reset(self.stream_id, ErrorCodes.CANCEL)
        self._trailers = None
        self._close()
        self._wire.flush()

    def _decide(self) -> None:
        self.ended = True
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
        self._held.give(self._held_bytes)
        self._held_bytes = 0
        self._wire.acknowledge(self.stream_id, self._owed_bytes)
        self._owed_bytes = 0
        self._wake_writers()

    def _close(self) -> None:
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
        self._wire.drop(self.outgoing)
        self._closed(self)

    def _expire(self) -> None:
        self.end(StatusError(StatusCode.DEADLINE_EXCEEDED, "the time for the call is over"))

    def _timer(self, delay_s: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
        timer = self._loop.call_later(delay_s, callback)
        self._timers.append(timer)
        return timer

    def _take(self) -> bytes:
        message = self._messages.popleft()
        self._messages_bytes -= len(message)
        self._hold()
        if self._acknowledge():
            self._wire.flush()
        return message

    def _hold(self) -> bool:
        """Account for what is in memory now; tell whether it is within bounds."""
        size = self._messages_bytes + self._reader.held_bytes
        change = size - self._held_bytes
        self._held_bytes = size
        if change <= 0:
            self._held.give(-change)
            return True
        return self._held.take(change)

    def _acknowledge(self) -> bool:
        """Let the client send more, unless its messages pile up; tell whether there was something to say."""
        if not self._owed_bytes or self._messages_bytes >= self._options.stream_window_bytes:
            return False
        self._wire.acknowledge(self.stream_id, self._owed_bytes)
        self._owed_bytes = 0
        return True

    def _drained(self) -> None:
        if self._trailers is not None:
            self._send_trailers()
        self._wake_writers()

    async def _writer(self) -> None:
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._writers.append(waiter)
        await waiter

    def _wake_writers(self) -> None:
        for waiter in self._writers:
            if not waiter.done():
                waiter.set_result(None)
        self._writers.clear()

    async def _arrival(self) -> None:
        self._arrived = self._loop.create_future()
        await self._arrived

    def _wake_reader(self) -> None:
        if self._arrived is not None and not self._arrived.done():
            self._arrived.set_result(None)
