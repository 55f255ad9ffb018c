"""A database restored from a backup under a server: a refusal with advice, a new log, and nobody goes on unaware."""

import json
import shutil
import sqlite3
from pathlib import Path

import grpc
import httpx
import pytest

from pulling import Client, Puller
from serving import DEADLINE_S, Server, run, wait_until
from tailrace.delivery.grpc.proto import coordinode_cdc_pb2 as coordinode
from tailrace.delivery.grpc.proto import sochdb_pb2 as sochdb

pytestmark = pytest.mark.timeout(400)
"""Servers and commands are started one after the other, which takes long on a busy machine."""


class World:
    """A server of one database."""

    def __init__(self, directory):
        self.path = directory / "app.db"
        self.data = directory / "data"
        self.write("PRAGMA journal_mode = wal", "CREATE TABLE t(id INTEGER PRIMARY KEY, v)")
        self.server = None

    def write(self, *statements):
        database = sqlite3.connect(self.path, timeout=60, isolation_level=None)
        for statement in statements:
            database.execute(statement)
        database.close()

    def insert(self, *numbers):
        self.write(*(f"INSERT INTO t VALUES({number}, 'v')" for number in numbers))

    def start(self):
        self.server = Server(self.data, "--source", f"app=sqlite:///{self.path}", "--jimdb-log-wait", "0.02s")
        self.server.wait_ready()
        wait_until(self.server.is_ready, "capture runs")
        return self.server

    def refused(self):
        """Start a server and return what it says when it refuses to capture."""
        server = Server(self.data, "--source", f"app=sqlite:///{self.path}")
        assert server.process.wait(DEADLINE_S) == 1
        server.stop()
        return Path(server.errors.name).read_text().strip().splitlines()[-1]

    def copy(self, made):
        made.unlink(missing_ok=True)
        self.write(f"VACUUM INTO '{made}'")

    def put_back(self, made):
        for suffix in ("-wal", "-shm"):
            Path(f"{self.path}{suffix}").unlink(missing_ok=True)
        shutil.copy(made, self.path)


@pytest.fixture
def world(tmp_path):
    made = World(tmp_path)
    yield made
    if made.server is not None:
        made.server.stop()


def poll(server, subscription, after):
    return server.call("cdc.poll", {"sub_id": subscription, "from_offset": after, "limit": 100})


def grpc_stream(server, method, request, answer, **options):
    channel = grpc.insecure_channel(server.addresses["grpc"].removeprefix("http://"))
    call = channel.unary_stream(method, type(request).SerializeToString, answer.FromString)
    return channel, call(request, timeout=DEADLINE_S, **options)


def sochdb_events(server, sequence, count):
    request = sochdb.SubscribeRequest(namespace="app", start_sequence=sequence)
    channel, stream = grpc_stream(server, "/sochdb.v1.SubscriptionService/Subscribe", request, sochdb.SubscribeEvent)
    with channel:
        return [next(stream) for _ in range(count)]


def coordinode_events(server, token, count):
    request = coordinode.SubscribeRequest(resume_token=token)
    method = "/coordinode.v1.replication.ChangeStreamService/Subscribe"
    channel, stream = grpc_stream(server, method, request, coordinode.ChangeEvent)
    with channel:
        return [next(stream) for _ in range(count)]


def sse_event(server, subscription, last):
    """Return kind and data of the event that ends a stream."""
    url = f"{server.url}/api/v1/cdc/sse/{subscription}"
    with httpx.stream("GET", url, headers={"Last-Event-ID": str(last)}, timeout=DEADLINE_S) as answer:
        lines = answer.iter_lines()
        event = next(line for line in lines if line.startswith("event: resnapshot"))
        return event.split()[1], json.loads(next(line for line in lines if line.startswith("data:"))[5:])


def test_after_a_restore_and_a_new_log_everybody_is_asked_for_a_new_snapshot(world, tmp_path):
    server = world.start()
    feed = server.subscribe("t", "app")["sub_id"]
    world.insert(1, 2)
    wait_until(lambda: poll(server, feed, 0)["events"], "changes are there")
    world.copy(tmp_path / "backup.db")
    world.insert(3, 4)
    head = 4
    wait_until(lambda: poll(server, feed, 0)["latest_offset"] == head, "all changes are there")
    server.call("cdc.ack", {"sub_id": feed, "offset": head})
    token = coordinode_events(server, None, 4)[-1].position
    client = Client(server.addresses["grpc"].removeprefix("http://"))
    puller = Puller(client, "t", "puller", "app")
    puller.drain(head)
    assert server.stop() == 0
    client.close()

    world.put_back(tmp_path / "backup.db")
    world.insert(11, 12, 13)
    line = world.refused()
    assert "tailrace log reset" in line
    assert "docs/how-to/restore.md" in line
    done = run("log", "reset", world.data, "--json")
    assert done.returncode == 0, done.stderr
    begun = json.loads(done.stdout)
    old = run("log", "cat", begun["replaced"])
    assert [json.loads(text)["pk"] for text in old.stdout.splitlines()] == [[1], [2], [3], [4]]

    server = world.start()
    first = begun["first_offset"]
    assert first > head + 1
    polled = poll(server, feed, head)
    assert (polled["resnapshot_required"], polled["resnapshot_from_offset"]) == (True, first - 1)
    kind, event = sse_event(server, feed, head)
    assert (kind, event["resnapshot_from_offset"]) == ("resnapshot", first - 1)
    with pytest.raises(grpc.RpcError, match="overrun"):
        sochdb_events(server, head + 1, 1)
    with pytest.raises(grpc.RpcError, match="retention lost"):
        coordinode_events(server, token, 1)
    client = Client(server.addresses["grpc"].removeprefix("http://"))
    (progress,) = puller.progress.values()
    answer = client.pull_log(progress.range, "puller", progress.index)
    assert answer.error.WhichOneof("err") == "log_lost"
    client.close()

    world.insert(21)
    wait_until(lambda: poll(server, feed, first - 1)["events"], "new changes are there")
    assert server.stop() == 0
    assert run("log", "verify", world.data).returncode == 0
    keys = [json.loads(text)["pk"] for text in run("log", "cat", world.data).stdout.splitlines()]
    assert keys[-1] == [21]


def test_a_log_is_not_begun_anew_under_a_server(world):
    world.start()
    done = run("log", "reset", world.data)
    assert done.returncode == 1
    assert "in use" in done.stderr


def test_a_file_put_in_place_under_a_server_is_opened_when_it_is_the_same_history_and_refused_otherwise(
    world, tmp_path
):
    server = world.start()
    feed = server.subscribe("t", "app")["sub_id"]
    world.insert(1, 2)
    wait_until(lambda: len(poll(server, feed, 0)["events"]) == 2, "changes are there")
    world.copy(tmp_path / "early.db")
    world.insert(3)
    wait_until(lambda: len(poll(server, feed, 0)["events"]) == 3, "changes are there")
    world.copy(tmp_path / "late.db")
    (tmp_path / "late.db").replace(world.path)
    log = Path(server.errors.name)
    wait_until(lambda: "was replaced by another file" in log.read_text(), "it is logged")
    wait_until(server.is_ready, "the new file is captured")
    world.insert(4)
    wait_until(lambda: len(poll(server, feed, 0)["events"]) == 4, "changes of the new file are there")
    (tmp_path / "early.db").replace(world.path)
    assert server.process.wait(DEADLINE_S) == 1
    assert "tailrace log reset" in log.read_text().strip().splitlines()[-1]
