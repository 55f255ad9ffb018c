"""Facts about a server with ten thousand subscribers that have nothing to read."""

import asyncio
import json
import resource
import sqlite3
import statistics
import time
from pathlib import Path

import pytest
import uvloop

SUBSCRIBERS = 10_000
SUBSCRIBER_BYTES_MAX = 40_000
"""What the server may need for a subscriber: subscription, feed, connection and its three tasks."""

DESCRIPTORS = SUBSCRIBERS + 1_000
CALLERS = 32
CONNECTING = 64
CALLS = 21
CALL_S_MAX = 0.1
DEADLINE_S = 300.0
"""Ten thousand connections take long on a busy machine."""


@pytest.fixture
def descriptors():
    """Allow this process, and so its children, as many descriptors as ten thousand connections need."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < DESCRIPTORS:
        pytest.skip(f"a process may have {hard} descriptors here; this needs {DESCRIPTORS}: raise `ulimit -Hn`")
    if soft != resource.RLIM_INFINITY and soft < DESCRIPTORS:
        resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the memory of a process is read from /proc")
@pytest.mark.usefixtures("descriptors")
@pytest.mark.timeout(400)
def test_ten_thousand_idle_subscribers_take_little_memory_and_leave_control_calls_quick(serve, tmp_path):
    database = sqlite3.connect(tmp_path / "app.db", isolation_level=None)
    database.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, name TEXT)")
    server = serve("--source", f"app=sqlite:///{tmp_path / 'app.db'}")
    spare = server.subscribe("t", db="app")["sub_id"]

    async def run():
        async with asyncio.timeout(DEADLINE_S), Crowd(int(server.url.rpartition(":")[2])) as crowd:
            begin_bytes = resident_bytes(server.process.pid)
            await crowd.subscribe()
            await crowd.connect()
            taken_bytes = (resident_bytes(server.process.pid) - begin_bytes) / SUBSCRIBERS
            medians_s = await crowd.median_call_times_s(spare)
            database.execute("INSERT INTO t VALUES (4711, 'Ada')")
            event = await crowd.streams[4711].data()
            assert [stream.got for key, stream in crowd.streams.items() if key != 4711 and b"data:" in stream.got] == []
            return taken_bytes, medians_s, event

    taken_bytes, medians_s, event = uvloop.run(run())
    database.close()
    assert (event["op"], event["pk"], event["after"]) == ("insert", [4711], {"id": 4711, "name": "Ada"})
    assert taken_bytes < SUBSCRIBER_BYTES_MAX
    assert {method: median_s for method, median_s in medians_s.items() if median_s > CALL_S_MAX} == {}


class Crowd:
    """Many subscribers, each of one key of its own over a connection of its own."""

    def __init__(self, port):
        self.port = port
        self.sub_ids = {}
        self.streams = {}

    async def subscribe(self):
        keys = iter(range(SUBSCRIBERS))

        async def call_on():
            caller = await Caller.open(self.port)
            for key in keys:
                params = {"db": "app", "table": "t", "pk": [{"t": "i64", "v": key}], "format": "plain_json"}
                result = await caller.call("cdc.subscribe_table", {**params, "include": {"after": True}})
                self.sub_ids[key] = result["sub_id"]
            caller.close()

        await asyncio.gather(*(call_on() for _ in range(CALLERS)))
        assert len(set(self.sub_ids.values())) == SUBSCRIBERS

    async def connect(self):
        keys = iter(range(SUBSCRIBERS))
        loop = asyncio.get_running_loop()

        async def connect_on():
            for key in keys:
                _, stream = await loop.create_connection(Stream, "127.0.0.1", self.port)
                self.streams[key] = await stream.begin(self.sub_ids[key])

        await asyncio.gather(*(connect_on() for _ in range(CONNECTING)))

    async def median_call_times_s(self, sub_id):
        """Return how long calls take, the median by method."""
        calls = {
            "cdc.poll": {"sub_id": sub_id, "from_offset": 0},
            "cdc.ack": {"sub_id": sub_id, "offset": 0},
            "cdc.pause": {"sub_id": sub_id},
            "cdc.resume": {"sub_id": sub_id},
            "cdc.subscribe_table": {"db": "app", "table": "t"},
            "stats.snapshot": {},
        }
        caller = await Caller.open(self.port)
        times_s = {method: [] for method in calls}
        for _ in range(CALLS):
            for method, params in calls.items():
                begin_s = time.perf_counter()
                await caller.call(method, params)
                times_s[method].append(time.perf_counter() - begin_s)
        caller.close()
        return {method: statistics.median(times) for method, times in times_s.items()}

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        for stream in self.streams.values():
            stream.transport.abort()


class Stream(asyncio.Protocol):
    """A stream of server-sent events, read into memory."""

    def __init__(self):
        self.got = b""
        self.transport = self.waiter = None

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.got += data
        if self.waiter and not self.waiter.done():
            self.waiter.set_result(None)

    async def begin(self, sub_id):
        self.transport.write(b"GET /api/v1/cdc/sse/%s HTTP/1.1\r\nHost: localhost\r\n\r\n" % sub_id.encode())
        await self.until(b"\r\n\r\n")
        assert b" 200 OK\r\n" in self.got
        return self

    async def data(self):
        """Return the data of the first event."""
        await self.until(b"}\n\n")
        return json.loads(self.got.partition(b"data: ")[2].partition(b"\n")[0])

    async def until(self, mark):
        while mark not in self.got:
            self.waiter = asyncio.get_running_loop().create_future()
            await self.waiter


class Caller:
    """Calls methods over one connection that stays open."""

    def __init__(self, reader, writer):
        self.reader = reader
        self.writer = writer
        self.close = writer.close

    @classmethod
    async def open(cls, port):
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def call(self, method, params):
        body = json.dumps({"skeinql": "1.0", "id": 1, "method": method, "params": params}).encode()
        head = b"POST /api/v1/rpc HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        self.writer.write(head + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        head = (await self.reader.readuntil(b"\r\n\r\n")).lower()
        length = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0])
        answer = json.loads(await self.reader.readexactly(length))
        assert answer["ok"], answer
        return answer["result"]


def resident_bytes(pid):
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()
