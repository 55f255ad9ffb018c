"""Facts about a real server whose clients send SQL that no clock ends."""

import json
import signal
import threading
from pathlib import Path

import apsw
import httpx
import pytest
import websockets.sync.client

from serving import DEADLINE_S, wait_until

HOURS = "instr(replace(hex(zeroblob(4000000)), '0', 'a'), replace(hex(zeroblob(2000000)), '0', 'a') || 'b')"
RUNS_MAX = 4


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "app.db"
    database = apsw.Connection(str(path))
    database.pragma("journal_mode", "wal")
    database.execute("CREATE TABLE item(id INTEGER PRIMARY KEY, name TEXT); INSERT INTO item VALUES(1, 'a')")
    database.close()
    return path


def children_of(pid):
    """Return the processes that a process has started and that still run."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent = entry.read_text().rpartition(")")[2].split()[:2]
        except OSError:
            continue
        if int(parent) == pid and state not in "ZX":
            found.append(int(entry.parent.name))
    return found


class Flood:
    """Requests for one query, each in a thread of its own."""

    def __init__(self, url, count):
        self.codes = []
        self._threads = [threading.Thread(target=self._get, args=(url,)) for _ in range(count)]
        for thread in self._threads:
            thread.start()

    def _get(self, url):
        try:
            self.codes.append(httpx.get(url, timeout=DEADLINE_S).status_code)
        except httpx.HTTPError as error:
            self.codes.append(type(error).__name__)

    def join(self):
        for thread in self._threads:
            thread.join(DEADLINE_S)
            assert not thread.is_alive()
        return self.codes


def test_a_server_answers_others_and_stops_whatever_queries_do(serve, path):
    server = serve("--source", f"app=sqlite:///{path}", "--query-timeout", "1s")
    server.subscribe("item", db="app")
    hours, small = (
        f"{server.url}/api/v1/q/{server.call('query.prepare', {'query': sql})['query_id']}"
        for sql in (f"SELECT {HOURS}", "SELECT name FROM item")
    )
    assert Flood(hours, 2 * RUNS_MAX).join() == [504] * (2 * RUNS_MAX)
    answer = httpx.get(small, timeout=DEADLINE_S)
    assert (answer.status_code, answer.json()["data"]["rows"]) == (200, [["a"]])
    assert "tailrace_query_processes_killed_total 0.0" not in server.get("/metrics").text

    flood = Flood(hours, RUNS_MAX)
    wait_until(lambda: len(children_of(server.process.pid)) >= RUNS_MAX, "the queries run")
    children = children_of(server.process.pid)
    assert server.stop() == 0
    assert 200 not in flood.join()
    wait_until(lambda: not any(Path(f"/proc/{child}").exists() for child in children), "the processes have ended")


def test_sql_of_the_gateway_that_no_clock_ends_is_undone_when_the_server_is_killed(serve, path):
    server = serve("--source", f"app=sqlite:///{path}", "--gateway-sql-write")
    server.subscribe("item", db="app")
    with websockets.sync.client.connect(server.url.replace("http", "ws")) as gateway:
        gateway.send(json.dumps({"id": "1", "type": "sql", "payload": {"query": f"UPDATE item SET name = {HOURS}"}}))
        wait_until(lambda: len(children_of(server.process.pid)) >= 2, "the statement runs")
        children = children_of(server.process.pid)
        server.process.send_signal(signal.SIGKILL)
        wait_until(lambda: not any(Path(f"/proc/{child}/exe").exists() for child in children), "the processes end")
    database = apsw.Connection(str(path))
    database.set_busy_timeout(30_000)
    database.execute("INSERT INTO item VALUES(2, 'b')")
    assert database.execute("SELECT name FROM item").fetchall() == [("a",), ("b",)]
