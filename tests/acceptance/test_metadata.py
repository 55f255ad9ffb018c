"""The metadata database of a running server: a full disk, and a file that is gone at the next start."""

import os
import sqlite3
import subprocess

import pytest

from serving import wait_until


@pytest.fixture
def small_disk(tmp_path):
    mount = tmp_path / "disk"
    mount.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", mount], capture_output=True, check=False)
    if made.returncode:
        pytest.skip(f"cannot mount a small disk here: {made.stderr.decode().strip()}")
    yield mount
    subprocess.run(["umount", "-l", mount], check=True)


@pytest.fixture
def database(tmp_path):
    database = sqlite3.connect(tmp_path / "app.db", timeout=60, isolation_level=None)
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("CREATE TABLE t (id INTEGER PRIMARY KEY)")
    yield database
    database.close()


def received(server, sub):
    poll = {"sub_id": sub["sub_id"], "from_offset": 0, "limit": 1000}
    return [event["pk"][0]["v"] for event in server.call("cdc.poll", poll)["events"]]


def test_a_full_disk_is_told_and_what_was_kept_before_stays(serve, tmp_path, database, small_disk):
    flags = (
        "--source",
        f"app=sqlite:///{tmp_path / 'app.db'}",
        "--metadata-url",
        f"sqlite:///{small_disk / 'meta.db'}",
    )
    server = serve(*flags)
    kept = [server.subscribe("t", db="app")["sub_id"]]
    free = os.statvfs(small_disk)
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(free.f_bavail * free.f_bsize))

    def refused():
        try:
            kept.append(server.call("cdc.subscribe_table", {"db": "app", "table": "t"})["sub_id"])
        except AssertionError as error:
            return str(error)

    assert "its disk is full; free some space" in wait_until(refused, "a refusal")
    database.execute("INSERT INTO t VALUES (1)")
    wait_until(lambda: received(server, {"sub_id": kept[0]}) == [1], "changes are captured and read as before")
    ballast.unlink()
    kept.append(server.call("cdc.subscribe_table", {"db": "app", "table": "t"})["sub_id"])
    server.kill()
    server = serve(*flags)
    assert sorted(one["sub_id"] for one in server.call("cdc.list", {})["subscriptions"]) == sorted(kept)
    assert server.stop() == 0


def test_a_file_that_is_gone_is_noticed_and_with_it_back_nothing_is_missing(serve, tmp_path, database):
    flags = ("--source", f"app=sqlite:///{tmp_path / 'app.db'}")
    server = serve(*flags)
    sub = server.subscribe("t", db="app")
    database.execute("INSERT INTO t VALUES (1)")
    wait_until(lambda: received(server, sub) == [1], "the change")
    assert server.stop() == 0
    database.execute("INSERT INTO t VALUES (2)")
    kept = tmp_path / "data" / "metadata.db"
    kept.rename(tmp_path / "away.db")
    server = serve(*flags, wait=False)
    assert server.process.wait(60) != 0
    assert "capture forgot this log" in (tmp_path / "data.err").read_text()
    server.kill()
    (tmp_path / "away.db").rename(kept)
    server = serve(*flags)
    database.execute("INSERT INTO t VALUES (3)")
    wait_until(lambda: received(server, sub) == [1, 2, 3], "all changes")
    assert server.stop() == 0
