"""Facts about writing without the interpreter's lock: nothing is lost or changes its order."""

import asyncio
import socket

import pytest
import uvloop

from tailrace.delivery.http.unlocked import write

LARGE = bytes(range(256)) * 4096


async def connected():
    with socket.create_server(("127.0.0.1", 0)) as server:
        peer = socket.create_connection(server.getsockname())
        plain, _ = server.accept()
    plain.setblocking(False)
    transport, _ = await asyncio.get_running_loop().create_connection(asyncio.Protocol, sock=plain)
    peer.setblocking(False)
    return transport, peer


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_small_and_large_parts_arrive_whole_and_in_order(run):
    async def check():
        transport, peer = await connected()
        parts = [b"small", LARGE, b"", b"x" * 70_000, LARGE * 9, b"last"]
        for part in parts:
            write(transport, (b"<", part, b">"), is_read=True)
        assert transport.get_write_buffer_size()  # not all of it fits
        expected, got = b"".join(b"<" + part + b">" for part in parts), b""
        loop = asyncio.get_running_loop()
        while len(got) < len(expected):
            got += await loop.sock_recv(peer, 1 << 20)
        assert got == expected
        transport.close()
        peer.close()

    run(check())


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_a_peer_that_has_gone_is_no_error_of_the_writer(run):
    async def check():
        transport, peer = await connected()
        peer.close()
        async with asyncio.timeout(30):
            while not transport.is_closing():
                write(transport, (LARGE,), is_read=True)
                await asyncio.sleep(0.001)

    run(check())
