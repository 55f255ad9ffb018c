"""kill -9 of the server while every kind of reader follows: each gets each change once and in order."""

import base64
import json
import os
import random
import sqlite3
import subprocess
import sys
import threading
from functools import partial

import grpc
import httpx
import pytest
from websockets.exceptions import WebSocketException
from websockets.sync.client import connect

from change_streams import node
from databases import free_port
from serving import run, wait_until
from tailrace.client.bulk import BulkClient
from tailrace.client.errors import ClientError
from tailrace.delivery.grpc.proto import coordinode_cdc_pb2, sochdb_pb2

ROUNDS = 60 if os.environ.get("LONG_TESTS") else 5
DEADLINE_S = 240
ROW_OPS = ["Insert", "Update", "Delete"]
LAST = 1_000_000_000
"""Key of the row that is written when all kills are over."""

WRITER = """
import sqlite3, sys, time
database = sqlite3.connect(sys.argv[1], timeout=60, isolation_level=None)
(number,) = database.execute("SELECT coalesce(max(id), 0) FROM t").fetchone()
print("ready", flush=True)
while True:
    number += 1
    database.execute("INSERT INTO t (id, note) VALUES (?, ?)", (number, "x" * (number % 90)))
    if number % 3 == 0:
        database.execute("UPDATE t SET note = 'u' WHERE id = ?", (number,))
    time.sleep(0.002)
"""


class Reader(threading.Thread):
    """Follows the changes of `t` over one interface, and again from its own place whenever that breaks."""

    def __init__(self, world):
        super().__init__(daemon=True)
        self.world = world
        self.seen = []
        self.connections = 0
        self.problem = None

    @property
    def last(self):
        return self.seen[-1][0] if self.seen else 0

    @property
    def done(self):
        return bool(self.seen) and self.seen[-1][1] == LAST

    def run(self):
        while not self.done and not self.world.over.is_set():
            try:
                self.follow()
                self.connections += 1
            except (httpx.HTTPError, WebSocketException, OSError, EOFError, TimeoutError, ClientError, grpc.RpcError):
                self.world.over.wait(0.02)
            except Exception as error:
                self.problem = error
                return

    def has(self, count):
        return len(self.seen) >= count or self.problem

    def ended(self):
        return self.done or self.problem

    def take(self, offset, key):
        self.seen.append((offset, key))
        return self.done


class Sse(Reader):
    def follow(self):
        headers = {"Last-Event-ID": str(self.last)}
        url = f"{self.world.url}/api/v1/cdc/sse/{self.world.sub_id}"
        with httpx.stream("GET", url, headers=headers, timeout=10) as answer:
            answer.raise_for_status()
            for line in answer.iter_lines():
                if line.startswith('data: {"seq"'):
                    event = json.loads(line[6:])
                    if self.take(event["seq"], event["pk"][0]):
                        return


class Ws(Reader):
    def follow(self):
        url = self.world.url.replace("http", "ws", 1)
        with connect(f"{url}/api/v1/cdc/ws/{self.world.sub_id}?from_offset={self.last}", open_timeout=10) as socket:
            while not self.done:
                record = json.loads(socket.recv(10))
                if "id" in record and "pk" in record["data"]:
                    self.take(record["id"], record["data"]["pk"][0])


class Gateway(Reader):
    def follow(self):
        with connect(self.world.url.replace("http", "ws", 1), open_timeout=10) as socket:
            payload = {"namespace": "app", "tables": ["t"], "operations": ROW_OPS, "start_sequence": self.last + 1}
            socket.send(json.dumps({"id": "1", "type": "subscribe", "payload": payload}))
            assert json.loads(socket.recv(10))["type"] == "result"
            while not self.done:
                event = json.loads(socket.recv(10))["payload"]
                self.take(event["sequence"], json.loads(base64.b64decode(event["key"]))[0])


class Poll(Reader):
    def follow(self):
        while not self.done and not self.world.over.is_set():
            params = {"sub_id": self.world.sub_id, "from_offset": self.last, "wait_ms": 500, "limit": 500}
            body = {"skeinql": "1.0", "id": 1, "method": "cdc.poll", "params": params}
            answer = httpx.post(f"{self.world.url}/api/v1/rpc", json=body, timeout=10).json()
            if not answer["ok"]:
                raise ConnectionError(answer["error"]["code"])
            assert not answer["result"]["resnapshot_required"]
            for event in answer["result"]["events"]:
                self.take(event["seq"], event["pk"][0])


class Sochdb(Reader):
    def follow(self):
        with grpc.insecure_channel(self.world.grpc) as channel:
            subscribe = channel.unary_stream(
                "/sochdb.v1.SubscriptionService/Subscribe",
                request_serializer=sochdb_pb2.SubscribeRequest.SerializeToString,
                response_deserializer=sochdb_pb2.SubscribeEvent.FromString,
            )
            request = sochdb_pb2.SubscribeRequest(
                namespace="app", tables=["t"], operations=[1, 2, 3], start_sequence=self.last + 1
            )
            for event in subscribe(request, timeout=60):
                if self.take(event.sequence, json.loads(event.key)[0]):
                    return


class Coordinode(Reader):
    token = coordinode_cdc_pb2.ResumeToken()

    def follow(self):
        with grpc.insecure_channel(self.world.grpc) as channel:
            subscribe = channel.unary_stream(
                "/coordinode.v1.replication.ChangeStreamService/Subscribe",
                request_serializer=coordinode_cdc_pb2.SubscribeRequest.SerializeToString,
                response_deserializer=coordinode_cdc_pb2.ChangeEvent.FromString,
            )
            for event in subscribe(coordinode_cdc_pb2.SubscribeRequest(resume_token=self.token), timeout=60):
                for op in event.ops:
                    self.take(event.log_index, node(op.key)[3][0])
                self.token = event.position
                if self.done:
                    return


class Bulk(Reader):
    def follow(self):
        client = BulkClient(self.world.url)
        try:
            head = client.info("app").head
            if head == self.last:
                self.world.over.wait(0.05)
                return
            for _, batch in client.batches("app", self.last, head, ["t"]):
                columns = [batch.column(name).to_pylist() for name in ("offset", "op", "key")]
                for offset, op, key in zip(*columns, strict=True):
                    if op <= 3:
                        self.take(offset, json.loads(key)[0])
        finally:
            client.close()


class World:
    def __init__(self, serve, directory):
        self.path = directory / "app.db"
        self.database = sqlite3.connect(self.path, timeout=60, isolation_level=None)
        self.database.execute("PRAGMA journal_mode = WAL")
        self.database.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, note TEXT)")
        self.http_port, self.grpc_port = free_port(), free_port()
        self.url, self.grpc = f"http://127.0.0.1:{self.http_port}", f"127.0.0.1:{self.grpc_port}"
        self.over = threading.Event()
        self._serve = serve

    def serve(self, *, wait=True):
        ports = ("--http-port", self.http_port, "--grpc-port", self.grpc_port)
        return self._serve("--source", f"app=sqlite:///{self.path}", *ports, "--logging-level", "error", wait=wait)


@pytest.mark.timeout(1800 if os.environ.get("LONG_TESTS") else 600)
def test_every_kind_of_reader_gets_each_change_once_and_in_order_through_kills(serve, tmp_path):
    world = World(serve, tmp_path)
    server = world.serve()
    world.sub_id = server.subscribe("t", db="app", format="plain_json")["sub_id"]
    readers = [kind(world) for kind in (Sse, Ws, Gateway, Poll, Sochdb, Coordinode, Bulk)]
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(world.path)], stdout=subprocess.PIPE)
    chance = random.Random(12)
    try:
        assert writer.stdout.readline() == b"ready\n"
        for reader in readers:
            reader.start()
        for number in range(ROUNDS):
            goals = [len(reader.seen) + chance.randint(1, 60) for reader in readers]
            for reader, goal in zip(readers, goals, strict=True):
                wait_until(partial(reader.has, goal), f"{type(reader).__name__} has {goal} changes", DEADLINE_S)
            server.kill()
            server = world.serve(wait=number == ROUNDS - 1 or chance.random() < 0.5)
        writer.kill()
        world.database.execute("INSERT INTO t (id, note) VALUES (?, 'last')", (LAST,))
        for reader in readers:
            wait_until(reader.ended, f"{type(reader).__name__} has the last change", DEADLINE_S)
    finally:
        world.over.set()
        writer.kill()
        writer.wait()
        writer.stdout.close()
        for reader in readers:
            if reader.ident is not None:
                reader.join(60)
    assert [reader.problem for reader in readers] == [None] * len(readers)
    assert server.stop() == 0
    lines = map(json.loads, run("log", "cat", tmp_path / "data", "--table", "t", timeout=120).stdout.splitlines())
    expected = [(line["seq"], line["pk"][0]) for line in lines if line["op"] != "schema"]
    keys = [key for _, key in expected]
    assert len(keys) > ROUNDS
    for reader in readers:
        if isinstance(reader, Coordinode):  # it counts commits, not changes
            indexes = [index for index, _ in reader.seen]
            assert (indexes, [key for _, key in reader.seen]) == (sorted(indexes), keys)
        else:
            assert reader.seen == expected, type(reader).__name__
    world.database.close()
