"""Facts about several subscriptions over one connection, over real sockets."""

import asyncio
import json
from contextlib import asynccontextmanager

import pytest

from feeding import draft_of
from tailrace.delivery.http.streaming import STREAMS_MAX
from tailrace.model.op import Op
from web import Connection, until, web

pytestmark = pytest.mark.usefixtures("one_process_and_workers")

ONE, TWO, THREE = (f"sub_{number:016x}" for number in (1, 2, 3))


def feeds_open(world, wire):
    return world.metrics.registry.get_sample_value("tailrace_feeds_open", {"wire": wire}) or 0


@asynccontextmanager
async def sse(world, query, *headers):
    connection = await Connection.open(world.address)
    try:
        await connection.request(f"GET /api/v1/cdc/sse{query} HTTP/1.1", *headers)
        connection.status, connection.headers = await connection.head()
        yield connection
    finally:
        await connection.close()


async def two_subscriptions(world):
    """Make a subscription to inserts and one to deletes."""
    return await world.subscribe([Op.INSERT]), await world.subscribe([Op.DELETE])


def seen(records):
    """Return the offsets of the changes by subscription."""
    found = {}
    for record in records:
        data = record["data"] if isinstance(record["data"], dict) else json.loads(record["data"])
        if "seq" in data:
            found.setdefault(record.get("sub_id") or data["sub_id"], []).append(data["seq"])
    return found


async def test_one_stream_of_server_sent_events_carries_many_subscriptions_and_resumes_each():
    async with web() as world:
        await two_subscriptions(world)
        await world.append(Op.INSERT, Op.DELETE, Op.INSERT, Op.DELETE)
        async with sse(world, f"?sub={ONE}&sub={TWO}") as stream:
            assert stream.headers["content-type"] == "text/event-stream"
            records = await stream.records(4)
            assert seen(records) == {ONE: [1, 3], TWO: [2, 4]}
            last = records[2]
        expected = {ONE: [1, 3], TWO: [2, 4]}
        for sub_id, offsets in seen(records[:3]).items():
            expected[sub_id] = [offset for offset in expected[sub_id] if offset not in offsets]
        async with sse(world, f"?sub={ONE}&sub={TWO}", f"Last-Event-ID: {last['id']}") as stream:
            assert seen(await stream.records(1)) == {sub_id: left for sub_id, left in expected.items() if left}
            await world.append(Op.DELETE, Op.INSERT)
            assert seen(await stream.records(2)) == {TWO: [5], ONE: [6]}


async def test_the_offset_in_the_url_counts_until_something_was_seen():
    async with web() as world:
        await two_subscriptions(world)
        await world.append(*[Op.INSERT, Op.DELETE] * 5)
        async with sse(world, f"?sub={ONE}:7&sub={TWO}") as stream:
            assert seen(await stream.records(6)) == {ONE: [9], TWO: [2, 4, 6, 8, 10]}
        async with sse(world, f"?sub={ONE}:7&sub={TWO}", "Last-Event-ID: 1:3,2:8") as stream:
            assert seen(await stream.records(4)) == {ONE: [5, 7, 9], TWO: [10]}


async def test_what_cannot_be_is_told_in_plain_words():
    async with web() as world:
        await two_subscriptions(world)
        for query, headers, status, text in (
            ("", {}, 400, "name 1 to"),
            (f"?sub={ONE}&sub={ONE}", {}, 400, "named twice"),
            (f"?sub={ONE}:x", {}, 400, "invalid from_offset"),
            (f"?sub={ONE}:5", {}, 400, "beyond the newest change 0"),
            (f"?sub={ONE}", {"Last-Event-ID": "7"}, 400, "invalid Last-Event-ID header"),
            (f"?sub={ONE}&sub={THREE}", {}, 404, "unknown sub_id"),
        ):
            answer = await world.client.get(f"/api/v1/cdc/sse{query}", headers=headers)
            assert answer.status_code == status
            assert text in answer.text
        assert world.service.feeds_open() == 0


async def test_a_subscription_that_ends_says_so_and_the_others_go_on():
    async with web() as world:
        first, second = await two_subscriptions(world)
        async with sse(world, f"?sub={ONE}&sub={TWO}") as stream:
            await until(lambda: feeds_open(world, "sse") == 2, "both serve")
            await world.service.subscription(first.id).close()
            record = await stream.record()
            assert record["event"] == "end"
            assert json.loads(record["data"]) == {"sub_id": ONE, "reason": "closed"}
            await world.append(Op.DELETE)
            assert seen([await stream.record()]) == {TWO: [1]}
            await world.service.subscription(second.id).close()
            assert (await stream.record())["event"] == "end"
            assert await stream.record() is None


async def test_one_that_lost_its_place_says_so_and_the_others_go_on():
    async with web() as world:
        await two_subscriptions(world)
        await world.append(*[Op.INSERT] * 5)
        world.log.forget_before(4)
        async with sse(world, f"?sub={ONE}&sub={TWO}:5") as stream:
            records = await stream.records(4)
            ends = [record for record in records if record["event"] in {"resnapshot", "end"}]
            assert [record["event"] for record in ends] == ["resnapshot", "end"]
            assert {record["id"] for record in ends} == {"2:5,1:3"}
            await world.append(Op.DELETE)
            assert seen([await stream.record()]) == {TWO: [6]}


async def test_a_client_that_leaves_ends_all_its_feeds():
    async with web() as world:
        await two_subscriptions(world)
        async with sse(world, f"?sub={ONE}&sub={TWO}"), world.socket() as many:
            await many.ask(type="subscribe", sub_id=ONE)
            await until(lambda: (feeds_open(world, "sse"), feeds_open(world, "ws")) == (2, 1), "all serve")
        await until(lambda: (feeds_open(world, "sse"), feeds_open(world, "ws")) == (0, 0), "all are gone")
        await until(lambda: world.service.feeds_open() == 0, "no feed is left")


async def test_one_websocket_carries_many_subscriptions():
    async with web() as world:
        await two_subscriptions(world)
        await world.append(*[Op.INSERT, Op.DELETE] * 2)
        async with world.socket() as many:
            answer = await many.ask(type="subscribe", sub_id=ONE)
            assert answer == {"sub_id": ONE, "event": "subscribe", "data": {"sub_id": ONE, "offset": 0}}
            assert seen(await many.records(2)) == {ONE: [1, 3]}
            answer = await many.ask(type="subscribe", sub_id=TWO, from_offset=2)
            assert answer["data"] == {"sub_id": TWO, "offset": 2}
            assert seen(await many.records(1)) == {TWO: [4]}
            await world.append(Op.INSERT, Op.DELETE)
            assert seen(await many.records(2)) == {ONE: [5], TWO: [6]}
            answer = await many.ask(type="unsubscribe", sub_id=ONE)
            assert answer == {"sub_id": ONE, "event": "unsubscribe", "data": {"sub_id": ONE}}
            await world.append(Op.INSERT, Op.DELETE)
            assert seen(await many.records(1)) == {TWO: [8]}
            assert (await many.ask(type="subscribe", sub_id=ONE, from_offset=5))["event"] == "subscribe"
            assert seen(await many.records(1)) == {ONE: [7]}


async def test_commands_on_a_websocket_of_many_name_their_subscription():
    async with web() as world:
        first, second = await two_subscriptions(world)
        await world.append(Op.INSERT, Op.DELETE)
        async with world.socket() as many:
            answer = await many.ask(type="ack", sub_id=TWO, offset=2)
            assert answer == {"sub_id": TWO, "event": "ack", "data": {"sub_id": TWO, "acked_offset": 2}}
            assert [world.service.subscription(entry.id).record.cursor for entry in (first, second)] == [0, 2]
            assert (await many.ask(type="pause", sub_id=ONE))["data"]["paused"] is True
            assert (await many.ask(type="subscribe", sub_id=ONE))["event"] == "subscribe"
            frame = await many.record()
            assert (frame["sub_id"], frame["event"], frame["data"]["state"]) == (ONE, "backpressure", "paused")
            assert (await many.ask(type="unsubscribe", sub_id=ONE))["event"] == "unsubscribe"
            assert (await many.ask(type="resume", sub_id=ONE))["data"]["paused"] is False


async def test_commands_that_cannot_be_are_answered_with_an_error():
    async with web() as world:
        await two_subscriptions(world)
        async with world.socket() as many:
            assert (await many.ask(type="subscribe", sub_id=ONE))["event"] == "subscribe"
            for command, complaint in (
                ({"type": "subscribe", "sub_id": ONE}, "already"),
                ({"type": "subscribe", "sub_id": THREE}, "not found"),
                ({"type": "subscribe", "sub_id": TWO, "from_offset": 9}, "beyond the newest change"),
                ({"type": "subscribe"}, "sub_id"),
                ({"type": "unsubscribe", "sub_id": TWO}, "does not have"),
                ({"type": "ack", "offset": 0}, "sub_id"),
                ({"type": "dance"}, "not a command"),
            ):
                answer = await many.ask(**command)
                assert answer["event"] == "error"
                assert complaint in answer["data"]["message"]


async def test_a_websocket_carries_a_bounded_number_of_subscriptions():
    async with web() as world:
        for _ in range(STREAMS_MAX + 1):
            await world.subscribe()
        async with world.socket() as many:
            for number in range(1, STREAMS_MAX + 1):
                assert (await many.ask(type="subscribe", sub_id=f"sub_{number:016x}"))["event"] == "subscribe"
            answer = await many.ask(type="subscribe", sub_id=f"sub_{STREAMS_MAX + 1:016x}")
            assert (answer["event"], "already" in answer["data"]["message"]) == ("error", True)


async def test_one_of_many_that_ends_says_so_and_the_others_go_on():
    async with web() as world:
        first, _ = await two_subscriptions(world)
        async with world.socket() as many:
            for sub_id in (ONE, TWO):
                await many.ask(type="subscribe", sub_id=sub_id)
            await world.service.subscription(first.id).close()
            frame = await many.record()
            assert frame == {"sub_id": ONE, "id": 0, "event": "end", "data": {"sub_id": ONE, "reason": "closed"}}
            await world.append(Op.DELETE)
            assert seen([await many.record()]) == {TWO: [1]}


@pytest.mark.parametrize("wire", ["sse", "ws"])
async def test_subscriptions_take_turns_on_their_connection(wire):
    """One with a long log behind it does not keep the other from its few changes."""
    async with web() as world:
        await two_subscriptions(world)
        await world.log.append([draft_of([(Op.INSERT, world.schema_id)] * 60_000)])
        await world.append(Op.DELETE)
        if wire == "sse":
            async with sse(world, f"?sub={ONE}&sub={TWO}:60000") as stream:
                records = await stream.records(20_000)
        else:
            async with world.socket(max_queue=None) as stream:
                await stream.say(type="subscribe", sub_id=ONE)
                await stream.say(type="subscribe", sub_id=TWO, from_offset=60_000)
                records = await stream.records(20_000)
        assert seen(records)[TWO] == [60_001]
        offsets = seen(records)[ONE]
        assert offsets == list(range(1, len(offsets) + 1))


async def test_a_client_that_does_not_read_costs_one_piece_however_many_streams_it_has():
    async with web() as world:
        for _ in range(20):
            await world.subscribe()
        await world.log.append([draft_of([(Op.INSERT, world.schema_id)] * 50_000)])
        query = "&".join(f"sub=sub_{number:016x}" for number in range(1, 21))

        def delivered():
            registry = world.metrics.registry
            return registry.get_sample_value("tailrace_delivered_changes_total", {"wire": "sse"}) or 0

        connection = await Connection.open(world.address, limit=1024)
        await connection.request(f"GET /api/v1/cdc/sse?{query} HTTP/1.1")
        await until(lambda: feeds_open(world, "sse") == 20, "all serve")
        await until(lambda: delivered() > 0, "the first changes are sent")
        counts = []
        while len(counts) < 5 or counts[-1] != counts[-5]:
            await asyncio.sleep(0.02)
            counts.append(delivered())
        # What the buffers of both sockets hold, and no more: far from 20 times 50 000.
        assert 0 < counts[-1] < 100_000
        connection.writer.transport.abort()
        await until(lambda: feeds_open(world, "sse") == 0, "all are gone")
