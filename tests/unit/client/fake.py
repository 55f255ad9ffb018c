"""A server that says what it was told to say, at the seam of httpx."""

import json
from collections import deque

import httpx

from tailrace.client.transport import ClientOptions, Transport
from tailrace.retry import Backoff

OPTIONS = ClientOptions(backoff=Backoff(first_s=0.001, longest_s=0.002))


class Pieces(httpx.AsyncByteStream):
    """A body that comes in pieces; a piece that is an error is raised."""

    def __init__(self, pieces, on_close):
        self._pieces = pieces
        self._on_close = on_close

    async def __aiter__(self):
        for piece in self._pieces:
            if isinstance(piece, Exception):
                raise piece
            yield piece

    async def aclose(self):
        self._on_close()


class FakeServer(httpx.AsyncBaseTransport):
    """Answers one request after the other from a script, and notes the requests.

    An answer is an error to raise, a (status, body) pair, or a list of the pieces of a stream; a dict is the result of
    a call. With `repeat` the last answer is given for ever.
    """

    def __init__(self, *script, repeat=False):
        self.script = deque(script)
        self.requests = []
        self.open = 0
        self.repeat = repeat

    async def handle_async_request(self, request):
        self.requests.append(request)
        answer = self.script[0] if self.repeat and len(self.script) == 1 else self.script.popleft()
        match answer:
            case Exception():
                raise answer
            case tuple((status, body)):
                return httpx.Response(status, content=body)
            case dict():
                return httpx.Response(200, json={"id": 1, "ok": True, "result": answer})
            case pieces:
                self.open += 1
                return httpx.Response(
                    200, headers={"Content-Type": "text/event-stream"}, stream=Pieces(pieces, self._closed)
                )

    def _closed(self):
        self.open -= 1

    @property
    def calls(self):
        """The bodies of the calls."""
        return [json.loads(request.content) for request in self.requests if request.method == "POST"]

    @property
    def last_ids(self):
        """The places at which streams were opened."""
        return [request.headers.get("Last-Event-ID") for request in self.requests if request.method == "GET"]


def transport(server, options=OPTIONS, token=None):
    return Transport("http://fake", token, options, server)


def change(offset, op="insert", **members):
    """Return the record of a change in a stream."""
    data = {"seq": offset, "db": "app", "table": "t", "op": op, "pk": [{"t": "i64", "v": offset}]}
    data |= {"commit_ts_ms": 1_790_000_000_000, "lsn": offset} | members
    return record(offset, op, data)


def record(offset, name, data):
    return f"id: {offset}\nevent: {name}\ndata: {json.dumps(data)}\n\n".encode()
