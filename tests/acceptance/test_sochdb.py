"""The published client of seed A against `tailrace serve`, as its documentation uses it."""

import json
import sqlite3
import time

import pytest

from clients import published
from serving import DEADLINE_S, wait_until

EXAMPLE = {
    "namespace": "default",
    "tables": ["users", "orders"],
    "operations": [1, 2],
    "start_sequence": 0,
    "batch_size": 64,
}


@pytest.fixture(scope="session")
def sochdb(pytestconfig):
    return published(pytestconfig, "sochdb==0.8.3", "sochdb_client.py")


@pytest.fixture
def database(tmp_path):
    """A database with a table, which the server is to capture."""
    connection = sqlite3.connect(tmp_path / "app.db", isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("CREATE TABLE users (name TEXT PRIMARY KEY, age INTEGER)")
    yield connection
    connection.close()


@pytest.fixture
def streams():
    """Scripts that are ended when the test is over."""
    running = []
    yield running
    for script in running:
        script.kill()


@pytest.fixture
def source(tmp_path):
    return f"app=sqlite:///{tmp_path / 'app.db'}"


def started(serve, source, *arguments):
    """Return a server that has captured the tables there are."""
    server = serve("--source", source, *arguments)
    server.subscribe("users", db="app")
    return server


def subscribed(sochdb, streams, server, request, metadata=None):
    """Return a stream that has begun, and the name of its subscription."""
    script = sochdb.start("subscribe", server.addresses["grpc"], request, metadata or {})
    streams.append(script)
    first = script.line()
    assert "begun" in first, first
    return script, first["begun"]["x-tailrace-subscription"]


def test_the_example_of_the_documentation_prints_inserts_and_updates(sochdb, streams, serve, source, database):
    server = started(serve, source)
    script, _ = subscribed(sochdb, streams, server, EXAMPLE)
    database.execute("INSERT INTO users VALUES ('Ada', 36)")
    database.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, price REAL)")
    wait_until(lambda: server.subscribe("orders", db="app"), "the new table is captured")
    database.execute("UPDATE users SET age = 37")
    database.execute("DELETE FROM users")
    database.execute("CREATE TABLE others (id INTEGER PRIMARY KEY)")
    database.execute("INSERT INTO others VALUES (1)")
    database.execute("INSERT INTO orders VALUES (7, 1.5)")
    inserted, updated, ordered = script.lines(3)
    assert (inserted["operation"], inserted["table"], inserted["key"]) == ("INSERT", "users", "Ada")
    assert json.loads(inserted["after_value"]) == {"name": "Ada", "age": 36}
    assert (updated["operation"], json.loads(updated["before_value"])["age"]) == ("UPDATE", 36)
    assert json.loads(updated["after_value"])["age"] == 37
    assert (ordered["table"], ordered["key"], ordered["after_value"]) == ("orders", "[7]", '{"id":7,"price":1.5}')
    assert abs(inserted["timestamp_us"] / 1e6 - time.time()) < DEADLINE_S


def test_all_operations_come_with_the_transaction_that_made_them(sochdb, streams, serve, source, database):
    server = started(serve, source)
    script, _ = subscribed(sochdb, streams, server, {})
    database.execute("BEGIN")
    database.execute("INSERT INTO users VALUES ('Ada', 36)")
    database.execute("UPDATE users SET age = 37")
    database.execute("COMMIT")
    database.execute("DELETE FROM users")
    database.execute("ALTER TABLE users ADD COLUMN mail TEXT")
    inserted, updated, deleted, altered = script.lines(4)
    assert [event["operation"] for event in (inserted, updated, deleted, altered)] == [
        "INSERT",
        "UPDATE",
        "DELETE",
        "SCHEMA_CHANGE",
    ]
    assert inserted["txn_id"] == updated["txn_id"] < deleted["txn_id"]
    assert (deleted["before_value"], "after_value" in deleted) == ('{"name":"Ada","age":37}', False)
    assert ("mail" in altered["ddl"], altered["table"]) == (True, "users")
    assert [event["sequence"] for event in (inserted, updated, deleted)] == list(
        range(inserted["sequence"], inserted["sequence"] + 3)
    )


def test_a_predicate_is_enforced(sochdb, streams, serve, source, database):
    server = started(serve, source)
    script, _ = subscribed(sochdb, streams, server, {"tables": ["users"], "where_predicate": "age > 21"})
    database.executemany("INSERT INTO users VALUES (?, ?)", [("Ada", 36), ("Kid", 3), ("Nul", None), ("Bob", 22)])
    assert [event["key"] for event in script.lines(2)] == ["Ada", "Bob"]
    ended = sochdb.run("subscribe", server.addresses["grpc"], {"where_predicate": "agee > 21"})[-1]
    assert (ended["ended"], "agee" in ended["details"]) == ("INVALID_ARGUMENT", True)


def test_nothing_is_lost_when_server_and_client_are_killed(sochdb, streams, serve, source, database):
    server = started(serve, source)
    port = server.addresses["grpc"].rpartition(":")[2]
    keys, last, written = [], 0, 0

    def write(count):
        nonlocal written
        for _ in range(count):
            database.execute("INSERT INTO users VALUES (?, 1)", (f"k{written:05}",))
            written += 1

    def consume(script, count):
        nonlocal last
        for event in script.lines(count):
            assert event["sequence"] > last
            keys.append(event["key"])
            last = event["sequence"]

    request = {"tables": ["users"], "operations": [1]}
    script, _ = subscribed(sochdb, streams, server, request)
    write(20)
    consume(script, 10)
    script.kill()
    write(20)
    script, _ = subscribed(sochdb, streams, server, {**request, "start_sequence": last + 1})
    consume(script, 15)
    server.kill()
    write(20)
    for event in script.rest():
        if "sequence" in event:  # what was under way; the last line says how the stream ended
            keys.append(event["key"])
            last = event["sequence"]
    server = serve("--source", source, "--grpc-port", port)
    script, _ = subscribed(sochdb, streams, server, {**request, "start_sequence": last + 1})
    consume(script, 60 - len(keys))
    assert keys == [f"k{number:05}" for number in range(60)]


def test_a_position_behind_the_horizon_is_an_overrun(sochdb, serve, source, database):
    server = started(serve, source, "--retention-events", "5")
    database.executemany("INSERT INTO users VALUES (?, 1)", [(f"k{number}",) for number in range(20)])

    def overrun():
        ended = sochdb.run("subscribe", server.addresses["grpc"], {"start_sequence": 2})[-1]
        return ended if ended.get("ended") == "OUT_OF_RANGE" else None

    ended = wait_until(overrun, "the oldest changes are gone")
    oldest = int(ended["trailing"]["x-tailrace-oldest"])
    assert ended["trailing"]["x-tailrace-requested"] == "2"
    assert ended["details"] == f"CDC overrun: requested seq 2 but oldest available is {oldest}"


def test_what_left_the_ring_is_read_from_the_log(sochdb, streams, serve, source, database):
    server = started(serve, source, "--log-ring-changes", "16")
    database.executemany("INSERT INTO users VALUES (?, 1)", [(f"k{number}",) for number in range(500)])
    script, _ = subscribed(sochdb, streams, server, {"operations": [1], "start_sequence": 1})
    assert [event["key"] for event in script.lines(500)] == [f"k{number}" for number in range(500)]


def test_subscriptions_are_listed_and_cancelled(sochdb, streams, serve, source, database):
    server = started(serve, source)
    address = server.addresses["grpc"]
    script, name = subscribed(sochdb, streams, server, EXAMPLE)
    database.execute("INSERT INTO users VALUES ('Ada', 36)")
    event = script.line()

    def listed():
        (info,) = sochdb.run("list", address, "default")
        return info if info["current_sequence"] == event["sequence"] else None

    info = wait_until(listed, "the listing shows what was sent")
    assert (info["subscription_id"], info["tables"]) == (name, ["users", "orders"])
    assert sochdb.run("list", address, "nowhere") == []
    assert sochdb.run("cancel", address, name) == [{"success": True, "error": ""}]
    assert script.line() == {"ended": "OK", "details": "", "trailing": {}}
    assert sochdb.run("list", address, "default") == []
    assert sochdb.run("cancel", address, name) == [{"success": False, "error": f"Subscription '{name}' not found"}]


def test_a_client_that_vanishes_is_gone_from_every_listing(sochdb, streams, serve, source, database):
    server = started(serve, source)
    before = server.call("cdc.list", {})["subscriptions"]
    script, _ = subscribed(sochdb, streams, server, {})
    assert len(server.call("cdc.list", {})["subscriptions"]) == len(before) + 1
    script.kill()
    wait_until(lambda: server.call("cdc.list", {})["subscriptions"] == before, "nobody subscribes any more")
    assert sochdb.run("list", server.addresses["grpc"], "") == []


def test_a_subscription_has_many_doors_and_one_cursor(sochdb, streams, serve, source, database):
    server = started(serve, source)
    made = server.subscribe("users", db="app", include={"after": True})
    database.executemany("INSERT INTO users VALUES (?, 1)", [(f"k{number}",) for number in range(5)])
    metadata = {"x-tailrace-subscription": made["sub_id"]}
    script, name = subscribed(sochdb, streams, server, {}, metadata)
    events = script.lines(5)
    assert (name, [event["key"] for event in events]) == ("sub-2", ["k0", "k1", "k2", "k3", "k4"])
    script.kill()
    server.call("cdc.ack", {"sub_id": made["sub_id"], "offset": events[2]["sequence"]})
    script, _ = subscribed(sochdb, streams, server, {}, metadata)
    assert [event["key"] for event in script.lines(2)] == ["k3", "k4"]
    kept, name = subscribed(sochdb, streams, server, {"tables": ["users"]}, {"x-tailrace-keep": "true"})
    kept.kill()
    database.execute("INSERT INTO users VALUES ('k5', 1)")
    sub_id = f"sub_{int(name.removeprefix('sub-')):016x}"
    poll = {"sub_id": sub_id, "from_offset": 0, "wait_ms": 5000}
    (event,) = server.call("cdc.poll", poll)["events"]
    assert event["after"]["name"] == {"t": "str", "v": "k5"}
    server.call("cdc.ack", {"sub_id": sub_id, "offset": event["seq"]})
    script, _ = subscribed(sochdb, streams, server, {}, {"x-tailrace-subscription": name})
    database.execute("INSERT INTO users VALUES ('k6', 1)")
    assert script.line()["key"] == "k6"


def test_one_key_is_watched(sochdb, streams, serve, source, database):
    server = started(serve, source)
    script = sochdb.start("watch", server.addresses["grpc"], {"namespace": "app", "table": "users", "key": "Ada"})
    streams.append(script)
    assert "begun" in script.line()
    database.executemany("INSERT INTO users VALUES (?, 1)", [("Bob",), ("Ada",), ("Adam",)])
    database.execute("DELETE FROM users")
    inserted, deleted = script.lines(2)
    assert (inserted["operation"], inserted["after_value"]) == ("INSERT", '{"name":"Ada","age":1}')
    assert (deleted["operation"], deleted["before_value"]) == ("DELETE", '{"name":"Ada","age":1}')


def test_streams_end_when_the_server_stops(sochdb, streams, serve, source, database):
    server = started(serve, source)
    script, _ = subscribed(sochdb, streams, server, {})
    assert server.stop() == 0
    assert script.line() == {"ended": "UNAVAILABLE", "details": "CDC engine shut down", "trailing": {}}


def test_with_capture_off_every_interface_says_so(sochdb, serve, source, database):
    server = serve("--source", source, "--no-capture")
    ended = sochdb.run("subscribe", server.addresses["grpc"], {})[-1]
    assert (ended["ended"], ended["details"]) == ("FAILED_PRECONDITION", "CDC not enabled")
    with pytest.raises(AssertionError, match="conflict: CDC not enabled"):
        server.call("cdc.subscribe_table", {"db": "app", "table": "users"})
