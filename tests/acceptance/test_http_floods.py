"""Floods of cheap requests, from another process: good calls get through meanwhile, and memory stays bounded."""

import os
import socket
import sqlite3
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

import http_flooding

CONNECTIONS = 40
CALLS = 20
DEADLINE_S = 20.0
"""For all good calls together. Before pipelines were bounded, one of them took 2 to 24 seconds."""

GROWN_BYTES_MAX = 250_000_000
"""What 40 connections may cost. Before pipelines were bounded, it was gigabytes."""


def resident_bytes(pid):
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


@contextmanager
def flooding(port, kind):
    """Have another process flood a server."""
    command = [sys.executable, http_flooding.__file__, str(port), kind, str(CONNECTIONS)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    try:
        assert process.stdout.readline() == b"flooding\n"
        yield process
    finally:
        process.kill()
        process.wait(60)
        process.stdout.close()


def call(good):
    good.sendall(http_flooding.CALL)
    answer = b""
    while b'"ok":true' not in answer:
        data = good.recv(1 << 16)
        assert data, "the server closed"
        answer += data


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the memory of a process is read from /proc")
def test_good_calls_get_through_while_a_flood_runs_and_memory_stays(serve, tmp_path):
    with sqlite3.connect(tmp_path / "app.db") as database:
        database.execute("CREATE TABLE t (id INTEGER PRIMARY KEY)")
    database.close()
    server = serve("--source", f"app=sqlite:///{tmp_path / 'app.db'}")
    port = urlsplit(server.url).port
    before = resident_bytes(server.process.pid)
    with socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S) as good:
        for kind in http_flooding.FLOODS:
            with flooding(port, kind) as flood:
                begun_s = time.monotonic()
                for _ in range(CALLS):
                    call(good)
                with socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S) as another:
                    call(another)  # who comes only now is served, too
                assert time.monotonic() - begun_s < DEADLINE_S, kind
                assert resident_bytes(server.process.pid) - before < GROWN_BYTES_MAX, kind
                assert flood.poll() is None
    assert server.is_ready()
    assert server.stop() == 0
