"""Streams that worker processes deliver: the same bytes as from one process, and whatever ends, ends cleanly."""

import json
import os
import re
import signal
import sqlite3
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import httpx
import pyarrow as pa
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from certificates import Authority
from serving import DEADLINE_S, run, wait_until

READY = re.compile(r'"worker ready"')
_STARTED = re.compile(r'"worker started","worker":(\d+),"pid":(\d+)')


@pytest.fixture
def database(tmp_path):
    path = tmp_path / "app.db"
    execute(path, "PRAGMA journal_mode = WAL", "CREATE TABLE t (id INTEGER PRIMARY KEY, note TEXT)")
    return path


def execute(path, *statements):
    with closing(sqlite3.connect(path, timeout=60, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)


def insert(path, *numbers):
    execute(path, *(f"INSERT INTO t (id, note) VALUES ({number}, 'note {number}')" for number in numbers))


def source(database):
    return "--source", f"app=sqlite:///{database}"


@pytest.fixture
def work(serve, database):
    """Start a server with workers, and wait until they are ready: on a busy machine it listens before that."""

    def start(count, *arguments, **options):
        server = serve(*source(database), "--workers", count, *arguments, **options)
        wait_until(lambda: len(READY.findall(Path(server.errors.name).read_text())) == count, "the workers are ready")
        return server

    return start


def pids(server):
    """Return the newest process of each worker."""
    found = _STARTED.findall(Path(server.errors.name).read_text())
    return {int(number): int(pid) for number, pid in found}


def is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def metric(server, name):
    found = re.search(rf"^{re.escape(name)} (\S+)$", server.get("/metrics").text, re.MULTILINE)
    return float(found[1]) if found else 0.0


def served_by(server):
    """Return how many feeds each worker serves."""
    return [int(metric(server, f'tailrace_worker_feeds{{worker="{number}"}}')) for number in (1, 2)]


class Sse:
    """One stream of server-sent events, read line by line."""

    def __init__(self, response):
        self.response = response
        self.lines = response.iter_lines()

    def record(self):
        """Return the next record; None when the stream has ended as it should."""
        record = {}
        for line in self.lines:
            if not line and record:
                return record
            name, colon, value = line.partition(": ")
            if colon:
                record[name] = value
        return None

    def ids(self, count):
        """Return the ids of the next changes."""
        found = []
        while len(found) < count:
            record = self.record()
            if record["event"] != "backpressure":
                found.append(int(record["id"]))
        return found


@contextmanager
def sse(server, sub_id, query="", **headers):
    url = f"{server.url}/api/v1/cdc/sse/{sub_id}{query}"
    with httpx.stream("GET", url, headers=headers, timeout=DEADLINE_S, verify=False) as response:
        yield Sse(response)


def ws(server, sub_id):
    return connect(f"{server.url.replace('http', 'ws')}/api/v1/cdc/ws/{sub_id}", open_timeout=DEADLINE_S)


def message(stream):
    """Return the next message of a WebSocket that is not about pressure."""
    while True:
        record = json.loads(stream.recv(DEADLINE_S))
        if record["event"] != "backpressure":
            return record


def test_each_wire_says_the_same_as_one_process_does(serve, work, database):
    server = serve(*source(database))
    made = [
        server.subscribe("t", db="app", include={"after": True}, **options)["sub_id"]
        for options in ({}, {"format": "plain_json"}, {"where": "id % 3 = 0"}, {"columns": ["note"]})
    ]
    insert(database, *range(1, 400))
    execute(database, "ALTER TABLE t ADD COLUMN more TEXT", "UPDATE t SET more = 'x', note = 'y' WHERE id < 30")
    head = wait_until(lambda: captured(server) >= 428 and captured(server), "all is captured")

    def said():
        found = []
        for sub_id in made:
            with sse(server, sub_id) as stream:
                found += [stream.record() for _ in range(100)]
        with ws(server, made[1]) as stream:
            found += [message(stream) for _ in range(428)]
        for compression in ("none", "lz4"):
            url = f"{server.url}/api/v1/bulk/app/changes?after=0&through={head}&compression={compression}"
            answer = httpx.get(url, timeout=DEADLINE_S)
            assert answer.status_code == 200
            found.append(pa.ipc.open_stream(answer.content).read_all())  # batches may be cut elsewhere
        return found

    alone = said()
    assert server.stop() == 0
    server = work(2)
    assert said() == alone
    assert metric(server, 'tailrace_delivered_changes_total{wire="bulk"}') == 2 * head
    assert metric(server, 'tailrace_delivered_changes_total{wire="ws"}') >= 428
    assert server.stop() == 0


def captured(server):
    return server.get("/api/v1/bulk/app").json()["head"]


def test_one_connection_carries_several_feeds_of_a_worker(work, database):
    server = work(1)
    made = [server.subscribe("t", db="app")["sub_id"] for _ in range(3)]
    url = f"{server.url}/api/v1/cdc/sse?" + "&".join(f"sub={sub_id}" for sub_id in made)
    with httpx.stream("GET", url, timeout=DEADLINE_S) as response:
        wait_until(lambda: metric(server, 'tailrace_worker_feeds{worker="1"}') == 3, "a worker serves them")
        insert(database, 1)
        stream = Sse(response)
        assert [stream.record()["event"] for _ in range(3)] == ["insert"] * 3
        server.call("cdc.close", {"sub_id": made[0]})
        record = stream.record()
        assert (record["event"], json.loads(record["data"])) == ("end", {"sub_id": made[0], "reason": "closed"})
        insert(database, 2)
        assert [stream.record()["event"] for _ in range(2)] == ["insert"] * 2


def test_streams_are_shared_among_workers_and_follow(work, database):
    server = work(2)
    sub_id = server.subscribe("t", db="app")["sub_id"]
    with sse(server, sub_id) as one, sse(server, sub_id) as two, ws(server, sub_id) as three:
        wait_until(lambda: sorted(served_by(server)) == [1, 2], "all are served by workers")
        for number in range(1, 50):
            insert(database, number)
            assert one.ids(1) == two.ids(1) == [message(three)["id"]] == [number]
        server.call("cdc.pause", {"sub_id": sub_id})
        insert(database, 50)
        server.call("cdc.resume", {"sub_id": sub_id})
        assert one.ids(1) == two.ids(1) == [50]
        assert message(three)["id"] == 50
        three.send(json.dumps({"type": "ack", "offset": 50}))
        assert message(three)["event"] == "ack"
        assert server.call("cdc.poll", {"sub_id": sub_id, "from_offset": 0})["events"] == []
        server.call("cdc.close", {"sub_id": sub_id})
        assert one.record() is None
        with pytest.raises(ConnectionClosed):
            three.recv(DEADLINE_S)
        assert (three.protocol.close_code, three.protocol.close_reason) == (1000, "closed")
    wait_until(lambda: served_by(server) == [0, 0], "all have ended")
    assert wait_until(lambda: metric(server, 'tailrace_connections_open{port="http"}') <= 1, "all are closed")


def test_what_a_worker_acknowledges_is_acknowledged_everywhere(work, database):
    server = work(1)
    sub_id = server.subscribe("t", db="app", auto_ack=True)["sub_id"]
    insert(database, *range(1, 30))
    with sse(server, sub_id) as stream:
        assert stream.ids(29) == list(range(1, 30))
        wait_until(lambda: server.call("cdc.list", {})["subscriptions"][0]["acked_offset"] == 29, "it is acknowledged")
    assert server.call("cdc.poll", {"sub_id": sub_id, "from_offset": 0})["events"] == []
    insert(database, 30)
    with sse(server, sub_id, "?from_offset=0") as stream:
        assert stream.ids(1) == [30]


def test_a_worker_that_is_killed_takes_its_streams_along_and_comes_again(work, database):
    server = work(2)
    sub_id = server.subscribe("t", db="app")["sub_id"]
    with sse(server, sub_id) as one, sse(server, sub_id) as two:
        wait_until(lambda: served_by(server) == [1, 1], "each worker has a stream")
        insert(database, 1)
        assert one.ids(1) == two.ids(1) == [1]
        killed = pids(server)[1]
        os.kill(killed, signal.SIGKILL)
        with pytest.raises(httpx.TransportError):  # its answer breaks off: nobody takes that for the end
            one.record()
        insert(database, 2)
        assert two.ids(1) == [2]
        with sse(server, sub_id, "?from_offset=1") as again:
            assert again.ids(1) == [2]
        wait_until(lambda: metric(server, "tailrace_workers") == 2, "another one was started")
        assert pids(server)[1] != killed
        assert metric(server, "tailrace_worker_restarts_total") == 1
        assert metric(server, 'tailrace_feeds_open{wire="sse"}') == 1
    assert server.stop() == 0


def test_workers_do_not_outlive_a_server_that_is_killed(work, database):
    server = work(2)
    sub_id = server.subscribe("t", db="app")["sub_id"]
    with sse(server, sub_id) as stream:
        insert(database, 1)
        assert stream.ids(1) == [1]
        workers = pids(server)
        assert all(map(is_alive, workers.values()))
        server.kill()
        with suppress(httpx.TransportError):
            assert stream.record() is None
    wait_until(lambda: not any(map(is_alive, workers.values())), "they are gone", 10.0)


def test_a_server_that_stops_says_farewell_on_all_streams(work, database):
    server = work(2)
    sub_id = server.subscribe("t", db="app")["sub_id"]
    insert(database, *range(1, 1000))
    with sse(server, sub_id) as one, ws(server, sub_id) as two:
        assert one.ids(999)[-1] == 999
        assert [message(two)["id"] for _ in range(999)][-1] == 999
        workers = pids(server)
        for pid in workers.values():  # as service managers do, to all processes of a unit
            os.kill(pid, signal.SIGTERM)
        assert server.stop() == 0
        assert one.record() is None
        with pytest.raises(ConnectionClosed):
            two.recv(DEADLINE_S)
        assert two.protocol.close_code == 1001
    assert not any(map(is_alive, workers.values()))


def test_a_place_that_retention_has_passed_is_lost_on_a_worker_too(work, database):
    server = work(1, "--retention-events", 10)
    sub_id = server.subscribe("t", db="app")["sub_id"]
    server.call("cdc.pause", {"sub_id": sub_id})
    with sse(server, sub_id) as stream:
        wait_until(lambda: metric(server, 'tailrace_worker_feeds{worker="1"}') == 1, "a worker serves it")
        insert(database, *range(1, 40))
        events = []
        while (record := stream.record()) is not None:
            events.append(record["event"])
    assert events[-1] == "resnapshot"
    assert metric(server, 'tailrace_resnapshots_total{wire="sse"}') == 1


def test_a_worker_shows_a_principal_its_rows_until_its_key_is_revoked(work, database):
    server = work(1, "--auth", env={"TAILRACE_AUTH_TOKENS": "master"})
    wait_until(lambda: tables_known(server), "the table is known")
    made = run("token", "create", "ada", "--table", "app.t", "--rows", "app.t=id < 10", *at(server))
    assert made.returncode == 0, made.stderr
    key = {"x-api-key": json.loads(made.stdout)["token"]}
    sub_id = server.call("cdc.subscribe_table", {"db": "app", "table": "t"}, **key)["sub_id"]
    with sse(server, sub_id, **key) as stream:
        insert(database, 9, 10, 8)
        execute(database, "UPDATE t SET id = 100 WHERE id = 9", "UPDATE t SET id = 7 WHERE id = 10")
        seen = [stream.record() for _ in range(4)]
        assert [(record["id"], record["event"]) for record in seen] == [
            ("1", "insert"),
            ("3", "insert"),
            ("4", "delete"),
            ("7", "insert"),
        ]
        assert run("token", "revoke", json.loads(made.stdout)["id"], *at(server)).returncode == 0
        last = stream.record()
        assert (last["event"], json.loads(last["data"])["code"]) == ("error", "unauthorized")
        assert stream.record() is None


def tables_known(server):
    return httpx.get(f"{server.url}/api/v1/bulk/app", headers={"x-api-key": "master"}).json().get("tables")


def at(server):
    return "--json", "--data-dir", server.data_dir


def test_connections_with_tls_are_served_by_the_main_process(serve, database, tmp_path):
    certificate, key = Authority(tmp_path).sign("server")
    server = serve(*source(database), "--workers", 1, "--tls-cert", certificate, "--tls-key", key)
    assert "workers serve no TLS connections" in Path(server.errors.name).read_text()
    with httpx.Client(base_url=server.url, verify=False, timeout=DEADLINE_S) as client:
        call = {"skeinql": "1.0", "id": 1, "method": "cdc.subscribe_table", "params": {"db": "app", "table": "t"}}
        wait_until(lambda: client.post("/api/v1/rpc", json=call).json()["ok"], "the table is known")
        insert(database, 1)
        with client.stream("GET", "/api/v1/cdc/sse/sub_0000000000000001") as response:
            assert Sse(response).ids(1) == [1]
            assert 'tailrace_worker_feeds{worker="1"} 0.0' in client.get("/metrics").text
