"""A table outside the default schema, beside one of the same name inside it, through every interface."""

import base64
import json

import grpc
import httpx
import pytest
from websockets.sync.client import connect

import change_streams
from pulling import Client
from running import Running
from serving import DEADLINE_S, wait_until
from tailrace.access.options import AuthConfig, PrincipalConfig
from tailrace.client.bulk_rows import BulkRowsClient
from tailrace.delivery.grpc.proto import coordinode_cdc_pb2 as cdc
from tailrace.delivery.grpc.proto import sochdb_pb2 as sochdb
from tailrace.meta.pipeline import Definition
from tailrace.model.errors import ConfigError
from tailrace.model.key_interval import KeyInterval
from tailrace.model.table import Kind
from tailrace.pipeline.change_rows import table_changes
from tailrace.pipeline.definition import check_definition
from tailrace.pipeline.sink.base import Batch, Mode
from tailrace.pipeline.sinks import check_sink, sink_of
from tailrace.sources import KINDS
from tailrace.testing.database import ScriptedDatabase, ScriptedKind
from tailrace.testing.table_queries import TableQueries

WIRE = "other.item"
AUTH = AuthConfig(
    enabled=True,
    tokens=("master",),
    principals={
        "there": PrincipalConfig(tokens=("there-key",), tables=(f"app.{WIRE}",)),
        "here": PrincipalConfig(tokens=("here-key",), tables=("app.item",)),
        "some": PrincipalConfig(tokens=("some-key",), rows={f"app.{WIRE}": "name = 'mine'"}),
    },
)


@pytest.fixture
def shop(monkeypatch):
    kind = ScriptedKind({"shop": ScriptedDatabase()}, TableQueries)
    monkeypatch.setitem(KINDS, "scripted", lambda: kind)
    database = kind.databases["shop"]
    for schema in ("", "other"):
        database.create("item", {"id": Kind.I64, "name": Kind.STR}, ["id"], schema)
    return database


@pytest.fixture
def server(tmp_path, shop):
    running = Running(tmp_path / "data", auth=AUTH, app="scripted://shop")
    wait_until(running.is_ready, "the server is ready")
    wait_until(lambda: rpc(running, "cdc.subscribe_table", db="app", table=WIRE)["ok"], "the tables are known")
    yield running
    running.stop()


def rpc(server, method, key="master", **params):
    body = {"skeinql": "1.0", "id": 1, "method": method, "params": params}
    return httpx.post(f"{server.url}/api/v1/rpc", json=body, headers={"x-api-key": key}, timeout=DEADLINE_S).json()


def call(server, method, key="master", **params):
    answer = rpc(server, method, key, **params)
    assert answer["ok"], answer
    return answer["result"]


def polled(server, sub_id, count, key="master"):
    """Return the events of a subscription once there are so many."""

    def found():
        events = call(server, "cdc.poll", key, sub_id=sub_id, from_offset=0, limit=100)["events"]
        return events if len(events) >= count else None

    return wait_until(found, f"{count} events")


def write(shop):
    """Insert a row into each table, then another one elsewhere."""
    shop.insert("item", {"id": 1, "name": "here"})
    shop.insert("item", {"id": 1, "name": "there"}, "other")
    shop.insert("item", {"id": 2, "name": "mine"}, "other")


@pytest.mark.parametrize(
    ("key", "table", "names"),
    [
        ("master", WIRE, ["there", "mine"]),
        ("there-key", WIRE, ["there", "mine"]),
        ("there-key", "item", None),
        ("here-key", "item", ["here"]),
        ("here-key", WIRE, None),
        ("some-key", WIRE, ["mine"]),
        ("some-key", "item", ["here"]),
    ],
)
def test_grants_and_row_rules_go_by_schema_and_name(server, shop, key, table, names):
    params = {"db": "app", "table": table, "format": "plain_json", "include": {"after": True}}
    answer = rpc(server, "cdc.subscribe_table", key, **params)
    if names is None:
        assert answer["error"]["code"] == "forbidden"
        return
    write(shop)
    events = polled(server, answer["result"]["sub_id"], len(names), key)
    assert [event["after"]["name"] for event in events] == names
    assert {event["table"] for event in events} == {table}
    listed = call(server, "cdc.list", key)["subscriptions"]
    assert table in {one["table"] for one in listed}


def test_a_subscription_with_a_filter_over_rows_is_woken(server, shop):
    made = call(server, "cdc.subscribe_table", db="app", table=WIRE, where="name = 'mine'", auto_ack=True)
    url = f"{server.url}/api/v1/cdc/sse/{made['sub_id']}"
    with httpx.stream("GET", url, headers={"x-api-key": "master"}, timeout=DEADLINE_S) as answer:
        write(shop)
        lines = (json.loads(line[6:]) for line in answer.iter_lines() if line.startswith("data: "))
        event = next(event for event in lines if "op" in event)
    assert (event["table"], event["pk"]) == (WIRE, [{"t": "i64", "v": 2}])


def test_a_query_depends_on_it_and_is_invalidated_by_it_alone(server, shop):
    query_id = call(server, "query.prepare", db="app", query=f"TABLE {WIRE}")["query_id"]
    sub_id = call(server, "cdc.subscribe_query", query_id=query_id, ops=["insert", "delete"])["sub_id"]
    listed = {one["sub_id"]: one["table"] for one in call(server, "cdc.list")["subscriptions"]}
    assert listed[sub_id] == WIRE
    write(shop)
    shop.update("item", {"id": 2}, {"name": "other"}, "other")
    shop.truncate("item", "other")
    events = polled(server, sub_id, 3)
    assert [(event["seq"], event["op"]) for event in events] == [(seq, "invalidate") for seq in (2, 3, 5)]
    result = call(server, "query.execute_prepared", query_id=query_id)
    assert result["deps"]["tables"] == [{"table": f"app.{WIRE}", "v": 5}]


@pytest.mark.parametrize(("key", "may"), [("there-key", True), ("here-key", False), ("some-key", False)])
def test_a_query_is_for_those_who_see_its_table_whole(server, key, may):
    assert rpc(server, "query.prepare", key, db="app", query=f"TABLE {WIRE}")["ok"] is may


def test_bulk_rows_and_changes_are_of_the_table_that_is_named(server, shop):
    write(shop)
    client = BulkRowsClient(server.url, "master")
    try:
        wait_until(lambda: client.info("app").head == 3, "the changes are in the log")
        (table,) = client.info("app", [WIRE]).tables
        assert (table.table, table.versions[-1].schema.table.schema) == (WIRE, "other")
        keys = [key for _, batch in client.batches("app", 0, 3, [WIRE]) for key in batch.column("key").to_pylist()]
        pages = list(client.rows("app", WIRE, KeyInterval()))
        names = [json.loads(image)["name"] for page in pages for image in page.rows.column("image").to_pylist()]
        assert (keys, names, client.last_key("app", WIRE)) == ([b"[1]", b"[2]"], ["there", "mine"], "[2]")
    finally:
        client.close()


def test_sinks_name_their_tables_by_schema_and_name(server, shop, tmp_path):
    write(shop)
    url = f"sqlite:///{tmp_path}/copy.db"
    definition = check_definition(Definition(name="copy", source="app", tables=("item", WIRE), sink=url))
    check_sink(url, Mode.CURRENT, definition.tables)
    with pytest.raises(ConfigError):
        check_sink(url, Mode.CURRENT, ("other_item", WIRE))
    client = BulkRowsClient(server.url, "master")
    sink = sink_of(url, Mode.CURRENT, pipeline="copy")
    try:
        wait_until(lambda: client.info("app").head == 3, "the changes are in the log")
        found = list(client.batches("app", 0, 3, definition.tables))
        tables = table_changes([batch for _, batch in found], found[-1][0])
        sink.open([one.schema for one in tables])
        sink.apply(Batch("copy", 0, {"app": 3}, tables))
        held = {one.schema.table.wire: [b.num_rows for b in sink.rows(one.schema)] for one in tables}
        assert held == {"item": [1], WIRE: [2]}
    finally:
        sink.close()
        client.close()


def test_sochdb_subscribes_to_it_by_grpc_and_gateway(server, shop):
    write(shop)
    with grpc.insecure_channel(server.grpc) as channel:
        subscribe = channel.unary_stream(
            "/sochdb.v1.SubscriptionService/Subscribe",
            request_serializer=sochdb.SubscribeRequest.SerializeToString,
            response_deserializer=sochdb.SubscribeEvent.FromString,
        )
        request = sochdb.SubscribeRequest(namespace="app", tables=[WIRE], where_predicate="id > 1", start_sequence=1)
        events = subscribe(request, metadata=[("x-api-key", "there-key")], timeout=DEADLINE_S)
        event = next(events)
        events.cancel()
    assert (event.table, event.key, json.loads(event.after_value)["name"]) == (WIRE, b"[2]", "mine")
    url = server.url.replace("http", "ws")
    headers = {"x-api-key": "there-key"}
    with connect(url, proxy=None, open_timeout=DEADLINE_S, additional_headers=headers) as gateway:
        payload = {"namespace": "app", "tables": [WIRE], "start_sequence": 1}
        gateway.send(json.dumps({"id": "1", "type": "subscribe", "payload": payload}))
        told = (json.loads(gateway.recv(DEADLINE_S)) for _ in range(10))
        first = next(one["payload"] for one in told if WIRE in json.dumps(one) and "after_value" in json.dumps(one))
    assert json.loads(base64.b64decode(first["after_value"]))["name"] == "there"


def test_change_streams_name_it_in_their_keys(server, shop):
    write(shop)
    with grpc.insecure_channel(server.grpc) as channel:
        subscribe = channel.unary_stream(
            "/coordinode.v1.replication.ChangeStreamService/Subscribe",
            request_serializer=cdc.SubscribeRequest.SerializeToString,
            response_deserializer=cdc.ChangeEvent.FromString,
        )
        events = subscribe(cdc.SubscribeRequest(), metadata=[("x-api-key", "there-key")], timeout=DEADLINE_S)
        ops = [next(one for one in (next(events) for _ in range(9)) if one.ops).ops[0] for _ in range(2)]
        events.cancel()
    assert [change_streams.node(op.key)[1:3] for op in ops] == [(1, WIRE), (2, WIRE)]
    assert [change_streams.row(op.value)[0] for op in ops] == [WIRE, WIRE]


def test_pullers_have_its_ranges(server, shop):
    client = Client(server.grpc, "there-key")
    try:
        (one,) = client.ranges(WIRE, "app").ranges
        client.register(one, "puller")
        write(shop)
        rows = wait_until(lambda: client.pull_log(one, "puller", 0).log_data, "changes")
        assert json.loads(rows[0].value) == {"name": "there"}
        assert len(client.pull_snapshot(one, "puller").snapshot_data) == 2
        with pytest.raises(grpc.RpcError) as caught:
            client.ranges("item", "app")
        assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED
    finally:
        client.close()
