"""Facts about feeds: each event once, in order, control events in between, and the end."""

import httpx

from tailrace.client.asynchronous import AsyncClient
from tailrace.client.errors import BadAnswer, FeedFailed, NotFound, ResnapshotRequired, Unauthorized
from tailrace.client.event import Backpressure, Heartbeat
from unit.client.fake import OPTIONS, FakeServer, change, record

LOST = {"sub_id": "sub_1", "earliest_offset": 9, "latest_offset": 20, "resnapshot_from_offset": 8, "reason": "gone"}
BROKEN = httpx.ReadError("reset")
GONE = (404, b"unknown sub_id")


def feed_of(server, sub_id="sub_1", **options):
    client = AsyncClient("http://fake", options=OPTIONS, transport=server)
    return client.subscription(sub_id).events(**options)


async def offsets(feed):
    """Read to the end; return the offsets and what ended it."""
    found = []
    try:
        async for event in feed:
            found.append(event.offset)
    except Exception as error:
        return found, error
    return found, None


async def test_events_come_once_and_in_order_over_broken_connections():
    server = FakeServer([change(1), change(2), BROKEN], [change(2), change(3)], BROKEN, [change(1), change(5)], GONE)
    found, error = await offsets(feed_of(server))
    assert found == [1, 2, 3, 5]
    assert isinstance(error, NotFound)
    assert server.last_ids == [None, "2", "3", "3", "5"]


async def test_a_feed_begins_behind_the_place_it_is_told():
    server = FakeServer([change(8)], GONE)
    await offsets(feed_of(server, after=7))
    assert server.last_ids[0] == "7"


async def test_rows_of_a_snapshot_share_an_offset_and_all_come():
    server = FakeServer([change(4, "read"), change(4, "read"), change(5)], GONE)
    assert (await offsets(feed_of(server)))[0] == [4, 4, 5]


async def test_a_lost_place_is_told_after_the_events_before_it():
    server = FakeServer([change(1) + record(8, "resnapshot", LOST) + change(9)])
    found, error = await offsets(feed_of(server))
    assert found == [1]
    assert isinstance(error, ResnapshotRequired)
    assert (error.sub_id, error.earliest_offset, error.resnapshot_from_offset) == ("sub_1", 9, 8)
    assert server.open == 0


async def test_an_error_event_ends_the_feed_with_its_message():
    failure = {"code": "invalid_request", "message": "where: division by zero", "sub_id": "sub_1"}
    found, error = await offsets(feed_of(FakeServer([change(1) + record(1, "error", failure)])))
    assert found == [1]
    assert isinstance(error, FeedFailed)
    assert (error.code, str(error)) == ("invalid_request", "where: division by zero")


async def test_a_malformed_event_ends_the_feed_after_the_events_before_it():
    found, error = await offsets(feed_of(FakeServer([change(1) + b"event: insert\ndata: {\n\n" + change(2)])))
    assert found == [1]
    assert isinstance(error, BadAnswer)


async def test_a_feed_that_has_ended_stays_ended():
    feed = feed_of(FakeServer([record(8, "resnapshot", LOST)]))
    assert isinstance((await offsets(feed))[1], ResnapshotRequired)
    assert await offsets(feed) == ([], None)


async def test_control_events_are_told_between_the_changes():
    seen = []
    pressure = {"sub_id": "sub_1", "state": "pressure", "lag": 5, "remaining_until_resnapshot": 5, "paused": False}
    stream = change(1) + record(1, "backpressure", pressure) + change(2) + record(7, "heartbeat", {"scanned": 7})
    async for event in feed_of(FakeServer([stream, change(8)], GONE), on_control=seen.append):
        seen.append(event.offset)
        if event.offset == 8:
            break
    assert seen == [1, Backpressure("pressure", 5, 5), 2, Heartbeat(7), 8]


async def test_without_auto_ack_nothing_is_acknowledged():
    server = FakeServer([change(1), change(2)], GONE)
    await offsets(feed_of(server))
    assert server.calls == []


def acked(server):
    return [call["params"]["offset"] for call in server.calls if call["method"] == "cdc.ack"]


async def test_auto_ack_acknowledges_what_the_loop_has_come_back_from():
    server = FakeServer()

    async def handle(request):
        server.requests.append(request)
        if request.method == "POST":
            return httpx.Response(200, json={"ok": True, "result": {"sub_id": "s", "acked_offset": acked(server)[-1]}})
        return await FakeServer([change(1) + change(2), change(3)]).handle_async_request(request)

    server.handle_async_request = handle
    steps = []
    async with feed_of(server, auto_ack=True) as feed:
        async for event in feed:
            steps.append((event.offset, acked(server)))
            if event.offset == 3:
                break
    assert steps == [(1, []), (2, []), (3, [2])]
    assert acked(server) == [2], "the last event was not come back from"


async def test_auto_ack_counts_how_far_a_feed_has_looked():
    answer = {"sub_id": "s", "acked_offset": 7}
    server = FakeServer([record(7, "heartbeat", {"scanned": 7})], answer, GONE)
    await offsets(feed_of(server, auto_ack=True))
    assert acked(server) == [7]


async def test_auto_ack_waits_for_a_server_that_is_away():
    away = httpx.ConnectError("refused")
    server = FakeServer([change(1)], away, [change(2)], {"sub_id": "s", "acked_offset": 2}, GONE)
    found, error = await offsets(feed_of(server, auto_ack=True))
    assert found == [1, 2]
    assert isinstance(error, NotFound)
    assert acked(server) == [1, 2]


async def test_a_refused_acknowledgement_is_an_error():
    found, error = await offsets(feed_of(FakeServer([change(1)], (401, b""), repeat=True), auto_ack=True))
    assert found == [1]
    assert isinstance(error, Unauthorized)


async def test_an_event_can_be_acknowledged_by_hand():
    server = FakeServer([change(1)], {"sub_id": "sub_1", "acked_offset": 1})
    async for event in feed_of(server):
        assert (await event.ack()).acked_offset == 1
        break
    assert server.calls[0]["params"] == {"sub_id": "sub_1", "offset": 1}


async def test_closing_the_subscription_ends_its_feeds_without_an_error():
    server = FakeServer([change(1)], {"sub_id": "sub_1", "closed": True}, GONE)
    async with AsyncClient("http://fake", options=OPTIONS, transport=server) as client:
        subscription = client.subscription("sub_1")
        found = []
        async for event in subscription:
            found.append(event.offset)
            await subscription.close()
    assert found == [1]
