"""Calls of grpcio's own client to our server."""

import asyncio
import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import grpc
import pytest

from grpc_serving import DEADLINE_S, LOOPS, served, wait_until_idle
from serving import wait_until
from tailrace.access.principal import Capability, Principal
from tailrace.delivery.grpc.call import Method, Service, StatusCode, StatusError, prefixed
from tailrace.delivery.grpc.http2.options import TransportOptions
from tailrace.model.errors import MetadataError, UnauthenticatedError, UnknownSourceError

BIG = 3 << 20


class Handlers:
    """Methods that do what tests need."""

    def __init__(self):
        self.waiting = threading.Semaphore(0)
        self.cancelled = threading.Semaphore(0)
        self.principals = []

    async def echo(self, call, message):
        return message

    async def describe(self, call, message):
        call.begin([("x-text", "now"), ("x-data-bin", bytes(range(256)))])
        sent = [(name, value) for name, value in call.metadata if name.startswith("x-")]
        raise StatusError(StatusCode.ABORTED, repr(sent), [("x-end", "later"), ("x-end-bin", b"\x00\xff")])

    async def fail(self, call, message):
        raise {
            b"status": StatusError(StatusCode.FAILED_PRECONDITION, "100 % no: é\n"),
            b"ours": UnknownSourceError("n"),
            b"inside": MetadataError("/secret"),
            b"bug": RuntimeError("secret"),
            b"trailing": StatusError(StatusCode.ABORTED, "no", [("x-text", "é")]),
        }[message]

    async def count(self, call, message):
        for number in range(int(message)):
            await call.write(prefixed(b"%d" % number))

    async def pack(self, call, message):
        numbers, size = map(int, message.split())
        await call.write(b"".join(prefixed(b"%d" % number + bytes(size)) for number in range(numbers)))

    async def double(self, call, messages):
        async for message in messages:
            await call.write(prefixed(message * 2))

    async def wait(self, call, message):
        self.principals.append(call.principal)
        try:
            if message:
                await call.write(prefixed(message))
            self.waiting.release()
            await asyncio.Event().wait()
        finally:
            self.cancelled.release()

    async def wait_once(self, call, message):
        await self.wait(call, b"")
        return b""

    @property
    def service(self):
        methods = {
            "Echo": Method(unary=self.echo),
            "Describe": Method(stream=self.describe),
            "Fail": Method(unary=self.fail),
            "FailStream": Method(stream=self.fail),
            "Count": Method(stream=self.count),
            "Pack": Method(stream=self.pack),
            "Double": Method(bidi=self.double),
            "Wait": Method(stream=self.wait),
            "WaitOnce": Method(unary=self.wait_once),
            "Write": Method(unary=self.echo, capability=Capability.WRITE),
            "Open": Method(unary=self.echo, open_to_all=True),
        }
        return Service("test.Test", methods)


class Client:
    """Calls by the name of a method."""

    def __init__(self, channel):
        self.channel = channel

    def unary(self, name, message=b"", **options):
        return self.channel.unary_unary(f"/test.Test/{name}")(message, timeout=DEADLINE_S, **options)

    def stream(self, name, message=b"", *, timeout=DEADLINE_S, **options):
        return self.channel.unary_stream(f"/test.Test/{name}")(message, timeout=timeout, **options)

    def bidi(self, name, messages, **options):
        return self.channel.stream_stream(f"/test.Test/{name}")(messages, timeout=DEADLINE_S, **options)


@contextmanager
def connected(server, **options):
    with grpc.insecure_channel(server.address, **options) as channel:
        yield Client(channel)


@pytest.fixture
def handlers():
    return Handlers()


@pytest.fixture(params=LOOPS)
def server(request, handlers):
    with served([handlers.service], loop=request.param) as server:
        yield server


@pytest.fixture
def client(server):
    with connected(server) as client:
        yield client


def refused(call):
    """Return code and details of a call that must fail."""
    with pytest.raises(grpc.RpcError) as caught:
        call()
    return caught.value.code(), caught.value.details()


@pytest.mark.parametrize("size", [0, 1, 20_000, BIG])
def test_a_unary_call_is_answered(client, size):
    assert client.unary("Echo", b"x" * size) == b"x" * size


def test_a_compressed_request_is_read(client):
    assert client.unary("Echo", b"x" * 100_000, compression=grpc.Compression.Gzip) == b"x" * 100_000


def test_an_encoding_that_we_do_not_know_is_refused_with_those_that_we_do(client):
    with pytest.raises(grpc.RpcError) as caught:
        client.unary("Echo", b"x" * 100_000, compression=grpc.Compression.Deflate)
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_a_stream_has_all_messages_in_order_and_ends(client):
    assert list(client.stream("Count", b"2000")) == [b"%d" % number for number in range(2000)]


@pytest.mark.parametrize(("numbers", "size"), [(5000, 100), (20, 100_000), (3, BIG)])
def test_messages_packed_into_one_write_arrive_one_by_one(client, numbers, size):
    read = list(client.stream("Pack", b"%d %d" % (numbers, size)))
    assert read == [b"%d" % number + bytes(size) for number in range(numbers)]


def test_a_conversation_goes_both_ways(client):
    asked = threading.Semaphore(0)

    def questions():
        for number in range(50):
            yield b"%d," % number
            assert asked.acquire(timeout=DEADLINE_S)

    for number, answer in enumerate(client.bidi("Double", questions())):
        assert answer == b"%d,%d," % (number, number)
        asked.release()
    assert number == 49


def test_a_conversation_of_large_messages_keeps_its_order(client):
    sent = [b"%d" % number * 200_000 for number in range(10)]
    assert list(client.bidi("Double", iter(sent))) == [message * 2 for message in sent]


def test_metadata_goes_both_ways(client):
    call = client.stream("Describe", metadata=[("x-a", "b"), ("x-b-bin", b"\x00\xff"), ("x-a", "c")])
    assert ("x-text", "now") in call.initial_metadata()
    assert ("x-data-bin", bytes(range(256))) in call.initial_metadata()
    code, details = refused(lambda: next(call))
    assert (code, details) == (
        grpc.StatusCode.ABORTED,
        repr([("x-a", "b"), ("x-b-bin", b"\x00\xff"), ("x-a", "c")]),
    )
    assert set(call.trailing_metadata()) == {("x-end", "later"), ("x-end-bin", b"\x00\xff")}


@pytest.mark.parametrize("method", ["Fail", "FailStream"])
@pytest.mark.parametrize(
    ("cause", "code", "details", "logged"),
    [
        (b"status", grpc.StatusCode.FAILED_PRECONDITION, "100 % no: é\n", 0),
        (b"ours", grpc.StatusCode.NOT_FOUND, "source 'n' not found", 0),
        (b"inside", grpc.StatusCode.INTERNAL, "internal error: see the log of the server", 1),
        (b"bug", grpc.StatusCode.INTERNAL, "internal error: see the log of the server", 1),
        (b"trailing", grpc.StatusCode.ABORTED, "no", 1),
    ],
)
def test_what_a_handler_raises_is_a_status_that_tells_nothing_of_the_inside(
    client, caplog, method, cause, code, details, logged
):
    call = client.unary if method == "Fail" else lambda *arguments: list(client.stream(*arguments))
    assert refused(lambda: call(method, cause)) == (code, details)
    assert client.unary("Echo", b"still there") == b"still there"
    assert len([record for record in caplog.records if record.levelno >= logging.WARNING]) == logged


@pytest.mark.parametrize("path", ["/test.Test/Nothing", "/test.Other/Echo", "/x", "/"])
def test_what_is_not_there_is_unimplemented(client, path):
    code, _ = refused(lambda: client.channel.unary_unary(path)(b"", timeout=DEADLINE_S))
    assert code is grpc.StatusCode.UNIMPLEMENTED


def test_a_request_that_is_too_large_is_refused_and_the_next_one_is_not(client):
    code, details = refused(lambda: client.unary("Echo", bytes(5 << 20)))
    assert (code, details) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "a message exceeds the limit of 4194304 bytes")
    assert client.unary("Echo", b"x") == b"x"


def test_several_messages_are_refused_where_one_is_asked_for(client):
    call = client.channel.stream_unary("/test.Test/Echo")
    assert refused(lambda: call(iter([b"a", b"b"]), timeout=DEADLINE_S))[0] is grpc.StatusCode.UNIMPLEMENTED
    assert refused(lambda: call(iter([]), timeout=DEADLINE_S))[0] is grpc.StatusCode.UNIMPLEMENTED


def test_a_deadline_ends_the_call_and_its_handler(client, handlers, server):
    client.unary("Echo")  # there is a connection now, for which a short deadline might not do
    for timeout_s in (0.3, 3, 10):
        code, _ = refused(lambda timeout_s=timeout_s: list(client.stream("Wait", b"x", timeout=timeout_s)))
        assert code is grpc.StatusCode.DEADLINE_EXCEEDED
        wait_until_idle(server)
        if handlers.waiting.acquire(blocking=False):
            break
    assert handlers.cancelled.acquire(timeout=DEADLINE_S)


def test_a_cancelled_call_ends_its_handler(client, handlers, server):
    call = client.stream("Wait", b"x")
    assert next(call) == b"x"
    call.cancel()
    assert handlers.cancelled.acquire(timeout=DEADLINE_S)
    wait_until_idle(server)


def test_a_client_that_goes_ends_its_handlers(handlers, server):
    with connected(server) as client:
        calls = [client.stream("Wait", b"x") for _ in range(20)]
        assert [next(call) for call in calls] == [b"x"] * 20
    for _ in range(20):
        assert handlers.cancelled.acquire(timeout=DEADLINE_S)
    wait_until(lambda: server.connections == 0, "the connection is gone")


def test_a_thousand_streams_share_one_connection_with_unary_calls(client, handlers, server):
    calls = [client.stream("Wait", b"x", timeout=60) for _ in range(1000)]
    assert [next(call) for call in calls] == [b"x"] * 1000
    assert server.connections == 1
    assert server.calls == 1000
    assert client.unary("Echo", b"y") == b"y"
    for call in calls:
        call.cancel()
    wait_until_idle(server)


def test_unary_calls_from_many_threads_get_their_own_answers(client):
    with ThreadPoolExecutor(8) as threads:
        asked = [b"%d" % number for number in range(400)]
        assert list(threads.map(lambda message: client.unary("Echo", message), asked)) == asked


def test_a_client_that_does_not_read_holds_up_nobody_and_little_memory(client, server):
    stuck = [client.stream("Count", b"%d" % 10**9) for _ in range(4)]
    for call in stuck:
        assert next(call) == b"0"
    assert client.unary("Echo", bytes(BIG)) == bytes(BIG)
    assert list(client.stream("Count", b"100"))[-1] == b"99"
    for call in stuck:
        call.cancel()
    wait_until_idle(server)


def test_calls_can_be_ended_from_outside(client, handlers, server):
    calls = [client.stream("Wait", b"x"), client.stream("Wait", b"x", metadata=[("x-kept", "yes")])]
    for call in calls:
        assert next(call) == b"x"
    error = StatusError(StatusCode.UNAUTHENTICATED, "over", [("x-why", "expired")])
    assert server.call(server.server.end_calls, lambda call: call.header("x-kept") is None, error) == 1
    assert refused(lambda: next(calls[0])) == (grpc.StatusCode.UNAUTHENTICATED, "over")
    assert calls[0].trailing_metadata() == (("x-why", "expired"),)
    assert handlers.cancelled.acquire(timeout=DEADLINE_S)
    assert server.calls == 1
    calls[1].cancel()


def test_a_stream_that_is_ended_in_the_middle_of_a_write_ends_with_its_status(client, server):
    call = client.stream("Pack", b"30 1000000")
    assert next(call) == b"0" + bytes(1_000_000)
    wait_until(lambda: server.call(lambda: bool(next(iter(server.server._calls())).outgoing.left)), "it is stuck")
    assert server.call(server.server.end_calls, lambda call: True, StatusError(StatusCode.ABORTED, "over")) == 1
    read = []
    assert refused(lambda: read.extend(call)) == (grpc.StatusCode.ABORTED, "over")
    assert all(len(message) > 1_000_000 for message in read)
    assert len(read) < 29


class FakeGate:
    """Lets in by token; `revoke` ends what lasts."""

    def __init__(self):
        self.ends = []

    async def __call__(self, path, metadata):
        token = dict(metadata).get("x-token")
        if token is None:
            raise UnauthenticatedError
        return Principal(token, capabilities=frozenset({token}))

    @contextmanager
    def watch(self, principal, end, *, counted):
        self.ends.append(end)
        try:
            yield
        finally:
            self.ends.remove(end)

    def revoke(self):
        for end in self.ends:
            end(UnauthenticatedError(expired=True))


@pytest.fixture
def gated(handlers):
    gate = FakeGate()
    with served([handlers.service], gate=gate) as server, connected(server) as client:
        client.gate, client.server = gate, server
        yield client


def test_who_is_not_known_is_refused_at_every_method_but_the_open_ones(gated):
    for call in (lambda: gated.unary("Echo"), lambda: list(gated.stream("Count", b"1"))):
        assert refused(call)[0] is grpc.StatusCode.UNAUTHENTICATED
    assert gated.unary("Open", b"x") == b"x"
    assert gated.channel.unary_unary("/grpc.health.v1.Health/Check")(b"", timeout=DEADLINE_S) == b"\x08\x01"


def test_a_method_needs_its_capability(gated):
    reader, writer = [("x-token", "read")], [("x-token", "write")]
    assert gated.unary("Echo", b"x", metadata=reader) == b"x"
    assert gated.unary("Write", b"x", metadata=writer) == b"x"
    assert refused(lambda: gated.unary("Write", b"x", metadata=reader)) == (
        grpc.StatusCode.PERMISSION_DENIED,
        "Insufficient permissions. Required: Write, principal: read",
    )


def test_a_handler_knows_who_calls_and_ends_with_their_credentials(gated, handlers):
    call = gated.stream("Wait", b"x", metadata=[("x-token", "read")])
    assert next(call) == b"x"
    assert [principal.id for principal in handlers.principals] == ["read"]
    gated.server.call(gated.gate.revoke)
    assert refused(lambda: next(call)) == (grpc.StatusCode.UNAUTHENTICATED, "Authentication token has expired.")
    assert handlers.cancelled.acquire(timeout=DEADLINE_S)
    wait_until(lambda: gated.gate.ends == [], "nobody watches any more")


def test_stopping_finishes_unary_calls_ends_streams_and_takes_no_more(handlers):
    finish = asyncio.Event()

    async def slow(call, message):
        handlers.waiting.release()
        await finish.wait()
        return b"done"

    stopped = threading.Event()
    service = Service("test.Test", {**handlers.service.methods, "Slow": Method(unary=slow)})
    with served([service], on_stop=stopped.set) as server, connected(server) as client:
        stream = client.stream("Wait", b"x")
        assert next(stream) == b"x"
        slow_call = client.channel.unary_unary("/test.Test/Slow").future(b"", timeout=DEADLINE_S)
        for _ in range(2):
            assert handlers.waiting.acquire(timeout=DEADLINE_S)
        stopping = asyncio.run_coroutine_threadsafe(server.server.stop(), server.loop)
        assert refused(lambda: next(stream)) == (grpc.StatusCode.UNAVAILABLE, "the server is stopping")
        assert stopped.is_set()
        assert refused(lambda: client.unary("Echo", b"x"))[0] is grpc.StatusCode.UNAVAILABLE
        server.call(finish.set)
        assert slow_call.result(DEADLINE_S) == b"done"
        stopping.result(DEADLINE_S)
        assert server.connections == 0


def test_a_unary_call_that_does_not_finish_is_ended_when_the_server_stops(handlers):
    options = TransportOptions(stop_s_max=0.1)
    with served([handlers.service], options=options) as server, connected(server) as client:
        call = client.channel.unary_unary("/test.Test/WaitOnce").future(b"", timeout=DEADLINE_S)
        assert handlers.waiting.acquire(timeout=DEADLINE_S)
        server.run(server.server.stop())
        assert refused(lambda: call.result(DEADLINE_S))[0] is grpc.StatusCode.UNAVAILABLE
        assert handlers.cancelled.acquire(timeout=DEADLINE_S)
