"""A real browser: its `EventSource` and its `WebSocket` come through a restart of the server."""

import contextlib
import json
import sqlite3

import pytest

from browsing import needs_browser, page_of
from databases import free_port
from serving import Server, wait_until

SCRIPT = """
window.events = [];
const source = new EventSource(BASE + "/api/v1/cdc/sse/" + SUB);
for (const op of ["insert", "update", "delete"])
  source.addEventListener(op, event => window.events.push([Number(event.lastEventId), JSON.parse(event.data).seq, op]));

window.many = [];
const both = new EventSource(BASE + "/api/v1/cdc/sse?sub=" + SUB + "&sub=" + OTHER);
for (const op of ["insert", "delete"])
  both.addEventListener(op, event => {
    const data = JSON.parse(event.data);
    window.many.push([data.sub_id, data.seq]);
  });

window.frames_seen = [];
window.closes = [];
let last = 0;
function connect() {
  const socket = new WebSocket(BASE.replace("http", "ws") + "/api/v1/cdc/ws/" + ACKED + "?from_offset=" + last);
  socket.onmessage = message => {
    const frame = JSON.parse(message.data);
    if (frame.id === undefined) return;
    last = frame.id;
    window.frames_seen.push([frame.id, frame.data.seq, frame.event]);
    socket.send(JSON.stringify({type: "ack", offset: frame.id}));
  };
  socket.onclose = event => { window.closes.push(event.code); setTimeout(connect, 100); };
}
connect();
"""


def acked(server, sub_id):
    """Return the acknowledged offset, as a call that changes nothing tells it."""
    return server.call("cdc.resume", {"sub_id": sub_id})["acked_offset"]


@needs_browser
@pytest.mark.timeout(300)
def test_a_browser_reconnects_through_a_restart_without_a_gap_or_a_repeat(tmp_path):
    path, data_dir = tmp_path / "app.db", tmp_path / "data"
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, name TEXT)")

        def insert(*numbers):
            for number in numbers:
                database.execute("INSERT INTO t VALUES (?, 'x')", (number,))

        arguments = ["--source", f"app=sqlite:///{path}", "--http-port", str(free_port())]
        server = Server(data_dir, *arguments).wait_ready()
        try:
            everything = server.subscribe("t", db="app")["sub_id"]
            acknowledged = server.subscribe("t", db="app")["sub_id"]
            deletes = server.subscribe("t", db="app", ops=["delete"])["sub_id"]
            url = server.url
            insert(1, 2, 3)
            with page_of(tmp_path / "profile") as page:
                page.open(f"{url}/health")  # a page of the server's own origin may call it
                constants = {"BASE": url, "SUB": everything, "OTHER": deletes, "ACKED": acknowledged}
                page.run("".join(f"const {name} = {json.dumps(value)};" for name, value in constants.items()) + SCRIPT)

                def lists():
                    return [page.run(f"window.{name}") for name in ("events", "frames_seen", "many")]

                def seen(count):
                    def enough():
                        return all(len(found) >= count for found in lists())

                    wait_until(enough, f"{count} events in each list", 60)
                    return lists()

                seen(3)
                server.stop()
                insert(4, 5)
                server = Server(data_dir, *arguments).wait_ready()
                assert server.url == url
                seen(5)
                insert(6)
                database.execute("DELETE FROM t WHERE id = 1")
                wait_until(lambda: len(page.run("window.many")) >= 8, "the delete reaches both subscriptions", 60)
                events, frames, many = seen(7)
                closes = page.run("window.closes")
                wait_until(lambda: acked(server, acknowledged) == frames[-1][0], "the last frame is acknowledged")
        finally:
            server.stop()
    offsets = [seq for _, seq, _ in events]
    assert offsets == list(range(offsets[0], offsets[0] + 7))
    assert [place for place, _, _ in events] == offsets
    assert [op for _, _, op in events] == ["insert"] * 6 + ["delete"]
    assert frames == events
    assert [seq for sub_id, seq in many if sub_id == everything] == offsets
    assert [seq for sub_id, seq in many if sub_id == deletes] == offsets[-1:]
    assert closes[0] == 1001
