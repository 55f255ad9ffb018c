"""Facts about `tailrace tail` as a process."""

import json
import os
import pty
import signal
import sqlite3
import subprocess
import sys

import pytest

from serving import DEADLINE_S, run, wait_until


@pytest.fixture
def database(tmp_path):
    connection = sqlite3.connect(tmp_path / "app.db", isolation_level=None, timeout=30)
    connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, name TEXT)")
    connection.execute("CREATE TABLE other (id INTEGER PRIMARY KEY)")
    yield connection
    connection.close()


def start_tail(*arguments, stdout=subprocess.PIPE):
    return subprocess.Popen([sys.executable, "-m", "tailrace", "tail", *map(str, arguments)], stdout=stdout)


def objects(database):
    return [name for (name,) in database.execute("SELECT name FROM sqlite_schema WHERE name LIKE '%tailrace%'")]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_changes_of_a_database_are_json_lines_when_piped_and_no_trace_remains(database, tmp_path, number):
    tail = start_tail(f"sqlite:///{tmp_path}/app.db", "--table", "t")
    try:
        wait_until(lambda: any("trigger" in n or "change" in n for n in objects(database)), "capture set up")
        database.execute("INSERT INTO other VALUES (1)")
        database.execute("INSERT INTO t VALUES (1, 'Ada')")
        database.execute("UPDATE t SET name = 'Bela'")
        events = [json.loads(tail.stdout.readline()) for _ in range(2)]
        assert [(e["op"], e["pk"], e.get("before"), e["after"]) for e in events] == [
            ("insert", [1], None, {"id": 1, "name": "Ada"}),
            ("update", [1], {"id": 1, "name": "Ada"}, {"id": 1, "name": "Bela"}),
        ]
        tail.send_signal(number)
        assert tail.wait(DEADLINE_S) == 0
    finally:
        tail.kill()
        tail.wait()
        tail.stdout.close()
    assert objects(database) == []


def test_no_trace_remains_of_one_that_is_stopped_while_it_begins_in_the_background_of_a_script(database, tmp_path):
    begin = "import signal, sys; signal.signal(signal.SIGINT, signal.SIG_IGN); "
    begin += "from tailrace.cli.group import main; main()"
    command = [sys.executable, "-c", begin, "tail", f"sqlite:///{tmp_path}/app.db"]
    tail = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        wait_until(lambda: objects(database), "capture set up")
        tail.send_signal(signal.SIGTERM)
        assert tail.wait(DEADLINE_S) == 0
    finally:
        tail.kill()
        tail.wait()
    assert objects(database) == []


def test_a_limit_ends_it(database, tmp_path):
    tail = start_tail(f"sqlite:///{tmp_path}/app.db", "--limit", 1)
    try:
        wait_until(lambda: objects(database), "capture set up")
        number = iter(range(1, 10_000))

        def ended():
            database.execute("INSERT INTO t VALUES (?, 'x')", (next(number),))
            return tail.poll() is not None

        wait_until(ended, "end of tail")
        assert tail.returncode == 0
        assert len(tail.stdout.read().splitlines()) == 1
    finally:
        tail.kill()
        tail.wait()
        tail.stdout.close()


def test_on_a_terminal_it_is_pretty(database, tmp_path):
    terminal, end = pty.openpty()
    tail = start_tail(f"sqlite:///{tmp_path}/app.db", "--limit", 1, stdout=end)
    os.close(end)
    try:
        wait_until(lambda: objects(database), "capture set up")
        number = iter(range(1, 10_000))

        def ended():
            database.execute("INSERT INTO t VALUES (?, 'Ada')", (next(number),))
            return tail.poll() is not None

        wait_until(ended, "end of tail")
        shown = os.read(terminal, 4096).decode()
        assert "insert" in shown
        assert "name=Ada" in shown
        assert "\x1b[" in shown
    finally:
        tail.kill()
        tail.wait()
        os.close(terminal)


def test_it_follows_a_server(serve, database, tmp_path):
    server = serve("--source", f"app=sqlite:///{tmp_path}/app.db")
    server.subscribe("t", db="app")
    tail = start_tail("--server", server.url, "--table", "t", "--table", "other", "--limit", 2)
    try:
        wait_until(lambda: 'tailrace_feeds_open{wire="sse"} 2' in metrics(server), "two streams")
        database.execute("INSERT INTO t VALUES (1, 'Ada')")
        database.execute("INSERT INTO other VALUES (7)")
        assert tail.wait(DEADLINE_S) == 0
        events = [json.loads(line) for line in tail.stdout.read().splitlines()]
        assert {(event["table"], event["pk"][0]) for event in events} == {("t", 1), ("other", 7)}
    finally:
        tail.kill()
        tail.wait()
        tail.stdout.close()


def metrics(server):
    return server.get("/metrics").text.replace(".0\n", "\n")


def test_mistakes_are_told():
    assert run("tail").returncode == 2
    assert run("tail", "sqlite:///a.db", "--server", "http://127.0.0.1:1").returncode == 2
    unreachable = run("tail", "--server", "http://127.0.0.1:1", "--table", "t")
    assert unreachable.returncode == 1
    assert "127.0.0.1:1" in unreachable.stderr
    missing = run("tail", "sqlite:////no/such/dir/app.db")
    assert missing.returncode == 1
    assert "/no/such/dir/app.db" in missing.stderr


def test_it_says_on_standard_error_when_changes_are_captured(database, tmp_path):
    command = [sys.executable, "-m", "tailrace", "tail", f"sqlite:///{tmp_path}/app.db", "--limit", "1"]
    tail = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        said = iter(tail.stderr.readline, b"")  # a warning about the journal mode may come first
        assert any(line.startswith(b"tailrace: ready; changes of sqlite:///") for line in said)
        database.execute("INSERT INTO t VALUES (1, 'Ada')")
        assert json.loads(tail.stdout.readline())["pk"] == [1]
        assert tail.wait(DEADLINE_S) == 0
    finally:
        tail.kill()
        tail.wait()
        tail.stdout.close()
        tail.stderr.close()
