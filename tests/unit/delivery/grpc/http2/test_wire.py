"""How streams take turns on a connection."""

import asyncio

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived
from hypothesis import given
from hypothesis import strategies as st

from tailrace.delivery.grpc.call import prefixed
from tailrace.delivery.grpc.http2.options import TransportOptions
from tailrace.delivery.grpc.http2.wire import Http2Wire, SendBuffer

REQUEST = [(":method", "POST"), (":scheme", "http"), (":path", "/"), (":authority", "x")]


class Transport:
    """Keeps what is written; pauses its wire after so many bytes."""

    def __init__(self):
        self.data = b""
        self.wire = None
        self.room = 1 << 30

    def write(self, data):
        self.data += data
        self.room -= len(data)
        if self.room <= 0:
            self.wire.pause()

    def writelines(self, parts):
        self.write(b"".join(parts))


class Line:
    """A wire with a client at its other end."""

    def __init__(self, streams, **options):
        self.transport = Transport()
        self.frames_sent = 0
        self.wire = self.transport.wire = Http2Wire(self.transport, TransportOptions(**options), self._sent)
        self.client = H2Connection(H2Configuration(client_side=True))
        self.client.initiate_connection()
        self.received = dict.fromkeys(streams, b"")
        self.order = []
        for stream in streams:
            self.client.send_headers(stream, REQUEST)
        self.wire.h2.receive_data(self.client.data_to_send())
        for stream in streams:
            self.wire.send_headers(stream, [(b":status", b"200")])
        self.wire.flush()

    def _sent(self, frames):
        self.frames_sent += frames

    def deliver(self, *, acknowledge=True):
        """Let the client have what was written."""
        data, self.transport.data = self.transport.data, b""
        for event in self.client.receive_data(data):
            if isinstance(event, DataReceived):
                self.received[event.stream_id] += event.data
                self.order.append(event.stream_id)
                if acknowledge:
                    self.client.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        events = self.wire.h2.receive_data(self.client.data_to_send())
        return bool(events)


async def settle(line, outgoings):
    """Let the line work until nothing moves."""
    for _ in range(1000):
        await asyncio.sleep(0)
        if line.deliver():
            line.wire.window_opened(outgoings)
        if not any(outgoing.left for outgoing in outgoings):
            return


async def test_everything_arrives_in_order_however_small_the_windows():
    line = Line([1, 3], share_bytes=10_000)
    data = {1: bytes(range(256)) * 2000, 3: bytes(range(255)) * 1000}
    drained = []
    outgoings = [SendBuffer(stream, lambda stream=stream: drained.append(stream)) for stream in data]
    for outgoing in outgoings:
        outgoing.load(data[outgoing.stream_id])
        line.wire.offer(outgoing)
    line.wire.flush()
    await settle(line, outgoings)
    line.deliver()
    assert line.received == data
    assert sorted(drained) == [1, 3]
    assert line.frames_sent == len(line.order)


async def test_streams_take_turns():
    line = Line([1, 3], share_bytes=1000)
    outgoings = [SendBuffer(stream, lambda: None) for stream in (1, 3)]
    for outgoing in outgoings:
        outgoing.load(bytes(20_000))
        line.wire.offer(outgoing)
    await settle(line, outgoings)
    line.deliver()
    assert line.order[:10] in ([1, 1, 3, 1, 3, 1, 3, 1, 3, 1], [1, 3, 1, 3, 1, 3, 1, 3, 1, 3])


async def test_nothing_is_written_while_the_socket_is_full():
    line = Line([1], share_bytes=1000)
    line.transport.room = 2500
    outgoing = SendBuffer(1, lambda: None)
    outgoing.load(bytes(30_000))
    line.wire.offer(outgoing)
    line.wire.flush()
    for _ in range(20):
        await asyncio.sleep(0)
    assert len(outgoing.left) == 27_000
    line.transport.room = 1 << 30
    line.wire.resume()
    await settle(line, [outgoing])
    line.deliver()
    assert line.received[1] == bytes(30_000)


async def test_what_was_written_first_goes_out_first():
    line = Line([1])
    outgoing = SendBuffer(1, lambda: None)
    outgoing.load(b"data")
    line.wire.offer(outgoing)
    line.wire.send_headers(1, [(b"grpc-status", b"0")], end=True)
    line.wire.flush()
    line.deliver()
    assert line.received[1] == b"data"
    assert line.client.streams[1].state_machine.trailers_received


async def test_a_stream_that_is_gone_sends_nothing_and_holds_up_nobody():
    line = Line([1, 3])
    gone, other = SendBuffer(1, lambda: None), SendBuffer(3, lambda: None)
    line.client.reset_stream(1)
    line.wire.h2.receive_data(line.client.data_to_send())
    for outgoing in (gone, other):
        outgoing.load(b"data")
        line.wire.offer(outgoing)
    line.wire.send_headers(1, [(b"grpc-status", b"0")], end=True)
    line.wire.flush()
    line.deliver()
    assert line.received == {1: b"", 3: b"data"}


@given(st.lists(st.binary(max_size=30), min_size=1, max_size=6), st.data())
def test_a_cut_keeps_the_rest_of_the_message_that_is_on_its_way(messages, data):
    whole = b"".join(map(prefixed, messages))
    outgoing = SendBuffer(1, lambda: None)
    outgoing.load(whole)
    sent = data.draw(st.integers(0, len(whole)))
    outgoing.left = outgoing.left[sent:]
    outgoing.cut()
    borders = {len(b"".join(map(prefixed, messages[:count]))) for count in range(len(messages) + 1)}
    assert sent + len(outgoing.left) == min(border for border in borders if border >= sent)
    assert whole[sent:].startswith(bytes(outgoing.left))
