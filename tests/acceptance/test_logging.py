"""Facts about what a server says on standard error, as a process."""

import json
import sqlite3

from serving import run, wait_until


def lines(server):
    """Return the diagnostics as JSON lines: all of standard error."""
    return [json.loads(line) for line in (server.data_dir.parent / "data.err").read_text().splitlines()]


def said(server, message, **fields):
    """Return the first line of a message that has these fields, or None."""
    for line in lines(server):
        if line["message"] == message and fields.items() <= line.items():
            return line
    return None


def test_a_server_says_what_it_does_and_nothing_of_rows_or_secrets(serve, tmp_path):
    database = sqlite3.connect(tmp_path / "app.db", isolation_level=None)
    database.execute("CREATE TABLE users (id INTEGER PRIMARY KEY, name TEXT)")
    source = f"app=sqlite:///{tmp_path}/app.db"
    server = serve("--source", source, "--retention-events", 8, env={"TAILRACE_AUTH_TOKENS": "hidden-token"})
    start = said(server, "server starts")
    assert start["settings"]["retention.events"] == "8"
    assert start["settings"]["auth.tokens"] == "(set)"
    assert start["settings"]["sources"] == {"app": f"sqlite:///{tmp_path}/app.db"}
    assert {"version", "python", "sqlite"} <= start.keys()
    assert said(server, "server listens", http=server.url)
    assert said(server, "log opened", source="app", head=0)

    sub = server.subscribe("users", db="app", where="name <> 'secret-value'")
    assert said(server, "source opened", source="app")
    assert said(server, "table found", source="app", table="users")
    made = said(server, "subscription made", source="app", target=["users"])
    database.execute("ALTER TABLE users ADD COLUMN mail TEXT")
    database.executemany("INSERT INTO users VALUES (?, 'secret-value', '')", [(number,) for number in range(40)])
    wait_until(lambda: said(server, "schema changed", table="users", version=2), "the new schema")
    wait_until(lambda: said(server, "subscription lost changes to retention"), "the slow subscriber")
    assert said(server, "horizon moved", source="app")["removed"] > 0
    server.call("cdc.close", {"sub_id": sub["sub_id"]})
    assert said(server, "subscription closed", subscription=made["subscription"])
    database.close()

    assert server.stop() == 0
    assert said(server, "server stops", reason="SIGTERM")
    assert lines(server)[-1]["message"] == "server stopped"
    text = (tmp_path / "data.err").read_text()
    assert "secret-value" not in text
    assert "hidden-token" not in text


def test_a_server_that_cannot_go_on_says_why_it_stops(serve, tmp_path):
    with sqlite3.connect(tmp_path / "app.db") as database:
        database.execute("CREATE TABLE t (id INTEGER PRIMARY KEY)")
    database.close()
    server = serve("--source", f"app=sqlite:///{tmp_path}/app.db")
    server.subscribe("t", db="app")
    assert run("capture", "remove", "--force", f"sqlite:///{tmp_path}/app.db").returncode == 0
    assert server.process.wait(60) == 1
    *diagnostics, last = (tmp_path / "data.err").read_text().splitlines()
    (stops,) = [json.loads(line) for line in diagnostics if '"server stops"' in line]
    assert (stops["level"], last) == ("error", f"tailrace: {stops['reason']}")
