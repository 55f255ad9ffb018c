"""Facts about the async client's calls and handles."""

import gc

import httpx
import pytest

from tailrace.client import AsyncClient, BadAnswer, ConnectionFailed, NotFound, Unauthorized
from tailrace.client.event import Backpressure
from tailrace.client.result import (
    Acknowledged,
    Capabilities,
    Closed,
    PauseState,
    Ping,
    Prepared,
    QueryResult,
    SubscriptionInfo,
    Version,
)
from tailrace.model.errors import ConfigError
from unit.client.fake import OPTIONS, FakeServer, change

HEALTHY = {"state": "healthy", "lag": 0, "remaining_until_resnapshot": None, "paused": False}
PAUSED = HEALTHY | {"state": "paused", "paused": True}
MADE = {"sub_id": "sub_1", "offset": 7, "sse_url": "/api/v1/cdc/sse/sub_1", "ws_url": "/api/v1/cdc/ws/sub_1"}
CLOSED = {"sub_id": "sub_1", "closed": True}
PARAMS = {"db": "app", "table": "t", "include": {"before": True, "after": True}, "format": "objects_json"}


def client_of(server, token=None):
    return AsyncClient("http://fake/", token, options=OPTIONS, transport=server)


CALLS = {
    "ping": (lambda c: c.ping(), "system.ping", {}, {"pong": True, "time_unix_ms": 5}, Ping(True, 5)),
    "version": (
        lambda c: c.version(),
        "system.version",
        {},
        {"name": "tailrace", "version": "1", "skeinql": "1.0"},
        Version("tailrace", "1", "1.0"),
    ),
    "capabilities": (
        lambda c: c.capabilities(),
        "system.capabilities",
        {},
        {"methods": ["cdc.ack"], "formats": ["plain_json"], "ops": []},
        Capabilities(("cdc.ack",), ("plain_json",)),
    ),
    "ack": (
        lambda c: c.ack("sub_1", 7),
        "cdc.ack",
        {"sub_id": "sub_1", "offset": 7},
        {"sub_id": "sub_1", "acked_offset": 7},
        Acknowledged("sub_1", 7),
    ),
    "pause": (
        lambda c: c.pause("sub_1"),
        "cdc.pause",
        {"sub_id": "sub_1"},
        {"sub_id": "sub_1", "paused": True, "acked_offset": 7, "backpressure": PAUSED},
        PauseState("sub_1", True, 7, Backpressure("paused", 0, None, paused=True)),
    ),
    "resume": (
        lambda c: c.resume("sub_1"),
        "cdc.resume",
        {"sub_id": "sub_1"},
        {"sub_id": "sub_1", "paused": False, "acked_offset": 7, "backpressure": HEALTHY},
        PauseState("sub_1", False, 7, Backpressure("healthy", 0)),
    ),
    "close": (lambda c: c.close("sub_1"), "cdc.close", {"sub_id": "sub_1"}, CLOSED, Closed("sub_1", True)),
    "list": (
        lambda c: c.list(),
        "cdc.list",
        {},
        {"subscriptions": [{"sub_id": "sub_1", "acked_offset": 3}]},
        (SubscriptionInfo(sub_id="sub_1", acked_offset=3),),
    ),
    "prepare": (
        lambda c: c.prepare("SELECT 1", name="one"),
        "query.prepare",
        {"query": "SELECT 1", "name": "one"},
        {"query_id": "q_1", "canonical": "SELECT 1"},
        Prepared("q_1", "SELECT 1"),
    ),
    "execute": (
        lambda c: c.execute("q_1", [5], if_none_match='W/"q:1"'),
        "query.execute_prepared",
        {"query_id": "q_1", "args": [{"t": "i64", "v": 5}], "if_none_match": 'W/"q:1"'},
        {"etag": 'W/"q:1"', "not_modified": True},
        QueryResult(etag='W/"q:1"', not_modified=True),
    ),
    "anything": (lambda c: c.call("stats.snapshot"), "stats.snapshot", {}, {"cdc": {}}, {"cdc": {}}),
}


@pytest.mark.parametrize(("call", "method", "params", "result", "value"), CALLS.values(), ids=CALLS)
async def test_a_call_has_its_params_and_its_typed_result(call, method, params, result, value):
    server = FakeServer(result)
    async with client_of(server) as client:
        assert await call(client) == value
    (sent,) = server.calls
    assert (sent["method"], sent["params"]) == (method, params)


async def test_a_poll_gives_events_that_acknowledge_themselves():
    event = {"seq": 9, "db": "app", "table": "t", "op": "insert", "pk": [{"t": "i64", "v": 1}], "commit_ts_ms": 5}
    poll = {"events": [event], "next_offset": 9, "earliest_offset": 1, "latest_offset": 9, "backpressure": HEALTHY}
    server = FakeServer(poll | {"resnapshot_required": False}, {"sub_id": "sub_1", "acked_offset": 9})
    async with client_of(server) as client:
        result = await client.poll("sub_1", 7, limit=10, wait_ms=500)
        assert (result.next_offset, result.events[0].pk) == (9, (1,))
        assert (await result.events[0].ack()).acked_offset == 9
    params = [call["params"] for call in server.calls]
    assert params == [
        {"sub_id": "sub_1", "from_offset": 7, "limit": 10, "wait_ms": 500},
        {"sub_id": "sub_1", "offset": 9},
    ]


async def test_a_waiting_poll_has_its_wait_on_top_of_the_time_limit():
    poll = {"events": [], "next_offset": 9, "earliest_offset": 1, "latest_offset": 9, "backpressure": HEALTHY}
    server = FakeServer(poll)
    async with client_of(server) as client:
        await client.subscription("sub_1").poll(wait_ms=60_000)
    assert server.requests[0].extensions["timeout"]["read"] == OPTIONS.answer_timeout_s + 60


async def test_the_token_goes_into_the_header_of_calls_and_streams():
    server = FakeServer({"pong": True, "time_unix_ms": 5}, [change(1)])
    async with client_of(server, "secret") as client:
        await client.ping()
        await anext(client.subscription("sub_1").events())
    assert {request.headers["Authorization"] for request in server.requests} == {"Bearer secret"}
    assert "secret" not in str([request.url for request in server.requests])


async def test_paths_are_joined_to_the_url_whatever_it_ends_with():
    server = FakeServer({"pong": True, "time_unix_ms": 5})
    async with AsyncClient("http://fake/under/", transport=server) as client:
        await client.ping()
    assert str(server.requests[0].url) == "http://fake/under/api/v1/rpc"


@pytest.mark.parametrize("url", ["not a url", "ftp://host", "http://[::1", "http://", "127.0.0.1:8080", ""])
def test_a_wrong_address_is_told_at_once(url):
    with pytest.raises(ConfigError, match="is not the address of a server"):
        AsyncClient(url)


async def test_errors_of_the_server_have_types():
    refused = (200, b'{"id":1,"ok":false,"error":{"code":"not_found","message":"no table app.t"}}')
    server = FakeServer(refused, (401, b'{"id":null,"ok":false,"error":{"code":"unauthorized","message":"no"}}'))
    async with client_of(server) as client:
        with pytest.raises(NotFound, match=r"no table app\.t"):
            await client.subscribe("app", "t")
        with pytest.raises(Unauthorized):
            await client.ping()


@pytest.mark.parametrize("failure", [httpx.ConnectError("refused"), httpx.ReadTimeout(""), (503, b"")])
async def test_a_server_that_is_away_is_a_failed_connection(failure):
    async with client_of(FakeServer(failure)) as client:
        with pytest.raises(ConnectionFailed):
            await client.ping()


async def test_a_foreign_server_is_told_apart():
    async with client_of(FakeServer((200, b"<html>"))) as client:
        with pytest.raises(BadAnswer):
            await client.ping()


async def test_a_temporary_subscription_is_closed_when_its_feed_is_left():
    server = FakeServer(MADE, [change(8)], CLOSED)
    async with client_of(server) as client, await client.subscribe("app", "t") as subscription:
        assert subscription.state.offset == 7
        async for event in subscription:
            assert event.offset == 8
            break
    assert [call["method"] for call in server.calls] == ["cdc.subscribe_table", "cdc.close"]
    assert server.calls[0]["params"] == PARAMS


async def test_a_temporary_subscription_is_closed_with_the_client():
    server = FakeServer(MADE, [change(8)], CLOSED)
    async with client_of(server) as client:
        async for _event in await client.subscribe("app", "t"):
            break
        gc.collect()
    assert [call["method"] for call in server.calls] == ["cdc.subscribe_table", "cdc.close"]


@pytest.mark.parametrize("trouble", [httpx.ConnectError("refused"), (404, b"")])
async def test_closing_a_temporary_subscription_of_a_lost_server_is_no_error(trouble):
    async with client_of(FakeServer(MADE, trouble)) as client:
        await client.subscribe("app", "t")


async def test_a_durable_subscription_stays():
    server = FakeServer(MADE, [change(8)])
    async with client_of(server) as client, await client.subscribe_table("app", "t") as subscription:
        async for _event in subscription:
            break
    assert [call["method"] for call in server.calls] == ["cdc.subscribe_table"]


async def test_a_query_can_be_subscribed_to():
    server = FakeServer(MADE)
    async with client_of(server) as client:
        subscription = await client.subscribe_query("q_1", [5], ops=["insert"])
    assert subscription.sub_id == "sub_1"
    assert server.calls[0]["method"] == "cdc.subscribe_query"
    params = {"query_id": "q_1", "args": [{"t": "i64", "v": 5}], "ops": ["insert"]}
    assert server.calls[0]["params"] == params | {"include": PARAMS["include"], "format": "objects_json"}


async def test_a_handle_of_an_existing_subscription_needs_no_call():
    server = FakeServer([change(8, pk=[1])])
    async with client_of(server) as client:
        event = await anext(client.subscription("sub_9").events())
    assert event.pk == (1,)
    assert str(server.requests[0].url) == "http://fake/api/v1/cdc/sse/sub_9?heartbeat=1"
