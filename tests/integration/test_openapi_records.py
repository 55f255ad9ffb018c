"""Facts about what streams and polls carry, held against what the OpenAPI document says of it."""

import contextlib
import itertools
import json

import apsw
import httpx
import jsonschema_rs
import pytest
import websockets.sync.client

from running import Running
from serving import DEADLINE_S, wait_until
from tailrace.interface.openapi.document import describe

DOCUMENT = describe()
BOTH = {"before": True, "after": True}
SCHEMA = """
PRAGMA journal_mode = WAL;
CREATE TABLE users(id INTEGER PRIMARY KEY, name TEXT, score REAL, data BLOB);
CREATE TABLE notes(text, stars);
INSERT INTO users VALUES(1, 'ann', 1.5, x'00ff'), (2, NULL, NULL, NULL);
"""
WRITES = """
INSERT INTO users VALUES(3, 'cid', 9e999, NULL);
UPDATE users SET name = 'bob', id = 4 WHERE id = 2;
UPDATE users SET score = -0.5 WHERE id = 1;
DELETE FROM users WHERE id = 1;
"""


class World:
    def __init__(self, server, database):
        self.server = server
        self.call = server.call
        self.database = database

    def write(self, sql):
        self.database.execute(sql).fetchall()

    def subscribe(self, table="users", **options):
        return self.call("cdc.subscribe_table", {"db": "app", "table": table, **options})["sub_id"]

    def subscribe_query(self, sql, **options):
        query_id = self.call("query.prepare", {"query": sql})["query_id"]
        return query_id, self.call("cdc.subscribe_query", {"query_id": query_id, **options})["sub_id"]

    def events(self, sub_id, count):
        """Poll until there are so many events."""
        poll = {"sub_id": sub_id, "from_offset": 0, "wait_ms": 100}
        return wait_until(lambda: (e := self.call("cdc.poll", poll)["events"])[count - 1 :] and e, f"{count} events")

    @contextlib.contextmanager
    def stream(self, path):
        """Open a stream of server-sent events; give its records as names and data."""
        with httpx.stream("GET", f"{self.server.url}{path}", timeout=DEADLINE_S) as answer:
            assert answer.status_code == 200
            yield _records(answer.iter_lines())


def _records(lines):
    fields = {}
    for line in lines:
        if line:
            name, _, value = line.partition(": ")
            fields[name] = value
        elif "data" in fields:
            yield fields.get("event", "message"), json.loads(fields["data"])
            fields = {}


@pytest.fixture
def world(tmp_path):
    with contextlib.closing(apsw.Connection(str(tmp_path / "app.db"))) as database:
        database.set_busy_timeout(60_000)
        database.execute(SCHEMA).fetchall()
        running = Running(tmp_path / "data", app=f"sqlite:///{tmp_path / 'app.db'}")
        try:
            running.subscribe("users", db="app")
            yield World(running, database)
        finally:
            running.stop()


def check(reference, value):
    """Hold a value against a schema of the document, and against its members by name: what is there is described."""
    jsonschema_rs.validator_for({**reference, "components": DOCUMENT["components"]}).validate(value)
    described = DOCUMENT["components"]["schemas"][reference["$ref"].rpartition("/")[2]]["properties"]
    assert value.keys() <= {*described, "sub_id"}


def check_record(path, record):
    name, data = record
    check(DOCUMENT["paths"][path]["get"]["responses"]["200"]["x-records"][name], data)


@pytest.mark.parametrize("format_", ["objects_json", "plain_json"])
@pytest.mark.parametrize("include", [BOTH, {}], ids=["images", "no images"])
def test_events_of_polls_are_as_described(world, format_, include):
    sub_id = world.subscribe(format=format_, include=include)
    keyless = world.subscribe("notes", format=format_, include=include)
    world.write(WRITES + "INSERT INTO notes VALUES('a', NULL), (x'01', 2.0);")
    events = world.events(sub_id, 4) + world.events(keyless, 2)
    assert {event["op"] for event in events} == {"insert", "update", "delete"}
    for event in events:
        check({"$ref": "#/components/schemas/Event"}, event)


def test_invalidations_of_queries_are_as_described(world):
    rows = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 60) "
    queries = ["SELECT * FROM users", f"{rows}SELECT i, id FROM n, users", "SELECT zeroblob(70000), id FROM users"]
    made = [world.subscribe_query(sql, deliver="result", include=BOTH)[1] for sql in queries]
    for number in range(3):
        world.write(f"INSERT INTO users(id) VALUES({10 + number})")
        found = [world.events(sub_id, number + 1) for sub_id in made]
    for event in itertools.chain.from_iterable(found):
        assert event["op"] == "invalidate"
        check({"$ref": "#/components/schemas/Event"}, event)
    members = [{"result", "delta", "result_omitted"} & events[-1].keys() for events in found]
    assert members == [{"result"}, {"delta"}, {"result_omitted"}]


def test_records_of_a_subscription_are_as_described(world):
    path = "/api/v1/cdc/sse/{sub_id}"
    sub_id = world.subscribe(snapshot=True, include=BOTH)
    seen = []
    with world.stream(path.format(sub_id=sub_id)) as records:
        for record in records:
            seen.append(record[0])
            check_record(path, record)
            match record[0]:
                case "snapshot":
                    world.write(WRITES)
                case "delete":
                    world.call("cdc.pause", {"sub_id": sub_id})
                case "backpressure":
                    world.call("cdc.close", {"sub_id": sub_id})
    assert {"read", "snapshot", "insert", "update", "delete", "backpressure"} == set(seen)


def test_records_of_many_subscriptions_are_as_described(world):
    path, sub_ids = "/api/v1/cdc/sse", [world.subscribe(), world.subscribe("notes")]
    with world.stream(f"{path}?sub={sub_ids[0]}&sub={sub_ids[1]}") as records:
        world.write("INSERT INTO notes VALUES(1, 2)")
        for record in records:
            check_record(path, record)
            assert record[1]["sub_id"] == sub_ids[1]
            if record[0] == "end":
                break
            world.call("cdc.close", {"sub_id": sub_ids[1]})


def test_records_of_a_query_are_as_described(world):
    path = "/api/v1/q/{query_id}/events"
    query_id, _ = world.subscribe_query("SELECT name FROM users")
    with world.stream(path.format(query_id=query_id)) as records:
        world.write("UPDATE users SET name = 'x'")
        record = next(records)
        assert record[0] == "message"
        check_record(path, record)


def test_frames_and_answers_of_a_web_socket_are_as_described(world):
    described = DOCUMENT["paths"]["/api/v1/cdc/ws"]["get"]
    sub_id, url = world.subscribe(include=BOTH), world.server.url.replace("http", "ws")
    commands = [
        {"type": "subscribe", "sub_id": sub_id},
        {"type": "ack", "sub_id": sub_id, "offset": 0},
        {"type": "unsubscribe", "sub_id": sub_id},
        {"type": "pause", "sub_id": sub_id},
        {"type": "resume", "sub_id": sub_id},
        {"type": "subscribe", "sub_id": "sub_0"},
    ]
    with websockets.sync.client.connect(f"{url}/api/v1/cdc/ws", proxy=None, open_timeout=DEADLINE_S) as connection:
        for command, answer in zip(commands, [*(c["type"] for c in commands[:-1]), "error"], strict=True):
            check_command(described["x-command"], command)
            connection.send(json.dumps(command))
            frame = json.loads(connection.recv(DEADLINE_S))
            check(described["x-frame"], frame)
            assert frame["event"] == answer
            check(described["x-answers"][answer], frame["data"])
        connection.send(json.dumps(commands[0]))
        connection.recv(DEADLINE_S)
        world.write(WRITES)
        for _ in range(4):
            frame = json.loads(connection.recv(DEADLINE_S))
            check(described["x-frame"], frame)
            check(described["x-records"][frame["event"]], frame["data"])


def check_command(reference, command):
    validator = jsonschema_rs.validator_for({**reference, "components": DOCUMENT["components"]})
    validator.validate(command)
    assert not validator.is_valid({**command, "unknown": 1})
