"""Facts about `tailrace serve` as a process."""

import json
import sqlite3
import time

import grpc
import httpx
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from databases import free_port
from serving import DEADLINE_S, run, wait_until

SERVING = b"\x08\x01"
"""A HealthCheckResponse whose status is SERVING."""


def poll(server, sub_id, after, wait_ms=20_000):
    return server.call("cdc.poll", {"sub_id": sub_id, "from_offset": after, "wait_ms": wait_ms})


def test_without_a_source_it_serves_an_embedded_database(serve, tmp_path):
    server = serve()
    with sqlite3.connect(tmp_path / "data" / "embedded.db") as database:
        database.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, name TEXT)")
    sub = server.subscribe("t", include={"before": True, "after": True}, format="plain_json")
    database.execute("INSERT INTO t VALUES (1, 'Ada')")
    database.commit()
    result = poll(server, sub["sub_id"], sub["offset"])
    (event,) = result["events"]
    assert (event["op"], event["pk"], event["after"]) == ("insert", [1], {"id": 1, "name": "Ada"})
    assert result["backpressure"] == {
        "state": "healthy", "lag": 1, "remaining_until_resnapshot": 4095, "paused": False,
    }  # fmt: skip
    database.executemany("INSERT INTO t (name) VALUES (?)", [("Bob",)] * 3071)
    database.commit()
    ended = {"sub_id": sub["sub_id"], "from_offset": 1, "limit": 1, "wait_ms": 0}
    wait_until(lambda: server.call("cdc.poll", ended)["latest_offset"] == sub["offset"] + 3072, "all are captured")
    assert server.call("cdc.poll", ended)["backpressure"]["state"] == "throttle", "three quarters of 4096 changes"
    database.close()
    assert server.stop() == 0


def test_the_gateway_has_a_port_of_its_own_or_none(serve, tmp_path):
    def answers(url):
        try:
            with connect(url, open_timeout=DEADLINE_S) as socket:
                socket.send('{"id":"1","type":"ping"}')
                return json.loads(socket.recv(DEADLINE_S))["type"]
        except InvalidStatus as refusal:
            return refusal.response.status_code

    port = free_port()
    server = serve("--ws-port", port)
    assert server.addresses["gateway"] == f"ws://127.0.0.1:{port}"
    assert answers(f"ws://127.0.0.1:{port}/api/v1/anything") == "pong"
    assert httpx.get(f"http://127.0.0.1:{port}/api/v1/openapi.json").status_code == 426
    assert answers(server.url.replace("http", "ws", 1) + "/") == 403
    assert server.stop() == 0
    server = serve("--ws-port", 0)
    assert "gateway" not in server.addresses
    assert answers(server.url.replace("http", "ws", 1) + "/") == 403
    assert server.stop() == 0
    server = serve()
    assert answers(server.url.replace("http", "ws", 1) + "/") == "pong"


def test_changes_made_while_it_was_down_are_delivered_after_the_restart(serve, tmp_path):
    path = tmp_path / "app.db"
    database = sqlite3.connect(path, isolation_level=None)
    database.execute("CREATE TABLE t (id INTEGER PRIMARY KEY)")
    server = serve("--source", f"app=sqlite:///{path}")
    sub = server.subscribe("t", db="app")
    database.execute("INSERT INTO t VALUES (1)")
    assert [event["pk"][0]["v"] for event in poll(server, sub["sub_id"], sub["offset"])["events"]] == [1]
    assert server.stop() == 0
    database.execute("INSERT INTO t VALUES (2)")
    server = serve("--source", f"app=sqlite:///{path}")
    database.execute("INSERT INTO t VALUES (3)")

    def all_there():
        events = poll(server, sub["sub_id"], sub["offset"])["events"]
        return [event["pk"][0]["v"] for event in events] == [1, 2, 3]

    wait_until(all_there, "three changes in order")
    database.close()


def test_a_second_server_on_the_same_data_directory_refuses(serve, tmp_path):
    serve()
    second = run("serve", "--data-dir", tmp_path / "data", "--http-port", 0, "--grpc-port", 0)
    assert second.returncode == 1
    assert "in use by process" in second.stderr


def test_a_wrong_configuration_is_named_and_exits_with_two(tmp_path):
    file = tmp_path / "tailrace.toml"
    file.write_text("[retention]\nforever = true\n")
    result = run("serve", file)
    assert result.returncode == 2
    assert "forever" in result.stderr


def test_a_port_in_use_is_a_clear_failure(serve, tmp_path):
    server = serve()
    port = server.url.rpartition(":")[2]
    result = run("serve", "--data-dir", tmp_path / "other", "--http-port", port, "--grpc-port", 0)
    assert result.returncode == 1
    assert f":{port}: Address already in use; choose another port with --http-port" in result.stderr


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("none.db", "database {path!r} does not exist: create it or correct the URL"),
        ("directory", "{path!r} is a directory, not a database: correct the URL"),
        ("text", "{path!r} is not an SQLite database: correct the URL"),
    ],
)
def test_what_is_no_database_is_said_in_one_line_before_it_listens(tmp_path, name, told):
    (tmp_path / "directory").mkdir()
    (tmp_path / "text").write_text("no database " * 100)
    ports = ["--http-port", 0, "--grpc-port", 0]
    path = str(tmp_path / name)
    result = run("serve", "--data-dir", tmp_path / "data", "--source", f"app=sqlite:///{path}", *ports)
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == f"tailrace: {told.format(path=path)}\n"


def test_an_unknown_kind_of_source_is_a_configuration_error(tmp_path):
    result = run("serve", "--data-dir", tmp_path / "data", "--source", "oracle://db")
    assert result.returncode == 2
    assert "oracle" in result.stderr


def test_it_says_that_it_is_well(serve):
    server = serve()
    assert server.get("/health").status_code == 200
    wait_until(server.is_ready, "ready")
    assert "tailrace_" in server.get("/metrics").text
    with grpc.insecure_channel(server.addresses["grpc"]) as channel:
        assert channel.unary_unary("/grpc.health.v1.Health/Check")(b"", timeout=DEADLINE_S) == SERVING


def test_it_ends_at_once_with_open_streams(serve, tmp_path):
    server = serve()
    with sqlite3.connect(tmp_path / "data" / "embedded.db") as database:
        database.execute("CREATE TABLE t (id INTEGER PRIMARY KEY)")
    database.close()
    sub = server.subscribe("t")
    with httpx.stream("GET", f"{server.url}{sub['sse_url']}", timeout=30) as stream:
        assert stream.status_code == 200
        begun = time.monotonic()
        assert server.stop() == 0
        assert time.monotonic() - begun < 20
        assert not any(line.startswith("data") for line in stream.iter_lines())


def test_with_auth_every_call_wants_a_token(serve):
    server = serve("--auth", env={"TAILRACE_AUTH_TOKENS": "secret-1,secret-2"})
    request = {"skeinql": "1.0", "id": 1, "method": "system.ping", "params": {}}
    rpc = f"{server.url}/api/v1/rpc"
    refused = httpx.post(rpc, json=request, timeout=DEADLINE_S)
    assert refused.status_code == 401
    assert refused.json()["error"]["code"] == "unauthorized"
    assert server.call("system.ping", {}, Authorization="Bearer secret-2")["pong"]
    assert server.get("/api/v1/cdc/sse/sub_0000000000000001").status_code == 401
    server.stop()
    assert b"secret" not in (server.data_dir.parent / "data.err").read_bytes()


def test_row_values_never_appear_in_the_diagnostics(serve, tmp_path):
    server = serve("--logging-level", "debug")
    with sqlite3.connect(tmp_path / "data" / "embedded.db") as database:
        database.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, name TEXT)")
    sub = server.subscribe("t")
    with database:
        database.execute("INSERT INTO t VALUES (1, 'xyzzy-value')")
    assert poll(server, sub["sub_id"], sub["offset"])["events"]
    database.close()
    server.stop()
    assert b"xyzzy" not in (server.data_dir.parent / "data.err").read_bytes()


def test_the_log_can_be_listed_printed_and_verified_while_it_is_written(serve, tmp_path):
    server = serve()
    database = sqlite3.connect(tmp_path / "data" / "embedded.db", isolation_level=None)
    database.execute("CREATE TABLE t (id INTEGER PRIMARY KEY)")
    sub = server.subscribe("t")
    for number in range(10):
        database.execute("INSERT INTO t VALUES (?)", (number,))
    wait_until(lambda: len(poll(server, sub["sub_id"], sub["offset"])["events"]) == 10, "ten changes")
    listed = json.loads(run("log", "ls", tmp_path / "data", "--json").stdout)
    assert listed["head"] >= 10
    assert listed["segments"]
    lines = [json.loads(line) for line in run("log", "cat", tmp_path / "data").stdout.splitlines()]
    assert [line["pk"] for line in lines if line["op"] == "insert"] == [[number] for number in range(10)]
    verified = run("log", "verify", tmp_path / "data")
    assert verified.returncode == 0
    database.close()


def test_capture_is_removed_when_the_server_is_stopped_and_before_that_only_by_force(serve, tmp_path):
    sqlite3.connect(tmp_path / "app.db").execute("CREATE TABLE t (id INTEGER PRIMARY KEY)").connection.close()
    url = f"sqlite:///{tmp_path}/app.db"
    server = serve("--source", f"app={url}")
    server.subscribe("t", db="app")
    refused = run("capture", "remove", url)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "stop the server" in refused.stderr
    assert "--force" in refused.stderr
    assert server.stop() == 0
    assert ", stopped)" in run("capture", "status", url).stdout
    assert run("capture", "remove", url).stdout == "capture is removed\n"
