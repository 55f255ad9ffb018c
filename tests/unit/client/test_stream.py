"""Facts about an event stream that gets itself back."""

import asyncio

import httpx
import pytest

from tailrace.client.errors import BadAnswer, ConnectionFailed, InvalidRequest, NotFound, Unauthorized
from tailrace.client.stream import EventStream
from tailrace.client.transport import ClientOptions
from tailrace.retry import Backoff
from unit.client.fake import OPTIONS, FakeServer, transport

ONE, TWO, THREE = (f"id: {n}\ndata: {n}\n\n".encode() for n in (1, 2, 3))


async def read(stream, count):
    data = []
    while len(data) < count:
        data += [event.data.decode() for event in await stream.next()]
    return data


BREAKS = {
    "the connection breaks": [ONE, httpx.ReadError("reset")],
    "the connection falls silent": [ONE, httpx.ReadTimeout("idle")],
    "the server breaks off": [ONE, httpx.RemoteProtocolError("incomplete")],
    "the server ends the stream": [ONE],
    "the connection breaks within an event": [ONE, b"id: 2\ndata: 2", httpx.ReadError("reset")],
    "a comment came last": [ONE, b":\n\n", httpx.ReadError("reset")],
}


@pytest.mark.parametrize("first", BREAKS.values(), ids=BREAKS)
async def test_it_goes_on_behind_the_last_event_when(first):
    server = FakeServer(first, [TWO, THREE])
    assert await read(EventStream(transport(server), "/sse"), 3) == ["1", "2", "3"]
    assert server.last_ids == [None, "1"]


async def test_it_begins_where_it_is_told():
    server = FakeServer([THREE])
    await read(EventStream(transport(server), "/sse", "2"), 1)
    assert server.last_ids == ["2"]


@pytest.mark.parametrize("away", [httpx.ConnectError("refused"), httpx.ConnectTimeout("late"), (503, b""), (502, b"")])
async def test_it_tries_again_while_the_server_is_away(away):
    server = FakeServer(away, [ONE], away, away, [TWO])
    assert await read(EventStream(transport(server), "/sse"), 2) == ["1", "2"]


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ((401, b""), Unauthorized),
        ((404, b"unknown sub_id"), NotFound),
        ((400, b"invalid Last-Event-ID header"), InvalidRequest),
        ((204, b""), BadAnswer),
        ((302, b""), BadAnswer),
        ((200, b"<html>"), BadAnswer),
    ],
)
async def test_it_does_not_try_again_when_that_cannot_help(answer, error):
    server = FakeServer([ONE], answer)
    stream = EventStream(transport(server), "/sse")
    await read(stream, 1)
    with pytest.raises(error):
        await stream.next()
    assert len(server.requests) == 2
    assert server.open == 0


async def test_the_pauses_grow_up_to_the_longest_and_begin_anew_when_bytes_came():
    pauses = []

    async def sleep(pause_s):
        pauses.append(pause_s)

    away = httpx.ConnectError("refused")
    options = ClientOptions(backoff=Backoff(first_s=1.0, longest_s=8.0))
    server = FakeServer(*[away] * 5, [b":\n\n"], away, [ONE])
    await EventStream(transport(server, options), "/sse", sleep=sleep).next()
    longest = [1, 2, 4, 8, 8, 1, 2]
    assert len(pauses) == len(longest)
    assert all(most / 2 <= pause <= most for pause, most in zip(pauses, longest, strict=True))


async def test_it_gives_up_after_the_longest_outage():
    options = ClientOptions(backoff=OPTIONS.backoff, outage_s_max=0.5)
    server = FakeServer(httpx.ConnectError("refused"), repeat=True)
    with pytest.raises(ConnectionFailed, match="http://fake: refused"):
        await EventStream(transport(server, options), "/sse").next()
    assert len(server.requests) > 2


async def test_an_event_without_end_is_refused():
    options = ClientOptions(event_bytes_max=100)
    server = FakeServer([b"data: x" * 20])
    with pytest.raises(BadAnswer, match="larger than 100 bytes"):
        await EventStream(transport(server, options), "/sse").next()
    assert server.open == 0


async def test_a_cancelled_wait_loses_nothing():
    server = FakeServer()
    silence = asyncio.Event()

    class Silent(httpx.AsyncByteStream):
        async def __aiter__(self):
            yield ONE
            await silence.wait()

        async def aclose(self):
            pass

    async def handle(request):
        server.requests.append(request)
        if len(server.requests) == 1:
            return httpx.Response(200, headers={"Content-Type": "text/event-stream"}, stream=Silent())
        return await FakeServer([TWO]).handle_async_request(request)

    server.handle_async_request = handle
    stream = EventStream(transport(server), "/sse")
    assert await read(stream, 1) == ["1"]
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(stream.next(), 0.01)
    assert await read(stream, 1) == ["2"]
    assert server.last_ids == [None, "1"]


async def test_closing_it_closes_the_connection():
    server = FakeServer([ONE, TWO])
    stream = EventStream(transport(server), "/sse")
    await read(stream, 1)
    assert server.open == 1
    await stream.aclose()
    await stream.aclose()
    assert server.open == 0
