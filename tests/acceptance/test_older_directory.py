"""A data directory of an older version, opened by today's commands: all that is in it is found, and goes on."""

import contextlib
import json
import sqlite3

import grpc
import pytest
from click.testing import CliRunner

from older import Older
from pulling import Client, Puller
from serving import run, wait_until
from tailrace.cli.log import log
from tailrace.cli.pipeline import pipeline
from tailrace.cli.query import query
from tailrace.cli.sink import sink
from tailrace.cli.token import token
from tailrace.delivery.grpc.proto import coordinode_cdc_pb2 as cdc

SPARK_S = 300


@pytest.fixture
def older(tmp_path):
    return Older(tmp_path)


@pytest.fixture
def server(older, serve):
    running = serve("--source", f"shop=sqlite:///{older.shop}", data_dir=older.data)
    wait_until(running.is_ready, "the source is captured")
    return running


def command(group, older, *arguments):
    """Run a command on the data directory, inside this process: starting one takes longer."""
    done = CliRunner().invoke(group, [*map(str, arguments), "--data-dir", str(older.data), "--json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def without_lag(listed):
    return [
        {name: value for name, value in one.items() if name != "backpressure"}
        for one in sorted(listed["subscriptions"], key=lambda one: one["sub_id"])
    ]


def test_the_log_verifies_and_goes_on(older, server):
    with contextlib.closing(sqlite3.connect(older.shop, isolation_level=None)) as shop:
        shop.execute("INSERT INTO orders VALUES (9, 'spoon', 1, NULL)")
    head = older.facts["head"] + 1
    wait_until(lambda: server.get("/api/v1/bulk/shop").json()["head"] >= head, "the next change captured")
    assert server.get("/api/v1/bulk/shop").json()["head"] == head, "no change is captured twice"
    server.stop()
    done = CliRunner().invoke(log, ["verify", str(older.data)])
    assert done.exit_code == 0, done.output


def test_subscriptions_queries_and_keys_are_there(older, server):
    facts = older.facts
    assert without_lag(server.call("cdc.list", {})) == without_lag(facts["subscriptions"])
    polled = server.call("cdc.poll", {"sub_id": facts["resumed"], "from_offset": 4})
    assert [event["seq"] for event in polled["events"]] == [8, 9, 10, 13, 14, 15]
    done = CliRunner().invoke(query, ["run", facts["query"], "3", "--server", server.url, "--json"])
    assert done.exit_code == 0, done.output
    assert sorted(json.loads(done.stdout)["data"]["rows"]) == [["fork"], ["mug"]]
    assert [key["name"] for key in command(token, older, "ls")] == ["reader"]


def test_a_key_opens_what_it_did(older, serve):
    running = serve("--source", f"shop=sqlite:///{older.shop}", "--auth", data_dir=older.data)
    headers = {"Authorization": f"Bearer {older.facts['token']}"}
    made = running.call("cdc.subscribe_table", {"db": "shop", "table": "orders"}, **headers)
    assert made["sub_id"]
    with pytest.raises(AssertionError):
        running.call("cdc.subscribe_table", {"db": "shop", "table": "people"}, **headers)


def test_a_consumer_of_change_streams_and_a_puller_resume(older, server):
    address = server.addresses["grpc"]
    with grpc.insecure_channel(address) as channel:
        calling = channel.unary_stream(
            "/coordinode.v1.replication.ChangeStreamService/Subscribe",
            request_serializer=cdc.SubscribeRequest.SerializeToString,
            response_deserializer=cdc.ChangeEvent.FromString,
        )
        stream = calling(cdc.SubscribeRequest(consumer_id="lasting", incarnation=1), timeout=60)
        assert next(stream).log_index == 1
        stream.cancel()
    client = Client(address)
    puller = Puller(client, "people", "steady", "shop")
    (progress,) = puller.progress.values()
    pulled = client.pull_log(progress.range, "steady", older.facts["head"])
    assert not pulled.HasField("error")
    client.close()


def test_sinks_pipelines_and_their_dead_letters_are_there(older):
    status = command(sink, older, "status", "hook")
    assert (status["state"], status["offset"]) == ("stopped", 13)
    letters = command(sink, older, "dlq", "ls", "hook")
    assert [(one["key"], one["state"]) for one in letters] == [("[2]", "refused"), ("[2]", "behind")]
    listed = {one["name"]: one for one in command(pipeline, older, "ls")}
    assert {name: one["stage"] for name, one in listed.items()} == {
        "copy": "incremental_log",
        "told": "incremental_log",
    }
    copied = command(pipeline, older, "status", "copy")
    assert {(one["table"], one["rows_copied"]) for one in copied["ranges"]} == {("orders", 3), ("people", 1)}
    (letter,) = command(pipeline, older, "dlq", "ls", "told")
    assert (letter["key"], letter["state"]) == ("[3]", "refused")
    shown = command(pipeline, older, "dlq", "show", "told", letter["id"])
    assert (shown["op"], shown["after"]["item"]) == ("insert", "fork")
    assert command(pipeline, older, "dlq", "retry", "told", "--all") == {"sink": "told", "retried": 1}
    assert command(sink, older, "dlq", "drop", "hook", "--all") == {"sink": "hook", "dropped": 2}


@pytest.mark.timeout(400)
def test_a_pipeline_goes_on_where_it_was(older, server):
    pytest.importorskip("pyspark")
    command(pipeline, older, "alter", "copy", "--server", server.url)
    place = ("--data-dir", older.data)
    done = run("pipeline", "run", "copy", "--once", "--json", *place, timeout=SPARK_S, cwd=older.directory)
    assert done.returncode == 0, done.stderr
    with contextlib.closing(sqlite3.connect(older.directory / "copy.db")) as copy:
        rows = copy.execute("SELECT id, item, qty FROM orders ORDER BY id").fetchall()
    assert [list(row) for row in rows] == [row[:3] for row in older.facts["orders"]]
    assert command(pipeline, older, "status", "copy")["offset"] == older.facts["head"]
