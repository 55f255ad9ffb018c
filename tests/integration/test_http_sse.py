"""Facts about streams of server-sent events, over real sockets."""

import asyncio
import json
import socket

import httpx
import pytest

from feeding import draft_of
from tailrace.model.op import Op
from web import DEADLINE_S, Connection, until, web

pytestmark = pytest.mark.usefixtures("one_process_and_workers")

SUB = "sub_0000000000000001"


def feeds_open(world):
    return world.metrics.registry.get_sample_value("tailrace_feeds_open", {"wire": "sse"}) or 0


async def test_a_stream_replays_and_then_follows_without_a_gap_or_a_repeat():
    async with web() as world:
        await world.subscribe()
        await world.append(*[Op.INSERT] * 3)
        async with world.stream(SUB) as stream:
            assert await stream.ids(3) == [1, 2, 3]
            for _ in range(3):
                await world.append(Op.UPDATE)
            assert await stream.ids(3) == [4, 5, 6]


async def test_a_stream_says_what_it_is():
    async with web() as world:
        await world.subscribe()
        await world.append(Op.DELETE)
        async with world.stream(SUB) as stream:
            assert stream.status == 200
            assert stream.headers["content-type"] == "text/event-stream"
            assert stream.headers["cache-control"] == "no-store"
            assert stream.headers["x-accel-buffering"] == "no"
            record = await stream.record()
            assert list(record) == ["id", "event", "data"]
            assert (record["id"], record["event"]) == ("1", "delete")
            assert json.loads(record["data"])["seq"] == 1


async def test_the_answers_begin_comes_before_the_first_change():
    async with web() as world:
        await world.subscribe()
        async with world.stream(SUB) as stream:
            assert stream.status == 200


async def test_where_a_stream_begins():
    async with web() as world:
        subscription = await world.subscribe()
        await world.append(*[Op.INSERT] * 9)
        await world.service.subscription(subscription.id).acknowledge(2)
        for query, headers, first in (
            ("", (), 3),
            ("", ("Last-Event-ID: 5",), 6),
            ("?from_offset=7", ("Last-Event-ID: 5",), 8),
            ("?from_offset=0", (), 3),
            ("?from_offset=7", ("Last-Event-ID: junk",), 8),
        ):
            async with world.stream(SUB, query, headers) as stream:
                assert await stream.ids(1) == [first]


async def test_streaming_does_not_acknowledge():
    async with web() as world:
        subscription = await world.subscribe()
        await world.append(Op.INSERT)
        async with world.stream(SUB) as stream:
            assert await stream.ids(1) == [1]
        assert world.service.subscription(subscription.id).record.cursor == 0


async def test_a_request_for_a_stream_that_cannot_be_is_told_in_plain_words():
    async with web() as world:
        await world.subscribe()
        path = f"/api/v1/cdc/sse/{SUB}"
        for url, headers, status, text in (
            ("/api/v1/cdc/sse/sub_00000000000000ff", {}, 404, "unknown sub_id"),
            ("/api/v1/cdc/sse/junk", {}, 404, "unknown sub_id"),
            (path, {"Last-Event-ID": "junk"}, 400, "invalid Last-Event-ID header"),
            (path, {"Last-Event-ID": "-1"}, 400, "invalid Last-Event-ID header"),
            (path, {"Last-Event-ID": ""}, 400, "invalid Last-Event-ID header"),
            (f"{path}?from_offset=x", {}, 400, "invalid from_offset"),
            (f"{path}?from_offset=", {}, 400, "invalid from_offset"),
            (f"{path}?from_offset=1", {}, 400, "offset 1 is beyond the newest change 0"),
            (f"{path}?from_offset=99999999999999999999", {}, 400, "beyond the newest change 0"),
        ):
            answer = await world.client.get(url, headers=headers)
            assert answer.status_code == status
            assert text in answer.text
            assert answer.headers["content-type"].startswith("text/plain")


async def test_a_silent_stream_is_kept_alive_by_comments():
    async with web(stream_keepalive_s=0.05) as world:
        await world.subscribe([Op.DELETE])
        async with world.stream(SUB) as stream:
            assert await stream.record() == {"comment": True}
            await world.append(Op.INSERT)
            assert await stream.record() == {"comment": True}
            await world.append(Op.DELETE)
            while (record := await stream.record()) == {"comment": True}:
                continue
            assert record["id"] == "2"


async def test_a_place_behind_the_horizon_ends_the_stream_with_a_resnapshot():
    async with web() as world:
        await world.subscribe()
        await world.append(*[Op.INSERT] * 9)
        world.log.forget_before(5)
        async with world.stream(SUB) as stream:
            record = await stream.record()
            assert (record["id"], record["event"]) == ("0", "backpressure")
            assert json.loads(record["data"])["state"] == "resnapshot_required"
            record = await stream.record()
            assert (record["id"], record["event"]) == ("4", "resnapshot")
            data = json.loads(record["data"])
            assert data == {
                "sub_id": SUB,
                "earliest_offset": 5,
                "latest_offset": 9,
                "resnapshot_from_offset": 4,
                "reason": "wal_horizon_exceeded",
            }
            assert list(data) == [
                "sub_id",
                "earliest_offset",
                "latest_offset",
                "resnapshot_from_offset",
                "reason",
            ]
            assert await stream.record() is None
        async with world.stream(SUB, headers=("Last-Event-ID: 4",)) as stream:
            assert (await stream.record())["event"] == "backpressure"
            assert await stream.ids(5) == [5, 6, 7, 8, 9]


async def test_each_change_of_state_is_told_once():
    async with web(service={"retention_changes": 8}) as world:
        subscription = await world.subscribe()
        async with world.stream(SUB) as stream:
            await world.append(*[Op.INSERT] * 3)
            assert await stream.ids(3) == [1, 2, 3]
            await world.append(Op.INSERT)
            record = await stream.record()
            assert (record["id"], record["event"]) == ("3", "backpressure")
            data = json.loads(record["data"])
            assert data == {
                "sub_id": SUB,
                "state": "pressure",
                "lag": 4,
                "remaining_until_resnapshot": 4,
                "paused": False,
                "earliest_offset": 1,
                "latest_offset": 4,
            }
            assert list(data) == [
                "sub_id",
                "state",
                "lag",
                "remaining_until_resnapshot",
                "paused",
                "earliest_offset",
                "latest_offset",
            ]
            assert await stream.ids(1) == [4]
            await world.append(Op.INSERT)
            assert (await stream.record())["event"] == "insert"
            await world.append(Op.INSERT)
            assert states([await stream.record()]) == ["throttle"]
            assert (await stream.record())["event"] == "insert"
            await world.service.subscription(subscription.id).acknowledge(6)
            await world.settled()
            await world.append(Op.INSERT)
            assert (await stream.record())["event"] == "insert"  # healthy again: nothing is said of that
            await world.append(*[Op.INSERT] * 5)
            assert states([await stream.record()]) == ["throttle"]


def states(records):
    return [json.loads(record["data"])["state"] for record in records if record["event"] == "backpressure"]


async def test_a_narrow_filter_does_not_hide_the_pressure():
    async with web(service={"retention_changes": 8}, stream_state_s=0.05) as world:
        await world.subscribe([Op.DELETE])
        async with world.stream(SUB) as stream:
            await world.append(*[Op.INSERT] * 4)
            record = await stream.record()
            assert states([record]) == ["pressure"]
            assert record["id"] in {"0", "4"}


async def test_a_paused_stream_stays_open_and_goes_on_without_a_gap():
    async with web() as world:
        subscription = await world.subscribe()
        async with world.stream(SUB) as stream:
            await world.append(Op.INSERT)
            assert await stream.ids(1) == [1]
            await world.service.subscription(subscription.id).pause()
            record = await stream.record()
            assert (record["id"], states([record])) == ("1", ["paused"])
            assert json.loads(record["data"])["paused"] is True
            await world.append(*[Op.INSERT] * 3)
            async with world.stream(SUB) as late:
                assert states([await late.record()]) == ["paused"]
                await world.service.subscription(subscription.id).resume()
                assert await stream.ids(3) == [2, 3, 4]
                assert await late.ids(4) == [1, 2, 3, 4]


async def test_a_paused_stream_can_lose_its_place():
    async with web() as world:
        subscription = await world.subscribe()
        await world.service.subscription(subscription.id).pause()
        async with world.stream(SUB) as stream:
            assert states([await stream.record()]) == ["paused"]
            await world.append(*[Op.INSERT] * 3)
            world.log.forget_before(3)
            await world.append(Op.INSERT)
            assert states([await stream.record()]) == ["resnapshot_required"]
            record = await stream.record()
            assert (record["id"], record["event"]) == ("2", "resnapshot")
            assert await stream.record() is None


async def test_heartbeats_tell_how_far_a_feed_has_looked_where_asked_for():
    async with web(stream_keepalive_s=0.05) as world:
        await world.subscribe([Op.DELETE])
        await world.append(Op.INSERT, Op.INSERT)
        async with world.stream(SUB, "?heartbeat=1") as stream:
            record = await stream.record()
            assert (record["id"], record["event"]) == ("2", "heartbeat")
            assert json.loads(record["data"]) == {"sub_id": SUB, "scanned": 2}


async def test_a_filter_that_went_far_without_a_match_sends_a_heartbeat_at_once():
    async with web() as world:
        await world.subscribe([Op.DELETE])
        await world.log.append([draft_of([(Op.INSERT, world.schema_id)] * 70_000)])
        async with world.stream(SUB, "?heartbeat=1") as stream:
            record = await stream.record()
            assert record["event"] == "heartbeat"
            assert 65_536 <= int(record["id"]) <= 70_000


async def test_a_subscription_may_have_its_stream_acknowledge():
    async with web() as world:
        subscription = await world.subscribe(auto_ack=True)
        await world.append(*[Op.INSERT] * 3)
        async with world.stream(SUB) as stream:
            assert await stream.ids(3) == [1, 2, 3]
            await until(lambda: world.service.subscription(subscription.id).record.cursor == 3, "acknowledged")
        async with world.stream(SUB, "?from_offset=0") as stream:
            await world.append(Op.INSERT)
            assert await stream.ids(1) == [4]


async def test_closing_the_subscription_ends_its_streams_silently():
    async with web() as world:
        subscription = await world.subscribe()
        async with world.stream(SUB) as stream, world.stream(SUB) as other:
            await until(lambda: feeds_open(world) == 2, "both streams serve")
            await world.service.subscription(subscription.id).close()
            assert await stream.record() is None
            assert await other.record() is None


async def test_a_client_that_leaves_ends_its_feed_at_once():
    async with web() as world:
        await world.subscribe()
        async with world.stream(SUB):
            await until(lambda: feeds_open(world) == 1, "the stream serves")
        await until(lambda: feeds_open(world) == 0, "the feed is gone")


async def test_a_client_that_leaves_while_it_is_written_to_ends_its_feed_at_once():
    async with web() as world:
        await world.subscribe()
        await world.log.append([draft_of([(Op.INSERT, world.schema_id)] * 100_000)])
        connection = await Connection.open(world.address, limit=1024)
        await connection.request(f"GET /api/v1/cdc/sse/{SUB} HTTP/1.1")
        await until(lambda: feeds_open(world) == 1, "the stream serves")
        connection.writer.transport.abort()
        await until(lambda: feeds_open(world) == 0, "the feed is gone")


async def test_a_client_that_does_not_read_holds_back_itself_alone():
    async with web() as world:
        await world.subscribe()
        await world.log.append([draft_of([(Op.INSERT, world.schema_id)] * 200_000)])
        with socket.create_connection((world.address.host, world.address.port)) as lazy:
            lazy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            lazy.sendall(f"GET /api/v1/cdc/sse/{SUB} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            async with world.stream(SUB) as stream:
                assert (await stream.ids(200_000))[-1] == 200_000
            delivered = world.metrics.registry.get_sample_value("tailrace_delivered_changes_total", {"wire": "sse"})
            # The eager one got all; the lazy one no more than the buffers on the way hold.
            assert delivered - 200_000 < 100_000
            await world.append(Op.INSERT)
            assert (await world.call("system.ping"))["pong"]


async def test_head_gives_the_headers_and_no_stream():
    async with web() as world:
        await world.subscribe()
        answer = await world.client.head(f"/api/v1/cdc/sse/{SUB}")
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "text/event-stream"


async def test_an_ordinary_client_reads_it():
    async with web() as world:
        await world.subscribe()
        await world.append(Op.INSERT, Op.UPDATE)
        async with (
            httpx.AsyncClient(base_url=world.address.url, verify=False, timeout=DEADLINE_S) as client,
            client.stream("GET", f"/api/v1/cdc/sse/{SUB}") as answer,
        ):
            lines = answer.aiter_lines()
            found = [await anext(lines) for _ in range(8)]
        assert [line for line in found if line.startswith(("id", "event"))] == [
            "id: 1",
            "event: insert",
            "id: 2",
            "event: update",
        ]


async def test_many_streams_share_one_encoding():
    async with web() as world:
        await world.subscribe()
        await world.append(*[Op.INSERT] * 100)

        async def read():
            async with world.stream(SUB) as stream:
                return await stream.ids(100)

        everybody = await asyncio.gather(*(read() for _ in range(20)))
        assert everybody == [list(range(1, 101))] * 20
        registry = world.metrics.registry
        assert registry.get_sample_value("tailrace_encoded_changes_total") == 100
        await until(
            lambda: registry.get_sample_value("tailrace_delivered_changes_total", {"wire": "sse"}) == 2000, "all sent"
        )
