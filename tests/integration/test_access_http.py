"""Facts about who may see what over HTTP, SSE and WebSockets."""

import asyncio
import json

import httpx
import pytest
import websockets

from signing import NOW_S, SECRET, hs256
from tailrace.access.options import AuthConfig, PrincipalConfig
from tailrace.envelope.envelopes import WHOLE
from tailrace.model.op import Op
from tailrace.testing.clock import FakeClock
from web import DEADLINE_S, timeless, web

pytestmark = pytest.mark.usefixtures("one_process_and_workers")

MINE, YOURS = "name = 'mine'", "name = 'yours'"
AUTH = AuthConfig(
    enabled=True,
    tokens=("master",),
    principals={
        "mia": PrincipalConfig(tokens=("mia-key",), rows={"app.users": MINE}),
        "max": PrincipalConfig(tokens=("max-key",), rows={"app.users": MINE}),
        "yan": PrincipalConfig(tokens=("yan-key",), rows={"app.users": YOURS}),
        "eve": PrincipalConfig(tokens=("eve-key",), tenant="acme", namespaces=("acme",)),
        "vic": PrincipalConfig(tokens=("vic-key",), role="viewer"),
        "far": PrincipalConfig(tokens=("far-key",), role="viewer", namespaces=("acme",)),
        "nil": PrincipalConfig(tokens=("nil-key",), capabilities=("nothing",)),
    },
    jwt_secret=SECRET.decode(),
)
PING = '{"skeinql":"1.0","id":1,"method":"system.ping"}'


class Caller:
    """One principal and the server."""

    def __init__(self, world, token):
        self.world = world
        self.token = token
        self.headers = [f"Authorization: Bearer {token}"]

    async def answer(self, method, **params):
        body = json.dumps({"skeinql": "1.0", "id": 1, "method": method, "params": params})
        answer = await self.world.post(body, authorization=f"Bearer {self.token}")
        assert answer.status_code == 200
        return answer.json()

    async def call(self, method, **params):
        answer = await self.answer(method, **params)
        assert answer["ok"], answer
        return answer["result"]

    async def refusal(self, method, **params):
        error = (await self.answer(method, **params))["error"]
        return error["code"], error["message"]

    async def subscribe(self, **options):
        options = {"include": {"before": True, "after": True}, "format": "plain_json", **options}
        return (await self.call("cdc.subscribe_table", db="app", table="users", **options))["sub_id"]

    def stream(self, sub_id, query=""):
        return self.world.stream(sub_id, query, self.headers)

    def socket(self, path=""):
        return self.world.socket(path, additional_headers={"Authorization": f"Bearer {self.token}"})


@pytest.fixture
async def world():
    clock = FakeClock(now_us=NOW_S * 1_000_000)
    async with web(auth=AUTH, clock=clock) as served:
        served.clock = clock
        yield served


def named(record):
    """Return op, key and names before and after of an event."""
    event = json.loads(record["data"]) if isinstance(record["data"], str) else record["data"]
    images = [event[name]["name"] if name in event else None for name in ("before", "after")]
    return event["op"], event["pk"][0], *images


# ---- credentials


@pytest.mark.parametrize(
    ("headers", "query", "status"),
    [
        ({"authorization": "Bearer master"}, "", 200),
        ({"x-api-key": "master"}, "", 200),
        ({}, "?access_token=master", 200),
        ({"authorization": f"Bearer {hs256()}"}, "", 200),
        ({"x-api-key": hs256()}, "", 200),
        ({"authorization": "Bearer no", "x-api-key": "master"}, "?access_token=master", 401),
        ({"authorization": "bearer master"}, "", 401),
        ({"authorization": "master"}, "", 401),
        ({"authorization": "Basic master"}, "", 401),
        ({"x-api-key": "no"}, "", 401),
        ({}, "", 401),
        ({"authorization": f"Bearer {hs256(secret=b'x' * 32)}"}, "", 401),
        ({"authorization": "Bearer a.b.c"}, "", 401),
    ],
    ids=lambda value: str(value)[:40],
)
async def test_whoever_has_credentials_may_call(world, headers, query, status):
    answer = await world.client.post(
        f"/api/v1/rpc{query}", content=PING, headers={"content-type": "application/json", **headers}
    )
    assert answer.status_code == status
    if status == 401:
        assert answer.headers["www-authenticate"] == "Bearer"
        assert answer.json()["error"] == {"code": "unauthorized", "message": "Missing/invalid bearer token"}


async def test_expired_credentials_are_told_so(world):
    answer = await world.post(PING, authorization=f"Bearer {hs256(exp=NOW_S)}")
    assert (answer.status_code, answer.json()["error"]["message"]) == (401, "Authentication token has expired.")


async def test_who_calls_too_often_is_told_when_to_come_again():
    auth = AuthConfig(enabled=True, tokens=("a", "b"), requests_per_s=0.5, burst=2)
    async with web(auth=auth, clock=FakeClock()) as world:
        statuses = [(await world.post(PING, x_api_key="a")).status_code for _ in range(3)]
        assert statuses == [200, 200, 429]
        answer = await world.post(PING, x_api_key="a")
        assert answer.headers["retry-after"] == "2"
        assert answer.json()["error"] == {
            "code": "rate_limited",
            "message": "Rate limit exceeded. Retry after 2000ms.",
            "details": {"retry_after_ms": 2000},
        }
        assert (await world.post(PING, x_api_key="b")).status_code == 200


async def test_what_is_said_on_a_connection_counts_too():
    auth = AuthConfig(enabled=True, tokens=("a",), requests_per_s=0.5, burst=2)
    async with web(auth=auth, clock=FakeClock()) as world, Caller(world, "a").socket() as socket:
        assert (await socket.ask(type="pause", sub_id="sub_1"))["data"]["code"] == "not_found"
        assert (await socket.ask(type="pause", sub_id="sub_1"))["data"]["code"] == "rate_limited"


# ---- rights


async def test_another_source_is_refused_whether_or_not_it_is_there(world):
    eve = Caller(world, "eve-key")
    for db in ("app", "absent"):
        for table in ("users", "absent"):
            assert await eve.refusal("cdc.subscribe_table", db=db, table=table) == (
                "forbidden",
                f"Access denied to namespace '{db}' for tenant 'acme'",
            )


@pytest.mark.parametrize(("method", "capability"), [("stats.snapshot", "ViewMetrics"), ("cdc.export", "ManageBackups")])
async def test_figures_and_copies_need_their_capabilities(world, method, capability):
    message = f"Insufficient permissions. Required: {capability}, principal: mia"
    assert await Caller(world, "mia-key").refusal(method) == ("forbidden", message)
    await Caller(world, "master").call(method)


async def test_metrics_are_for_those_who_may_see_them(world):
    for token, status in (("mia-key", 403), ("vic-key", 200), ("master", 200)):
        answer = await world.client.get("/metrics", headers={"x-api-key": token})
        assert answer.status_code == status
    assert (await world.client.get("/metrics", headers={"x-api-key": "nil-key"})).json()["error"]["code"] == "forbidden"


async def test_figures_of_all_sources_are_not_for_who_reaches_only_some(world):
    answer = await world.client.get("/metrics", headers={"x-api-key": "far-key"})
    assert (answer.status_code, "app" in answer.text) == (403, False)
    code, message = await Caller(world, "far-key").refusal("stats.snapshot")
    assert (code, "app" in message) == ("forbidden", False)


async def test_who_has_no_credentials_learns_whether_the_server_is_ready_and_not_why_it_is_not(world):
    world.waiting_for.append("source app: /srv/app.db cannot be opened")
    answer = await world.client.get("/ready")
    assert (answer.status_code, answer.json()["ready"], "app" in answer.text) == (503, False, False)


async def test_who_may_nothing_may_ask_for_the_version_and_no_more(world):
    nil = Caller(world, "nil-key")
    await nil.call("system.version")
    for method, params in [
        ("cdc.list", {}),
        ("cdc.poll", {"sub_id": "sub_0000000000000001", "from_offset": 0}),
        ("cdc.subscribe_table", {"db": "app", "table": "users"}),
        ("cdc.import", {}),
    ]:
        code, message = await nil.refusal(method, **params)
        assert (code, "Insufficient permissions" in message) == ("forbidden", True), method


async def test_somebody_elses_subscription_is_not_there(world):
    mia, vic = Caller(world, "mia-key"), Caller(world, "vic-key")
    sub_id = await mia.subscribe()
    await world.append(Op.INSERT)
    for method, params in [
        ("cdc.poll", {"from_offset": 0}),
        ("cdc.ack", {"offset": 1}),
        ("cdc.pause", {}),
        ("cdc.resume", {}),
        ("cdc.reset", {"to": "earliest"}),
        ("cdc.close", {}),
    ]:
        theirs = await vic.refusal(method, sub_id=sub_id, **params)
        absent = await vic.refusal(method, sub_id="sub_00000000000000ff", **params)
        assert theirs == (absent[0], absent[1].replace("sub_00000000000000ff", sub_id)) == ("not_found", theirs[1])
    async with vic.stream(sub_id) as stream:
        assert stream.status == 404
    assert (await world.client.get(f"/api/v1/cdc/sse?sub={sub_id}&access_token=vic-key")).status_code == 404
    with pytest.raises(websockets.exceptions.InvalidStatus) as refused:
        async with vic.socket(f"/{sub_id}"):
            pass
    assert refused.value.response.status_code == 404
    async with vic.socket() as socket:
        assert (await socket.ask(type="subscribe", sub_id=sub_id))["data"]["code"] == "not_found"
        assert (await socket.ask(type="ack", sub_id=sub_id, offset=1))["data"]["code"] == "not_found"
    assert (await vic.call("cdc.list"))["subscriptions"] == []
    assert (
        len((await mia.call("cdc.list"))["subscriptions"])
        == len((await Caller(world, "master").call("cdc.list"))["subscriptions"])
        == 1
    )


# ---- row security

ROWS = [
    (Op.INSERT, 1, None, "mine"),
    (Op.INSERT, 2, None, "yours"),
    (Op.INSERT, 3, None, "ours"),
    (Op.UPDATE, 1, "mine", "yours"),
    (Op.UPDATE, 2, "yours", "mine"),
    (Op.UPDATE, 3, "ours", "ours2"),
    (Op.DELETE, 3, "ours2", None),
]
SEEN_BY_MIA = [("insert", 1, None, "mine"), ("delete", 1, "mine", None), ("insert", 2, None, "mine")]
SEEN_BY_YAN = [("insert", 2, None, "yours"), ("insert", 1, None, "yours"), ("delete", 2, "yours", None)]


async def test_each_gets_its_own_rows_over_every_wire_whoever_came_first(world):
    callers = {token: Caller(world, token) for token in ("master", "mia-key", "yan-key", "max-key")}
    subs = {token: await caller.subscribe() for token, caller in callers.items()}
    await world.write(*ROWS)
    expected = {"mia-key": SEEN_BY_MIA, "max-key": SEEN_BY_MIA, "yan-key": SEEN_BY_YAN}
    expected["master"] = [(op.word, key, before, after) for op, key, before, after in ROWS]
    for order in (list(callers), list(callers)[::-1]):
        for token in order:
            caller, sub_id, count = callers[token], subs[token], len(expected[token])
            polled = await caller.call("cdc.poll", sub_id=sub_id, from_offset=0)
            assert [named({"data": event}) for event in polled["events"]] == expected[token]
            async with caller.stream(sub_id) as stream:
                assert [named(record) for record in await stream.records(count)] == expected[token]
            async with caller.socket(f"/{sub_id}") as socket:
                assert [named(record) for record in await socket.records(count)] == expected[token]


async def test_what_was_sent_to_one_is_never_sent_to_another(world):
    await world.write(*[(Op.INSERT, key, None, "mine" if key % 2 else "yours") for key in range(200)])
    subs = {token: await Caller(world, token).subscribe(**{"from": "earliest"}) for token in ("mia-key", "yan-key")}
    for token, parity in (("mia-key", 1), ("yan-key", 0), ("mia-key", 1)):
        polled = await Caller(world, token).call("cdc.poll", sub_id=subs[token], from_offset=0, limit=1000)
        assert [event["pk"][0] for event in polled["events"]] == list(range(parity, 200, 2))


async def test_a_stream_that_waits_sees_a_row_cross_the_border(world):
    mia = Caller(world, "mia-key")
    sub_id = await mia.subscribe(ops=["insert"])
    async with mia.stream(sub_id) as stream:
        await world.write((Op.INSERT, 1, None, "yours"))
        await world.write((Op.UPDATE, 1, "yours", "mine"))
        assert named(await stream.record()) == ("insert", 1, None, "mine")


# ---- the end of credentials


async def ended(world, token_ends_s=10):
    """Let the credentials of `hs256(exp=NOW_S + token_ends_s)` end."""
    world.clock.advance(token_ends_s)
    await world.access.keeper.look()


def short_lived(world, **claims):
    return Caller(world, hs256(exp=NOW_S + 10, namespaces=["app"], **claims))


async def test_a_stream_ends_with_a_last_record_when_its_credentials_do(world):
    caller, other = short_lived(world), Caller(world, "master")
    sub_id, kept = await caller.subscribe(), await other.subscribe()
    async with caller.stream(sub_id) as stream, other.stream(kept) as going_on:
        await world.append(Op.INSERT)
        await stream.record()
        await going_on.record()
        await ended(world)
        record = await stream.record()
        assert record["event"] == "error"
        assert json.loads(record["data"])["code"] == "unauthorized"
        assert json.loads(record["data"])["message"] == "Authentication token has expired."
        assert await stream.record() is None
        await world.append(Op.INSERT)
        assert json.loads((await going_on.record())["data"])["seq"] == 2


async def test_a_socket_ends_with_a_last_record_and_its_close_code(world):
    caller = short_lived(world)
    async with caller.socket(f"/{await caller.subscribe()}") as socket:
        await ended(world)
        assert (await socket.record())["data"]["code"] == "unauthorized"
        assert await socket.record() is None
        assert socket.closed == (3000, "unauthorized")


@pytest.mark.parametrize("streams", [0, 2])
async def test_a_socket_of_many_ends_whether_or_not_anything_streams_on_it(world, streams):
    caller = short_lived(world)
    async with caller.socket() as socket:
        for _ in range(streams):
            await socket.ask(type="subscribe", sub_id=await caller.subscribe())
        await ended(world)
        while (record := await socket.record()) is not None:
            assert record["event"] in {"error", "end"}
        assert socket.closed == (3000, "unauthorized")


async def test_a_poll_that_waits_ends_with_the_credentials(world):
    caller = short_lived(world)
    sub_id = await caller.subscribe()
    waiting = asyncio.create_task(caller.refusal("cdc.poll", sub_id=sub_id, from_offset=0, wait_ms=20_000))
    while not len(world.access.keeper):
        await asyncio.sleep(0.001)
    await ended(world)
    assert await waiting == ("unauthorized", "Authentication token has expired.")


async def test_a_stream_under_a_predicate_that_cannot_be_evaluated_is_forbidden(world):
    caller = Caller(world, hs256(namespaces=["app"], rows={"app.users": "gone = 1"}))
    sub_id = await caller.subscribe()
    async with caller.stream(sub_id) as stream:
        await world.append(Op.INSERT)
        record = await stream.record()
        assert (record["event"], json.loads(record["data"])["code"]) == ("error", "forbidden")
        assert "gone" not in record["data"]
    async with caller.socket(f"/{sub_id}") as socket:
        assert (await socket.record())["data"]["code"] == "forbidden"
        assert await socket.record() is None
        assert socket.closed == (3003, "forbidden")


async def test_a_principal_has_a_bounded_number_of_streams():
    auth = AuthConfig(enabled=True, tokens=("a",), streams_max=1)
    async with web(auth=auth, clock=FakeClock()) as world:
        caller = Caller(world, "a")
        sub_id = await caller.subscribe()
        async with caller.stream(sub_id) as first, caller.stream(sub_id) as second:
            assert (first.status, second.status) == (200, 429)


async def test_tokens_are_not_in_answers(world):
    async with httpx.AsyncClient(base_url=world.address.url, timeout=DEADLINE_S) as client:
        answer = await client.get("/api/v1/cdc/sse/sub_1", params={"access_token": "very-secret"})
        assert "very-secret" not in answer.text + str(answer.headers)


@pytest.mark.parametrize("envelope", WHOLE)
async def test_hidden_rows_do_not_disturb_an_envelope(world, envelope):
    mia = Caller(world, "mia-key")
    sub_id = await mia.subscribe()
    names = ("yours", "mine", "yours", "mine")
    await world.write(*[(Op.INSERT, key, None, name) for key, name in enumerate(names, 1)])
    polled = await mia.call("cdc.poll", sub_id=sub_id, from_offset=0, envelope=envelope)
    assert len(polled["events"]) == 2
    assert "yours" not in json.dumps(polled["events"])
    async with mia.stream(sub_id, f"?envelope={envelope}") as stream:
        records = [await stream.record() for _ in range(2)]
    assert [record["id"] for record in records] == ["2", "4"]
    streamed = [timeless(json.loads(record["data"])) for record in records]
    assert streamed == [timeless(event) for event in polled["events"]]
