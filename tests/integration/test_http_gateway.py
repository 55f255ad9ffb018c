"""SochDB's WebSocket gateway on a real socket, with the `websockets` client."""

import asyncio
import base64
import json
from contextlib import asynccontextmanager

import apsw
import pytest
import websockets.asyncio.client
from websockets.frames import Frame, Opcode

from feeding import feeding, schema_of
from signing import NOW_S, SECRET, hs256
from tailrace.access.key_value import KeyValues
from tailrace.access.options import AuthConfig, PrincipalConfig
from tailrace.access.statement import Statements
from tailrace.delivery.http import HttpOptions, serve
from tailrace.interface.assemble import create_app
from tailrace.interface.sochdb.gateway import GatewayStores
from tailrace.metrics import Metrics
from tailrace.model.op import Op
from tailrace.source.base import Reader
from tailrace.source.sqlite.query import SqliteQuerySource
from tailrace.source.sqlite.statement import SqliteStatementRunner
from tailrace.subscription.access import Scopes
from tailrace.testing.clock import FakeClock
from tailrace.testing.key_value import MemoryKeyValueStore
from web import WebSocket, access_of, until

DEADLINE_S = 20
READER = Reader("log")
AUTH = AuthConfig(
    enabled=True,
    tokens=("master",),
    principals={
        "mia": PrincipalConfig(tokens=("mia-key",), rows={"app.users": "name = 'mine'"}),
        "eve": PrincipalConfig(tokens=("eve-key",), tenant="acme", role="editor", namespaces=("acme",)),
        "vic": PrincipalConfig(tokens=("vic-key",), role="viewer"),
    },
    jwt_secret=SECRET.decode(),
)
MEMBERS = "sequence timestamp_us txn_id table operation key before_value after_value ddl".split()  # noqa: SIM905


class Gateway:
    def __init__(self, world, address, clock, access):
        self.world = world
        self.address = address
        self.clock = clock
        self.access = access

    @asynccontextmanager
    async def socket(self, path="/", token=None, **options):
        if token is not None:
            options["additional_headers"] = {"Authorization": f"Bearer {token}"}
        url = f"ws://{self.address.host}:{self.address.port}{path}"
        options = {"proxy": None, "max_size": 1 << 24, "open_timeout": DEADLINE_S, "close_timeout": 5, **options}
        async with websockets.asyncio.client.connect(url, **options) as connection:
            yield Client(connection)


class Client(WebSocket):
    async def request(self, type_, payload=None, id_="r"):
        """Send a request; return type and payload of the next message, which must be its answer."""
        await self.connection.send(json.dumps({"id": id_, "type": type_, "payload": payload}))
        answer = await self.record()
        assert list(answer) == ["id", "type", "payload"]
        assert answer["id"] == id_
        return answer["type"], answer["payload"]

    async def sequences(self, count):
        """Return ids and sequence numbers of the next events."""
        events = await self.records(count)
        assert {event["type"] for event in events} == {"event"}
        return [(event["id"], event["payload"]["sequence"]) for event in events]


@asynccontextmanager
async def gateway(tmp_path, *, writable=True, auth=None, **options):
    clock = FakeClock(now_us=NOW_S * 1_000_000)
    path = tmp_path / "app.db"
    apsw.Connection(str(path)).execute("PRAGMA journal_mode = wal")
    runner = SqliteStatementRunner(path, None)
    reader = SqliteQuerySource(path, READER)
    stores = GatewayStores(
        KeyValues({"app": MemoryKeyValueStore(clock)}),
        Statements({"app": reader}, {"app": runner} if writable else {}),
    )
    async with feeding(**options) as world, access_of(auth or AuthConfig(), clock) as access:
        scopes = Scopes(world.service, access.keeper)
        app = create_app(scopes, list, Metrics(), clock, HttpOptions(), stores, access.gate)
        async with serve(app, "127.0.0.1", 0, on_stop=world.service.stop, stop_timeout_s=1) as address:
            yield Gateway(world, address, clock, access)
        await runner.close()
        await reader.close()


async def test_any_path_that_is_not_ours_is_the_gateway(tmp_path):
    async with gateway(tmp_path) as served:
        for path in ("/", "/anything", "/a/b?c=d", "/ws", "/health"):
            async with served.socket(path) as client:
                assert await client.request("ping") == ("pong", {"ts": served.clock.now_us() // 1000})


async def test_paths_of_the_other_interfaces_stay_theirs(tmp_path):
    async with gateway(tmp_path) as served:
        for path in ("/api/v1/nothing", "/api/v1/cdc/ws/sub_1/more"):
            with pytest.raises(websockets.exceptions.InvalidStatus) as refused:
                async with served.socket(path):
                    pass
            assert refused.value.response.status_code == 404


async def test_keys_and_values_are_put_got_and_deleted(tmp_path):
    async with gateway(tmp_path) as served, served.socket() as client:
        assert await client.request("kv_get", {"key": "k"}) == ("result", {"found": False})
        assert await client.request("kv_put", {"key": "k", "value": "wert ü"}) == ("result", {"ok": True})
        assert await client.request("kv_get", {"key": "k", "namespace": "default"}) == (
            "result",
            {"found": True, "value": "wert ü"},
        )
        assert await client.request("kv_delete", {"key": "k"}) == ("result", {"deleted": True})
        assert await client.request("kv_delete", {"key": "k", "namespace": "app"}) == ("result", {"deleted": False})


async def test_a_value_lives_as_long_as_its_ttl(tmp_path):
    async with gateway(tmp_path) as served, served.socket() as client:
        await client.request("kv_put", {"key": "k", "value": "v", "ttl_seconds": 2})
        served.clock.advance(1)
        assert (await client.request("kv_get", {"key": "k"}))[1]["found"]
        served.clock.advance(1)
        assert not (await client.request("kv_get", {"key": "k"}))[1]["found"]


async def test_bytes_that_are_no_text_travel_as_base64(tmp_path):
    data = base64.b64encode(b"\xff\x00").decode()
    async with gateway(tmp_path) as served, served.socket() as client:
        await client.request("kv_put", {"key": data, "value": data, "encoding": "base64"})
        answer = await client.request("kv_get", {"key": data, "encoding": "base64"})
        assert answer == ("result", {"found": True, "value": data})
        await client.request("kv_put", {"key": "aw==", "value": data, "encoding": "base64"})
        kind, payload = await client.request("kv_get", {"key": "k"})
        assert kind == "error"
        assert "base64" in payload["message"]


async def test_sql_answers_columns_and_rows(tmp_path):
    async with gateway(tmp_path) as served, served.socket() as client:
        await client.request("sql", {"query": "CREATE TABLE t(id INTEGER PRIMARY KEY, a)"})
        insert = {"query": "INSERT INTO t(a) VALUES(?), (?), (?), (?), (?)"}
        values = [None, 9007199254740993, 1.5, "x", {"t": "bytes", "b64": "/w=="}]
        assert await client.request("sql", {**insert, "params": values}) == (
            "result",
            {"columns": [], "rows": [], "changes": 5},
        )
        assert await client.request("sql", {"query": "SELECT a FROM t ORDER BY id"}) == (
            "result",
            {"columns": ["a"], "rows": [[value] for value in values], "changes": 0},
        )
        assert await client.request("sql", {"query": "SELECT a AS b FROM t WHERE id > ?", "params": [99]}) == (
            "result",
            {"columns": ["b"], "rows": [], "changes": 0},
        )


async def test_a_source_that_may_only_be_read_refuses_to_be_written(tmp_path):
    async with gateway(tmp_path) as served, served.socket() as client:
        await client.request("sql", {"query": "CREATE TABLE t(id INTEGER PRIMARY KEY)"})
    async with gateway(tmp_path, writable=False) as served, served.socket() as client:
        assert (await client.request("sql", {"query": "SELECT * FROM t"}))[0] == "result"
        for query in ("INSERT INTO t VALUES(1)", "DROP TABLE t", "SELECT * FROM t; DELETE FROM t"):
            assert (await client.request("sql", {"query": query}))[0] == "error"
        assert (await client.request("sql", {"query": "SELECT count(*) FROM t"}))[1]["rows"] == [[0]]


async def test_events_follow_the_answer_with_the_id_of_the_request(tmp_path):
    async with gateway(tmp_path) as served, served.socket() as client:
        assert await client.request("subscribe", {"tables": ["users"]}, "s1") == ("result", {"subscribed": True})
        await served.world.write((Op.INSERT, 7, None, "a"), (Op.UPDATE, 7, "a", "b"), (Op.DELETE, 7, "b", None))
        events = await client.records(3)
        assert [list(event) for event in events] == [["id", "type", "payload"]] * 3
        assert [(event["id"], event["type"]) for event in events] == [("s1", "event")] * 3
        payloads = [event["payload"] for event in events]
        assert [list(payload) for payload in payloads] == [MEMBERS] * 3
        assert [payload["operation"] for payload in payloads] == ["Insert", "Update", "Delete"]
        assert {(payload["table"], payload["txn_id"], payload["ddl"]) for payload in payloads} == {("users", 1, None)}
        assert base64.b64decode(payloads[0]["key"]) == b"[7]"
        values = [(payload["before_value"], payload["after_value"]) for payload in payloads]
        decoded = [
            tuple(None if text is None else json.loads(base64.b64decode(text)) for text in pair) for pair in values
        ]
        a, b = {"id": 7, "name": "a"}, {"id": 7, "name": "b"}
        assert decoded == [(None, a), (a, b), (b, None)]


async def test_a_schema_change_carries_its_text(tmp_path):
    async with gateway(tmp_path) as served, served.socket() as client:
        await client.request("subscribe", {"operations": ["schemachange"]})
        draft = served.world.draft(served.world.schema_id, [])
        draft.add(Op.SCHEMA, served.world.schema_id, b"[]", after=b'{"ddl":"CREATE TABLE users(id)"}')
        await served.world.append(Op.INSERT)
        await served.world.log.append([draft])
        payload = (await client.record())["payload"]
        assert payload["operation"] == "SchemaChange"
        assert payload["ddl"] == "CREATE TABLE users(id)"
        assert (payload["key"], payload["before_value"], payload["after_value"]) == (None, None, None)


async def test_a_subscribe_begins_with_the_sequence_it_names_and_follows(tmp_path):
    async with gateway(tmp_path) as served, served.socket() as client:
        await served.world.append(*[Op.INSERT] * 5)
        await client.request("subscribe", {"start_sequence": 3}, "s")
        assert await client.sequences(3) == [("s", 3), ("s", 4), ("s", 5)]
        await served.world.append(Op.INSERT)
        assert await client.sequences(1) == [("s", 6)]
        await until(lambda: served.world.service.subscriptions()[0].cursor == 6, "the cursor follows")


async def test_filters_pick_tables_operations_and_rows(tmp_path):
    async with gateway(tmp_path) as served, served.socket() as client:
        other = await served.world.log.put_schema(schema_of("orders"))
        await client.request("subscribe", {"tables": ["orders"], "operations": ["INSERT", "delete"]}, "t")
        await client.request("subscribe", {"where": "id = 1", "tables": ["users"]}, "w")
        await client.request("subscribe", {"tables": ["to come"]}, "n")
        await served.world.write((Op.INSERT, 1, None, "a"), (Op.INSERT, 2, None, "b"))
        assert await client.sequences(1) == [("w", 1)]
        await served.world.write((Op.UPDATE, 1, "a", "b"), (Op.DELETE, 1, "b", None), schema=other)
        assert await client.sequences(1) == [("t", 4)]
        late = await served.world.log.put_schema(schema_of("to come"))
        await served.world.write((Op.INSERT, 9, None, "b"), schema=late)
        assert await client.sequences(1) == [("n", 5)]


async def test_unsubscribe_ends_one_of_several(tmp_path):
    async with gateway(tmp_path) as served, served.socket() as client:
        await client.request("subscribe", {}, "one")
        await client.request("subscribe", None, "two")
        assert len(served.world.service.subscriptions()) == 2
        assert await client.request("unsubscribe", {"id": "one"}) == ("result", {"unsubscribed": True})
        assert await client.request("unsubscribe", {"id": "one"}) == ("result", {"unsubscribed": False})
        assert len(served.world.service.subscriptions()) == 1
        await served.world.append(Op.INSERT)
        assert await client.sequences(1) == [("two", 1)]
        assert await client.request("subscribe", {"start_sequence": 1}, "one") == ("result", {"subscribed": True})
        assert await client.sequences(1) == [("one", 1)]


async def test_a_client_that_leaves_takes_its_subscriptions_along(tmp_path):
    async with gateway(tmp_path) as served:
        async with served.socket() as client:
            await client.request("subscribe", {}, "one")
            await client.request("subscribe", {}, "two")
        await until(lambda: not served.world.service.subscriptions(), "subscriptions stay")
        assert served.world.service.feeds_open() == 0


async def test_a_place_behind_the_horizon_is_an_overrun_and_the_connection_stays(tmp_path):
    async with gateway(tmp_path) as served, served.socket() as client:
        await served.world.append(*[Op.INSERT] * 9)
        served.world.log.forget_before(6)
        await client.request("subscribe", {"start_sequence": 2}, "s")
        overrun = await client.record()
        message = "CDC overrun: requested seq 2 but oldest available is 6"
        assert overrun == {"id": "s", "type": "error", "payload": {"message": message}}
        assert (await client.request("subscribe", {"start_sequence": 6}, "s"))[0] == "result"
        assert (await client.sequences(4))[0] == ("s", 6)


async def test_without_capture_a_subscribe_is_refused_in_seed_a_s_words(tmp_path):
    async with gateway(tmp_path, capture_enabled=False) as served, served.socket() as client:
        assert await client.request("subscribe", {}) == ("error", {"message": "CDC not enabled"})
        assert (await client.request("kv_put", {"key": "k", "value": "v"}))[0] == "result"


async def test_a_subscription_that_is_cancelled_elsewhere_ends_with_an_error(tmp_path):
    async with gateway(tmp_path) as served, served.socket() as client:
        await client.request("subscribe", {}, "s")
        (subscription,) = served.world.service.subscriptions()
        await served.world.service.subscription(subscription.id).close()
        ended = await client.record()
        assert (ended["id"], ended["type"]) == ("s", "error")
        assert (await client.request("ping"))[0] == "pong"


JUNK = [
    ("{", "", "Invalid JSON: "),
    ("[]", "", "Invalid JSON: "),
    ('{"type":"ping"}', "", "Invalid JSON: "),
    ('{"id":1,"type":"ping"}', "", "Invalid JSON: "),
    ('{"id":"x"}', "", "Invalid JSON: "),
    ('{"id":"x","type":"ping"} trailing', "", "Invalid JSON: "),
    ('{"id":"%s","type":"ping"}' % ("x" * 257), "", "Invalid JSON: "),
    ('{"id":"x","type":"ping","payload":' + "[" * 30000, "", "Invalid JSON: "),
    ('{"id":"x","type":"Ping"}', "x", "Unknown message type: Ping"),
    ('{"id":"x","type":""}', "x", "Unknown message type: "),
    ('{"id":"x","type":"sql"}', "x", "Invalid SQL payload: "),
    ('{"id":"x","type":"sql","payload":{"query":1}}', "x", "Invalid SQL payload: "),
    ('{"id":"x","type":"sql","payload":{"query":"SELECT ?","params":[[1]]}}', "x", ""),
    ('{"id":"x","type":"sql","payload":{"query":"SELECT ?","params":[1,2]}}', "x", ""),
    ('{"id":"x","type":"sql","payload":{"query":"SELECT 1","namespace":"no"}}', "x", "namespace 'no' not found"),
    ('{"id":"x","type":"sql","payload":{"query":""}}', "x", ""),
    ('{"id":"x","type":"kv_get"}', "x", "Invalid payload: "),
    ('{"id":"x","type":"kv_get","payload":{"key":""}}', "x", ""),
    ('{"id":"x","type":"kv_get","payload":{"key":"k","namespace":"no"}}', "x", "namespace 'no' not found"),
    ('{"id":"x","type":"kv_get","payload":{"key":"k","encoding":"hex"}}', "x", "Invalid payload: "),
    ('{"id":"x","type":"kv_get","payload":{"key":"!","encoding":"base64"}}', "x", "Invalid payload: "),
    ('{"id":"x","type":"kv_put","payload":{"key":"k"}}', "x", "Invalid payload: "),
    ('{"id":"x","type":"kv_put","payload":{"key":"k","value":"v","ttl_seconds":-1}}', "x", "Invalid payload: "),
    ('{"id":"x","type":"kv_put","payload":{"key":"k","value":"v","ttl_seconds":99999999999}}', "x", "ttl_seconds"),
    ('{"id":"x","type":"subscribe","payload":{"tables":"users"}}', "x", "Invalid payload: "),
    ('{"id":"x","type":"subscribe","payload":{"operations":["merge"]}}', "x", "Invalid payload: "),
    ('{"id":"x","type":"subscribe","payload":{"start_sequence":-1}}', "x", "Invalid payload: "),
    ('{"id":"x","type":"subscribe","payload":{"start_sequence":99}}', "x", "offset 99 is beyond"),
    ('{"id":"x","type":"subscribe","payload":{"namespace":"no"}}', "x", "namespace 'no' not found"),
    ('{"id":"x","type":"subscribe","payload":{"tables":["users"],"where":"id ="}}', "x", ""),
    ('{"id":"x","type":"unsubscribe"}', "x", "Invalid payload: "),
]


async def test_junk_is_answered_with_an_error_and_the_connection_stays(tmp_path):
    async with gateway(tmp_path) as served, served.socket() as client:
        for text, id_, message in JUNK:
            await client.connection.send(text)
            answer = await client.record()
            assert (list(answer), answer["id"], answer["type"]) == (["id", "type", "payload"], id_, "error"), text
            assert list(answer["payload"]) == ["message"], text
            assert answer["payload"]["message"].startswith(message), text
            assert (await client.request("ping"))[0] == "pong", text
        assert not served.world.service.subscriptions()


async def test_an_id_that_is_in_use_is_refused(tmp_path):
    async with gateway(tmp_path) as served, served.socket() as client:
        await client.request("subscribe", {}, "s")
        assert (await client.request("subscribe", {}, "s"))[0] == "error"


async def test_a_connection_has_a_bounded_number_of_subscribes(tmp_path):
    async with gateway(tmp_path) as served, served.socket() as client:
        for number in range(64):
            assert (await client.request("subscribe", {}, f"s{number}"))[0] == "result"
        assert (await client.request("subscribe", {}, "more"))[0] == "error"


async def test_binary_frames_are_passed_over(tmp_path):
    async with gateway(tmp_path) as served, served.socket() as client:
        await client.connection.send(b'{"id":"b","type":"ping"}')
        assert await client.request("ping", None, "t") == ("pong", {"ts": served.clock.now_us() // 1000})


async def test_a_request_in_fragments_is_one_request(tmp_path):
    async with gateway(tmp_path) as served, served.socket() as client:
        await client.connection.send(['{"id":"f",', '"type":', '"ping"}'])
        assert (await client.record())["type"] == "pong"
        waiter = await client.connection.ping()
        await asyncio.wait_for(waiter, DEADLINE_S)


async def test_a_message_that_is_too_large_closes_the_connection_with_1009(tmp_path):
    async with gateway(tmp_path) as served, served.socket() as client:
        half = "x" * (500 << 10)
        assert (await client.request("kv_put", {"key": "k", "value": half}))[0] == "result"
        await client.connection.send(json.dumps({"id": "r", "type": "kv_put", "payload": "x" * (2 << 20)}))
        assert await client.record() is None
        assert client.closed[0] == 1009


async def test_text_that_is_no_utf8_closes_the_connection_with_1007(tmp_path):
    async with gateway(tmp_path) as served, served.socket() as client:
        await client.connection.send(b"\xff\xff", text=True)
        assert await client.record() is None
        assert client.closed[0] == 1007


async def test_a_fragment_out_of_turn_closes_the_connection_with_1002(tmp_path):
    async with gateway(tmp_path) as served, served.socket() as client:
        protocol = client.connection.protocol
        protocol.writes.append(Frame(Opcode.CONT, b"x").serialize(mask=True))
        client.connection.transport.write(b"".join(protocol.data_to_send()))
        assert await client.record() is None
        assert client.closed[0] == 1002


async def test_stopping_the_server_says_that_it_goes_away(tmp_path):
    async with gateway(tmp_path) as served, served.socket() as client:
        await client.request("subscribe", {}, "s")
        served.world.service.stop()
        assert await client.record() is None
        assert client.closed[0] == 1001


async def test_a_client_that_does_not_read_holds_back_itself_alone(tmp_path):
    async with gateway(tmp_path) as served, served.socket(max_queue=1) as slow, served.socket() as fast:
        for number in range(8):
            await slow.request("subscribe", {}, f"s{number}")
        await fast.request("subscribe", {}, "f")
        for _ in range(10):
            await served.world.append(*[Op.INSERT] * 500)
        assert (await fast.sequences(5000))[-1] == ("f", 5000)
        slow.connection.transport.abort()


async def test_subscribes_of_one_connection_share_it_fairly(tmp_path):
    async with gateway(tmp_path) as served, served.socket() as client:
        for _ in range(20):
            await served.world.append(*[Op.INSERT] * 500)
        for number in range(4):
            await client.request("subscribe", {"start_sequence": 10_001}, f"s{number}")
        await served.world.append(*[Op.INSERT] * 4000)
        events = await client.sequences(4 * 4000)
        seen = {name: [sequence for id_, sequence in events if id_ == name] for name in ("s0", "s1", "s2", "s3")}
        assert all(sequences == list(range(10_001, 14_001)) for sequences in seen.values())
        half = [name for name, _ in events[:8000]]
        assert min(half.count(name) for name in seen) >= 900


async def test_an_upgrade_needs_credentials_on_every_path(tmp_path):
    async with gateway(tmp_path, auth=AUTH) as served:
        for path, token in (("/", None), ("/", "no"), ("/health", None), ("/ready", "no"), ("/?access_token=no", None)):
            with pytest.raises(websockets.exceptions.InvalidStatus) as refused:
                async with served.socket(path, token):
                    pass
            assert refused.value.response.status_code == 401
        for path, token in (("/", "master"), ("/?access_token=master", None)):
            async with served.socket(path, token) as client:
                assert (await client.request("ping"))[0] == "pong"


async def test_each_may_do_what_its_capabilities_say(tmp_path):
    create = {"query": "CREATE TABLE t(id INTEGER PRIMARY KEY)"}
    async with gateway(tmp_path, auth=AUTH) as served:
        async with served.socket(token="master") as owner:
            assert (await owner.request("sql", create))[0] == "result"
            assert (await owner.request("kv_put", {"key": "k", "value": "v"}))[0] == "result"
        async with served.socket(token="vic-key") as viewer:
            assert (await viewer.request("kv_get", {"key": "k"}))[1]["found"]
            assert (await viewer.request("sql", {"query": "SELECT count(*) FROM t"}))[1]["rows"] == [[0]]
            message = "Insufficient permissions. Required: Write, principal: vic"
            assert await viewer.request("kv_put", {"key": "k", "value": "w"}) == ("error", {"message": message})
            assert await viewer.request("kv_delete", {"key": "k"}) == ("error", {"message": message})
            assert (await viewer.request("sql", {"query": "INSERT INTO t VALUES(1)"}))[0] == "error"
            assert (await viewer.request("sql", {"query": "SELECT count(*) FROM t"}))[1]["rows"] == [[0]]


async def test_a_foreign_namespace_is_denied(tmp_path):
    message = "Access denied to namespace 'app' for tenant 'acme'"
    requests = {
        "kv_get": {"key": "k"},
        "kv_put": {"key": "k", "value": "v"},
        "kv_delete": {"key": "k"},
        "sql": {"query": "SELECT 1"},
        "subscribe": {},
    }
    async with gateway(tmp_path, auth=AUTH) as served, served.socket(token="eve-key") as client:
        for kind, payload in requests.items():
            answer = await client.request(kind, {**payload, "namespace": "app"})
            assert answer == ("error", {"message": message}), kind


async def test_who_sees_some_rows_gets_their_changes_alone_and_no_sql(tmp_path):
    async with gateway(tmp_path, auth=AUTH) as served, served.socket(token="mia-key") as client:
        assert (await client.request("sql", {"query": "SELECT 1"}))[0] == "error"
        assert (await client.request("subscribe", {}, "s"))[0] == "result"
        await served.world.write((Op.INSERT, 1, None, "yours"), (Op.INSERT, 2, None, "mine"))
        await served.world.write((Op.UPDATE, 1, "yours", "mine"), (Op.UPDATE, 2, "mine", "yours"))
        payloads = [event["payload"] for event in await client.records(3)]
        assert [(payload["sequence"], payload["operation"]) for payload in payloads] == [
            (2, "Insert"),
            (3, "Insert"),
            (4, "Delete"),
        ]
        images = [payload[name] for payload in payloads for name in ("before_value", "after_value")]
        assert not any(b"yours" in base64.b64decode(image) for image in images if image is not None)


async def test_a_connection_ends_with_its_credentials(tmp_path):
    token = hs256(exp=NOW_S + 60, namespaces=["app"])
    async with gateway(tmp_path, auth=AUTH) as served, served.socket(token=token) as client:
        assert (await client.request("subscribe", {}, "s"))[0] == "result"
        served.clock.advance(61)
        await served.access.keeper.look()
        while (record := await client.record()) is not None:
            assert record["type"] == "error"
        assert client.closed == (3000, "unauthorized")
        await until(lambda: not served.world.service.subscriptions(), "the subscription stays")
