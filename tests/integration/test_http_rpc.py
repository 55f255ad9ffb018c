"""Facts about the RPC interface, over a real socket."""

import asyncio
import json
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from feeding import schema_of
from tailrace import __version__
from tailrace.access.options import AuthConfig
from tailrace.model.op import Op
from web import DEADLINE_S, Connection, until, web

SUB = "sub_0000000000000001"
NOBODY = "sub_00000000000000ff"
SUBSCRIBE = "cdc.subscribe_table"
USERS = {"db": "app", "table": "users"}
DOCS = Path(__file__).parent.parent.parent / "docs" / "reference" / "http.md"


async def test_the_system_methods_answer():
    async with web() as world:
        ping = await world.call("system.ping")
        assert (list(ping), ping["pong"]) == (["pong", "time_unix_ms"], True)
        assert ping["time_unix_ms"] > 1_600_000_000_000
        assert await world.call("system.version") == {"name": "tailrace", "version": __version__, "skeinql": "1.0"}
        capabilities = await world.call("system.capabilities")
        assert {"cdc.subscribe_table", "cdc.poll", "cdc.ack", "cdc.close"} <= set(capabilities["methods"])


async def test_a_subscription_is_paused_and_resumed():
    async with web(service={"retention_changes": 4096}) as world:
        await world.call(SUBSCRIBE, **USERS)
        paused = await world.call("cdc.pause", sub_id=SUB)
        assert list(paused) == ["sub_id", "paused", "acked_offset", "backpressure"]
        pressure = {"state": "paused", "lag": 0, "remaining_until_resnapshot": 4096, "paused": True}
        assert paused == {"sub_id": SUB, "paused": True, "acked_offset": 0, "backpressure": pressure}
        assert await world.call("cdc.pause", sub_id=SUB) == paused
        await world.append(Op.INSERT, Op.INSERT)
        polled = await world.call("cdc.poll", sub_id=SUB, from_offset=1)
        assert (polled["events"], polled["next_offset"]) == ([], 1)
        assert polled["backpressure"] == pressure | {"lag": 2, "remaining_until_resnapshot": 4094}
        world.log.forget_before(2)
        polled = await world.call("cdc.poll", sub_id=SUB, from_offset=0)
        assert (polled["resnapshot_required"], polled["backpressure"]["state"]) == (True, "resnapshot_required")
        resumed = await world.call("cdc.resume", sub_id=SUB)
        assert (resumed["paused"], resumed["backpressure"]["paused"]) == (False, False)
        assert len((await world.call("cdc.poll", sub_id=SUB, from_offset=1))["events"]) == 1


async def test_a_pause_ends_a_waiting_poll():
    async with web() as world:
        await world.call(SUBSCRIBE, **USERS)
        poll = asyncio.create_task(world.call("cdc.poll", sub_id=SUB, from_offset=0, wait_ms=60_000))
        await until(lambda: world.service.feeds_open(), "the poll waits")
        await world.call("cdc.pause", sub_id=SUB)
        assert (await poll)["backpressure"]["state"] == "paused"


async def test_all_subscriptions_are_listed():
    async with web() as world:
        assert await world.call("cdc.list") == {"subscriptions": []}
        await world.call(SUBSCRIBE, **USERS, ops=["delete"], include={"after": True}, auto_ack=True)
        (entry,) = (await world.call("cdc.list"))["subscriptions"]
        assert (entry["sub_id"], entry["db"], entry["table"], entry["paused"]) == (SUB, "app", "users", False)
        assert entry["options"] == {"ops": ["delete"], "include": {"before": False, "after": True}, "auto_ack": True}


CDC_STATS = (
    "active_subscriptions table_subscriptions query_subscriptions total_lag max_lag resnapshot_subscriptions "
    "paused_subscriptions pressured_subscriptions throttle_recommended_subscriptions earliest_offset latest_offset "
    "retained_events retention_limit dropped_events_total warn_lag throttle_lag min_remaining_until_resnapshot"
)


async def test_the_statistics_have_all_members():
    async with web(service={"retention_changes": 4}) as world:
        await world.call(SUBSCRIBE, **USERS)
        await world.append(*[Op.INSERT] * 3)
        stats = await world.call("stats.snapshot")
        assert list(stats) == ["cdc", "alerts"]
        assert list(stats["cdc"]) == CDC_STATS.split()
        assert [alert["name"] for alert in stats["alerts"]] == ["cdc_backpressure_throttle"]


async def test_the_figures_and_lags_are_metrics_too():
    async with web(service={"retention_changes": 4}) as world:
        await world.call(SUBSCRIBE, **USERS)
        await world.append(*[Op.INSERT] * 3)
        await world.call("cdc.poll", sub_id=SUB, from_offset=0)
        await until(lambda: world.service.lags["app"].capture_s != 0.0, "the newest change is measured")
        value = world.metrics.registry.get_sample_value
        assert value("tailrace_subscription_states", {"state": "throttle"}) == 1
        assert value("tailrace_subscription_states", {"state": "paused"}) == 0
        assert value("tailrace_subscription_lag_changes_sum") == 3
        assert value("tailrace_subscription_remaining_changes_min") == 1
        lags = world.service.lags["app"]
        for name in ("capture", "delivery", "end_to_end"):
            assert value(f"tailrace_{name}_lag_seconds", {"source": "app"}) == getattr(lags, f"{name}_s")


async def test_subscriptions_are_exported_and_imported_all_or_none():
    async with web() as world:
        await world.call(SUBSCRIBE, **USERS, columns=["name"])
        document = await world.call("cdc.export")
        await world.call("cdc.close", sub_id=SUB)
        (entry,) = document["subs"]
        bad = entry | {"id": "sub_7", "options": {"columns": ["nobody"]}}
        assert (await world.refusal("cdc.import", **document | {"subs": [entry, bad]}))[0] == "invalid_request"
        assert (await world.call("cdc.list"))["subscriptions"] == []
        assert await world.call("cdc.import", **document) == {"imported": 1}
        assert await world.call("cdc.import", **document) == {"imported": 1}
        assert await world.call("cdc.export") == document


async def test_each_method_has_its_heading_in_the_docs():
    async with web() as world:
        for method in (await world.call("system.capabilities"))["methods"]:
            assert re.search(rf"^### {re.escape(method)}$", DOCS.read_text(), re.MULTILINE), method


async def test_a_subscription_is_made_polled_acknowledged_and_closed():
    async with web(service={"retention_changes": 4096}) as world:
        await world.append(Op.INSERT)
        made = await world.call("cdc.subscribe_table", db="app", table="users", format="plain_json")
        urls = {"sse_url": f"/api/v1/cdc/sse/{SUB}", "ws_url": f"/api/v1/cdc/ws/{SUB}"}
        assert made == {"sub_id": SUB, "offset": 1, **urls}
        assert list(made) == ["sub_id", "offset", "sse_url", "ws_url"]
        await world.append(Op.INSERT, Op.UPDATE)
        polled = await world.call("cdc.poll", sub_id=SUB, from_offset=1)
        assert list(polled) == [
            "events",
            "next_offset",
            "earliest_offset",
            "latest_offset",
            "resnapshot_required",
            "backpressure",
        ]
        assert [(event["seq"], event["op"], event["pk"]) for event in polled["events"]] == [
            (2, "insert", [0]),
            (3, "update", [1]),
        ]
        assert (polled["next_offset"], polled["earliest_offset"], polled["latest_offset"]) == (3, 1, 3)
        assert polled["resnapshot_required"] is False
        backpressure = {"state": "healthy", "lag": 2, "remaining_until_resnapshot": 4094, "paused": False}
        assert polled["backpressure"] == backpressure
        assert list(polled["backpressure"]) == list(backpressure)
        assert await world.call("cdc.ack", sub_id=SUB, offset=3) == {"sub_id": SUB, "acked_offset": 3}
        assert await world.call("cdc.ack", sub_id=SUB, offset=2) == {"sub_id": SUB, "acked_offset": 3}
        assert (await world.call("cdc.poll", sub_id=SUB, from_offset=0))["events"] == []
        assert await world.call("cdc.close", sub_id=SUB) == {"sub_id": SUB, "closed": True}
        for method, params in (("cdc.poll", {"from_offset": 0}), ("cdc.ack", {"offset": 0}), ("cdc.close", {})):
            assert await world.refusal(method, sub_id=SUB, **params) == ("not_found", f"subscription {SUB} not found")


async def test_ops_and_images_are_as_asked_for():
    async with web() as world:
        await world.call(
            "cdc.subscribe_table",
            db="app",
            table="users",
            ops=[" UPDATE ", "delete", "update"],
            include={"before": True, "after": True},
            format="plain_json",
        )
        await world.append(Op.INSERT, Op.UPDATE, Op.DELETE, Op.SCHEMA)
        events = (await world.call("cdc.poll", sub_id=SUB, from_offset=0))["events"]
        assert [event["op"] for event in events] == ["update", "delete"]
        assert events[0]["before"] == events[0]["after"] == {"id": 1, "name": "n1"}
        assert "after" not in events[1]


async def test_schema_changes_are_not_delivered_to_table_subscriptions():
    async with web() as world:
        await world.call("cdc.subscribe_table", db="app", table="users")
        await world.append(Op.SCHEMA, Op.INSERT)
        polled = await world.call("cdc.poll", sub_id=SUB, from_offset=0)
        assert [event["seq"] for event in polled["events"]] == [2]


async def test_values_are_typed_literals_unless_asked_otherwise():
    async with web() as world:
        await world.call("cdc.subscribe_table", db="app", table="users", include={"after": True})
        await world.append(Op.INSERT)
        (event,) = (await world.call("cdc.poll", sub_id=SUB, from_offset=0))["events"]
        assert event["pk"] == [{"t": "i64", "v": 0}]
        assert event["after"] == {"id": {"t": "i64", "v": 0}, "name": {"t": "str", "v": "n0"}}


async def test_next_offset_moves_past_foreign_changes_but_never_past_a_match():
    async with web() as world:
        other = await world.log.put_schema(schema_of("orders"))
        await world.call("cdc.subscribe_table", db="app", table="users")
        await world.append(*[Op.INSERT] * 10, schema=other)
        assert (await world.call("cdc.poll", sub_id=SUB, from_offset=0))["next_offset"] == 10
        await world.append(Op.INSERT, Op.INSERT)
        await world.append(*[Op.INSERT] * 3, schema=other)
        first = await world.call("cdc.poll", sub_id=SUB, from_offset=0, limit=1)
        assert ([event["seq"] for event in first["events"]], first["next_offset"]) == ([11], 11)
        second = await world.call("cdc.poll", sub_id=SUB, from_offset=11)
        assert ([event["seq"] for event in second["events"]], second["next_offset"]) == ([12], 15)


async def test_a_narrow_poll_over_a_long_log_finds_the_match_at_its_end():
    async with web() as world:
        await world.call("cdc.subscribe_table", db="app", table="users", ops=["delete"])
        for _ in range(8):
            await world.append(*[Op.INSERT] * 20_000)
        await world.append(Op.DELETE)
        polled = await world.call("cdc.poll", sub_id=SUB, from_offset=0)
        assert [event["seq"] for event in polled["events"]] == [160_001]


async def test_a_poll_answer_is_bounded_in_bytes():
    async with web(poll_bytes_max=1000) as world:
        await world.call("cdc.subscribe_table", db="app", table="users")
        await world.append(*[Op.INSERT] * 100)
        polled = await world.call("cdc.poll", sub_id=SUB, from_offset=0, limit=10_000)
        assert 0 < len(polled["events"]) < 20
        assert polled["next_offset"] == polled["events"][-1]["seq"]


async def test_a_waiting_poll_answers_as_soon_as_there_is_a_match():
    async with web() as world:
        await world.call("cdc.subscribe_table", db="app", table="users", ops=["delete"])
        polling = asyncio.create_task(world.call("cdc.poll", sub_id=SUB, from_offset=0, wait_ms=60_000))
        await until(lambda: world.service.feeds_open(), "the poll waits")
        await world.append(Op.INSERT)
        await world.append(Op.DELETE)
        async with asyncio.timeout(DEADLINE_S):
            assert [event["seq"] for event in (await polling)["events"]] == [2]


async def test_a_waiting_poll_without_a_match_says_how_far_it_looked():
    async with web() as world:
        await world.call("cdc.subscribe_table", db="app", table="users", ops=["delete"])
        polling = asyncio.create_task(world.call("cdc.poll", sub_id=SUB, from_offset=0, wait_ms=1500))
        await until(lambda: world.service.feeds_open(), "the poll waits")
        await world.append(Op.INSERT)
        polled = await polling
        assert (polled["events"], polled["next_offset"]) == ([], 1)


async def test_closing_the_subscription_ends_a_waiting_poll():
    async with web() as world:
        await world.call("cdc.subscribe_table", db="app", table="users")
        polling = asyncio.create_task(world.refusal("cdc.poll", sub_id=SUB, from_offset=0, wait_ms=60_000))
        await until(lambda: world.service.feeds_open(), "the poll waits")
        await world.call("cdc.close", sub_id=SUB)
        async with asyncio.timeout(DEADLINE_S):
            assert (await polling)[0] == "not_found"


async def test_a_place_behind_the_horizon_requires_a_new_snapshot():
    async with web() as world:
        await world.call("cdc.subscribe_table", db="app", table="users")
        await world.append(*[Op.INSERT] * 9)
        world.log.forget_before(5)
        polled = await world.call("cdc.poll", sub_id=SUB, from_offset=0)
        assert list(polled) == [
            "events",
            "next_offset",
            "earliest_offset",
            "latest_offset",
            "resnapshot_required",
            "resnapshot_from_offset",
            "resnapshot_reason",
            "backpressure",
        ]
        assert polled["events"] == []
        assert (polled["next_offset"], polled["earliest_offset"], polled["latest_offset"]) == (4, 5, 9)
        assert polled["resnapshot_required"] is True
        assert (polled["resnapshot_from_offset"], polled["resnapshot_reason"]) == (4, "wal_horizon_exceeded")
        assert polled["backpressure"]["state"] == "resnapshot_required"
        resumed = await world.call("cdc.poll", sub_id=SUB, from_offset=4)
        assert [event["seq"] for event in resumed["events"]] == [5, 6, 7, 8, 9]


REFUSED = [
    ("unknown method", "cdc.nothing", {}, "not_supported", "cdc.nothing"),
    ("unknown table", "cdc.subscribe_table", {"db": "app", "table": "x"}, "not_found", "x"),
    ("unknown db", "cdc.subscribe_table", {"db": "y", "table": "users"}, "not_found", "'y' not found; there is app"),
    ("missing table", "cdc.subscribe_table", {"db": "app"}, "invalid_request", "table"),
    ("ill-typed table", "cdc.subscribe_table", {"db": "app", "table": 5}, "invalid_request", "table"),
    ("unsupported op", SUBSCRIBE, {**USERS, "ops": ["merge"]}, "invalid_request", "merge"),
    ("empty op", SUBSCRIBE, {**USERS, "ops": [" "]}, "invalid_request", "ops"),
    ("schema is no op here", SUBSCRIBE, {**USERS, "ops": ["schema"]}, "invalid_request", "schema"),
    ("unknown format", SUBSCRIBE, {**USERS, "format": "xml"}, "invalid_request", "format"),
    ("include is no object", SUBSCRIBE, {**USERS, "include": []}, "invalid_request", "include"),
    ("include of a number", SUBSCRIBE, {**USERS, "include": {"before": 1}}, "invalid_request", "before"),
    ("include of else", SUBSCRIBE, {**USERS, "include": {"both": True}}, "invalid_request", "both"),
    ("unknown param", SUBSCRIBE, {**USERS, "filter": 1}, "invalid_request", "filter"),
    ("unknown subscription", "cdc.poll", {"sub_id": NOBODY, "from_offset": 0}, "not_found", NOBODY),
    ("no name of a subscription", "cdc.poll", {"sub_id": "junk", "from_offset": 0}, "not_found", "junk"),
    ("no place", "cdc.poll", {"sub_id": SUB}, "invalid_request", "from_offset"),
    ("negative place", "cdc.poll", {"sub_id": SUB, "from_offset": -1}, "invalid_request", "from_offset"),
    ("place as text", "cdc.poll", {"sub_id": SUB, "from_offset": "0"}, "invalid_request", "from_offset"),
    ("place as a fraction", "cdc.poll", {"sub_id": SUB, "from_offset": 0.5}, "invalid_request", "from_offset"),
    ("huge place", "cdc.poll", {"sub_id": SUB, "from_offset": 2**64}, "invalid_request", "from_offset"),
    ("place beyond the head", "cdc.poll", {"sub_id": SUB, "from_offset": 2}, "invalid_request", "beyond"),
    ("limit of nothing", "cdc.poll", {"sub_id": SUB, "from_offset": 0, "limit": 0}, "invalid_request", "limit"),
    ("limit too large", "cdc.poll", {"sub_id": SUB, "from_offset": 0, "limit": 10_001}, "invalid_request", "limit"),
    ("wait too long", "cdc.poll", {"sub_id": SUB, "from_offset": 0, "wait_ms": 60_001}, "invalid_request", "wait_ms"),
    ("acknowledging the future", "cdc.ack", {"sub_id": SUB, "offset": 2}, "invalid_request", "beyond"),
    ("acknowledging nobody's", "cdc.ack", {"sub_id": NOBODY, "offset": 0}, "not_found", "ff"),
    ("closing nobody's", "cdc.close", {"sub_id": NOBODY}, "not_found", "ff"),
    ("params where there are none", "system.ping", {"x": 1}, "invalid_request", "x"),
]  # fmt: skip


async def test_a_wrong_call_gets_its_code_and_the_name_of_the_fault():
    async with web() as world:
        await world.call("cdc.subscribe_table", db="app", table="users")
        await world.append(Op.INSERT)
        for case, method, params, code, named in REFUSED:
            found, message = await world.refusal(method, **params)
            assert (case, found) == (case, code)
            assert named in message, case


@pytest.mark.parametrize("db", [{}, {"db": "default"}, {"db": ""}, {"db": "app"}])
async def test_one_source_is_the_default_whatever_its_name(db):
    async with web() as world:
        await world.call("cdc.subscribe_table", table="users", **db)
        (listed,) = (await world.call("cdc.list"))["subscriptions"]
        assert listed["db"] == "app"


async def test_the_error_tells_the_numbers_of_a_place_beyond_the_head():
    async with web() as world:
        await world.call("cdc.subscribe_table", db="app", table="users")
        envelope = await world.answer("cdc.poll", sub_id=SUB, from_offset=99)
        assert envelope["error"]["details"] == {"requested": 99, "head": 0}


async def test_a_wrong_version_is_refused_in_an_envelope():
    async with web() as world:
        answer = await world.post('{"skeinql":"2.0","id":"a","method":"system.ping","params":{}}')
        assert answer.status_code == 200
        assert answer.json()["id"] == "a"
        assert answer.json()["error"]["code"] == "unsupported_version"


async def test_a_notification_is_done_and_answered_by_nothing():
    async with web() as world:
        await world.call("cdc.subscribe_table", db="app", table="users")
        for body in (
            f'{{"skeinql":"1.0","method":"cdc.close","params":{{"sub_id":"{SUB}"}}}}',
            '{"skeinql":"1.0","method":"no.such.method"}',
            '{"skeinql":"9","method":"system.ping"}',
        ):
            answer = await world.post(body)
            assert (answer.status_code, answer.content) == (204, b"")
        assert (await world.refusal("cdc.close", sub_id=SUB))[0] == "not_found"


BAD_REQUESTS = [
    ("not JSON", "{nope", {}, 400),
    ("nothing", "", {}, 400),
    ("JSON of depth", "[" * 50_000, {}, (400, 422)),
    ("a list", "[]", {}, 422),
    ("no method", '{"skeinql":"1.0"}', {}, 422),
    ("no version", '{"method":"system.ping"}', {}, 422),
    ("a number as version", '{"skeinql":1.0,"method":"system.ping"}', {}, 422),
    ("another content type", "{}", {"content_type": "text/plain"}, 415),
    ("a form", "a=b", {"content_type": "application/x-www-form-urlencoded"}, 415),
    ("too large", "x" * 100_001, {}, 413),
    ("no UTF-8", b'{"skeinql":"1.0","method":"\xff"}', {}, (400, 422)),
]


async def test_a_body_that_is_no_call_gets_an_error_envelope():
    async with web(body_bytes_max=100_000) as world:
        for case, body, headers, status in BAD_REQUESTS:
            answer = await world.post(body, **headers)
            assert answer.status_code in (status if isinstance(status, tuple) else (status,)), case
            envelope = answer.json()
            assert (envelope["id"], envelope["ok"]) == (None, False)
            assert envelope["error"]["code"] == "invalid_request"
            assert envelope["error"]["message"]


async def test_a_body_that_never_ends_is_given_up():
    async with web(body_timeout_s=0.2) as world:
        connection = await Connection.open(world.address)
        await connection.request("POST /api/v1/rpc HTTP/1.1", "Content-Type: application/json", "Content-Length: 50")
        status, _ = await connection.head()
        assert status == 408
        await connection.close()


async def test_a_client_that_leaves_in_the_middle_of_its_body_harms_nobody():
    async with web() as world:
        connection = await Connection.open(world.address)
        await connection.request("POST /api/v1/rpc HTTP/1.1", "Content-Type: application/json", "Content-Length: 50")
        connection.writer.write(b'{"skeinql"')
        await connection.close()
        assert (await world.call("system.ping"))["pong"]


async def test_an_oversized_body_is_refused_before_it_has_all_come():
    async with web(body_bytes_max=1000) as world:
        connection = await Connection.open(world.address)
        await connection.request(
            "POST /api/v1/rpc HTTP/1.1", "Content-Type: application/json", "Content-Length: 1000000000"
        )
        connection.writer.write(b"x" * 5000)
        status, headers = await connection.head()
        assert (status, headers["connection"]) == (413, "close")
        await connection.close()


ABSENT = [
    ("GET", "/nowhere", 404),
    ("GET", "/api/v1/rpc", 405),
    ("POST", "/health", 405),
    ("DELETE", "/api/v1/rpc", 405),
    ("POST", f"/api/v1/cdc/sse/{SUB}", 405),
]


async def test_paths_and_verbs_that_are_not_there_are_told_in_json():
    async with web() as world:
        for verb, path, status in ABSENT:
            answer = await world.client.request(verb, path)
            assert answer.status_code == status
            assert answer.json()["ok"] is False
            assert (status == 405) == ("allow" in answer.headers)


async def test_with_tokens_all_but_the_probes_want_one():
    async with web(auth=AuthConfig(enabled=True, tokens=("secret",))) as world:
        body = '{"skeinql":"1.0","id":1,"method":"system.ping"}'
        for answer in (
            await world.post(body),
            await world.post(body, authorization="Bearer wrong"),
            await world.client.get(f"/api/v1/cdc/sse/{SUB}"),
            await world.client.get("/metrics"),
        ):
            assert answer.status_code == 401
            assert answer.json() == {
                "id": None,
                "ok": False,
                "error": {"code": "unauthorized", "message": "Missing/invalid bearer token"},
            }
        assert (await world.post(body, authorization="Bearer secret")).json()["ok"]
        assert (await world.client.get("/metrics", params={"access_token": "secret"})).status_code == 200
        assert (await world.client.get(f"/api/v1/cdc/sse/{SUB}?access_token=secret")).status_code == 404
        assert (await world.client.get("/health")).status_code == 200
        assert (await world.client.get("/ready")).status_code == 200


async def test_it_is_ready_when_it_waits_for_nothing():
    async with web() as world:
        assert (await world.client.get("/ready")).json() == {"ready": True, "waiting_for": []}
        world.waiting_for.append("source app to open")
        answer = await world.client.get("/ready")
        assert answer.status_code == 503
        assert answer.json() == {"ready": False, "waiting_for": ["source app to open"]}
        assert (await world.client.get("/health")).json() == {"status": "ok", "version": __version__}


async def test_calls_are_counted():
    async with web() as world:
        await world.call("cdc.subscribe_table", db="app", table="users")
        await world.append(Op.INSERT)
        await world.call("cdc.poll", sub_id=SUB, from_offset=0)
        await world.refusal("cdc.close", sub_id="junk")
        await world.refusal("a.method.of.nobody")
        text = (await world.client.get("/metrics")).text
        for line in (
            'tailrace_rpc_calls_total{code="ok",method="cdc.poll"} 1.0',
            'tailrace_rpc_calls_total{code="not_found",method="cdc.close"} 1.0',
            'tailrace_rpc_calls_total{code="not_supported",method="unknown"} 1.0',
            'tailrace_rpc_seconds_count{method="cdc.poll"} 1.0',
            'tailrace_delivered_changes_total{wire="array"} 1.0',
            'tailrace_log_head_offset{source="app"} 1.0',
            'tailrace_log_horizon_offset{source="app"} 1.0',
            "tailrace_subscriptions 1.0",
            "tailrace_subscription_lag_changes_max 1.0",
        ):
            assert line in text


@settings(deadline=None, max_examples=15)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("append"), st.lists(st.sampled_from(list(Op)), min_size=1, max_size=9)),
            st.tuples(st.just("poll"), st.integers(1, 6)),
            st.tuples(st.just("ack"), st.integers(0, 100)),
        ),
        max_size=25,
    )
)
async def test_any_order_of_polls_and_acknowledgements_agrees_with_a_list(steps):
    """Nothing is lost, nothing comes again once acknowledged, and all comes in order."""
    async with web() as world:
        await world.call("cdc.subscribe_table", db="app", table="users", ops=["insert", "delete"])
        model, seen, acked = [], 0, 0
        wanted = (Op.INSERT, Op.DELETE, Op.TRUNCATE)  # whoever wants deletions gets truncations
        for action, argument in steps:
            if action == "append":
                await world.append(*argument)
                model += argument
            elif action == "ack":
                acked = max(acked, min(argument, len(model)))
                answer = await world.call("cdc.ack", sub_id=SUB, offset=min(argument, len(model)))
                assert answer["acked_offset"] == acked
            else:
                polled = await world.call("cdc.poll", sub_id=SUB, from_offset=seen, limit=argument)
                found = [event["seq"] for event in polled["events"]]
                after = max(seen, acked)
                left = [o for o, op in enumerate(model, start=1) if o > after and op in wanted]
                assert found == left[:argument]
                assert not [offset for offset in left[argument:] if offset <= polled["next_offset"]]
                assert polled["next_offset"] >= after
                seen = polled["next_offset"]


async def test_subscriptions_survive_a_restart_of_the_server(tmp_path):
    url = f"sqlite:///{tmp_path}/meta.db"
    async with web(url=url) as world:
        await world.call("cdc.subscribe_table", db="app", table="users", format="plain_json", ops=["insert"])
        await world.append(Op.INSERT, Op.UPDATE, Op.INSERT)
        await world.call("cdc.ack", sub_id=SUB, offset=1)
        log = world.log
    async with web(url=url, log=log) as world:
        polled = await world.call("cdc.poll", sub_id=SUB, from_offset=0)
        assert [(event["seq"], event["pk"]) for event in polled["events"]] == [(3, [2])]
        body = json.dumps({"skeinql": "1.0", "id": 1, "method": "cdc.close", "params": {"sub_id": SUB}})
        assert (await world.post(body)).json()["ok"]
