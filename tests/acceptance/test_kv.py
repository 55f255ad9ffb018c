"""Keys and values over gRPC and the WebSocket gateway of `tailrace serve`, and how they show up as changes."""

import base64
import json
import sqlite3
from contextlib import contextmanager

import grpc
import pytest
from websockets.sync.client import connect

from clients import published
from serving import DEADLINE_S, Server
from tailrace.delivery.grpc.proto import sochdb_pb2 as proto

pytestmark = pytest.mark.timeout(400)
"""The published client is installed within the first test that uses it; its processes take long to start."""


@pytest.fixture(scope="session")
def sochdb(pytestconfig):
    return published(pytestconfig, "sochdb==0.8.3", "sochdb_client.py")


@pytest.fixture
def streams():
    """Scripts that are ended when the test is over."""
    running = []
    yield running
    for script in running:
        script.kill()


@pytest.fixture(scope="module")
def embedded(tmp_path_factory):
    """A server of the embedded database, shared by the tests of this file that leave it running."""
    server = Server(tmp_path_factory.mktemp("embedded") / "data").wait_ready()
    yield server
    server.kill()


@pytest.fixture
def app(tmp_path):
    """A database of somebody's, and the source that it is."""
    with sqlite3.connect(tmp_path / "app.db") as database:
        database.execute("CREATE TABLE item(id INTEGER PRIMARY KEY)")
    database.close()
    return f"app=sqlite:///{tmp_path / 'app.db'}"


@contextmanager
def calling(server):
    """Give a function that calls a method of KvService with grpcio."""
    with grpc.insecure_channel(server.addresses["grpc"]) as channel:

        def call(method, request):
            answer = getattr(proto, f"Kv{method}Response").FromString
            path = f"/sochdb.v1.KvService/{method}"
            serialize = type(request).SerializeToString
            if method == "Scan":
                return list(channel.unary_stream(path, serialize, answer)(request, timeout=DEADLINE_S))
            return channel.unary_unary(path, serialize, answer)(request, timeout=DEADLINE_S)

        yield call


class Socket:
    """A connection of the gateway."""

    def __init__(self, connection):
        self._connection = connection
        self._events = []

    def message(self):
        """Return the next event."""
        return self._events.pop(0) if self._events else self._received()

    def ask(self, type_, payload, id_="r"):
        """Return the answer. An event that the request leads to may come before it."""
        self._connection.send(json.dumps({"id": id_, "type": type_, "payload": payload}))
        while (answer := self._received())["id"] != id_:
            self._events.append(answer)
        return answer["type"], answer["payload"]

    def _received(self):
        return json.loads(self._connection.recv(DEADLINE_S))


@contextmanager
def gateway(server, path="/"):
    with connect(
        server.url.replace("http", "ws", 1) + path, proxy=None, open_timeout=DEADLINE_S, close_timeout=2
    ) as connection:
        yield Socket(connection)


def test_what_the_published_client_puts_shows_up_in_a_stream(sochdb, streams, embedded):
    address = embedded.addresses["grpc"]
    script = sochdb.start("subscribe", address, {"tables": ["kv"], "operations": [1, 2, 3]}, {})
    streams.append(script)
    assert "begun" in script.line()
    steps = (["put", "k", "one"], ["get", "k"], ["put", "k", "two"], ["delete", "k"], ["delete", "k"])
    assert sochdb.run("kv", address, *steps) == [True, "one", True, True, False]
    events = script.lines(3)
    assert [(event["operation"], event["key"]) for event in events] == [
        ("INSERT", "k"),
        ("UPDATE", "k"),
        ("DELETE", "k"),
    ]
    assert [(event.get("before_value"), event.get("after_value")) for event in events] == [
        (None, "one"),
        ("one", "two"),
        ("two", None),
    ]


def test_grpcio_gets_what_it_put_and_scans_in_order(embedded):
    with calling(embedded) as call:
        entries = [proto.KvPutEntry(key=b"p/%04d" % number, value=b"v%d" % number) for number in range(3000)]
        assert call("BatchPut", proto.KvBatchPutRequest(entries=entries)).success_count == 3000
        scanned = call("Scan", proto.KvScanRequest(prefix=b"p/", limit=2500))
        assert [(entry.key, entry.value) for entry in scanned] == [(e.key, e.value) for e in entries[:2500]]
        got = call("BatchGet", proto.KvBatchGetRequest(keys=[b"p/0002", b"none"]))
        assert [(entry.value, entry.found) for entry in got.entries] == [(b"v2", True), (b"", False)]


def test_expiry_is_a_delete_also_of_what_expired_while_the_server_was_down(serve):
    server = serve()
    with calling(server) as call, gateway(server) as socket:
        assert socket.ask("subscribe", {"tables": ["kv"], "operations": ["delete"]}, "s")[0] == "result"
        call("Put", proto.KvPutRequest(key=b"short", value=b"v", ttl_seconds=1))
        event = socket.message()["payload"]
        assert (base64.b64decode(event["key"]), base64.b64decode(event["before_value"])) == (b"short", b"v")
        call("Put", proto.KvPutRequest(key=b"down", value=b"v", ttl_seconds=1))
        first = event["sequence"] + 1
    server.kill()
    again = serve()
    with gateway(again) as socket:
        assert socket.ask("subscribe", {"operations": ["Delete"], "start_sequence": first}, "s")[0] == "result"
        assert base64.b64decode(socket.message()["payload"]["key"]) == b"down"


def test_sql_of_the_gateway_writes_to_the_embedded_database_and_is_captured(embedded):
    with gateway(embedded, "/anything") as socket:
        socket.ask("subscribe", {"tables": ["item"], "operations": ["insert"]}, "s")
        assert socket.ask("sql", {"query": "CREATE TABLE item(id INTEGER PRIMARY KEY, name TEXT)"})[0] == "result"
        socket.ask("sql", {"query": "INSERT INTO item VALUES(?, ?)", "params": [1, "a"]})
        event = socket.message()
        assert (event["id"], event["payload"]["operation"]) == ("s", "Insert")
        assert json.loads(base64.b64decode(event["payload"]["after_value"])) == {"id": 1, "name": "a"}
        answer = socket.ask("sql", {"query": "SELECT * FROM item"})
        assert answer == ("result", {"columns": ["id", "name"], "rows": [[1, "a"]], "changes": 0})


def test_a_configured_source_takes_keys_and_values_but_no_sql_that_writes(serve, app, tmp_path):
    with sqlite3.connect(tmp_path / "own.db") as own:
        own.execute("CREATE TABLE kv(id INTEGER PRIMARY KEY)")
    own.close()
    server = serve("--source", app, "--source", f"own=sqlite:///{tmp_path / 'own.db'}")
    with gateway(server) as socket:
        assert socket.ask("sql", {"query": "INSERT INTO item VALUES(1)", "namespace": "app"})[0] == "error"
        assert socket.ask("kv_put", {"key": "k", "value": "v", "namespace": "app"}) == ("result", {"ok": True})
    codes = {"": "NOT_FOUND", "none": "NOT_FOUND", "own": "FAILED_PRECONDITION"}
    with calling(server) as call:
        assert call("Get", proto.KvGetRequest(namespace="app", key=b"k")).value == b"v"
        for namespace, code in codes.items():
            with pytest.raises(grpc.RpcError) as error:
                call("Put", proto.KvPutRequest(namespace=namespace, key=b"k", value=b"v"))
            assert error.value.code().name == code
            assert str(tmp_path) not in error.value.details()


def test_settings_let_sql_write_and_capture_be_off(serve, app):
    server = serve("--source", app, "--gateway-sql-write", "--no-capture")
    with gateway(server) as socket:
        answer = socket.ask("sql", {"query": "INSERT INTO item VALUES(1)"})
        assert answer == ("result", {"columns": [], "rows": [], "changes": 1})
        assert socket.ask("kv_put", {"key": "k", "value": "v"}) == ("result", {"ok": True})
        assert socket.ask("kv_get", {"key": "k"}) == ("result", {"found": True, "value": "v"})
        assert socket.ask("subscribe", {}) == ("error", {"message": "CDC not enabled"})
