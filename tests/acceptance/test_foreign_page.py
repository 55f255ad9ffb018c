"""A web page of another site, in a real browser: a server without authentication gives it nothing."""

import contextlib
import http.server
import json
import sqlite3
import threading

import pytest

from browsing import needs_browser, page_of
from serving import Server, wait_until

ATTACKS = """
const RPC = BASE + "/api/v1/rpc";
const call = {skeinql: "1.0", id: 1, method: "cdc.subscribe_table", params: {db: "app", table: "t"}};
const body = JSON.stringify(call);
const text = answer => answer.text();
const post = {method: "POST", body};
const json_post = {...post, headers: {"content-type": "application/json"}};
const failed = error => "failed";
const sleep = ms => new Promise(done => setTimeout(done, ms));
const first = opened => new Promise(done => opened(done));
const attacks = {
  simple_post: () => fetch(RPC, post).then(text),
  json_post: () => fetch(RPC, json_post).then(text),
  blind_post: () => fetch(RPC, {...post, mode: "no-cors"}).then(answer => answer.type),
  beacon: () => navigator.sendBeacon(RPC, body),
  read: () => fetch(BASE + "/metrics").then(text),
  blind_read: () => fetch(BASE + "/api/v1/cdc/sse/" + SUB, {mode: "no-cors"}).then(answer => answer.type),
  event_source: () => first(done => {
    const source = new EventSource(BASE + "/api/v1/cdc/sse/" + SUB);
    source.addEventListener("insert", event => { source.close(); done(event.data); });
    source.onerror = () => { source.close(); done("failed"); };
  }),
  socket: () => first(done => {
    const socket = new WebSocket(BASE.replace("http", "ws") + "/");
    const payload = {query: "CREATE TABLE IF NOT EXISTS stolen (a)", namespace: "app"};
    socket.onopen = () => socket.send(JSON.stringify({id: "1", type: "sql", payload}));
    socket.onmessage = message => { socket.close(); done(message.data); };
    socket.onclose = () => done("failed");
  }),
  form: () => first(done => {
    const frame = document.createElement("iframe");
    frame.name = "target";
    frame.onload = () => done("loaded");
    document.body.append(frame);
    const form = Object.assign(document.createElement("form"),
      {method: "POST", action: RPC, enctype: "text/plain", target: "target"});
    const field = document.createElement("input");
    const [name, value] = JSON.stringify({...call, params: {...call.params, where: "name = 'a'"}}).split("=");
    Object.assign(field, {name, value});
    form.append(field);
    document.body.append(form);
    form.submit();
  }),
};
(async () => {
  const found = {};
  for (const [name, attack] of Object.entries(attacks))
    found[name] = await Promise.race([sleep(20000), Promise.resolve().then(attack).catch(failed)]);
  return found;
})()
"""
"""Each way in which a page can reach another site. The form's body is JSON: a name, an equals sign and a value."""


class Foreign(http.server.BaseHTTPRequestHandler):
    """Serves an empty page."""

    def do_GET(self):
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><title>foreign</title><body>")

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def foreign_page():
    """Serve a page of another site; yield its address."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Foreign)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://foreign.example:{server.server_port}/"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextlib.contextmanager
def serving(tmp_path, *arguments):
    """Serve a table with one change and a subscription to it."""
    path = tmp_path / "app.db"
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, name TEXT)")
        server = Server(tmp_path / "data", "--source", f"app=sqlite:///{path}", "--gateway-sql-write", *arguments)
        try:
            server.wait_ready()
            server.sub_id = server.subscribe("t", db="app")["sub_id"]
            database.execute("INSERT INTO t VALUES (1, 'a')")
            wait_until(
                lambda: server.call("cdc.poll", {"sub_id": server.sub_id, "from_offset": 0})["events"], "captured"
            )
            server.tables = lambda: [name for (name,) in database.execute("SELECT name FROM sqlite_master")]
            yield server
        finally:
            server.stop()


def attacked(page, server, base=None):
    """Have a page try everything; return what it got."""
    constants = {"BASE": base or server.url, "SUB": server.sub_id}
    declared = "".join(f"const {name} = {json.dumps(value)};" for name, value in constants.items())
    return page.run(f"{{{declared}{ATTACKS}}}")


def subscriptions(server):
    (line,) = [line for line in server.get("/metrics").text.splitlines() if line.startswith("tailrace_subscriptions ")]
    return float(line.split()[1])


@needs_browser
@pytest.mark.timeout(300)
def test_a_foreign_page_gets_nothing_and_changes_nothing(tmp_path):
    with serving(tmp_path) as server, page_of(tmp_path / "profile") as page, foreign_page() as foreign:
        page.open(foreign)
        found = attacked(page, server)
        blind = {name: found.pop(name) for name in ("blind_post", "blind_read", "beacon", "form")}
        assert set(found.values()) == {"failed"}
        assert blind == {"blind_post": "opaque", "blind_read": "opaque", "beacon": True, "form": "loaded"}
        assert subscriptions(server) == 1
        assert "stolen" not in server.tables()

        name_of_our_own = server.url.replace("127.0.0.1", "rebound.example")  # its DNS leads to us by now
        page.open(f"{name_of_our_own}/health")
        assert "allowed_hosts" in page.run("document.body.innerText")
        found = attacked(page, server, name_of_our_own)
        assert "allowed_hosts" in found.pop("simple_post")
        assert "allowed_hosts" in found.pop("json_post")
        assert "allowed_hosts" in found.pop("read")
        assert (found["event_source"], found["socket"]) == ("failed", "failed")
        assert subscriptions(server) == 1
        assert "stolen" not in server.tables()
        assert '"insert"' not in json.dumps(found)


@needs_browser
@pytest.mark.timeout(300)
def test_the_same_page_reaches_everything_where_its_origin_is_configured(tmp_path):
    with foreign_page() as foreign:
        allowed = ["--allowed-origins", foreign.rstrip("/"), "--allowed-hosts", "other.example"]
        with serving(tmp_path, *allowed) as server, page_of(tmp_path / "profile") as page:
            page.open(foreign)
            found = attacked(page, server)
            assert "Content-Type" in found["simple_post"]  # it reads the answer
            assert '"ok":true' in found["json_post"]
            assert "tailrace_log_head_offset" in found["read"]
            assert '"op":"insert"' in found["event_source"]
            assert "error" not in found["socket"]
            assert subscriptions(server) == 2
            assert "stolen" in server.tables()
            found = attacked(page, server, server.url.replace("127.0.0.1", "other.example"))
            assert '"ok":true' in found["json_post"]
