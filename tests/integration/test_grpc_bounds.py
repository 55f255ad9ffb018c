"""Clients that break the rules, or stop in the middle: they are closed or held up, and nobody else is."""

import asyncio
import socket
import threading

import grpc
import pytest

from grpc_serving import (
    ACK,
    CONTINUATION,
    DATA,
    DEADLINE_S,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    LOOPS,
    PING,
    PREFACE,
    PRIORITY,
    PUSH_PROMISE,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    Bare,
    frame,
    served,
    setting,
    wait_until_idle,
)
from serving import wait_until
from tailrace.delivery.grpc.call import Method, Service, prefixed
from tailrace.delivery.grpc.http2.options import TransportOptions

ECHO, WAIT, FLOOD, HOLD = "/test.Test/Echo", "/test.Test/Wait", "/test.Test/Flood", "/test.Test/Hold"
INITIAL_WINDOW_SIZE, MAX_FRAME_SIZE, HEADER_TABLE_SIZE = 4, 5, 1
BLOCK = prefixed(bytes(1000)) * 100
MANY = 40_000


class Handlers:
    """Methods that do what tests need."""

    def __init__(self):
        self.written = 0
        self.took = 0
        self.cancelled = threading.Semaphore(0)
        self.go_on = asyncio.Event()

    async def echo(self, call, message):
        return message

    async def wait(self, call, message):
        call.begin()
        try:
            await asyncio.Event().wait()
        finally:
            self.cancelled.release()

    async def flood(self, call, message):
        try:
            while True:
                await call.write(BLOCK)
                self.written += len(BLOCK)
        finally:
            self.cancelled.release()

    async def hold(self, call, messages):
        call.begin()
        await self.go_on.wait()
        async for message in messages:
            self.took += len(message)
        await call.write(prefixed(b"%d" % self.took))

    @property
    def service(self):
        methods = {"Echo": Method(unary=self.echo), "Wait": Method(stream=self.wait)}
        methods |= {"Flood": Method(stream=self.flood), "Hold": Method(bidi=self.hold)}
        return Service("test.Test", methods)


@pytest.fixture
def handlers():
    return Handlers()


@pytest.fixture(params=LOOPS)
def server(request, handlers):
    options = TransportOptions(close_s_max=0.3)
    with served([handlers.service], loop=request.param, options=options) as server:
        yield server


@pytest.fixture(autouse=True)
def nobody_else_is_disturbed(request, caplog):
    """A client that was there before is served afterwards, and the log says nothing."""
    if "server" not in request.fixturenames:
        yield
        return
    server = request.getfixturevalue("server")
    with grpc.insecure_channel(server.address) as channel:
        echo = channel.unary_unary(ECHO)
        waiting = channel.unary_stream(WAIT)(b"", timeout=300)
        waiting.initial_metadata()
        yield
        assert echo(b"x", timeout=DEADLINE_S) == b"x"
        assert waiting.is_active()
        waiting.cancel()
    assert caplog.records == []


def closed(client):
    """Tell the codes of the GOAWAY frames before the server closes."""
    return [int.from_bytes(body[4:8], "big") for kind, _, _, body in client.await_close() if kind == GOAWAY]


ENHANCE_YOUR_CALM = 11


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200),
        b"\x00" * 1000,
        b"\xff" * 100_000,
        PREFACE + b"\xff" * 100,
        PREFACE + frame(DATA, 0, 1, b"x"),
        PREFACE + frame(SETTINGS, body=b"odd"),
        PREFACE + frame(SETTINGS, 0, 1),
        PREFACE + frame(SETTINGS) + frame(HEADERS, END_HEADERS, 2, b"\x82"),
        PREFACE + frame(SETTINGS) + frame(HEADERS, END_HEADERS, 1, b"\xff" * 50),
        PREFACE + frame(SETTINGS) + frame(HEADERS, END_HEADERS, 1, b"\x82"),
        PREFACE + frame(SETTINGS) + frame(DATA, 0, 99, b"x"),
        PREFACE + frame(SETTINGS) + frame(PING, body=b"short"),
        PREFACE + frame(SETTINGS) + frame(WINDOW_UPDATE, body=bytes(4)),
        PREFACE + frame(SETTINGS) + frame(WINDOW_UPDATE, body=b"\x7f\xff\xff\xff") * 2,
        PREFACE + frame(SETTINGS) + frame(PUSH_PROMISE, END_HEADERS, 1, bytes(8)),
        PREFACE + frame(SETTINGS) + frame(CONTINUATION, END_HEADERS, 1, b"\x82"),
        PREFACE + frame(SETTINGS) + frame(HEADERS, 0, 1, b"\x82") + frame(PING, body=bytes(8)),
        PREFACE + frame(SETTINGS, body=setting(MAX_FRAME_SIZE, 1)),
        PREFACE + frame(SETTINGS) + frame(RST_STREAM, 0, 7, b"x"),
    ],
    ids=[
        "HTTP/1.1",
        "TLS",
        "zeros",
        "ones",
        "nonsense after the preface",
        "no settings first",
        "settings of odd length",
        "settings on a stream",
        "a stream of the wrong parity",
        "headers that do not decode",
        "headers without a path",
        "data on no stream",
        "a ping of the wrong length",
        "a window that grows by nothing",
        "a window that overflows",
        "a push",
        "a continuation of nothing",
        "a frame within headers",
        "a setting out of range",
        "a reset of the wrong length",
    ],
)
def test_what_is_not_http2_is_closed(server, data):
    with Bare(server, preface=False) as client:
        client.send(data)
        client.await_close()


@pytest.mark.parametrize(
    "flood",
    [
        frame(SETTINGS),
        frame(PING, body=bytes(8)),
        frame(PRIORITY, 0, 1, bytes(3) + b"\x03\x00"),
        frame(0x77, 0, 0, b"?"),
        frame(WINDOW_UPDATE, body=b"\x00\x00\x00\x01"),
    ],
    ids=["settings", "pings", "priorities", "unknown frames", "windows"],
)
def test_a_flood_is_closed_and_told_to_be_calm(server, flood):
    with Bare(server) as client:
        try:
            client.send(flood * MANY)
        except (ConnectionResetError, BrokenPipeError):
            return
        assert closed(client) == [ENHANCE_YOUR_CALM]


def test_streams_that_are_opened_and_reset_at_once_are_closed_at_some_point(server, handlers):
    with Bare(server) as client:
        try:
            for stream in range(1, 2 * MANY, 2):
                client.send(client.headers(WAIT, stream), frame(RST_STREAM, 0, stream, bytes(4)))
        except (ConnectionResetError, BrokenPipeError):
            pass
        else:
            assert closed(client) == [ENHANCE_YOUR_CALM]
    wait_until(lambda: server.calls == 1, "only the other client's call is left")


def test_more_streams_than_were_allowed_are_closed(handlers):
    with (
        served([handlers.service], options=TransportOptions(streams_max=5)) as server,
        Bare(server) as client,
    ):
        client.send(*(client.headers(WAIT, stream) for stream in range(1, 15, 2)))
        assert len(closed(client)) == 1
        wait_until_idle(server)


@pytest.mark.parametrize("size", [40_000, 400_000])
def test_headers_that_are_too_large_are_closed(server, size):
    with Bare(server) as client:
        block = client.encoder.encode([("x", "y" * size)], huffman=False)
        pieces = [block[place : place + 16_000] for place in range(0, len(block), 16_000)]
        frames = [frame(HEADERS, 0, 1, pieces[0])]
        frames += [frame(CONTINUATION, 0, 1, piece) for piece in pieces[1:-1]]
        try:
            client.send(*frames, frame(CONTINUATION, END_HEADERS, 1, pieces[-1]))
        except (ConnectionResetError, BrokenPipeError):
            return
        assert len(closed(client)) == 1


def test_headers_that_grow_by_reference_are_closed(server):
    with Bare(server) as client:
        client.encoder.header_table_size = 4096
        block = client.encoder.encode([("x", "y" * 3000)]) + b"\xbe" * 10_000
        client.send(frame(HEADERS, END_HEADERS, 1, block))
        assert closed(client) == [ENHANCE_YOUR_CALM]


def test_headers_without_end_are_closed(server):
    with Bare(server) as client:
        client.send(frame(HEADERS, 0, 1, b"\x82"), frame(CONTINUATION, 0, 1, b"") * 300)
        assert len(closed(client)) == 1


def test_a_frame_that_is_too_large_is_refused_before_it_arrives(server):
    with Bare(server) as client:
        client.send(frame(DATA, 0, 1, bytes(100_000))[:9])
        assert closed(client) == [ENHANCE_YOUR_CALM]


@pytest.mark.parametrize("begun", [b"", PREFACE[:10], PREFACE, PREFACE + frame(SETTINGS, body=bytes(6))[:9]])
def test_who_does_not_say_what_they_speak_is_closed_after_a_time(handlers, begun):
    options = TransportOptions(handshake_s_max=0.2)
    with served([handlers.service], options=options) as server, Bare(server, preface=False) as client:
        client.send(begun)
        client.await_close()


def test_who_gives_no_sign_of_life_is_cut_and_who_does_is_not(handlers):
    options = TransportOptions(handshake_s_max=1, keepalive_s=0.2, keepalive_s_max=2)
    with served([handlers.service], options=options) as server, Bare(server) as dead, Bare(server) as alive:
        dead.send(dead.headers(WAIT), frame(DATA, END_STREAM, 1, prefixed(b"")))
        for _ in range(2):
            body = alive.await_frame(PING)
            alive.send(frame(PING, ACK, 0, body))
        dead.await_close()
        assert handlers.cancelled.acquire(timeout=DEADLINE_S)
        assert server.connections == 1


def test_a_connection_without_calls_is_closed_after_a_time(handlers):
    options = TransportOptions(keepalive_s=0.1, idle_s_max=0.1, handshake_s_max=1)
    with served([handlers.service], options=options) as server, Bare(server) as client:
        assert closed(client) == [0]


def test_a_request_that_never_completes_ends(handlers):
    with served([handlers.service], options=TransportOptions(request_s_max=0.2)) as server, Bare(server) as client:
        client.send(client.headers(ECHO), frame(DATA, 0, 1, prefixed(b"whole")[:7]))
        assert client.await_headers()["grpc-status"] == "4"
        assert server.calls == 0


def test_one_too_many_connections_is_closed(handlers):
    with (
        served([handlers.service], options=TransportOptions(connections_max=2)) as server,
        Bare(server) as one,
        Bare(server) as two,
    ):
        one.await_frame(SETTINGS)
        two.await_frame(SETTINGS)
        with Bare(server, preface=False) as three:
            assert three.await_close() == []
        one.send(frame(PING, body=b"12345678"))
        assert one.await_frame(PING) == b"12345678"


def test_a_client_that_takes_little_gets_no_more_than_it_takes(server, handlers):
    with Bare(server, setting(INITIAL_WINDOW_SIZE, 1000)) as client:
        client.send(client.headers(FLOOD), frame(DATA, END_STREAM, 1, prefixed(b"")))
        got = b""
        while len(got) < 1000:
            got += client.await_frame(DATA, 1)
        client.send(frame(PING, body=b"12345678"))
        assert client.await_frame(PING, flags=ACK) == b"12345678"
        assert (len(got), handlers.written) == (1000, 0)
        client.send(frame(WINDOW_UPDATE, 0, 1, (500).to_bytes(4, "big")))
        assert len(client.await_frame(DATA, 1)) == 500
        client.send(frame(SETTINGS, body=setting(INITIAL_WINDOW_SIZE, 3000)))
        assert len(client.await_frame(DATA, 1)) == 2000
        client.send(frame(RST_STREAM, 0, 1, bytes(4)))
        assert handlers.cancelled.acquire(timeout=DEADLINE_S)


def test_the_window_of_the_connection_is_kept_and_shared(server, handlers):
    with Bare(server, setting(INITIAL_WINDOW_SIZE, 1 << 20)) as client:
        for stream in (1, 3):
            client.send(client.headers(FLOOD, stream), frame(DATA, END_STREAM, stream, prefixed(b"")))
        got = 0
        while got < 65_535:
            kind, _, _, body = next(client.frames())
            got += len(body) * (kind == DATA)
        assert got == 65_535
        counts = {1: 0, 3: 0}
        client.send(frame(WINDOW_UPDATE, body=(600_000).to_bytes(4, "big")))
        while sum(counts.values()) < 600_000:
            kind, _, stream, body = next(client.frames())
            if kind == DATA:
                counts[stream] += len(body)
        assert min(counts.values()) > 150_000


def test_a_client_that_does_not_read_its_socket_stops_the_handler(server, handlers):
    with Bare(server, setting(INITIAL_WINDOW_SIZE, (1 << 31) - 1), receive_bytes=1 << 16) as client:
        client.send(
            frame(WINDOW_UPDATE, body=(1 << 30).to_bytes(4, "big")),
            client.headers(FLOOD),
            frame(DATA, END_STREAM, 1, prefixed(b"")),
        )
        before = -1

        def stopped():
            nonlocal before
            written, before = handlers.written == before, handlers.written
            return written and before > 0

        with Bare(server) as other:
            other.send(frame(PING, body=b"12345678"))
            other.await_frame(PING, flags=ACK)
            wait_until(lambda: all(stopped() for _ in range(3)), "the handler waits")
        assert handlers.written < 32 << 20
        wait_until(lambda: server.call(lambda: any(call.outgoing.left for call in server.server._calls())), "it waits")
        taken, wanted = 0, 2 * handlers.written
        while taken < wanted:
            taken += len(client.socket.recv(1 << 20))
    assert handlers.cancelled.acquire(timeout=DEADLINE_S)


def test_a_client_that_asks_without_reading_is_cut(handlers):
    options = TransportOptions(unread_bytes_max=1 << 18)
    with served([handlers.service], options=options) as server, Bare(server, receive_bytes=1 << 12) as client:

        def ask_on():
            for stream in range(1, 200_000, 2):
                opened = frame(WINDOW_UPDATE, body=(20_000).to_bytes(4, "big"))
                message = frame(DATA, END_STREAM, stream, prefixed(bytes(10_000)))
                client.send(opened, client.headers(ECHO, stream), message)

        with pytest.raises((ConnectionResetError, BrokenPipeError)):
            ask_on()
        wait_until(lambda: server.connections == 0, "it is cut")


def test_a_handler_that_does_not_read_stops_its_client_and_others_go_on(server, handlers):
    message = prefixed(bytes(100_000))
    with Bare(server) as client:
        client.await_frame(SETTINGS)
        client.send(client.headers(HOLD))
        client.await_headers(flags=END_HEADERS)
        for _ in range(10):
            for place in range(0, len(message), 16_000):
                client.send(frame(DATA, 0, 1, message[place : place + 16_000]))
        client.send(client.headers(ECHO, 3), frame(DATA, END_STREAM, 3, prefixed(b"x")))
        assert client.await_frame(DATA, 3) == prefixed(b"x")
        server.call(handlers.go_on.set)
        client.send(frame(DATA, END_STREAM, 1))
        assert client.await_frame(DATA, 1) == prefixed(b"1000000")
        wait_until(lambda: server.call(lambda: server.server.held.size) == 0, "nothing is held")


def test_a_client_cannot_make_the_server_hold_too_much(handlers):
    options = TransportOptions(connection_held_bytes_max=300_000)
    with served([handlers.service], options=options) as server, Bare(server) as client:
        piece = prefixed(bytes(200_000))[:10_000]
        for stream in range(1, 81, 2):
            client.send(client.headers(HOLD, stream), frame(DATA, 0, stream, piece))
        ends = 0
        while ends < 10:
            kind, _, _, body = next(client.frames())
            if kind == HEADERS:
                headers = dict(client.decoder.decode(body))
                ends += headers.get("grpc-status") == "8"
        assert server.call(lambda: server.server.held.size) <= 300_000


@pytest.mark.parametrize(
    ("changed", "status"),
    [({"content_type": "text/html"}, "415"), ({"content_type": None}, "415"), ({"__method": "GET"}, "405")],
)
def test_what_is_http_but_not_grpc_has_an_http_status(server, changed, status):
    with Bare(server) as client:
        client.send(client.headers("/", flags=END_HEADERS | END_STREAM, **changed))
        assert client.await_headers()[":status"] == status


@pytest.mark.parametrize(
    ("changed", "status"),
    [
        ({"te": None}, "13"),
        ({"grpc_timeout": "soon"}, "3"),
        ({"grpc_encoding": "snappy"}, "12"),
        ({"x_bin": "*"}, "3"),
        ({"grpc_timeout": "0n"}, "4"),
    ],
)
def test_what_is_grpc_but_wrong_has_a_status(server, changed, status):
    with Bare(server) as client:
        client.send(client.headers(ECHO, **changed))
        headers = client.await_headers()
        assert (headers[":status"], headers["grpc-status"]) == ("200", status)
        assert headers["grpc-accept-encoding"] == "identity,gzip"
        client.send(client.headers(ECHO, 3), frame(DATA, END_STREAM, 3, prefixed(b"x")))
        assert client.await_frame(DATA, 3) == prefixed(b"x")


def test_a_request_that_ends_within_a_message_has_a_status(server):
    with Bare(server) as client:
        client.send(client.headers(ECHO), frame(DATA, END_STREAM, 1, prefixed(b"abc")[:-1]))
        assert client.await_headers()["grpc-status"] == "13"


def test_a_stream_that_ended_is_reset_so_that_its_client_stops_sending(server):
    with Bare(server) as client:
        client.send(client.headers(ECHO, te=None))
        client.await_headers()
        assert client.await_frame(RST_STREAM, 1) == bytes(4)
        client.send(frame(DATA, 0, 1, bytes(1000)))
        client.send(client.headers(ECHO, 3), frame(DATA, END_STREAM, 3, prefixed(b"x")))
        assert client.await_frame(DATA, 3) == prefixed(b"x")


def test_a_client_that_opens_no_more_gets_what_it_asked_for(server, handlers):
    with Bare(server) as client:
        client.send(client.headers(HOLD))
        client.await_headers(flags=END_HEADERS)
        client.send(frame(GOAWAY, body=bytes(8)))
        client.send(frame(DATA, END_STREAM, 1, prefixed(b"xy")))
        server.call(handlers.go_on.set)
        assert client.await_frame(DATA, 1) == prefixed(b"2")
        client.await_close()


def test_headers_of_ours_are_not_remembered_beyond_a_bound(server):
    with Bare(server, setting(HEADER_TABLE_SIZE, 1 << 20)) as client:
        client.decoder.max_allowed_table_size = 1 << 20
        for stream in range(1, 401, 2):
            client.send(client.headers(f"/nothing/{stream:0100d}", stream, END_HEADERS | END_STREAM))
            assert client.await_headers(stream)["grpc-status"] == "12"
        size = server.call(lambda: max(one._wire.h2.encoder.header_table.maxsize for one in server.server._connections))
        assert size <= 4096


def test_a_client_that_resets_what_it_asked_for_in_one_breath_is_served_on(server):
    with Bare(server) as client:
        client.send(client.headers("/nothing"), frame(RST_STREAM, 0, 1, bytes(4)))
        client.send(client.headers(ECHO, 3, te=None), frame(RST_STREAM, 0, 3, bytes(4)))
        client.send(client.headers(ECHO, 5), frame(DATA, END_STREAM, 5, prefixed(b"x")))
        assert client.await_frame(DATA, 5) == prefixed(b"x")


def test_a_half_open_connection_is_let_go(server):
    with Bare(server) as client:
        client.send(client.headers(WAIT), frame(DATA, END_STREAM, 1, prefixed(b"")))
        client.await_headers(flags=END_HEADERS)
        client.socket.shutdown(socket.SHUT_WR)
        client.await_close()
    wait_until(lambda: server.connections == 1, "only the other client is left")
