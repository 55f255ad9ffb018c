"""Requests that a client sends before it has the answers to earlier ones: in order, and few at a time."""

import asyncio
import gc
from contextlib import asynccontextmanager, suppress

import pytest
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from tailrace.delivery.http import serve
from tailrace.delivery.http.protocol import ConnectionLimits
from web import DEADLINE_S, until

PARSED_MAX = 64
"""Requests of one connection that may be known at one time: those that came in one piece, and the one before."""


class Echo:
    """An application that answers with path and body; one at `/wait` is answered when it may be, or its client went."""

    def __init__(self):
        self.go = asyncio.Event()
        self.waiting = 0
        self.gone = 0

    async def __call__(self, scope, receive, send):
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        if scope["path"] == "/wait":
            self.waiting += 1
            await self._wait(receive)
        content = scope["path"].encode() + b" " + body
        headers = [(b"content-length", b"%d" % len(content))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": content})

    async def _wait(self, receive):
        leaving = asyncio.create_task(receive())
        going = asyncio.create_task(self.go.wait())
        await asyncio.wait([leaving, going], return_when=asyncio.FIRST_COMPLETED)
        self.gone += leaving.done()
        leaving.cancel()
        going.cancel()


def get(path):
    return b"GET %s HTTP/1.1\r\nHost: a\r\n\r\n" % path


def post(path, body):
    return b"POST %s HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s" % (path, len(body), body)


def chunked(path, body):
    head = b"POST %s HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" % path
    return head + b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)


@asynccontextmanager
async def connected(app):
    """Serve an application to one connection."""
    async with serve(app, "127.0.0.1", 0, on_stop=lambda: None, stop_timeout_s=1) as address:
        reader, writer = await asyncio.open_connection(address.host, address.port)
        try:
            yield reader, writer
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()


async def answers(reader, count):
    """Return the bodies of so many answers."""
    found = []
    async with asyncio.timeout(DEADLINE_S):
        for _ in range(count):
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            assert head.startswith(b"http/1.1 200")
            size = int(head.partition(b"content-length: ")[2].split(b"\r\n")[0])
            found.append(await reader.readexactly(size))
    return found


def known():
    """Return how many requests the server has parsed and not answered."""
    found = (one for one in gc.get_objects() if isinstance(one, RequestResponseCycle))
    return sum(not one.response_complete for one in found)


@pytest.mark.parametrize("pieces", [1, 7, 100_000], ids=["at once", "seven bytes each", "large pieces"])
async def test_all_are_answered_in_order(pieces):
    paths = [b"/%d" % number for number in range(300)]
    sent = wanted = b""
    for number, path in enumerate(paths):
        body = b"b" * (number % 5 * 700)
        sent += (get(path), post(path, body), chunked(path, b"c" + body))[number % 3]
        wanted += path + b" " + (b"", body, b"c" + body)[number % 3]
    if pieces == 1:
        pieces = len(sent)
    async with connected(Echo()) as (reader, writer):
        for begin in range(0, len(sent), pieces):
            writer.write(sent[begin : begin + pieces])
            await asyncio.sleep(0)
        assert b"".join(await answers(reader, len(paths))) == wanted


async def test_few_are_known_at_one_time_however_many_were_sent():
    app = Echo()
    gc.collect()
    before = known()
    async with connected(app) as (reader, writer):
        writer.write(get(b"/wait") + get(b"/x") * 3_000)
        await until(lambda: app.waiting, "the first is under way")
        most = 0
        for _ in range(3):
            await asyncio.sleep(0.01)
            most = max(most, known() - before)
        app.go.set()
        assert await answers(reader, 1) == [b"/wait "]
        for _ in range(3):
            assert await answers(reader, 1000) == [b"/x "] * 1000
            most = max(most, known() - before)
        assert most <= PARSED_MAX


async def test_the_one_under_way_learns_that_its_client_went_although_others_wait_behind_it():
    app = Echo()
    async with connected(app) as (_, writer):
        writer.write(get(b"/wait") + get(b"/x"))
        await until(lambda: app.waiting, "the first is under way")
        writer.transport.abort()
        await until(lambda: app.gone, "it knows")


async def test_a_request_with_too_many_headers_is_refused():
    async with connected(Echo()) as (reader, writer):
        most = ConnectionLimits().headers_max
        for count, status in ((most, b"200"), (most + 1, b"400")):
            writer.write(b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * count + b"\r\n")
            async with asyncio.timeout(DEADLINE_S):
                assert (await reader.readuntil(b"\r\n\r\n")).split()[1] == status
                if status == b"200":
                    await reader.readexactly(2)
