"""Facts about clients that open streams and do not read them."""

import base64
import contextlib
import os
import socket
import sqlite3
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from serving import wait_until

STREAMS = 400
ROWS = 6000
HELD_BYTES_MAX = 80_000_000
"""What the server may need for all of them: the 64 MiB that what waits to be sent may take (`delivery/turns.py`), less
where streams share it, and about 26 KB for a connection.
"""

UPGRADE = "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {}\r\n"


def own_bytes(pid):
    """Return the memory of a process that is in no file: pages of libraries come and go as the system likes."""
    _, resident, shared, *_ = map(int, Path(f"/proc/{pid}/statm").read_text().split())
    return (resident - shared) * os.sysconf("SC_PAGESIZE")


def opened(url, wire, sub_id):
    """Open a stream from the beginning whose client takes a few kilobytes and no more."""
    address = urlsplit(url)
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.connect((address.hostname, address.port))
    upgrade = UPGRADE.format(base64.b64encode(os.urandom(16)).decode()) if wire == "ws" else ""
    head = f"GET /api/v1/cdc/{wire}/{sub_id}?from_offset=0 HTTP/1.1\r\nHost: {address.netloc}\r\n{upgrade}\r\n"
    connection.sendall(head.encode())
    return connection


def settled(server):
    """Wait until the server has no more to do; return its memory."""
    times = []

    def quiet():
        fields = Path(f"/proc/{server.process.pid}/stat").read_text().rpartition(")")[2].split()
        times.append(int(fields[11]) + int(fields[12]))
        time.sleep(0.2)
        return len(times) > 4 and times[-1] - times[-4] <= 4

    wait_until(quiet, "the server is quiet")
    return own_bytes(server.process.pid)


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the memory of a process is read from /proc")
@pytest.mark.parametrize("wire", ["sse", "ws"])
def test_streams_that_nobody_reads_hold_little_memory_and_others_are_served(serve, tmp_path, wire):
    database = sqlite3.connect(tmp_path / "app.db", isolation_level=None)
    database.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, note TEXT)")
    server = serve("--source", f"app=sqlite:///{tmp_path / 'app.db'}")
    sub_id = server.subscribe("t", db="app", include={"after": True})["sub_id"]
    database.execute("BEGIN")
    database.executemany("INSERT INTO t VALUES (?, ?)", [(key, "n" * 1000) for key in range(ROWS)])
    database.execute("COMMIT")

    def polled(after):
        with contextlib.suppress(AssertionError):  # the log is not that far yet
            return server.call("cdc.poll", {"sub_id": sub_id, "from_offset": after, "limit": 1})["events"]

    wait_until(lambda: polled(ROWS - 1), "all rows are in the log")
    streams = [opened(server.url, wire, sub_id) for _ in range(20)]  # which fill the caches
    before = settled(server)
    streams += [opened(server.url, wire, sub_id) for _ in range(STREAMS)]
    assert server.is_ready()
    assert polled(ROWS // 2)
    held = settled(server) - before
    for stream in streams:
        stream.close()
    database.execute("INSERT INTO t VALUES (?, 'last')", [ROWS])
    wait_until(lambda: polled(ROWS), "the row after it is delivered")
    database.close()
    assert held < HELD_BYTES_MAX
