"""kill -9 at random points under write load: every committed change is in the log exactly once and in order."""

import json
import os
import random
import sqlite3
import subprocess
import sys

import pytest

from serving import run, wait_until

ROUNDS = 200 if os.environ.get("LONG_TESTS") else 20

WRITER = """
import random, sqlite3, sys
path, begin, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
database = sqlite3.connect(path, timeout=60, isolation_level=None)
chance = random.Random(seed)
number = begin
print("ready", flush=True)
while not chance.random() < 0.0005:
    database.execute("BEGIN IMMEDIATE")
    for _ in range(chance.randint(1, 20)):
        number += 1
        database.execute("INSERT INTO t (id, note) VALUES (?, ?)", (number, "x" * chance.randint(0, 200)))
        if chance.random() < 0.3:
            database.execute("UPDATE t SET note = note || 'u' WHERE id = ?", (number,))
        if chance.random() < 0.2:
            database.execute("DELETE FROM t WHERE id = ?", (number,))
    if chance.random() < 0.1:
        database.execute("ROLLBACK")
        (number,) = database.execute("SELECT coalesce(max(id), 0) FROM history").fetchone()
    else:
        database.execute("COMMIT")
"""

HISTORY = """
CREATE TABLE t (id INTEGER PRIMARY KEY, note TEXT);
CREATE TABLE history (number INTEGER PRIMARY KEY, op TEXT, id INTEGER, note TEXT);
CREATE TRIGGER h1 AFTER INSERT ON t BEGIN INSERT INTO history (op, id, note) VALUES ('insert', NEW.id, NEW.note); END;
CREATE TRIGGER h2 AFTER UPDATE ON t BEGIN INSERT INTO history (op, id, note) VALUES ('update', NEW.id, NEW.note); END;
CREATE TRIGGER h3 AFTER DELETE ON t BEGIN INSERT INTO history (op, id, note) VALUES ('delete', OLD.id, OLD.note); END;
"""


@pytest.mark.timeout(1800 if os.environ.get("LONG_TESTS") else 900)
def test_after_any_number_of_kills_the_log_holds_each_committed_change_once_and_in_order(serve, tmp_path):
    path = tmp_path / "app.db"
    database = sqlite3.connect(path, timeout=60, isolation_level=None)
    database.execute("PRAGMA journal_mode = WAL")
    database.executescript(HISTORY)
    source = ("--source", f"app=sqlite:///{path}", "--logging-level", "error")
    serve(*source).stop()
    chance = random.Random(11)
    for round_number in range(ROUNDS):
        (begin,) = database.execute("SELECT coalesce(max(id), 0) FROM history").fetchone()
        arguments = [sys.executable, "-c", WRITER, str(path), str(begin), str(round_number)]
        writer = subprocess.Popen(arguments, stdout=subprocess.PIPE)
        try:
            assert writer.stdout.readline() == b"ready\n"
            server = serve(*source, wait=chance.random() < 0.7)
            head = tmp_path / "data" / "oplog" / "0" / "state"
            seen = head.stat().st_mtime_ns
            moves = chance.randint(0, 40)
            while moves and server.process.poll() is None and writer.poll() is None:
                now = head.stat().st_mtime_ns
                moves -= now != seen
                seen = now
            server.kill()
        finally:
            writer.kill()
            writer.wait()
            writer.stdout.close()

    expected = [
        (op, number, note) for op, number, note in database.execute("SELECT op, id, note FROM history ORDER BY number")
    ]
    assert len(expected) > ROUNDS
    server = serve(*source)
    sub = server.subscribe("t", db="app")
    database.execute("INSERT INTO t (id, note) VALUES (-1, 'last')")
    poll = {"sub_id": sub["sub_id"], "from_offset": sub["offset"], "wait_ms": 1000, "limit": 10_000}

    def has_come():
        """Read on: the changes that no server had captured may be more than one answer holds."""
        found = server.call("cdc.poll", poll)
        poll["from_offset"] = found["next_offset"]
        return any(event["pk"][0]["v"] == -1 for event in found["events"])

    wait_until(has_come, "the last change", 120)
    assert server.stop() == 0
    verified = run("log", "verify", tmp_path / "data", "--json", timeout=120)
    assert verified.returncode == 0, verified.stdout
    lines = map(json.loads, run("log", "cat", tmp_path / "data", "--table", "t", timeout=120).stdout.splitlines())
    received = [
        (line["op"], line["pk"][0], (line.get("after") or line["before"])["note"])
        for line in lines
        if line["op"] != "schema"
    ]
    assert received.pop() == ("insert", -1, "last")
    assert received == expected
    database.close()
