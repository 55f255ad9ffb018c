"""PostgreSQL served: changes by all interfaces, `tail`, and processes that are killed."""

import json
import random
import signal
import subprocess
import sys
import threading

import grpc
import httpx
import pytest

import postgres_servers
from postgres_capture import Database
from serving import DEADLINE_S, run, wait_until
from tailrace.delivery.grpc.proto import sochdb_pb2 as proto

SLOTS = "SELECT slot_name, active FROM pg_replication_slots WHERE database = current_database()"
KILLS = 3


@pytest.fixture(params=postgres_servers.VERSIONS)
def database(request):
    made = Database(postgres_servers.shared(request.param))
    made.run("CREATE TABLE item (id int PRIMARY KEY, name text, price numeric)")
    yield made
    made.close()


def streamed(server, made):
    """Yield the changes of a subscription from its SSE stream."""
    with httpx.stream("GET", f"{server.url}/api/v1/cdc/sse/{made['sub_id']}", timeout=DEADLINE_S) as answer:
        lines = (line.removeprefix("data: ") for line in answer.iter_lines() if line.startswith("data: "))
        yield from (event for event in map(json.loads, lines) if "op" in event)


def test_changes_are_delivered_by_sse_and_grpc_and_what_is_not_there_is_refused(database, serve):
    server = serve("--source", f"shop={database.url}")
    made = server.subscribe("item", "shop", format="plain_json", include={"before": True, "after": True})
    with grpc.insecure_channel(str(server.addresses["grpc"])) as channel:
        call = channel.unary_stream(
            "/sochdb.v1.SubscriptionService/Subscribe",
            request_serializer=proto.SubscribeRequest.SerializeToString,
            response_deserializer=proto.SubscribeEvent.FromString,
        )
        events = call(proto.SubscribeRequest(tables=["item"], start_sequence=1), timeout=DEADLINE_S)
        database.run(
            "INSERT INTO item VALUES (1, 'Ada', 1.10)",
            "UPDATE item SET price = 'NaN'",
            "DELETE FROM item",
        )
        received = [next(events) for _ in range(3)]
        events.cancel()
    assert [json.loads(event.after_value or b"null") for event in received] == [
        {"id": 1, "name": "Ada", "price": "1.10"},
        {"id": 1, "name": "Ada", "price": "NaN"},
        None,
    ]
    changes = streamed(server, made)
    assert [
        (one["op"], one["pk"], one.get("before"), one.get("after")) for one in (next(changes) for _ in range(3))
    ] == [
        ("insert", [1], None, {"id": 1, "name": "Ada", "price": "1.10"}),
        ("update", [1], {"id": 1}, {"id": 1, "name": "Ada", "price": "NaN"}),
        ("delete", [1], {"id": 1}, None),
    ]
    with pytest.raises(AssertionError, match="no queries for postgresql sources"):
        server.call("query.prepare", {"db": "shop", "query": "SELECT 1"})
    with pytest.raises(AssertionError, match="no SQL predicates for postgresql sources"):
        server.call("cdc.subscribe_table", {"db": "shop", "table": "item", "where": "id = 1"})
    assert server.call("cdc.subscribe_table", {"db": "shop", "table": "item", "cel": "after.id == 1"})
    assert server.stop() == 0
    assert [active for _, active in database.rows(SLOTS)] == [False]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_tail_shows_changes_as_lines_and_leaves_nothing_behind(database, number):
    command = [sys.executable, "-m", "tailrace", "tail", database.url, "--table", "item"]
    tail = subprocess.Popen(command, stdout=subprocess.PIPE)
    try:
        wait_until(lambda: database.rows(f"{SLOTS} AND active"), "it follows")
        database.run("INSERT INTO item VALUES (1, 'Ada', NULL)")
        assert json.loads(tail.stdout.readline())["after"] == {"id": 1, "name": "Ada", "price": None}
        tail.send_signal(number)
        assert tail.wait(DEADLINE_S) == 0
    finally:
        tail.kill()
        tail.wait()
        tail.stdout.close()
    assert database.rows(SLOTS) == []
    assert database.rows("SELECT pubname FROM pg_publication") == []


def test_the_commands_set_up_look_and_remove(database):
    assert run("capture", "status", database.url).stdout == "capture is not set up\n"
    assert run("capture", "setup", database.url, "--option", "slot=tailrace_one").returncode == 0
    status = json.loads(run("capture", "status", "--json", database.url).stdout)
    assert (status["tables"], [reader["name"] for reader in status["readers"]]) == (["item"], ["tailrace_one"])
    doctor = run("capture", "doctor", database.url)
    assert doctor.returncode == 0
    assert "max_slot_wal_keep_size" in doctor.stdout
    assert run("capture", "remove", database.url).stdout == "capture is removed\n"
    assert database.rows(SLOTS) == []


def test_a_server_that_cannot_capture_says_why_and_ends(database, tmp_path):
    url = database.server.sql_url(database.name, password="wrong")
    ended = run("serve", "--data-dir", tmp_path / "data", "--http-port", 0, "--grpc-port", 0, "--source", f"a={url}")
    assert ended.returncode != 0
    assert "the password is wrong" in ended.stderr
    assert "wrong@" not in ended.stderr


def test_a_server_that_is_killed_at_any_moment_loses_and_repeats_nothing(database, serve, tmp_path):
    """The log replays to the table, in order and without a change twice, however often its writer was killed."""
    chance = random.Random(16)
    ended, problems = threading.Event(), []

    def write():
        connection, number = database.connect(), 0
        while not ended.wait(0.01):
            number += 1
            try:
                with connection.transaction():
                    for _ in range(chance.randrange(1, 30)):
                        key = chance.randrange(200)
                        connection.execute(
                            "INSERT INTO item VALUES (%s, %s, 1) ON CONFLICT (id) DO UPDATE SET name = excluded.name",
                            [key, f"{number}"],
                        )
                    connection.execute("DELETE FROM item WHERE id = %s", [chance.randrange(200)])
            except Exception as error:
                problems.append(error)
                return

    server = serve("--source", f"shop={database.url}")
    wait_until(lambda: database.rows(SLOTS), "capture is set up")
    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(KILLS):
            wait_until(lambda: database.rows(f"{SLOTS} AND active"), "it follows")
            ended.wait(chance.random() * 0.5)
            server.kill()
            server = serve("--source", f"shop={database.url}")
    finally:
        ended.set()
        writer.join()
    assert problems == []
    expected = dict(database.rows("SELECT id, name FROM item"))
    rows = wait_until(lambda: replayed(server.data_dir) == expected and expected, "the log has everything")
    assert len(rows) > 50


def replayed(data_dir):
    """Return the rows that the log of a server makes; it has no hole and nothing twice."""
    done = run("log", "cat", data_dir)
    assert done.returncode == 0, done.stderr
    rows, offsets = {}, []
    for line in done.stdout.splitlines():
        event = json.loads(line)
        offsets.append(event["seq"])
        key = event["pk"][0]
        match event["op"]:
            case "insert":
                assert key not in rows
                rows[key] = event["after"]["name"]
            case "update":
                assert key in rows
                rows[key] = event["after"]["name"]
            case "delete":
                del rows[key]
    assert offsets == list(range(1, len(offsets) + 1))
    return rows
