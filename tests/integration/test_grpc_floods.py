"""Floods of cheap frames, from another process: good calls get through meanwhile, and who floods is told to be calm."""

import asyncio
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest

import grpc_flooding
from grpc_serving import END_HEADERS, END_STREAM, GOAWAY, Bare, served
from tailrace.delivery.grpc.call import Method, Service, StatusCode, StatusError, prefixed
from tailrace.delivery.grpc.http2.options import TransportOptions

ECHO = "/test.Test/Echo"
CONNECTIONS = 25
CALLS = 20
DEADLINE_S = 20.0
"""For all good calls together. Before floods were bounded, one of them took 2 to 28 seconds."""

ENHANCE_YOUR_CALM = 11


async def echo(call, message):
    return message


SERVICE = Service("test.Test", {"Echo": Method(unary=echo)})


@contextmanager
def flooding(server, kind):
    """Have another process flood a server."""
    command = [sys.executable, grpc_flooding.__file__, str(server.port), kind, ECHO, str(CONNECTIONS)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=Path(grpc_flooding.__file__).parent)
    try:
        assert process.stdout.readline() == b"flooding\n"
        yield process
    finally:
        process.kill()
        process.wait(60)
        process.stdout.close()


@pytest.mark.parametrize("kind", grpc_flooding.FLOODS)
def test_good_calls_get_through_while_a_flood_runs(kind):
    with served([SERVICE]) as server, grpc.insecure_channel(server.address) as channel:
        call = channel.unary_unary(ECHO)
        assert call(b"x", timeout=60) == b"x"
        with flooding(server, kind) as flood:
            begun_s = time.monotonic()
            for _ in range(CALLS):
                assert call(b"x", timeout=DEADLINE_S) == b"x"
            assert time.monotonic() - begun_s < DEADLINE_S
            with grpc.insecure_channel(server.address) as another:  # who comes only now is served, too
                assert another.unary_unary(ECHO)(b"x", timeout=60) == b"x"
            assert flood.poll() is None


class Refusing:
    """A gate that admits nobody."""

    async def __call__(self, path, metadata):
        raise StatusError(StatusCode.UNAUTHENTICATED, "no")

    def watch(self, principal, end, *, counted):
        raise AssertionError("nobody was admitted")


@pytest.mark.parametrize(
    ("path", "gate", "end"),
    [("/no/Method", None, END_STREAM), (ECHO, Refusing(), END_STREAM)],
    ids=["unknown methods", "no credentials"],
)
def test_a_client_whose_calls_are_all_refused_is_told_to_be_calm(path, gate, end):
    options = TransportOptions(offences_max=20, offences_per_s=0.001)
    with served([SERVICE], gate=gate, options=options) as server, Bare(server) as client:
        for number in range(100):
            client.send(client.headers(path, 2 * number + 1, END_HEADERS | end))
        codes = [int.from_bytes(body[4:8], "big") for kind, _, _, body in client.await_close() if kind == GOAWAY]
        assert ENHANCE_YOUR_CALM in codes


def test_a_client_that_ends_streams_which_it_has_read_offends_nobody():
    async def stream(call, message):
        await call.write(prefixed(b""))
        await asyncio.Event().wait()

    options = TransportOptions(offences_max=5, offences_per_s=0.001)
    service = Service("test.Test", {"Stream": Method(stream=stream)})
    with served([service], options=options) as server, grpc.insecure_channel(server.address) as channel:
        for _ in range(20):
            call = channel.unary_stream("/test.Test/Stream")(b"", timeout=60)
            assert next(call) == b""
            call.cancel()
        assert server.connections == 1
