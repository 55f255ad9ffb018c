"""Facts about `tailrace subs` and `tailrace query` as processes."""

import json
import signal
import sqlite3
import subprocess
import sys

import pytest

from serving import DEADLINE_S, Server, run, wait_until
from tailrace.client.bulk_rows import BulkRowsClient


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    directory = tmp_path_factory.mktemp("subs")
    with sqlite3.connect(directory / "app.db") as database:
        database.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, note TEXT)")
    database.close()
    server = Server(directory / "data", "--source", f"app=sqlite:///{directory / 'app.db'}").wait_ready()
    server.subscribe("t", "app")
    yield server
    server.kill()


@pytest.fixture
def database(server):
    connection = sqlite3.connect(server.data_dir.parent / "app.db", isolation_level=None, timeout=60)
    yield connection
    connection.execute("DELETE FROM t")
    connection.close()
    client = BulkRowsClient(server.url)
    client.committed("app", "t")  # no subscription of the next test sees it
    client.close()


@pytest.fixture
def needs(server):
    """Skip a test whose methods the server does not have yet."""

    def check(*methods):
        missing = set(methods) - set(server.call("system.capabilities", {})["methods"])
        if missing:
            pytest.skip(f"the server has no {', '.join(sorted(missing))}")

    return check


@pytest.fixture
def tailrace(server):
    """Run a command against the server; return its output, or its lines of JSON."""

    def call(*words, as_json=False):
        result = run(*words, "--server", server.url, *["--json"] * as_json)
        assert result.returncode == 0, result.stderr
        return [json.loads(line) for line in result.stdout.splitlines()] if as_json else result.stdout

    return call


@pytest.fixture
def sub_id(tailrace):
    return tailrace("subs", "create", "t", "--db", "app").strip()


def test_a_subscription_is_made_acknowledged_and_closed(server, tailrace, database):
    (made,) = tailrace("subs", "create", "t", "--db", "app", "--op", "insert", "--include", "after", as_json=True)
    assert made.keys() == {"sub_id", "offset", "sse_url"}
    sub_id = made["sub_id"]
    database.execute("INSERT INTO t VALUES (1, 'Ada')")
    poll = {"sub_id": sub_id, "from_offset": 0, "wait_ms": 20_000}
    (event,) = server.call("cdc.poll", poll)["events"]
    assert event["after"]["note"] == {"t": "str", "v": "Ada"}
    assert "before" not in event
    (acked,) = tailrace("subs", "ack", sub_id, event["seq"], as_json=True)
    assert acked == {"sub_id": sub_id, "acked_offset": event["seq"]}
    assert server.call("cdc.poll", poll | {"wait_ms": 0})["events"] == []
    assert tailrace("subs", "close", sub_id) == f"{sub_id} is closed\n"
    again = run("subs", "close", sub_id, "--server", server.url)
    assert again.returncode == 1
    assert sub_id in again.stderr


def test_several_subscriptions_are_closed_at_once(tailrace):
    sub_ids = [tailrace("subs", "create", "t", "--db", "app").strip() for _ in range(2)]
    closed = tailrace("subs", "close", *sub_ids, as_json=True)
    assert closed == [{"sub_id": sub_id, "closed": True} for sub_id in sub_ids]


def test_the_server_and_the_token_may_come_from_the_environment(serve):
    server = serve("--auth", env={"TAILRACE_AUTH_TOKENS": "right"})
    environment = {"TAILRACE_SERVER": server.url, "TAILRACE_TOKEN": "right"}
    known = run("subs", "create", "none", env=environment)
    assert (known.returncode, "none" in known.stderr) == (1, True)
    stranger = run("subs", "create", "none", env=environment | {"TAILRACE_TOKEN": "wrong"})
    assert (stranger.returncode, "token" in stranger.stderr) == (1, True)
    assert "right" not in stranger.stderr


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("subs", "create"), 2, "TABLE or --query"),
        (("subs", "create", "t", "--query", "q_1"), 2, "TABLE or --query"),
        (("subs", "create", "t", "--format", "xml"), 2, "xml"),
        (("subs", "ack", "sub_1", "-1"), 2, "-1"),
        (("subs", "close"), 2, "SUB_ID"),
        (("subs", "close", "sub_1", "--server", "127.0.0.1:1"), 2, "is not the address of a server"),
        (("subs", "close", "sub_1", "--server", "http://127.0.0.1:1"), 1, "127.0.0.1:1"),
        (("query", "run", "q_1", "--server", "http://127.0.0.1:1"), 1, "127.0.0.1:1"),
    ],
)
def test_mistakes_are_told(words, code, message):
    result = run(*words)
    assert result.returncode == code
    assert message in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("subs", "create", "nowhere", "--db", "app"), "nowhere"),
        (("subs", "create", "t", "--db", "app", "--op", "merge"), "merge"),
        (("subs", "ack", "sub_00000000000000ff", 1), "sub_00000000000000ff"),
    ],
)
def test_what_the_server_refuses_is_told(server, words, message):
    result = run(*words, "--server", server.url)
    assert result.returncode == 1
    assert message in result.stderr


def test_subscriptions_are_listed_and_shown(needs, tailrace, sub_id):
    needs("cdc.list")
    (listed,) = tailrace("subs", "ls", as_json=True)
    (entry,) = [entry for entry in listed if entry["sub_id"] == sub_id]
    assert (entry["db"], entry["table"]) == ("app", "t")
    lines = tailrace("subs", "ls").splitlines()
    assert lines[0].split() == ["sub_id", "for", "acked", "lag", "state"]
    (line,) = [line for line in lines if sub_id in line]
    assert line.split()[1] == "app.t"
    assert tailrace("subs", "show", sub_id, as_json=True) == [entry]
    assert sub_id in tailrace("subs", "show", sub_id)


def test_a_subscription_is_paused_and_goes_on(needs, server, tailrace, sub_id, database):
    needs("cdc.pause", "cdc.resume")
    assert "is paused" in tailrace("subs", "pause", sub_id)
    database.execute("INSERT INTO t VALUES (1, 'Ada')")
    poll = {"sub_id": sub_id, "from_offset": 0}
    wait_until(lambda: server.call("cdc.poll", poll)["backpressure"]["lag"] > 0, "the change is there")
    assert server.call("cdc.poll", poll)["events"] == []
    (state,) = tailrace("subs", "resume", sub_id, as_json=True)
    assert (state["sub_id"], state["paused"]) == (sub_id, False)
    assert len(server.call("cdc.poll", poll)["events"]) == 1


def test_a_cursor_is_reset(needs, server, tailrace, sub_id, database):
    needs("cdc.reset")
    database.execute("INSERT INTO t VALUES (1, 'Ada')")
    poll = {"sub_id": sub_id, "from_offset": 0, "wait_ms": 20_000}
    (event,) = server.call("cdc.poll", poll)["events"]
    tailrace("subs", "reset", sub_id, "--to", "latest")
    assert server.call("cdc.poll", poll | {"wait_ms": 0})["events"] == []
    tailrace("subs", "reset", sub_id, "--to", event["seq"] - 1)
    assert len(server.call("cdc.poll", poll)["events"]) == 1


def test_subscriptions_are_exported_and_imported(needs, server, tailrace, sub_id, tmp_path):
    needs("cdc.export", "cdc.import")
    file = tmp_path / "cdc_subscriptions.json"
    tailrace("subs", "export", file)
    assert sub_id in [entry["id"] for entry in json.loads(file.read_text())["subs"]]
    tailrace("subs", "close", sub_id)
    tailrace("subs", "import", file)
    assert server.call("cdc.poll", {"sub_id": sub_id, "from_offset": 0})["events"] == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_query_is_prepared_run_and_watched(needs, server, tailrace, database, number):
    needs("query.prepare", "query.execute_prepared", "cdc.subscribe_query")
    database.execute("INSERT OR REPLACE INTO t VALUES (1, 'Ada')")
    query_id = tailrace("query", "prepare", "SELECT note FROM t WHERE id = ?").strip()
    (result,) = tailrace("query", "run", query_id, 1, as_json=True)
    assert "Ada" in json.dumps(result["data"])
    assert "Ada" in tailrace("query", "run", query_id, 1)
    (same,) = tailrace("query", "run", query_id, 1, "--etag", result["etag"], as_json=True)
    assert same["not_modified"]

    def watching():
        return server.call("stats.snapshot", {})["cdc"]["query_subscriptions"]

    others = watching()  # those that other tests have left
    watch = subprocess.Popen(
        [sys.executable, "-m", "tailrace", "query", "watch", query_id, "1", "--json", "--server", server.url],
        stdout=subprocess.PIPE,
    )
    try:
        wait_until(lambda: watching() == others + 1, "it watches")
        database.execute("UPDATE t SET note = 'Bela'")
        assert json.loads(watch.stdout.readline())["query_id"] == query_id
        watch.send_signal(number)
        assert watch.wait(DEADLINE_S) == 0
    finally:
        watch.kill()
        watch.wait()
        watch.stdout.close()


def test_the_only_source_needs_no_name_and_an_unknown_one_is_named(server, tailrace):
    (made,) = tailrace("subs", "create", "t", as_json=True)
    entry = next(one for one in server.call("cdc.list", {})["subscriptions"] if one["sub_id"] == made["sub_id"])
    assert (entry["db"], entry["options"]["include"]) == ("app", {"before": True, "after": True})
    for option in ("--source", "--db"):
        wrong = run("subs", "create", "t", option, "nowhere", "--server", server.url)
        assert (wrong.returncode, "source 'nowhere' not found; there is app" in wrong.stderr) == (1, True)
    assert "--db" not in run("subs", "create", "--help").stdout


def test_a_query_is_found_by_its_name(server, tailrace, database):
    database.execute("INSERT INTO t VALUES (1, 'Ada')")
    query_id = tailrace("query", "prepare", "SELECT count(*) AS n FROM t WHERE id = 1", "--name", "ones").strip()
    assert "1 row\n" in tailrace("query", "run", "ones")
    assert query_id in tailrace("query", "ls")
    (made,) = tailrace("subs", "create", "--query", "ones", as_json=True)
    entry = next(one for one in server.call("cdc.list", {})["subscriptions"] if one["sub_id"] == made["sub_id"])
    assert entry["query_id"] == query_id
    tailrace("query", "prepare", "SELECT id FROM t WHERE id = 2", "--name", "ones")
    several = run("query", "run", "ones", "--server", server.url)
    assert (several.returncode, "2 queries are named 'ones'" in several.stderr) == (2, True)
    unknown = run("query", "run", "twos", "--server", server.url)
    assert (unknown.returncode, "'twos'" in unknown.stderr) == (1, True)
