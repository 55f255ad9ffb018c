"""The HTTP interface over a log in memory, on a real socket."""

import asyncio
import json
from contextlib import asynccontextmanager, nullcontext, suppress

import httpx
import websockets.asyncio.client
from msgspec import structs

from feeding import Feeding, feeding
from tailrace.access.access import open_access
from tailrace.access.options import AuthConfig
from tailrace.clock import SystemClock
from tailrace.delivery.http import HttpOptions, serve
from tailrace.interface.assemble import create_app
from tailrace.meta.key_store import KeyStore
from tailrace.meta.store import MetaStore
from tailrace.metrics import Metrics
from tailrace.subscription.access import Scopes
from working import fleet_of

DEADLINE_S = 20.0
WORKERS = 0
"""How many workers serve streams; see the fixture `one_process_and_workers`. A server with options has none."""


class Web(Feeding):
    """A served service and a client of it."""

    def __init__(self, world, client, address, metrics, waiting_for):
        super().__init__(world.log, world.service, world.schema_id)
        self.client = client
        self.address = address
        self.metrics = metrics
        self.waiting_for = waiting_for

    async def post(self, content, **headers):
        headers = {"content-type": "application/json", **{name.replace("_", "-"): v for name, v in headers.items()}}
        return await self.client.post("/api/v1/rpc", content=content, headers=headers)

    async def answer(self, method, **params):
        """Call a method; return the whole answer."""
        body = json.dumps({"skeinql": "1.0", "id": 7, "method": method, "params": params})
        answer = await self.post(body)
        assert answer.status_code == 200
        envelope = answer.json()
        assert envelope["id"] == 7
        return envelope

    async def call(self, method, **params):
        """Call a method; return its result."""
        envelope = await self.answer(method, **params)
        assert list(envelope) == ["id", "ok", "result"], envelope
        assert envelope["ok"] is True
        return envelope["result"]

    async def refusal(self, method, **params):
        """Call a method that fails; return code and message."""
        envelope = await self.answer(method, **params)
        assert list(envelope) == ["id", "ok", "error"], envelope
        assert envelope["ok"] is False
        return envelope["error"]["code"], envelope["error"]["message"]

    async def settled(self):
        """Wait until workers have been notified of all that happened, and what they counted is in the metrics."""
        if self.fleet is not None:
            await self.fleet.measure()

    @asynccontextmanager
    async def stream(self, sub_id, query="", headers=()):
        """Open a stream of server-sent events over a plain connection."""
        connection = await Connection.open(self.address)
        try:
            await connection.request(f"GET /api/v1/cdc/sse/{sub_id}{query} HTTP/1.1", *headers)
            connection.status, connection.headers = await connection.head()
            yield connection
        finally:
            await connection.close()

    @asynccontextmanager
    async def socket(self, path="", **options):
        """Open a WebSocket with the `websockets` library."""
        url = f"ws://{self.address.host}:{self.address.port}/api/v1/cdc/ws{path}"
        options = {"proxy": None, "max_size": 1 << 24, "open_timeout": DEADLINE_S, "close_timeout": 5, **options}
        async with websockets.asyncio.client.connect(url, **options) as connection:
            yield WebSocket(connection)


class WebSocket:
    """A WebSocket that gives its messages as dictionaries."""

    def __init__(self, connection):
        self.connection = connection

    async def record(self):
        """Return the next message; None when the connection was closed."""
        try:
            async with asyncio.timeout(DEADLINE_S):
                return json.loads(await self.connection.recv(decode=True))
        except websockets.exceptions.ConnectionClosed:
            return None

    async def records(self, count):
        return [await self.record() for _ in range(count)]

    async def ids(self, count):
        return [record["id"] for record in await self.records(count)]

    async def say(self, **command):
        await self.connection.send(json.dumps(command))

    async def ask(self, **command):
        """Send a command; return its answer, which must be the next message."""
        await self.say(**command)
        return await self.record()

    @property
    def closed(self):
        """Return the close code and reason that the server sent."""
        return self.connection.close_code, self.connection.close_reason


class Connection:
    """A plain HTTP/1.1 connection that reads chunked answers piece by piece."""

    def __init__(self, reader, writer):
        self.reader = reader
        self.writer = writer
        self.buffer = b""
        self.status, self.headers = 0, {}

    @classmethod
    async def open(cls, address, limit=1 << 16):
        return cls(*await asyncio.open_connection(address.host, address.port, limit=limit))

    async def request(self, line, *headers):
        self.writer.write("\r\n".join([line, "Host: localhost", *headers, "", ""]).encode())
        await self.writer.drain()

    async def head(self):
        """Return status and headers."""
        async with asyncio.timeout(DEADLINE_S):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode()
        first, *rest = head.strip().split("\r\n")
        return int(first.split()[1]), dict(line.lower().split(": ", 1) for line in rest)

    async def chunk(self):
        """Return the next piece of a chunked body; nothing at its end."""
        async with asyncio.timeout(DEADLINE_S):
            size = int(await self.reader.readuntil(b"\r\n"), 16)
            data = await self.reader.readexactly(size + 2)
        return data[:-2]

    async def record(self):
        """Return the next server-sent record as a dictionary; None at the end of the stream."""
        while b"\n\n" not in self.buffer:
            data = await self.chunk()
            if not data:
                assert self.buffer == b""
                return None
            self.buffer += data
        text, _, self.buffer = self.buffer.partition(b"\n\n")
        if text == b":":
            return {"comment": True}
        return dict(line.split(": ", 1) for line in text.decode().split("\n"))

    async def records(self, count):
        return [await self.record() for _ in range(count)]

    async def ids(self, count):
        return [int(record["id"]) for record in await self.records(count)]

    async def close(self):
        self.writer.close()
        with suppress(OSError):
            await self.writer.wait_closed()


@asynccontextmanager
async def web(log=None, service=None, server=None, url="sqlite://", auth=None, clock=None, site=None, **options):
    """Serve a service over a log in memory, to everybody or as `auth` says."""
    metrics, waiting_for, clock = Metrics(), [], clock or SystemClock()
    async with feeding(url, log=log, **(service or {})) as world, access_of(auth or AuthConfig(), clock) as access:
        scopes, http = Scopes(world.service, access.keeper, access.limits), HttpOptions(**options)
        async with (
            workers_of(WORKERS if server is None else 0, world, metrics, http, site) as fleet,
            serve(
                create_app(
                    scopes,
                    lambda: waiting_for,
                    metrics,
                    clock,
                    http,
                    gate=access.gate,
                    site=site,
                    hand_over=fleet,
                ),
                "127.0.0.1",
                0,
                on_stop=world.service.stop,
                stop_timeout_s=1,
                **(server or {}),
            ) as address,
            httpx.AsyncClient(base_url=address.url, timeout=DEADLINE_S, verify=False) as client,
        ):
            served = Web(world, client, address, metrics, waiting_for)
            served.access, served.fleet = access, fleet
            yield served


def workers_of(count, world, metrics, http, site):
    """Return the workers that serve streams, where there are to be some."""
    if not count:
        return nullcontext()
    origins = [] if site is None else sorted(site.origins)
    return fleet_of({"app": world.log}, world.service, metrics, http, origins, count)


@asynccontextmanager
async def access_of(auth, clock):
    """Open access as a configuration says, with an empty metadata database for keys."""
    meta = await MetaStore.open("sqlite://", clock)
    try:
        yield open_access(structs.replace(auth, jwt_leeway="none"), KeyStore(meta, clock), clock)
    finally:
        await meta.close()


async def until(condition, what):
    """Wait until `condition` holds."""
    try:
        async with asyncio.timeout(DEADLINE_S):
            while not condition():
                await asyncio.sleep(0.002)
    except TimeoutError:
        raise AssertionError(f"not in {DEADLINE_S} s: {what}") from None


def timeless(value):
    """Return an event in an envelope without the time at which it was made, which Debezium's envelopes have."""
    inner = value.get("payload", value)
    if "transaction" in inner:
        for name in ("ts_ms", "ts_us", "ts_ns"):
            del inner[name]
    return value
