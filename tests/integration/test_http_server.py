"""Facts about starting and stopping the HTTP server."""

import asyncio
import socket
import time
from contextlib import suppress

import httpx
import pytest

from feeding import draft_of
from tailrace.delivery.http import Address, serve
from tailrace.model.errors import ListenError
from tailrace.model.op import Op
from web import DEADLINE_S, until, web

SUB = "sub_0000000000000001"


def delivered(world):
    return world.metrics.registry.get_sample_value("tailrace_delivered_changes_total", {"wire": "sse"}) or 0


async def nothing(scope, receive, send):
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body", "body": b""})


def serving(port=0, host="127.0.0.1"):
    return serve(nothing, host, port, on_stop=lambda: None, stop_timeout_s=1)


async def test_it_listens_before_the_block_begins_and_not_after_it():
    async with serving() as address, httpx.AsyncClient(verify=False, timeout=DEADLINE_S) as client:
        assert (await client.get(address.url)).status_code == 204
    with pytest.raises(OSError, match="refused"):
        socket.create_connection((address.host, address.port), timeout=5).close()


async def test_an_address_in_use_is_named():
    async with serving() as address:
        with pytest.raises(ListenError, match=str(address.port)):
            async with serving(address.port):
                pass


async def test_a_host_that_is_nobodys_is_named():
    with pytest.raises(ListenError, match="no-such-host"):
        async with serving(host="no-such-host.invalid"):
            pass


def test_an_address_of_version_six_is_a_url_all_the_same():
    assert Address("::1", 80).url == "http://[::1]:80"
    assert Address("127.0.0.1", 80).url == "http://127.0.0.1:80"


async def test_stopping_ends_open_streams_and_waiting_polls():
    async with web() as world:
        await world.subscribe()
        async with world.stream(SUB) as stream:
            polling = asyncio.create_task(world.call("cdc.poll", sub_id=SUB, from_offset=0, wait_ms=60_000))
            await until(lambda: world.service.feeds_open() == 2, "both wait")
            world.service.stop()
            assert await stream.record() is None
            async with asyncio.timeout(DEADLINE_S):
                assert (await polling)["events"] == []
        answer = await world.client.get(f"/api/v1/cdc/sse/{SUB}")
        assert (answer.status_code, answer.text) == (503, "the server stops")


async def test_stopping_does_not_wait_for_a_client_that_does_not_read():
    async with web() as world:
        await world.subscribe()
        await world.log.append([draft_of([(Op.INSERT, world.schema_id)] * 200_000)])
        lazy = socket.create_connection((world.address.host, world.address.port))
        lazy.sendall(f"GET /api/v1/cdc/sse/{SUB} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        await until(lambda: delivered(world) > 0, "the stream serves")
        begun = time.monotonic()
    assert time.monotonic() - begun < DEADLINE_S
    lazy.close()


async def flood(writer, line):
    async with asyncio.timeout(20):
        for _ in range(1_000_000):
            writer.write(line)
            await writer.drain()


@pytest.mark.parametrize(
    "line", [b"X-Filler: " + b"y" * 1000 + b"\r\n", b"z" * 1000], ids=["many headers", "one header"]
)
async def test_a_head_that_does_not_end_is_refused(line):
    async with serving() as address:
        _, writer = await asyncio.open_connection(address.host, address.port)
        writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\nX-First: ")
        with pytest.raises(ConnectionError):
            await flood(writer, line)
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()
        async with httpx.AsyncClient(verify=False, timeout=DEADLINE_S) as client:
            assert (await client.get(address.url)).status_code == 204


async def test_what_is_no_http_is_refused():
    async with serving() as address:
        reader, writer = await asyncio.open_connection(address.host, address.port)
        writer.write(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n")
        async with asyncio.timeout(DEADLINE_S):
            assert (await reader.read(1000)).startswith(b"HTTP/1.1 400")
        writer.close()
        await writer.wait_closed()
