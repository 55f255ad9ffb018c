"""Facts about accepting connections: how many, and what is said to those who are too many."""

import asyncio
import logging
import socket
from contextlib import ExitStack

import httpx
import pytest
import uvloop

from grpc_serving import Bare, served
from serving import wait_until
from tailrace.delivery.grpc.http2.options import TransportOptions
from tailrace.delivery.http import serve
from tailrace.metrics import Metrics
from web import DEADLINE_S, until


async def answer(scope, receive, send):
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body", "body": b""})


def sample(metrics, name, port):
    return metrics.registry.get_sample_value(f"tailrace_connections_{name}", {"port": port})


@pytest.mark.parametrize("loop", [asyncio.SelectorEventLoop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_connections_beyond_the_bound_are_refused_counted_and_logged_once(loop, caplog):
    async def run():
        metrics, caplog.records[:] = Metrics(), []
        options = {"on_stop": lambda: None, "stop_timeout_s": 1, "connections_max": 5, "metrics": metrics}
        async with serve(answer, "127.0.0.1", 0, **options) as address:
            place = (address.host, address.port)
            opened = [socket.create_connection(place) for _ in range(5)]
            await until(lambda: sample(metrics, "open", "http") == 5, "all are there")
            for count in range(1, 4):
                reader, writer = await asyncio.open_connection(*place)
                writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
                async with asyncio.timeout(DEADLINE_S):
                    head = await reader.readuntil(b"\r\n\r\n")
                assert head.startswith(b"HTTP/1.1 503 ")
                assert b"retry-after: 1" in head
                writer.close()
                assert sample(metrics, "refused_total", "http") == count
            opened.pop().close()
            await until(lambda: sample(metrics, "open", "http") == 4, "one has gone")
            async with httpx.AsyncClient(timeout=DEADLINE_S) as client:
                assert (await client.get(address.url)).status_code == 204
            for one in opened:
                one.close()
        (record,) = [record for record in caplog.records if record.levelno >= logging.WARNING]
        assert record.getMessage() == "connections are refused: as many are open as may be"
        assert (record.port, record.most) == ("http", 5)

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(run())


def test_so_are_those_of_grpc():
    metrics = Metrics()
    with (
        served(options=TransportOptions(connections_max=2), metrics=metrics) as server,
        Bare(server) as first,
        ExitStack() as stack,
    ):
        first.await_frame(4)
        # For a moment a connection counts as one that begins and as one that is open.
        wait_until(lambda: sample(metrics, "open", "grpc") == 1, "the first connection is open")
        second = stack.enter_context(Bare(server))
        second.await_frame(4)
        wait_until(lambda: sample(metrics, "open", "grpc") == 2, "the second connection is open")
        with Bare(server, preface=False) as third:
            assert third.await_close() == []
        assert sample(metrics, "refused_total", "grpc") == 1
