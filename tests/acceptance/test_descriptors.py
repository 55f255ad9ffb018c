"""Connections without end: they use up their own descriptors, and never those of capture."""

import contextlib
import resource
import socket
import sqlite3
from pathlib import Path

import httpx

from serving import DEADLINE_S, Server, wait_until

LIMIT = 256


def test_connections_that_take_all_descriptors_do_not_stop_capture(tmp_path):
    path = tmp_path / "app.db"
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("CREATE TABLE t (id INTEGER PRIMARY KEY)")
        server = Server(tmp_path / "data", "--source", f"app=sqlite:///{path}")
        resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (LIMIT, LIMIT))
        server.wait_ready()
        try:
            sub_id = server.subscribe("t", db="app")["sub_id"]
            with httpx.Client(base_url=server.url, timeout=DEADLINE_S) as client, contextlib.ExitStack() as stack:

                def call(method, **params):
                    request = {"skeinql": "1.0", "id": 1, "method": method, "params": params}
                    return client.post("/api/v1/rpc", json=request).json()["result"]

                call("system.ping")
                http, grpc = (place.rpartition(":") for place in (server.url, str(server.addresses["grpc"])))
                for port in (int(http[2]), int(grpc[2])):
                    for _ in range(LIMIT):  # silent ones, far more than there is room for
                        stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S))
                database.executemany("INSERT INTO t VALUES (?)", [(number,) for number in range(200)])

                def captured():
                    return len(call("cdc.poll", sub_id=sub_id, from_offset=0, limit=1000)["events"]) == 200

                wait_until(captured, "all changes are captured")
                assert client.get("/ready").status_code == 200
                figures = client.get("/metrics").text
                assert 'tailrace_connections_refused_total{port="grpc"} 0' not in figures
            wait_until(server.is_ready, "there is room for others again")
        finally:
            server.stop()
    text = Path(server.errors.name).read_text()
    assert "Too many open files" not in text
    assert 1 <= text.count("connections are refused") <= 2
