"""A full disk while appending: a clear error, nothing confirmed, and capture goes on by itself when space is back."""

import os
import sqlite3
import subprocess

import pytest

from serving import wait_until


@pytest.fixture
def small_disk(tmp_path):
    mount = tmp_path / "disk"
    mount.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", mount], capture_output=True, check=False)
    if made.returncode:
        pytest.skip(f"cannot mount a small disk here: {made.stderr.decode().strip()}")
    yield mount
    subprocess.run(["umount", "-l", mount], check=True)


def test_capture_waits_for_space_and_loses_nothing(serve, tmp_path, small_disk):
    path = tmp_path / "app.db"
    database = sqlite3.connect(path, timeout=60, isolation_level=None)
    database.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, note TEXT)")
    server = serve("--source", f"app=sqlite:///{path}", data_dir=small_disk / "data")
    sub = server.subscribe("t", db="app")
    wait_until(server.is_ready, "ready")
    ballast = small_disk / "ballast"
    free = os.statvfs(small_disk)
    ballast.write_bytes(bytes(free.f_bavail * free.f_bsize - 256 * 1024))
    for number in range(40):
        database.execute("INSERT INTO t VALUES (?, ?)", (number, "x" * 50_000))
    answer = wait_until(lambda: (a := server.get("/ready")).status_code == 503 and a, "not ready")
    assert "full" in answer.text
    assert server.get("/health").status_code == 200
    ballast.unlink()
    poll = {"sub_id": sub["sub_id"], "from_offset": sub["offset"], "limit": 1000}

    def received():
        return [event["pk"][0]["v"] for event in server.call("cdc.poll", poll)["events"]]

    wait_until(lambda: len(received()) >= 40, "all changes")
    assert received() == list(range(40))
    wait_until(server.is_ready, "ready again")
    database.close()
    server.stop()
