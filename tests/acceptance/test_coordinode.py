"""The published clients of CoordiNode against `tailrace serve`: all three generations that are in use."""

import sqlite3
from contextlib import contextmanager

import pytest

from change_streams import adjacency, edge_property, node, row
from clients import published
from serving import DEADLINE_S, Server, run, wait_until
from tailrace.delivery.grpc.proto import status_pb2

pytestmark = pytest.mark.timeout(400)
"""The published client is installed within the first test that uses it; its processes take long to start."""

VERSIONS = ["1.0.6", "3.0.0", "4.0.1"]
STRICT = {"strict": {}}
CONFIG = """
[sources.app]
url = "sqlite:///{directory}/app.db"
[sources.app.edges.follows]
type = "FOLLOWS"
source_column = "a"
target_column = "b"
[sources.two]
url = "sqlite:///{directory}/two.db"
"""


def client(config, version):
    return published(config, f"coordinode=={version}", "coordinode_client.py")


@pytest.fixture(params=VERSIONS)
def coordinode(request, pytestconfig):
    """Each published client."""
    return client(pytestconfig, request.param)


@pytest.fixture
def newest(pytestconfig):
    """The client that registers consumers."""
    return client(pytestconfig, VERSIONS[-1])


class World:
    """A server with two sources, its databases, and the streams of a test."""

    def __init__(self, directory):
        self.directory = directory
        (directory / "tailrace.toml").write_text(CONFIG.format(directory=directory))
        self.databases = {name: opened(directory / f"{name}.db") for name in ("app", "two")}
        self.app, self.two = self.databases.values()
        self.running = []
        self.server = None

    def start(self, *arguments):
        self.server = Server(self.directory / "data", str(self.directory / "tailrace.toml"), *arguments).wait_ready()
        wait_until(self.server.is_ready, "both sources are captured")

    @property
    def address(self):
        return self.server.addresses["grpc"]

    def stream(self, script, request=None, metadata=None):
        """Start a stream; return it after its first line."""
        arguments = [] if metadata is None else [metadata]
        running = script.start("subscribe", self.address, request or {}, *arguments)
        self.running.append(running)
        return running

    def close(self):
        for script in self.running:
            script.kill()
        if self.server is not None:
            self.server.kill()
        for database in self.databases.values():
            database.close()


def opened(path):
    database = sqlite3.connect(path, isolation_level=None, timeout=DEADLINE_S)
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("CREATE TABLE users (id INTEGER PRIMARY KEY, name TEXT)")
    database.execute("CREATE TABLE follows (a INTEGER, b INTEGER, since INTEGER, PRIMARY KEY (a, b))")
    return database


@pytest.fixture
def world(tmp_path):
    made = World(tmp_path)
    yield made
    made.close()


@contextmanager
def transaction(database):
    database.execute("BEGIN")
    yield
    database.execute("COMMIT")


def begun(stream):
    return stream.line()["begun"]


def events(stream, count):
    """Return the next events with operations."""
    found = []
    while len(found) < count:
        line = stream.line()
        assert "ops" in line, line
        if line["ops"]:
            found.append(line)
    return found


def info(end):
    """Return the reason and the metadata in the details of a status."""
    status = status_pb2.Status.FromString(end["trailing"]["grpc-status-details-bin"].encode("latin-1"))
    told = status_pb2.ErrorInfo.FromString(status.details[0].value)
    return told.reason, dict(told.metadata)


def cells(text):
    found = row(text.encode("latin-1"))
    return found and (found[0], {name: cell and cell[1] for name, cell in found[1].items()})


def test_the_flow_of_the_seed(coordinode, world):
    world.start()
    stream = world.stream(coordinode)
    begun(stream)
    with transaction(world.app):
        world.app.execute("INSERT INTO users VALUES (1, 'Ann'), (2, 'Bob')")
        world.app.execute("INSERT INTO follows VALUES (1, 2, 2020)")
    one = events(stream, 1)[0]
    world.app.execute("UPDATE users SET name = 'Zoe' WHERE id = 1")
    two = events(stream, 1)[0]
    world.app.execute("DELETE FROM users WHERE id = 2")
    three = events(stream, 1)[0]
    world.app.execute("ALTER TABLE users ADD COLUMN age INTEGER")
    four = events(stream, 1)[0]
    assert [event["log_index"] for event in (one, two, three, four)] == [1, 2, 3, 4]
    assert [event["term"] for event in (one, two, three, four)] == [1] * 4
    assert one["ts"] < two["ts"] < three["ts"] < four["ts"]
    assert [op["type"] for op in one["ops"]] == ["INSERT", "INSERT", "MERGE", "MERGE", "INSERT"]
    assert [op["partition"] for op in one["ops"]] == [0, 0, 1, 1, 2]
    assert node(one["ops"][0]["key"].encode("latin-1")) == (0, 1, "users", [1])
    assert cells(one["ops"][1]["value"]) == ("users", {"id": 2, "name": "Bob"})
    assert adjacency(one["ops"][2]["key"].encode("latin-1")) == ("FOLLOWS", "out", 1)
    assert edge_property(one["ops"][4]["key"].encode("latin-1"), "FOLLOWS") == (1, 2, None)
    (update,), (delete,), (schema,) = two["ops"], three["ops"], four["ops"]
    assert (update["type"], cells(update["value"])) == ("INSERT", ("users", {"id": 1, "name": "Zoe"}))
    assert cells(update["before"]) == ("users", {"id": 1, "name": "Ann"})
    assert (delete["type"], delete["value"]) == ("DELETE", "")
    assert cells(delete["before"]) == ("users", {"id": 2, "name": "Bob"})
    assert (schema["partition"], schema["key"]) == (5, "schema:table:users:2")
    again = world.stream(coordinode, {"resume_token": one["position"]})
    begun(again)
    assert events(again, 3) == [two, three, four]
    assert coordinode.run("health", world.address) == [True]


def test_a_stream_resumes_behind_a_killed_server_and_a_killed_client(coordinode, world):
    world.start()
    stream = world.stream(coordinode)
    begun(stream)
    for number in range(1, 4):
        world.app.execute("INSERT INTO users VALUES (?, 'x')", [number])
        *_, last = events(stream, 1)
    world.server.kill()
    stream.kill()
    world.app.execute("INSERT INTO users VALUES (4, 'x')")
    world.start()
    world.app.execute("INSERT INTO users VALUES (5, 'x')")
    again = world.stream(coordinode, {"resume_token": last["position"]})
    begun(again)
    found = events(again, 1)
    while sum(len(event["ops"]) for event in found) < 2:
        found += events(again, 1)
    keys = [node(op["key"].encode("latin-1"))[1] for event in found for op in event["ops"]]
    assert keys == [4, 5]
    assert found[0]["log_index"] == last["log_index"] + 1
    assert {event["term"] for event in found} == {2}
    assert found[0]["ts"] > last["ts"]


@pytest.mark.parametrize("coordinode", ["3.0.0"], indirect=True)
def test_filters_choose_by_edge_type_and_by_moved_data(coordinode, world):
    world.start()
    world.app.execute("INSERT INTO users VALUES (1, 'x')")
    stream = world.stream(coordinode)
    begun(stream)
    events(stream, 1)
    sql = "INSERT INTO users VALUES (10, 'moved'); INSERT INTO follows VALUES (10, 11, 1)"
    assert run("capture", "exec", f"sqlite:///{world.directory}/app.db", sql, "--bulk").returncode == 0
    events(stream, 1)
    world.app.execute("INSERT INTO follows VALUES (1, 2, 1)")
    events(stream, 1)
    world.app.execute("INSERT INTO users VALUES (2, 'x')")
    events(stream, 1)
    wanted = {
        (): [1, 2, 3, 4],
        ("edge_types", "FOLLOWS"): [2, 3],
        ("is_migration", True): [2],
        ("is_migration", False): [1, 3, 4],
    }
    for chosen, indexes in wanted.items():
        filters = {} if not chosen else {chosen[0]: [chosen[1]] if chosen[0] == "edge_types" else chosen[1]}
        filtered = world.stream(coordinode, {"filters": filters})
        begun(filtered)
        found = events(filtered, len(indexes))
        assert [event["log_index"] for event in found] == indexes
        if indexes[-1] != 4:
            progress = filtered.line()
            while progress["log_index"] < 4:
                progress = filtered.line()
            assert (progress["ops"], progress["ts"], progress["log_index"]) == ([], 0, 4)
            assert progress["position"] == {"shard_id": 0, "segment_id": 5, "entry_offset": 0}


@pytest.mark.parametrize("coordinode", ["1.0.6"], indirect=True)
def test_a_place_that_retention_has_removed_and_places_that_are_none(coordinode, world):
    world.start("--retention-events", "2")
    stream = world.stream(coordinode)
    begun(stream)
    for number in range(5):
        world.app.execute("INSERT INTO users VALUES (?, 'x')", [number])
        events(stream, 1)
    lost = world.stream(coordinode, {"resume_token": {"segment_id": 1, "entry_offset": 1}}).line()
    lost = lost if "ended" in lost else world.running[-1].line()
    assert lost["ended"] == "FAILED_PRECONDITION"
    assert lost["details"] == "change stream retention lost: retention lost: checkpoint 2 is below shard floor 4"
    assert info(lost) == ("RETENTION_LOST", {"requested_index": "2", "first_retained_index": "4"})
    refused = {
        "INVALID_ARGUMENT": [
            {"shard_id": 9, "segment_id": 1},
            {"segment_id": 2**64 - 1, "entry_offset": 1},
        ],
        "OUT_OF_RANGE": [{"segment_id": 7}],
    }
    for code, tokens in refused.items():
        for token in tokens:
            lines = list(world.stream(coordinode, {"resume_token": token}).rest())
            assert lines[-1]["ended"] == code
    oldest = world.stream(coordinode)
    begun(oldest)
    assert [event["log_index"] for event in events(oldest, 2)] == [4, 5]


@pytest.mark.parametrize("coordinode", ["4.0.1"], indirect=True)
def test_another_shard_and_all_shards_in_one_stream(coordinode, world):
    world.start()
    stream = world.stream(coordinode, {}, {"x-tailrace-merge": "all"})
    begun(stream)
    found = []
    for number, database in enumerate([world.app, world.two, world.two, world.app]):
        database.execute("INSERT INTO users VALUES (?, 'x')", [number])
        found += events(stream, 1)
    assert [(event["shard_id"], event["log_index"]) for event in found] == [(0, 1), (1, 1), (1, 2), (0, 2)]
    again = world.stream(coordinode, {"resume_token": found[1]["position"]})
    begun(again)
    assert events(again, 2) == found[2:]
    other = world.stream(coordinode, {}, {"x-tailrace-shard": "1"})
    begun(other)
    assert [event["log_index"] for event in events(other, 2)] == [1, 2]


def consume(world, script, **request):
    """Register or resume a consumer; return its stream and its incarnation."""
    stream = world.stream(script, request)
    line = stream.line()
    while "begun" in line and "x-coordinode-consumer-incarnation" not in line["begun"]:
        line = stream.line()
    if "ended" in line:
        return line
    return stream, int(line["begun"]["x-coordinode-consumer-incarnation"])


def test_consumers_acknowledge_resume_behind_a_killed_server_and_are_cancelled(newest, world):
    world.start("--retention-events", "2")
    stream, incarnation = consume(world, newest, consumer_id="c", retention=STRICT)
    other, _ = consume(world, newest, consumer_id="d", retention=STRICT)
    assert incarnation == 1
    for number in range(6):
        world.app.execute("INSERT INTO users VALUES (?, 'x')", [number])
        assert events(stream, 1) == events(other, 1)
    assert consume(world, newest, consumer_id="c", retention=STRICT)["ended"] == "ALREADY_EXISTS"
    assert consume(world, newest, consumer_id="nobody", incarnation=1)["ended"] == "NOT_FOUND"
    position = {"segment_id": 1, "entry_offset": 3}
    acknowledge = {"consumer_id": "c", "incarnation": 1, "position": position}
    assert newest.run("acknowledge", world.address, acknowledge)[0]["ended"] == "OK"
    beyond = {**acknowledge, "position": {"segment_id": 9}}
    assert newest.run("acknowledge", world.address, beyond)[0]["ended"] == "INVALID_ARGUMENT"
    world.server.kill()
    world.start("--retention-events", "2")
    stream, incarnation = consume(world, newest, consumer_id="c", incarnation=1)
    assert [event["log_index"] for event in events(stream, 3)] == [4, 5, 6]
    other, _ = consume(world, newest, consumer_id="d", incarnation=1)
    assert [event["log_index"] for event in events(other, 6)] == [1, 2, 3, 4, 5, 6]
    assert newest.run("cancel", world.address, {"consumer_id": "c", "incarnation": 1})[0]["ended"] == "OK"
    *_, end = stream.rest()
    assert end["ended"] == "FAILED_PRECONDITION"
    assert info(end) == ("CONSUMER_TERMINATED", {"incarnation": "1", "reason": "CANCELLED", "checkpoint": "3"})
    assert info(consume(world, newest, consumer_id="c", incarnation=1))[0] == "CONSUMER_TERMINATED"
    _, incarnation = consume(world, newest, consumer_id="c", retention=STRICT)
    assert incarnation == 2


def test_a_bounded_consumer_that_falls_behind_is_ended(newest, world):
    world.start()
    retention = {"bounded": {"max_progress_lag_ms": 300, "max_retained_bytes": 1 << 30}}
    stream, _ = consume(world, newest, consumer_id="c", retention=retention)
    world.app.execute("INSERT INTO users VALUES (1, 'x')")
    *_, end = stream.rest()
    assert info(end)[1]["reason"] == "PROGRESS_LAG_EXCEEDED"
