"""Facts about WebSocket streams, with the `websockets` library and over real sockets."""

import asyncio
import base64
import json
import logging
import os
import socket
import struct
import time

import pytest
import websockets

from feeding import draft_of, feeding
from tailrace.access.options import AuthConfig
from tailrace.clock import SystemClock
from tailrace.delivery.http import HttpOptions, serve
from tailrace.interface.assemble import create_app
from tailrace.metrics import Metrics
from tailrace.model.op import Op
from tailrace.subscription.access import Scopes
from tailrace.testing.log import MemoryLog
from web import DEADLINE_S, WebSocket, until, web

pytestmark = pytest.mark.usefixtures("one_process_and_workers")

SUB = "sub_0000000000000001"


def feeds_open(world):
    return world.metrics.registry.get_sample_value("tailrace_feeds_open", {"wire": "ws"}) or 0


def delivered(world):
    return world.metrics.registry.get_sample_value("tailrace_delivered_changes_total", {"wire": "ws"}) or 0


async def test_a_stream_replays_and_then_follows_without_a_gap_or_a_repeat():
    async with web() as world:
        await world.subscribe()
        await world.append(*[Op.INSERT] * 100)
        async with world.socket(f"/{SUB}") as stream:
            assert await stream.ids(100) == list(range(1, 101))
            for _ in range(3):
                await world.append(Op.UPDATE)
            assert await stream.ids(3) == [101, 102, 103]


async def test_a_frame_says_what_the_server_sent_event_says():
    async with web() as world:
        await world.subscribe()
        await world.append(Op.DELETE)
        async with world.socket(f"/{SUB}") as stream, world.stream(SUB) as other:
            frame, record = await stream.record(), await other.record()
            assert list(frame) == ["id", "event", "data"]
            assert (frame["id"], frame["event"]) == (1, "delete")
            assert frame["data"] == json.loads(record["data"])


async def test_where_a_stream_begins():
    async with web() as world:
        subscription = await world.subscribe()
        await world.append(*[Op.INSERT] * 9)
        await world.service.subscription(subscription.id).acknowledge(2)
        for query, headers, first in (
            ("", {}, 3),
            ("", {"Last-Event-ID": "5"}, 6),
            ("?from_offset=7", {"Last-Event-ID": "5"}, 8),
            ("?from_offset=0", {}, 3),
            ("?from_offset=7", {"Last-Event-ID": "junk"}, 8),
        ):
            async with world.socket(f"/{SUB}{query}", additional_headers=headers) as stream:
                assert await stream.ids(1) == [first]


async def test_a_connection_that_cannot_be_is_refused_before_the_upgrade_in_plain_words():
    async with web() as world:
        await world.subscribe()
        for path, headers, status, text in (
            ("/sub_00000000000000ff", {}, 404, "unknown sub_id"),
            ("/junk", {}, 404, "unknown sub_id"),
            (f"/{SUB}", {"Last-Event-ID": "junk"}, 400, "invalid Last-Event-ID header"),
            (f"/{SUB}?from_offset=x", {}, 400, "invalid from_offset"),
            (f"/{SUB}?from_offset=1", {}, 400, "offset 1 is beyond the newest change 0"),
        ):
            with pytest.raises(websockets.exceptions.InvalidStatus) as refused:
                async with world.socket(path, additional_headers=headers):
                    pass
            assert refused.value.response.status_code == status
            assert refused.value.response.body.decode() == text
        answer = await world.client.get(f"/api/v1/cdc/ws/{SUB}")
        assert (answer.status_code, answer.headers["upgrade"]) == (426, "websocket")


async def test_a_connection_needs_a_token_where_requests_do():
    async with web(auth=AuthConfig(enabled=True, tokens=("secret",))) as world:
        await world.subscribe()
        await world.append(Op.INSERT)
        for path in (f"/{SUB}", ""):
            for query, headers in (("", {}), ("?access_token=no", {}), ("", {"Authorization": "Bearer no"})):
                with pytest.raises(websockets.exceptions.InvalidStatus) as refused:
                    async with world.socket(path + query, additional_headers=headers):
                        pass
                assert refused.value.response.status_code == 401
                assert json.loads(refused.value.response.body)["error"]["code"] == "unauthorized"
        for query, headers in (("?access_token=secret", {}), ("", {"Authorization": "Bearer secret"})):
            async with world.socket(f"/{SUB}{query}", additional_headers=headers) as stream:
                assert await stream.ids(1) == [1]


async def test_no_token_reaches_the_log(caplog):
    caplog.set_level("DEBUG")
    async with web(auth=AuthConfig(enabled=True, tokens=("secret",))) as world:
        await world.subscribe()
        await world.append(Op.INSERT)
        async with world.socket(f"/{SUB}?access_token=secret", logger=websockets_silent()) as stream:
            assert await stream.ids(1) == [1]
    assert [record for record in caplog.records if "secret" in record.getMessage()] == []
    assert [record for record in caplog.records if '"seq"' in record.getMessage()] == []


def websockets_silent():
    silent = logging.getLogger("silent")
    silent.disabled = True
    return silent


async def test_commands_are_answered():
    async with web(service={"retention_changes": 100}) as world:
        subscription = await world.subscribe()
        await world.append(Op.INSERT, Op.INSERT)
        async with world.socket(f"/{SUB}") as stream:
            assert await stream.ids(2) == [1, 2]
            answer = await stream.ask(type="ack", offset=1)
            assert answer == {"event": "ack", "data": {"sub_id": SUB, "acked_offset": 1}}
            assert world.service.subscription(subscription.id).record.cursor == 1
            answer = await stream.ask(type="ack", offset=2, sub_id=SUB)
            assert answer["data"]["acked_offset"] == 2
            await stream.say(type="pause")
            frames = await stream.records(2)
            by_event = {frame["event"]: frame for frame in frames}
            assert by_event["pause"]["data"]["paused"] is True
            assert by_event["backpressure"]["data"]["state"] == "paused"
            assert by_event["backpressure"]["id"] == 2
            await world.append(Op.INSERT)
            answer = await stream.ask(type="ack", offset=1)
            assert answer == {"event": "ack", "data": {"sub_id": SUB, "acked_offset": 2}}
            await stream.say(type="resume")
            frames = await stream.records(2)
            by_event = {frame["event"]: frame for frame in frames}
            assert by_event["resume"]["data"]["paused"] is False
            assert by_event["insert"]["id"] == 3


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("junk", "not a command"),
        ("", "not a command"),
        ("[]", "not a command"),
        ("{}", "not a command"),
        ('{"type":"dance"}', "not a command"),
        ('{"type":"ack"}', "offset"),
        ('{"type":"ack","offset":-1}', "offset"),
        ('{"type":"ack","offset":"1"}', "offset"),
        ('{"type":"ack","offset":1,"more":1}', "more"),
        ('{"type":"ack","offset":9}', "beyond the newest change 0"),
        ('{"type":"ack","offset":0,"sub_id":"sub_0000000000000002"}', "for sub_0000000000000001 alone"),
        ('{"type":"pause","sub_id":"x"}', "not found"),
        ('{"type":"subscribe","sub_id":"sub_0000000000000001"}', "one subscription"),
        ("[" * 10_000, "not a command"),
        (b"\x00\xff", "send text frames"),
    ],
    ids=lambda value: value[:30] if isinstance(value, str) else "binary",
)
async def test_junk_is_answered_with_an_error_and_the_stream_goes_on(text, complaint):
    async with web() as world:
        await world.subscribe()
        async with world.socket(f"/{SUB}") as stream:
            await stream.connection.send(text)
            answer = await stream.record()
            assert answer["event"] == "error"
            assert answer["data"]["code"] in {"invalid_request", "not_found"}
            assert complaint in answer["data"]["message"]
            await world.append(Op.INSERT)
            assert await stream.ids(1) == [1]


async def test_a_message_that_is_too_large_closes_the_connection():
    async with web() as world:
        await world.subscribe()
        async with world.socket(f"/{SUB}") as stream:
            await stream.connection.send("x" * 100_000)
            assert await stream.record() is None
            assert stream.closed[0] == 1009
        async with world.socket(f"/{SUB}") as stream:
            await stream.connection.send(["x" * 50_000, "y" * 50_000])
            assert await stream.record() is None
            assert stream.closed[0] == 1009
        await until(lambda: feeds_open(world) == 0, "the feeds are gone")


@pytest.mark.parametrize("text", [[b"\xff\xfe"], [b"\xe2\x82", b"("]], ids=["one frame", "two frames"])
async def test_text_that_is_no_utf8_closes_the_connection_and_is_not_logged(text, caplog):
    async with web() as world:
        await world.subscribe()
        async with world.socket(f"/{SUB}") as stream:
            await stream.connection.send(text if len(text) > 1 else text[0], text=True)
            assert await stream.record() is None
            assert stream.closed == (1007, "text must be UTF-8")
    assert [record for record in caplog.records if record.name.startswith("tailrace")] == []


async def test_pings_are_answered_and_sent():
    async with web(server={"ping_s": 0.05}) as world:
        await world.subscribe()
        async with world.socket(f"/{SUB}", ping_interval=None) as stream:
            async with asyncio.timeout(DEADLINE_S):
                await (await stream.connection.ping())
        with Raw(world.address, f"/api/v1/cdc/ws/{SUB}") as raw:
            opcode, _ = await raw.frame()
            assert opcode == 9


async def test_a_client_that_leaves_ends_its_feed_at_once():
    async with web() as world:
        await world.subscribe()
        async with world.socket(f"/{SUB}") as stream:
            await until(lambda: feeds_open(world) == 1, "the stream serves")
            await stream.connection.close(1000)
            assert stream.closed[0] == 1000
        await until(lambda: feeds_open(world) == 0, "the feed is gone")


async def test_a_client_that_vanishes_while_it_is_written_to_ends_its_feed():
    async with web() as world:
        await world.subscribe()
        await world.log.append([draft_of([(Op.INSERT, world.schema_id)] * 100_000)])
        async with world.socket(f"/{SUB}", max_queue=1) as stream:
            await until(lambda: feeds_open(world) == 1, "the stream serves")
            stream.connection.transport.abort()
            await until(lambda: feeds_open(world) == 0, "the feed is gone")


@pytest.mark.parametrize("changes", [0, 100_000], ids=["idle", "with much to read"])
async def test_a_peer_that_answers_no_pings_is_dropped(changes):
    async with web(server={"ping_s": 0.05, "pong_s_max": 0.2}) as world:
        await world.subscribe()
        if changes:
            await world.log.append([draft_of([(Op.INSERT, world.schema_id)] * changes)])
        with Raw(world.address, f"/api/v1/cdc/ws/{SUB}"):
            await until(lambda: feeds_open(world) == 1, "the stream serves")
            await until(lambda: feeds_open(world) == 0, "the feed is gone")


async def test_a_client_that_does_not_read_holds_back_itself_alone():
    async with web() as world:
        await world.subscribe()
        await world.log.append([draft_of([(Op.INSERT, world.schema_id)] * 80_000)])
        with Raw(world.address, f"/api/v1/cdc/ws/{SUB}"):
            async with world.socket(f"/{SUB}", max_queue=None) as stream:
                assert (await stream.ids(80_000))[-1] == 80_000
            # The eager one got all; the lazy one no more than the buffers on the way hold.
            await world.settled()
            assert delivered(world) - 80_000 < 60_000
            before = delivered(world)
            await world.append(Op.INSERT)
            assert (await world.call("system.ping"))["pong"]
            await world.settled()
            assert delivered(world) == before


async def test_pings_without_end_from_a_client_that_does_not_read_cost_little():
    async with web() as world:
        await world.subscribe()
        with Raw(world.address, f"/api/v1/cdc/ws/{SUB}") as raw:
            await until(lambda: feeds_open(world) == 1, "the stream serves")
            with pytest.raises(OSError, match=r"reset|[Bb]roken pipe"):
                await ping_for_ever(raw)
            await until(lambda: feeds_open(world) == 0, "the feed is gone")


async def ping_for_ever(raw):
    ping = b"\x89\xfd" + b"\x00" * 4 + b"p" * 125
    async with asyncio.timeout(DEADLINE_S):
        while True:
            await raw.send(ping * 1000)


async def test_a_place_behind_the_horizon_ends_the_stream_with_a_resnapshot():
    async with web() as world:
        await world.subscribe()
        await world.append(*[Op.INSERT] * 9)
        world.log.forget_before(5)
        async with world.socket(f"/{SUB}") as stream:
            frames = await stream.records(3)
            assert [frame and frame["event"] for frame in frames] == ["backpressure", "resnapshot", None]
            assert frames[0]["data"]["state"] == "resnapshot_required"
            assert frames[1]["id"] == 4
            assert frames[1]["data"] == {
                "sub_id": SUB,
                "earliest_offset": 5,
                "latest_offset": 9,
                "resnapshot_from_offset": 4,
                "reason": "wal_horizon_exceeded",
            }
            assert stream.closed == (1000, "resnapshot")


async def test_closing_the_subscription_closes_the_connection():
    async with web() as world:
        subscription = await world.subscribe()
        async with world.socket(f"/{SUB}") as stream:
            await until(lambda: feeds_open(world) == 1, "the stream serves")
            await world.service.subscription(subscription.id).close()
            assert await stream.record() is None
            assert stream.closed == (1000, "closed")


async def test_stopping_the_server_says_that_it_goes_away():
    async with web() as world:
        await world.subscribe()
        async with world.socket(f"/{SUB}") as stream, world.socket() as many:
            assert (await many.ask(type="subscribe", sub_id=SUB))["event"] == "subscribe"
            await until(lambda: feeds_open(world) == 2, "both serve")
            world.service.stop()
            assert await stream.record() is None
            assert stream.closed == (1001, "stopped")
            assert await many.record() is None
            assert many.closed == (1001, "stopped")
        with pytest.raises(websockets.exceptions.InvalidStatus) as refused:
            async with world.socket(f"/{SUB}"):
                pass
        assert refused.value.response.status_code == 503


async def test_stopping_does_not_wait_for_a_client_that_does_not_read():
    async with web() as world:
        await world.subscribe()
        await world.log.append([draft_of([(Op.INSERT, world.schema_id)] * 100_000)])
        raw = Raw(world.address, f"/api/v1/cdc/ws/{SUB}")
        await until(lambda: delivered(world) > 0, "the stream serves")
        begun = time.monotonic()
    assert time.monotonic() - begun < DEADLINE_S
    raw.socket.close()


async def test_a_predicate_that_fails_ends_its_own_streams_with_an_error():
    async with web() as world:
        for predicate in ("10 / row.id > 1", "row.id > -1"):
            await world.call("cdc.subscribe_table", db="app", table="users", cel=predicate)
        await world.append(Op.INSERT)  # its key is 0
        async with world.socket(f"/{SUB}") as stream:
            frame = await stream.record()
            assert (frame["id"], frame["event"]) == (0, "error")
            assert list(frame["data"]) == ["sub_id", "code", "message"]
            assert (frame["data"]["sub_id"], frame["data"]["code"]) == (SUB, "conflict")
            assert await stream.record() is None
            assert stream.closed == (1011, "error")
        async with world.stream(SUB) as stream:
            assert (await stream.record())["event"] == "error"
            assert await stream.record() is None
        async with world.socket() as many:
            other = "sub_0000000000000002"
            for sub_id in (SUB, other):
                await many.say(type="subscribe", sub_id=sub_id)
            frames = await many.records(5)
            assert [frame["event"] for frame in frames if frame["sub_id"] == SUB] == ["subscribe", "error", "end"]
            assert [frame["event"] for frame in frames if frame["sub_id"] == other] == ["subscribe", "insert"]


async def test_heartbeats_come_where_asked_for():
    async with web(stream_keepalive_s=0.05) as world:
        await world.subscribe([Op.DELETE])
        await world.append(Op.INSERT)
        async with world.socket(f"/{SUB}?heartbeat=1") as stream:
            assert await stream.record() == {"id": 1, "event": "heartbeat", "data": {"sub_id": SUB, "scanned": 1}}


async def test_a_subscription_may_have_its_stream_acknowledge():
    async with web() as world:
        subscription = await world.subscribe(auto_ack=True)
        await world.append(*[Op.INSERT] * 3)
        async with world.socket(f"/{SUB}") as stream:
            assert await stream.ids(3) == [1, 2, 3]
            await until(lambda: world.service.subscription(subscription.id).record.cursor == 3, "acknowledged")


async def test_a_restart_in_the_middle_leaves_no_gap_and_repeats_nothing_that_was_received(tmp_path):
    log, url = MemoryLog(), f"sqlite:///{tmp_path}/meta.db"
    received = []
    async with feeding(url, log=log) as world:
        await world.subscribe()
        await world.log.append([draft_of([(Op.INSERT, world.schema_id)] * 20_000)])
    for stop_after in (1, 777, 5_000, 20_000 - 5_778):
        async with feeding(url, log=log) as world, served(world) as address:
            place = received[-1] if received else 0
            path = f"ws://127.0.0.1:{address.port}/api/v1/cdc/ws/{SUB}"
            async with websockets.connect(
                path, proxy=None, additional_headers={"Last-Event-ID": str(place)}, max_queue=None
            ) as connection:
                received += await WebSocket(connection).ids(stop_after)
    assert received == list(range(1, 20_001))


def served(world):
    app = create_app(Scopes(world.service), list, Metrics(), SystemClock(), HttpOptions())
    return serve(app, "127.0.0.1", 0, on_stop=world.service.stop, stop_timeout_s=1)


@pytest.mark.parametrize(
    "head",
    [
        "GET /api/v1/cdc/ws/x HTTP/1.1\r\nX-Long: " + "y" * 20_000,
        "GET /api/v1/cdc/ws/\xe9 HTTP/1.1",
        "GET /api/v1/cdc/ws/x?\xe9=1 HTTP/1.1",
    ],
    ids=["a long header", "a path that is not ASCII", "a query that is not ASCII"],
)
async def test_an_upgrade_that_cannot_be_read_is_refused(head):
    async with web() as world:
        with Raw(world.address) as raw:
            request = f"{head}\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"
            await raw.send(request.encode("latin-1"))
            answer = await raw.until_closed()
            assert answer.startswith(b"HTTP/1.1 4"), answer


class Raw:
    """A plain socket that reads nothing by itself; with a path, a WebSocket that answers nothing by itself."""

    def __init__(self, address, path=None):
        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.socket.connect((address.host, address.port))
        self.buffer = b""
        if path is not None:
            key = base64.b64encode(os.urandom(16)).decode()
            lines = [f"GET {path} HTTP/1.1", "Host: localhost", "Upgrade: websocket", "Connection: Upgrade"]
            lines += [f"Sec-WebSocket-Key: {key}", "Sec-WebSocket-Version: 13", "", ""]
            self.socket.sendall("\r\n".join(lines).encode())
        self.socket.setblocking(False)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    async def send(self, data):
        await asyncio.get_running_loop().sock_sendall(self.socket, data)

    async def frame(self):
        """Return opcode and payload of the next frame."""
        await self._fill(lambda: b"\r\n\r\n" in self.buffer)
        _, _, self.buffer = self.buffer.partition(b"\r\n\r\n")
        await self._fill(lambda: len(self.buffer) >= 2)
        opcode, length = struct.unpack("BB", self.buffer[:2])
        await self._fill(lambda: len(self.buffer) >= 2 + length)
        return opcode & 15, self.buffer[2 : 2 + length]

    async def until_closed(self):
        try:
            await self._fill(lambda: False)
        except EOFError:
            return self.buffer

    async def _fill(self, enough):
        async with asyncio.timeout(DEADLINE_S):
            while not enough():
                data = await asyncio.get_running_loop().sock_recv(self.socket, 4096)
                if not data:
                    raise EOFError
                self.buffer += data
