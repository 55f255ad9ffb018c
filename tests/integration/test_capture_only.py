"""A source that can only be captured, served: what it has works, and what it has not is a typed error, everywhere."""

import asyncio
import json

import grpc
import httpx
import pytest
from click.testing import CliRunner
from websockets.sync.client import connect

from pulling import Client
from running import Running
from serving import DEADLINE_S, wait_until
from tailrace.cli.capture import capture
from tailrace.cli.serve import serve
from tailrace.cli.source import source_at
from tailrace.client import Conflict
from tailrace.client.bulk_rows import BulkRowsClient
from tailrace.delivery.grpc.proto import sochdb_pb2 as proto
from tailrace.direct import follow
from tailrace.model.errors import ConfigError, SourceAbilityError, SourceOptionError
from tailrace.model.key_interval import KeyInterval
from tailrace.model.op import Op
from tailrace.model.table import Kind
from tailrace.sources import KINDS
from tailrace.testing.database import ScriptedDatabase, ScriptedKind, ScriptedOptions
from tailrace.testing.reads import ScriptedReads

REASON = "source 'app' can only be captured"


@pytest.fixture
def kind(monkeypatch):
    made = ScriptedKind({"shop": ScriptedDatabase()})
    made.databases["shop"].create("item", {"id": Kind.I64, "name": Kind.STR}, ["id"])
    monkeypatch.setitem(KINDS, "scripted", lambda: made)
    return made


@pytest.fixture
def shop(kind):
    return kind.databases["shop"]


@pytest.fixture
def server(tmp_path, kind):
    running = Running(tmp_path / "data", app="scripted://shop?note=hello")
    wait_until(running.is_ready, "the server is ready")
    yield running
    running.stop()


def streamed(server, made):
    """Yield the changes and rows of a subscription."""
    with httpx.stream("GET", f"{server.url}/api/v1/cdc/sse/{made['sub_id']}", timeout=DEADLINE_S) as answer:
        lines = (line.removeprefix("data: ") for line in answer.iter_lines() if line.startswith("data: "))
        yield from (event for event in map(json.loads, lines) if "op" in event)


def test_its_options_reach_it_from_the_url(server, kind):
    assert kind.opened == [ScriptedOptions(note="hello")]


def test_its_changes_are_delivered_live_and_polled(server, shop):
    made = server.subscribe("item", "app", format="plain_json")
    shop.insert("item", {"id": 1, "name": "one"})
    shop.update("item", {"id": 1}, {"name": "uno"})
    asked = {"sub_id": made["sub_id"], "from_offset": made["offset"]}

    def polled():
        events = server.call("cdc.poll", asked)["events"]
        return events if len(events) == 2 else None

    assert [event["op"] for event in wait_until(polled, "both changes")] == ["insert", "update"]


def test_its_changes_can_be_filtered_and_streamed(server, shop):
    made = server.subscribe("item", "app", format="plain_json", where="name = 'wanted'", include={"after": True})
    shop.insert("item", {"id": 1, "name": "other"})
    shop.insert("item", {"id": 2, "name": "wanted"})
    assert next(streamed(server, made))["after"] == {"id": 2, "name": "wanted"}


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("query.prepare", {"db": "app", "query": "SELECT * FROM item"}),
        ("query.prepare", {"query": "SELECT * FROM item"}),
        ("cdc.subscribe_table", {"db": "app", "table": "item", "snapshot": True}),
    ],
)
def test_queries_and_snapshots_are_refused_over_http(server, method, params):
    server.subscribe("item", "app")
    with pytest.raises(AssertionError, match=f"conflict: {REASON}"):
        server.call(method, params)


@pytest.mark.parametrize("path", ["ranges?table=item", "rows?table=item"])
def test_bulk_rows_are_refused(server, path):
    server.subscribe("item", "app")
    answer = server.get(f"/api/v1/bulk/app/{path}")
    assert answer.status_code == 409
    assert REASON in answer.text


@pytest.fixture
def bulk(server):
    """A client as pipelines have it."""
    client = BulkRowsClient(server.url)
    yield client
    client.close()


def test_pipelines_of_changes_are_served_and_copies_of_rows_are_refused(server, shop, bulk):
    server.subscribe("item", "app")
    shop.insert("item", {"id": 1, "name": "one"})
    shop.truncate("item")
    head = wait_until(lambda: bulk.info("app").head >= 2 and bulk.info("app").head, "both changes")
    ops = [op for _, batch in bulk.batches("app", 0, head) for op in batch.column("op").to_pylist()]
    assert ops[-2:] == [Op.INSERT, Op.TRUNCATE]
    with pytest.raises(Conflict, match=REASON):
        bulk.plan("app", "item", 2)
    with pytest.raises(Conflict, match=REASON):
        next(bulk.rows("app", "item", KeyInterval()))


@pytest.mark.parametrize(
    ("type_", "payload", "reason"),
    [
        ("sql", {"namespace": "app", "query": "SELECT 1"}, REASON),
        ("kv_get", {"namespace": "app", "key": "a"}, "source 'app' takes no keys and values"),
    ],
)
def test_sql_and_keys_are_refused_on_the_gateway(server, type_, payload, reason):
    with connect(server.url.replace("http", "ws"), proxy=None, open_timeout=DEADLINE_S) as gateway:
        gateway.send(json.dumps({"id": "r", "type": type_, "payload": payload}))
        answer = json.loads(gateway.recv(DEADLINE_S))
    assert answer["type"] == "error"
    assert reason in json.dumps(answer["payload"])


def test_keys_are_refused_over_grpc(server):
    with grpc.insecure_channel(server.grpc) as channel:
        call = channel.unary_unary(
            "/sochdb.v1.KvService/Get",
            request_serializer=proto.KvGetRequest.SerializeToString,
            response_deserializer=proto.KvGetResponse.FromString,
        )
        with pytest.raises(grpc.RpcError) as caught:
            call(proto.KvGetRequest(namespace="app", key=b"a"), timeout=DEADLINE_S)
    assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert "takes no keys and values" in caught.value.details()


def test_ranges_are_refused_over_grpc(server):
    server.subscribe("item", "app")
    client = Client(server.grpc)
    try:
        with pytest.raises(grpc.RpcError) as caught:
            client.ranges("item", "app")
    finally:
        client.close()
    assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert REASON in caught.value.details()


async def test_tail_follows_it(kind, shop, tmp_path):
    def write():
        for number in (1, 2, 3):
            shop.insert("item", {"id": number, "name": "n"})

    ids = []
    async with asyncio.timeout(DEADLINE_S):
        async for line in follow(source_at("scripted://shop", ["note=a"]), tmp_path, ["item"], write):
            ids.append(json.loads(line)["after"]["id"])
            if len(ids) == 3:
                break
    assert ids == [1, 2, 3]
    assert kind.opened == [ScriptedOptions(note="a")]


def test_capture_commands_work_for_any_kind(kind, shop):
    def run(*arguments):
        return CliRunner().invoke(capture, [*arguments], catch_exceptions=False)

    assert run("status", "scripted://shop").output == "capture is not set up\n"
    assert run("setup", "scripted://shop").output == "capture is set up\n"
    shown = json.loads(run("status", "--json", "scripted://shop").output)
    assert (shown["capture"], shown["tables"]) == (shop.capture, ["item"])
    doctor = run("doctor", "scripted://shop")
    assert (doctor.exit_code, doctor.output) == (0, "ok       access: it is in memory\n")
    assert json.loads(run("remove", "--json", "scripted://shop").output) == {"removed": True}
    with pytest.raises(SourceAbilityError):
        run("exec", "scripted://shop", "DROP TABLE item")
    with pytest.raises(SourceOptionError, match=r"^--option: option 'delay_ms': 'soon' is not a whole number"):
        run("status", "scripted://shop", "--option", "delay_ms=soon")
    assert run("status", "scripted://shop", "--source-option", "delay_ms=5").exit_code == 0


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("app.delay_ms=soon", "--source-option app.delay_ms: option 'delay_ms': 'soon' is not a whole number"),
        ("delay=5", "--source-option app.delay: option 'delay' is unknown; did you mean 'delay_ms'"),
        ("app.note=a", "--source-option app.note: option 'note': it is in the URL as well; give it once"),
    ],
)
def test_the_options_that_serve_is_given_are_those_of_the_kind(kind, option, message):
    words = ["--source", "app=scripted://shop?note=b", "--source-option", option]
    with pytest.raises(ConfigError) as caught:
        CliRunner().invoke(serve, words, catch_exceptions=False)
    assert str(caught.value).startswith(message)


def test_predicates_are_read_in_the_dialect_of_their_source(tmp_path, kind):
    kind.dialect = "esperanto"
    running = Running(tmp_path / "data", app="scripted://shop")
    try:
        wait_until(running.is_ready, "the server is ready")
        running.subscribe("item", "app")
        with pytest.raises(AssertionError, match="invalid_request: there are no SQL predicates for esperanto sources"):
            running.call("cdc.subscribe_table", {"db": "app", "table": "item", "where": "id = 1"})
        assert running.call("cdc.subscribe_table", {"db": "app", "table": "item", "cel": "after.id == 1"})
    finally:
        running.stop()


def test_a_reading_side_without_sql_gives_snapshots_and_rows_and_refuses_queries(tmp_path, kind, shop, monkeypatch):
    readable = ScriptedKind(kind.databases, ScriptedReads)
    monkeypatch.setitem(KINDS, "scripted", lambda: readable)
    shop.insert("item", {"id": 1, "name": "before"})
    running = Running(tmp_path / "data", app="scripted://shop")
    client = BulkRowsClient(running.url)
    try:
        wait_until(running.is_ready, "the server is ready")
        running.subscribe("item", "app")
        shop.insert("item", {"id": 2, "name": "after"})
        pages = list(client.rows("app", "item", KeyInterval()))
        rows = [json.loads(image) for page in pages for image in page.rows.column("image").to_pylist()]
        assert rows == [{"id": 1, "name": "before"}, {"id": 2, "name": "after"}]
        assert client.last_key("app", "item") == "[2]"
        made = running.subscribe("item", "app", format="plain_json", snapshot=True, include={"after": True})
        events = streamed(running, made)
        assert [next(events)["after"] for _ in rows] == rows
        with pytest.raises(AssertionError, match="invalid_request: there are no queries for scripted sources"):
            running.call("query.prepare", {"db": "app", "query": "SELECT 1"})
    finally:
        client.close()
        running.stop()
