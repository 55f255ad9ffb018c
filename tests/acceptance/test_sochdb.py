"""The published client of SochDB against `tailrace serve`, as its documentation uses it."""

import contextlib
import itertools
import json
import sqlite3
import time
from contextlib import contextmanager
from typing import NamedTuple

import pytest

from clients import published
from databases import free_port
from serving import DEADLINE_S, Server, wait_until

pytestmark = pytest.mark.timeout(400)
"""The published client is installed within the first test that uses it; its processes take long to start."""

NUMBERS = itertools.count(1)


@pytest.fixture(scope="session")
def sochdb(pytestconfig):
    return published(pytestconfig, "sochdb==0.8.3", "sochdb_client.py")


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """A server that most tests use, each with a table of its own, and the database that it captures."""
    directory = tmp_path_factory.mktemp("shared")
    with open_database(directory / "app.db") as connection:
        server = Server(directory / "data", "--source", f"app=sqlite:///{directory / 'app.db'}")
        try:
            yield server.wait_ready(), connection
        finally:
            server.kill()


@pytest.fixture
def table(shared):
    """A table (name TEXT PRIMARY KEY, age INTEGER) that nobody else uses."""
    server, connection = shared
    name = f"table_{next(NUMBERS)}"
    connection.execute(f"CREATE TABLE {name} (name TEXT PRIMARY KEY, age INTEGER)")
    wait_until(lambda: knows(server, name), "the table is captured")
    return Table(server, connection, name)


class Table(NamedTuple):
    server: Server
    connection: sqlite3.Connection
    name: str

    def insert(self, *rows):
        self.connection.executemany(f"INSERT INTO {self.name} VALUES (?, ?)", rows)

    def execute(self, statement):
        self.connection.execute(statement.replace("TABLE_NAME", self.name))


@pytest.fixture
def database(tmp_path):
    """A database with a table `users`, for a server of the test's own."""
    with open_database(tmp_path / "app.db") as connection:
        connection.execute("CREATE TABLE users (name TEXT PRIMARY KEY, age INTEGER)")
        yield connection


@contextmanager
def open_database(path):
    connection = sqlite3.connect(path, isolation_level=None, timeout=DEADLINE_S)
    connection.execute("PRAGMA journal_mode = WAL")
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


def knows(server, table):
    """Tell whether the server captures a table: a subscription to it is possible. It is closed at once."""
    with contextlib.suppress(AssertionError):
        made = server.call("cdc.subscribe_table", {"db": "app", "table": table})
        server.call("cdc.close", {"sub_id": made["sub_id"]})
        return True
    return False


def started(serve, source, *arguments):
    """Return a server that has captured the tables there are."""
    server = serve("--source", source, *arguments)
    wait_until(lambda: knows(server, "users"), "the table is captured")
    return server


def subscribed(sochdb, streams, server, request, metadata=None):
    """Return a stream that has begun, and the name of its subscription."""
    script = sochdb.start("subscribe", server.addresses["grpc"], request, metadata or {})
    streams.append(script)
    first = script.line()
    assert "begun" in first, first
    return script, first["begun"]["x-tailrace-subscription"]


def test_the_example_of_the_documentation_prints_inserts_and_updates(sochdb, streams, table):
    request = {
        "namespace": "default",
        "tables": [table.name, "orders"],
        "operations": [1, 2],
        "start_sequence": 0,
        "batch_size": 64,
    }
    script, _ = subscribed(sochdb, streams, table.server, request)
    table.insert(("Ada", 36))
    table.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, price REAL)")
    wait_until(lambda: knows(table.server, "orders"), "the new table is captured")
    table.execute("UPDATE TABLE_NAME SET age = 37")
    table.execute("DELETE FROM TABLE_NAME")
    table.execute("INSERT INTO orders VALUES (7, 1.5)")
    inserted, updated, ordered = script.lines(3)
    assert (inserted["operation"], inserted["table"], inserted["key"]) == ("INSERT", table.name, "Ada")
    assert json.loads(inserted["after_value"]) == {"name": "Ada", "age": 36}
    assert (updated["operation"], json.loads(updated["before_value"])["age"]) == ("UPDATE", 36)
    assert json.loads(updated["after_value"])["age"] == 37
    assert (ordered["table"], ordered["key"], ordered["after_value"]) == ("orders", "[7]", '{"id":7,"price":1.5}')
    assert abs(inserted["timestamp_us"] / 1e6 - time.time()) < DEADLINE_S


def test_all_operations_come_with_the_transaction_that_made_them(sochdb, streams, table):
    script, _ = subscribed(sochdb, streams, table.server, {})
    table.execute("BEGIN")
    table.insert(("Ada", 36))
    table.execute("UPDATE TABLE_NAME SET age = 37")
    table.execute("COMMIT")
    table.execute("DELETE FROM TABLE_NAME")
    table.execute("ALTER TABLE TABLE_NAME ADD COLUMN mail TEXT")
    inserted, updated, deleted, altered = events = script.lines(4)
    assert [event["operation"] for event in events] == ["INSERT", "UPDATE", "DELETE", "SCHEMA_CHANGE"]
    assert inserted["txn_id"] == updated["txn_id"] < deleted["txn_id"]
    assert (deleted["before_value"], "after_value" in deleted) == ('{"name":"Ada","age":37}', False)
    assert ("mail" in altered["ddl"], altered["table"]) == (True, table.name)
    first = inserted["sequence"]
    assert [event["sequence"] for event in events] == [first, first + 1, first + 2, first + 3]


def test_a_predicate_is_enforced(sochdb, streams, table):
    script, _ = subscribed(sochdb, streams, table.server, {"tables": [table.name], "where_predicate": "age > 21"})
    table.insert(("Ada", 36), ("Kid", 3), ("Nul", None), ("Bob", 22))
    assert [event["key"] for event in script.lines(2)] == ["Ada", "Bob"]
    ended = sochdb.run("subscribe", table.server.addresses["grpc"], {"where_predicate": "agee > 21"})[-1]
    assert (ended["ended"], "agee" in ended["details"]) == ("INVALID_ARGUMENT", True)


def test_subscriptions_are_listed_and_cancelled(sochdb, streams, table):
    address = table.server.addresses["grpc"]
    wait_until(lambda: sochdb.run("list", address, "default") == [], "other streams are over")
    script, name = subscribed(sochdb, streams, table.server, {"tables": [table.name]})
    table.insert(("Ada", 36))
    event = script.line()
    (info,) = wait_until(
        lambda: [i for i in sochdb.run("list", address, "default") if i["current_sequence"] == event["sequence"]],
        "the listing shows what was sent",
    )
    assert (info["subscription_id"], info["tables"]) == (name, [table.name])
    assert sochdb.run("list", address, "nowhere") == []
    assert sochdb.run("cancel", address, name) == [{"success": True, "error": ""}]
    assert script.line() == {"ended": "OK", "details": "", "trailing": {}}
    assert sochdb.run("cancel", address, name) == [{"success": False, "error": f"Subscription '{name}' not found"}]


def test_a_client_that_vanishes_is_gone_from_the_listing(sochdb, streams, table):
    script, name = subscribed(sochdb, streams, table.server, {})
    sub_id = f"sub_{int(name.removeprefix('sub-')):016x}"

    def is_listed():
        return sub_id in [entry["sub_id"] for entry in table.server.call("cdc.list", {})["subscriptions"]]

    assert is_listed()
    script.kill()
    wait_until(lambda: not is_listed(), "a client that vanished is not listed")


def test_a_subscription_of_another_interface_is_streamed_with_one_cursor(sochdb, streams, table):
    server = table.server
    made = server.subscribe(table.name, db="app", include={"after": True})
    table.insert(*[(f"k{number}", 1) for number in range(5)])
    metadata = {"x-tailrace-subscription": made["sub_id"]}
    script, name = subscribed(sochdb, streams, server, {}, metadata)
    events = script.lines(5)
    assert [event["key"] for event in events] == ["k0", "k1", "k2", "k3", "k4"]
    assert int(name.removeprefix("sub-")) == int(made["sub_id"].removeprefix("sub_"), 16)
    script.kill()
    server.call("cdc.ack", {"sub_id": made["sub_id"], "offset": events[2]["sequence"]})
    script, _ = subscribed(sochdb, streams, server, {}, metadata)
    assert [event["key"] for event in script.lines(2)] == ["k3", "k4"]


def test_a_kept_subscription_is_polled_and_streamed_with_one_cursor(sochdb, streams, table):
    kept, name = subscribed(sochdb, streams, table.server, {"tables": [table.name]}, {"x-tailrace-keep": "true"})
    kept.kill()
    table.insert(("k5", 1))
    sub_id = f"sub_{int(name.removeprefix('sub-')):016x}"
    (event,) = table.server.call("cdc.poll", {"sub_id": sub_id, "from_offset": 0, "wait_ms": 20_000})["events"]
    assert event["after"]["name"] == {"t": "str", "v": "k5"}
    table.server.call("cdc.ack", {"sub_id": sub_id, "offset": event["seq"]})
    script, _ = subscribed(sochdb, streams, table.server, {}, {"x-tailrace-subscription": name})
    table.insert(("k6", 1))
    assert script.line()["key"] == "k6"


def test_one_key_is_watched(sochdb, streams, table):
    request = {"namespace": "app", "table": table.name, "key": "Ada"}
    script = sochdb.start("watch", table.server.addresses["grpc"], request)
    streams.append(script)
    assert "begun" in script.line()
    table.insert(("Bob", 1), ("Ada", 1), ("Adam", 1))
    table.execute("DELETE FROM TABLE_NAME")
    inserted, deleted = script.lines(2)
    assert (inserted["operation"], inserted["after_value"]) == ("INSERT", '{"name":"Ada","age":1}')
    assert (deleted["operation"], deleted["before_value"]) == ("DELETE", '{"name":"Ada","age":1}')


def test_what_is_put_as_key_and_value_shows_up_in_a_stream(sochdb, streams, table):
    script, _ = subscribed(sochdb, streams, table.server, {"tables": ["kv"], "operations": [1, 2, 3]})
    steps = [["put", "color", "red"], ["put", "color", "blue"], ["get", "color"], ["delete", "color"]]
    assert sochdb.run("kv", table.server.addresses["grpc"], *steps)[2] == "blue"
    put, changed, deleted = script.lines(3)
    assert (put["operation"], put["key"], put["after_value"]) == ("INSERT", "color", "red")
    assert (changed["operation"], changed["before_value"], changed["after_value"]) == ("UPDATE", "red", "blue")
    assert (deleted["operation"], deleted["key"], deleted["before_value"]) == ("DELETE", "color", "blue")


def test_nothing_is_lost_when_server_and_client_are_killed(sochdb, streams, serve, source, database):
    port = ("--grpc-port", free_port())
    server = started(serve, source, *port)
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
    server = serve("--source", source, *port)
    script, _ = subscribed(sochdb, streams, server, {**request, "start_sequence": last + 1})
    consume(script, 60 - len(keys))
    assert keys == [f"k{number:05}" for number in range(60)]


def test_a_position_behind_the_horizon_is_an_overrun(sochdb, serve, source, database):
    server = started(serve, source, "--retention-events", "5")
    database.executemany("INSERT INTO users VALUES (?, 1)", [(f"k{number}",) for number in range(20)])
    wait_until(lambda: server.get("/api/v1/bulk/app").json()["horizon"] > 2, "the oldest changes are gone")
    ended = sochdb.run("subscribe", server.addresses["grpc"], {"start_sequence": 2})[-1]
    assert ended["ended"] == "OUT_OF_RANGE"
    oldest = int(ended["trailing"]["x-tailrace-oldest"])
    assert ended["trailing"]["x-tailrace-requested"] == "2"
    assert ended["details"] == f"CDC overrun: requested seq 2 but oldest available is {oldest}"


def test_what_left_the_ring_is_read_from_the_log(sochdb, streams, serve, source, database):
    server = started(serve, source, "--log-ring-changes", "16")
    database.executemany("INSERT INTO users VALUES (?, 1)", [(f"k{number}",) for number in range(500)])
    script, _ = subscribed(sochdb, streams, server, {"operations": [1], "start_sequence": 1})
    assert [event["key"] for event in script.lines(500)] == [f"k{number}" for number in range(500)]


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
