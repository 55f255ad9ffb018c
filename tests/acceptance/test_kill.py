"""kill -9 at random points under write load: every committed change is in the log exactly once and in order.

Writers are killed, too, in the middle of their transactions. In rollback-journal mode that leaves a hot journal, with
pages of what was not committed in the database; whoever reads next rolls it back, be it the server.
"""

import json
import os
import random
import sqlite3
import subprocess
import sys
import time

import pytest

from serving import run, wait_until

ROUNDS = 200 if os.environ.get("LONG_TESTS") else 15
ROUND_S_MAX = 5.0
"""How long a round goes on where the log moves seldom."""

WRITER = """
import random, sqlite3, sys
path, begin, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
database = sqlite3.connect(path, timeout=60, isolation_level=None)
database.execute("PRAGMA cache_size = 10")  # so that pages are written before the commit
chance = random.Random(seed)
number = begin
print("ready", flush=True)
while not chance.random() < 0.0005:
    database.execute("BEGIN IMMEDIATE")
    for _ in range(chance.choice([1, 3, 20, 200])):
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


def await_moves(state, moves, server, writer):
    """Wait until the log has moved so often, one of both has ended, or long enough for one round."""
    seen = state.stat().st_mtime_ns
    end_s = time.monotonic() + ROUND_S_MAX
    while moves and time.monotonic() < end_s and server.process.poll() is None and writer.poll() is None:
        now = state.stat().st_mtime_ns
        moves -= now != seen
        seen = now


def is_hot(path):
    """Tell whether a writer left a journal behind that must be rolled back."""
    journal = path.with_name(f"{path.name}-journal")
    return journal.exists() and journal.stat().st_size > 0


@pytest.mark.parametrize("journal", ["wal", "delete"])
@pytest.mark.timeout(3600 if os.environ.get("LONG_TESTS") else 900)
def test_after_any_number_of_kills_the_log_holds_each_committed_change_once_and_in_order(serve, tmp_path, journal):
    path = tmp_path / "app.db"
    database = sqlite3.connect(path, timeout=60, isolation_level=None)
    database.execute(f"PRAGMA journal_mode = {journal}")
    database.executescript(HISTORY)
    source = ("--source", f"app=sqlite:///{path}", "--logging-level", "error")
    serve(*source).stop()
    chance = random.Random(11)
    hot = 0
    for round_number in range(ROUNDS):
        server_first = chance.random() < 0.5
        if server_first:  # it meets what the last writer left behind
            server = serve(*source, wait=chance.random() < 0.7)
        (begin,) = database.execute("SELECT coalesce(max(id), 0) FROM history").fetchone()
        arguments = [sys.executable, "-c", WRITER, str(path), str(begin), str(round_number)]
        writer = subprocess.Popen(arguments, stdout=subprocess.PIPE)
        try:
            assert writer.stdout.readline() == b"ready\n"
            if not server_first:
                server = serve(*source, wait=chance.random() < 0.7)
            moves = chance.randint(0, 40)
            await_moves(tmp_path / "data" / "oplog" / "0" / "state", moves, server, writer)
            if chance.random() < 0.5:
                server.kill()
        finally:
            writer.kill()
            writer.wait()
            writer.stdout.close()
        hot += is_hot(path)
        server.kill()
    assert (hot > 0) == (journal == "delete")

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
