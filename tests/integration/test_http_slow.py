"""HTTP clients that are silent, slow, or do not read: each part of a request has its time, and then they go."""

import asyncio
import socket
import ssl

import httpx
import pytest

from certificates import Authority
from tailrace.delivery.http import serve
from tailrace.delivery.http.protocol import ConnectionLimits
from tailrace.delivery.tls import TlsConfig, tls_context
from web import DEADLINE_S, until

LIMITS = ConnectionLimits(head_s_max=0.3, body_s_max=0.3, stall_s_max=0.3)
WHOLE = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
UPLOAD = b"POST / HTTP/1.1\r\nHost: localhost\r\n"
HALF = b"GET / HTTP/1.1\r\nHost: loc"


async def answer(scope, receive, send):
    """Answer without a look at the body, and without an end under `/flood`."""
    if scope["path"] != "/flood":
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})
        return
    await send({"type": "http.response.start", "status": 200, "headers": []})
    leaving = asyncio.create_task(gone(receive))
    while not leaving.done():
        await send({"type": "http.response.body", "body": bytes(1 << 16), "more_body": True})
        await asyncio.sleep(0)


async def gone(receive):
    while (await receive())["type"] != "http.disconnect":
        pass


async def take(scope, receive, send):
    """Read the body, then answer."""
    while (await receive()).get("more_body"):
        pass
    await answer(scope, receive, send)


def serving(app=answer, **options):
    return serve(app, "127.0.0.1", 0, on_stop=lambda: None, stop_timeout_s=1, **{"limits": LIMITS, **options})


async def read_to_the_end(reader):
    async with asyncio.timeout(DEADLINE_S):
        try:
            return await reader.read()
        except ConnectionResetError:
            return b""


@pytest.mark.parametrize(
    ("pieces", "statuses"),
    [
        ([], []),
        ([b"\r\n\r\n"], [b"408"]),
        ([HALF], [b"408"]),
        ([b"G"], [b"408"]),
        ([WHOLE + HALF], [b"204", b"408"]),
        ([WHOLE, HALF], [b"204", b"408"]),
        ([WHOLE, b"\r\n", HALF], [b"204", b"408"]),
        ([UPLOAD + b"Content-Length: 10\r\n\r\n12345"], [b"204"]),
        ([UPLOAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\n123"], [b"204"]),
        ([UPLOAD + b"Transfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 100], [b"204"]),
    ],
    ids=[
        "silent",
        "blank lines",
        "half a head",
        "one byte",
        "half of a second head",
        "half of a second head later",
        "a blank line between",
        "half a body",
        "half a chunk",
        "chunks without end",
    ],
)
async def test_a_request_that_does_not_end_is_closed(pieces, statuses):
    async with serving() as address:
        reader, writer = await asyncio.open_connection(address.host, address.port)
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0.01)
        found = await read_to_the_end(reader)
        assert [line.split()[1] for line in found.split(b"\r\n") if line.startswith(b"HTTP/1.1 ")] == statuses
        writer.close()


@pytest.mark.parametrize("front", [HALF, UPLOAD + b"Content-Length: 100000\r\n\r\n"], ids=["head", "body"])
@pytest.mark.parametrize("app", [answer, take], ids=["which nobody reads", "which is read"])
async def test_bytes_that_drip_do_not_prolong_it(app, front):
    async with serving(app) as address:
        reader, writer = await asyncio.open_connection(address.host, address.port)
        writer.write(front)

        async def drip():
            for _ in range(10_000):
                writer.write(b"x")
                await writer.drain()
                await asyncio.sleep(0.01)

        dripping = asyncio.create_task(drip())
        await read_to_the_end(reader)
        dripping.cancel()
        await asyncio.gather(dripping, return_exceptions=True)
        writer.close()


async def test_an_idle_connection_may_be_used_again():
    async with serving() as address:
        reader, writer = await asyncio.open_connection(address.host, address.port)
        for _ in range(3):
            writer.write(WHOLE[:10])
            await asyncio.sleep(0.02)
            writer.write(WHOLE[10:])
            async with asyncio.timeout(DEADLINE_S):
                assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 204")
            await asyncio.sleep(2 * LIMITS.head_s_max)  # idle: neither in a head nor in a body
        writer.close()
        await writer.wait_closed()


async def test_a_client_that_reads_nothing_is_dropped():
    async with serving() as address:
        lazy = socket.create_connection((address.host, address.port))
        lazy.sendall(b"GET /flood HTTP/1.1\r\nHost: localhost\r\n\r\n")
        loop = asyncio.get_running_loop()

        def is_cut():
            try:
                lazy.send(b"x", socket.MSG_DONTWAIT)
            except BlockingIOError:
                return False
            except OSError:
                return True
            return False

        await until(is_cut, "the server has cut the connection")
        assert loop.is_running()
        lazy.close()


@pytest.fixture(scope="module")
def tls(tmp_path_factory):
    authority = Authority(tmp_path_factory.mktemp("tls"))
    return tls_context(TlsConfig(*map(str, authority.sign("server"))), ["http/1.1"])


@pytest.mark.parametrize(
    "data",
    [b"", b"\x16\x03\x01", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", WHOLE, bytes(range(256)) * 4],
    ids=["silent", "begun", "half a hello", "plain HTTP", "junk"],
)
async def test_a_tls_handshake_that_does_not_end_is_closed(tls, data, caplog):
    async with serving(tls=tls, handshake_s_max=0.3) as address:
        reader, writer = await asyncio.open_connection(address.host, address.port)
        writer.write(data)
        await read_to_the_end(reader)
        writer.close()
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        async with httpx.AsyncClient(verify=context, timeout=DEADLINE_S) as client:
            assert (await client.get(address.url)).status_code == 204
    assert caplog.records == []


JUNK = [
    b"\x00" * 100,
    b"\xff" * 70_000,
    b"GET\r\n\r\n",
    b"GET / HTTP/9.9\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n",
    b"GET / HTTP/1.1\r\nHost : localhost\r\n\r\n",
    b"GET / HTTP/1.1\r\n Host: localhost\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: localhost\nX: a\rb\r\n\r\n",
    b"GET /\x00 HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
]


@pytest.mark.parametrize("data", JUNK, ids=lambda data: repr(data[:60]))
async def test_what_is_no_http_is_refused_and_not_logged(data, caplog):
    async with serving(take) as address:
        reader, writer = await asyncio.open_connection(address.host, address.port)
        writer.write(data)
        found = await read_to_the_end(reader)
        assert [line.split()[1] for line in found.split(b"\r\n") if line.startswith(b"HTTP/")] in ([b"400"], [])
        writer.close()
    assert caplog.records == []
