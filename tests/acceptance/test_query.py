"""Facts about prepared queries and their changefeeds, with a real server over a database that others write to."""

import contextlib
import json
import random
import threading

import apsw
import httpx
import pytest
import websockets.sync.client

from running import Running
from serving import DEADLINE_S, Server, wait_until

SCHEMA = """
PRAGMA journal_mode = WAL;
CREATE TABLE users(id INTEGER PRIMARY KEY, name TEXT, team INTEGER, score REAL);
CREATE TABLE teams(id INTEGER PRIMARY KEY, name TEXT);
CREATE TABLE notes(id INTEGER PRIMARY KEY, text TEXT);
CREATE VIEW members AS SELECT u.id, u.name, t.name AS team FROM users u JOIN teams t ON t.id = u.team;
INSERT INTO teams VALUES(1, 'red'), (2, 'blue');
INSERT INTO users VALUES(1, 'ann', 1, 1.5), (2, 'bob', 2, NULL);
"""


class World:
    """A server, the database that it captures, and a client."""

    def __init__(self, server, path):
        self.server = server
        # By the library of the server: two of them in one process break each other's locks.
        self.database = apsw.Connection(str(path))
        self.database.set_busy_timeout(30_000)
        self.http = httpx.Client(base_url=server.url, timeout=DEADLINE_S)

    def write(self, sql, *args):
        self.database.execute(sql, args).fetchall()

    def prepare(self, query, **params):
        return self.server.call("query.prepare", {"query": query, **params})["query_id"]

    def get(self, query_id, args=None, etag=None, **params):
        headers = {} if etag is None else {"If-None-Match": etag}
        params = params if args is None else {"args": json.dumps(args), **params}
        return self.http.get(f"/api/v1/q/{query_id}", params=params, headers=headers)

    def refusal(self, method, params):
        request = {"skeinql": "1.0", "id": 1, "method": method, "params": params}
        answer = self.http.post("/api/v1/rpc", json=request)
        assert answer.status_code == 200
        assert answer.json()["ok"] is False, answer.text
        return answer.json()["error"]["code"], answer.json()["error"]["message"]

    def subscribe(self, query_id, **params):
        return self.server.call("cdc.subscribe_query", {"query_id": query_id, **params})

    def poll(self, made, wait_ms=20_000):
        params = {"sub_id": made["sub_id"], "from_offset": made["offset"], "wait_ms": wait_ms}
        return self.server.call("cdc.poll", params)["events"]


@pytest.fixture
def path(tmp_path):
    """Return the path of a database with some rows."""
    path = tmp_path / "app.db"
    with contextlib.closing(apsw.Connection(str(path))) as made:
        made.execute(SCHEMA).fetchall()
    return path


@contextlib.contextmanager
def world_of(server, path):
    server.subscribe("notes", db="app")
    found = World(server, path)
    try:
        yield found
    finally:
        found.http.close()
        found.database.close()


@pytest.fixture
def world(path, tmp_path):
    """Serve the database from this process, over real sockets."""
    running = Running(tmp_path / "data", app=f"sqlite:///{path}")
    try:
        with world_of(running, path) as found:
            yield found
    finally:
        running.stop()


def test_a_query_is_prepared_run_and_not_sent_twice(world):
    prepared = world.server.call(
        "query.prepare", {"query": "select name from users -- all\n where id > 0;", "name": "n"}
    )
    assert list(prepared) == ["query_id", "canonical"]
    assert prepared["canonical"] == "SELECT name FROM users WHERE id > 0"
    query_id = prepared["query_id"]
    assert world.prepare("SELECT name  FROM users WHERE id > 0") == query_id
    (entry,) = world.server.call("query.list", {})["queries"]
    assert (entry["query_id"], entry["name"], entry["db"]) == (query_id, "n", "app")

    first = world.get(query_id)
    assert first.status_code == 200
    assert first.json()["data"] == {"columns": ["name"], "rows": [["ann"], ["bob"]]}
    assert [table["table"] for table in first.json()["deps"]["tables"]] == ["app.users"]
    assert first.headers["cache-control"] == "private, max-age=0"
    etag = first.headers["etag"]
    assert etag.startswith('W/"q:')
    assert first.json()["etag"] == etag

    second = world.get(query_id, etag=etag)
    assert (second.status_code, second.content, second.headers["etag"]) == (304, b"", etag)
    assert world.get(query_id, etag=f'"other", {etag}').status_code == 304
    assert world.get(query_id, etag='W/"q:other"').status_code == 200

    world.write("INSERT INTO notes VALUES(1, 'foreign')")
    assert world.get(query_id, etag=etag).status_code == 304
    world.write("UPDATE users SET score = 2 WHERE id = 1")  # a column that the query does not read
    assert world.get(query_id, etag=etag).status_code == 304
    world.write("UPDATE users SET name = 'anna' WHERE id = 1")
    third = world.get(query_id, etag=etag)
    assert (third.status_code, third.json()["data"]["rows"]) == (200, [["anna"], ["bob"]])

    called = world.server.call("query.execute_prepared", {"query_id": query_id, "if_none_match": third.headers["etag"]})
    assert list(called) == ["etag", "not_modified", "deps"]
    assert (called["etag"], called["not_modified"]) == (third.headers["etag"], True)


def test_values_come_in_both_formats(world):
    world.write("INSERT INTO users VALUES(3, X'00ff', 9007199254740993, 1.0)")
    query_id = world.prepare("SELECT id, name, team, score, NULL FROM users WHERE id = ?")
    plain = world.get(query_id, [3]).json()["data"]
    assert plain["rows"] == [[3, "AP8=", 9007199254740993, 1.0, None]]
    typed = world.get(query_id, [{"t": "i64", "v": 3}], result_format="objects_json").json()["data"]
    assert typed["rows"][0][:2] == [{"t": "i64", "v": 3}, {"t": "bytes", "b64": "AP8="}]
    params = {"query_id": query_id, "args": [3], "result_format": "objects_json"}
    assert world.server.call("query.execute_prepared", params)["data"] == typed
    assert world.get(query_id, [99]).json()["data"] == {"columns": plain["columns"], "rows": []}


TREE = {
    "body": {
        "select": {
            "projection": [{"expr": {"col": "name"}}],
            "from": [{"db": "app", "table": "users"}],
            "where": {"op": "eq", "a": {"col": "id"}, "b": {"param": 0}},
        }
    }
}

SHAPES = [
    ("a join", "SELECT u.name, t.name FROM users u LEFT JOIN teams t ON t.id = u.team", {"users", "teams"}),
    ("a view", "SELECT * FROM members", {"users", "teams"}),
    ("a CTE", "WITH m AS (SELECT team FROM users) SELECT count(*) FROM m JOIN teams ON id = team", {"users", "teams"}),
    ("a CTE that hides a table", "WITH users AS (SELECT id, name FROM teams) SELECT * FROM users", {"teams"}),
    ("a recursive CTE", "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < 3) "
     "SELECT n, (SELECT name FROM teams WHERE id = n) FROM c", {"teams"}),
    ("a union", "SELECT name FROM users UNION SELECT name FROM teams", {"users", "teams"}),
    ("an EXISTS", "SELECT name FROM teams t WHERE EXISTS (SELECT 1 FROM users WHERE team = t.id)", {"users", "teams"}),
    ("a derived table", 'SELECT count(*) FROM (SELECT name FROM main."users")', {"users"}),
]  # fmt: skip

WRITES = {
    "users": ("INSERT INTO users VALUES(7, 'new', 1, 0)", "DELETE FROM users WHERE id = 7"),
    "teams": ("INSERT INTO teams VALUES(3, 'green')", "DELETE FROM teams WHERE id = 3"),
}


def test_queries_of_every_shape_are_invalidated_by_their_base_tables_alone(world):
    for case, sql, tables in SHAPES:
        query_id = world.prepare(sql)
        made = world.subscribe(query_id, format="plain_json")
        answer = world.get(query_id)
        assert {entry["table"] for entry in answer.json()["deps"]["tables"]} == {f"app.{name}" for name in tables}, case
        etag = answer.headers["etag"]
        for table in sorted(WRITES):
            for write in WRITES[table]:
                world.write(write)
                answer = world.get(query_id, etag=etag)
                assert answer.status_code in ((200, 304) if table in tables else (304,)), (case, write)
                etag = answer.headers["etag"]
        fresh = world.get(query_id)
        events = world.poll(made, wait_ms=0)
        assert {event["table"] for event in events} <= tables, case
        assert events, case
        assert events[-1]["etag"] == fresh.headers["etag"], case


def test_a_tree_is_prepared_like_text(world):
    query_id = world.prepare(TREE)
    assert world.get(query_id, [2]).json()["data"]["rows"] == [["bob"]]


def test_invalidations_come_through_every_wire_with_the_etag_of_the_new_result(world):
    query_id = world.prepare("SELECT name FROM members WHERE id = ?")
    images = {"before": True, "after": True}
    made = world.subscribe(query_id, args=[{"t": "i64", "v": 1}], include=images, precise=True)
    assert list(made) == ["sub_id", "offset", "sse_url", "ws_url"]
    etag = world.get(query_id, [1]).headers["etag"]
    world.write("UPDATE users SET name = 'other' WHERE id = 2")  # another key
    world.write("UPDATE users SET name = 'anna' WHERE id = 1")
    (event,) = world.poll(made)
    assert list(event) == [
        "seq", "db", "table", "op", "pk", "before", "after", "query_id", "etag", "commit_ts_ms", "lsn"
    ]  # fmt: skip
    assert (event["op"], event["db"], event["table"], event["seq"]) == ("invalidate", "app", "users", 2)
    assert (event["pk"], event["after"]["name"]) == ([{"t": "i64", "v": 1}], {"t": "str", "v": "anna"})
    assert event["query_id"] == query_id
    current = world.get(query_id, [1], etag=etag)
    assert (current.status_code, current.headers["etag"]) == (200, event["etag"])

    with world.http.stream("GET", made["sse_url"]) as stream:
        lines = stream.iter_lines()
        record = [next(lines) for _ in range(3)]
    assert record[:2] == ["id: 2", "event: invalidate"]
    assert json.loads(record[2].removeprefix("data: ")) == event
    url = world.server.url.replace("http", "ws", 1) + made["ws_url"]
    with websockets.sync.client.connect(url, proxy=None) as socket:
        message = json.loads(socket.recv(DEADLINE_S))
    assert message == {"id": 2, "event": "invalidate", "data": event}


def test_filters_are_applied_to_the_triggering_change(world):
    query_id = world.prepare("SELECT u.name, t.name FROM users u JOIN teams t ON t.id = u.team")
    deletes = world.subscribe(query_id, ops=["delete"])
    one_key = world.subscribe(query_id, pk=[{"t": "i64", "v": 2}])
    few = world.subscribe(query_id, pk_range={"upper_bound": {"t": "i64", "v": 1}})
    columns = world.subscribe(query_id, columns=["team"], include={"after": True}, format="plain_json")
    where = world.subscribe(query_id, where="score > 1", format="plain_json")
    world.write("UPDATE users SET name = 'x' WHERE id = 1")
    world.write("UPDATE users SET team = 1 WHERE id = 2")
    world.write("UPDATE teams SET name = 'y' WHERE id = 2")
    world.write("DELETE FROM users WHERE id = 2")
    world.get(query_id)  # by now the log has it all
    assert [event["seq"] for event in world.poll(deletes)] == [4]
    assert [event["seq"] for event in world.poll(one_key)] == [2, 3, 4]
    assert [event["seq"] for event in world.poll(few)] == [1]
    events = world.poll(columns)
    assert [event["seq"] for event in events] == [2, 4]
    assert events[0]["after"] == {"team": 1}
    assert [event["seq"] for event in world.poll(where)] == [1]


def test_a_changed_view_changes_etag_and_tells_subscribers(world):
    query_id = world.prepare("SELECT * FROM members")
    made = world.subscribe(query_id)
    etag = world.get(query_id).headers["etag"]
    world.write("BEGIN; DROP VIEW members; CREATE VIEW members AS SELECT id, text AS name FROM notes; COMMIT")
    changed = world.get(query_id, etag=etag)
    assert (changed.status_code, changed.json()["data"]["columns"]) == (200, ["id", "name"])
    (event,) = world.poll(made)
    assert (event["op"], event["pk"], event["etag"]) == ("invalidate", [], changed.headers["etag"])
    made["offset"] = event["seq"]
    world.write("INSERT INTO notes VALUES(1, 'now it matters')")
    (event,) = world.poll(made)
    assert event["table"] == "notes"
    world.write("DROP VIEW members")
    gone = world.get(query_id, etag=event["etag"])
    assert (gone.status_code, gone.json()["error"]["code"]) == (400, "invalid_request")


def test_a_new_index_tells_nobody_and_its_columns_count_from_then_on(world):
    world.write("INSERT INTO users VALUES(3, 'cat', 1, 5), (4, 'dan', 1, 6)")
    query_id = world.prepare("SELECT name FROM users WHERE team = 1 LIMIT 1")
    made = world.subscribe(query_id)
    world.write("UPDATE users SET score = 7 WHERE id = 4")
    assert world.get(query_id).json()["data"]["rows"] == [["ann"]]
    params = {"sub_id": made["sub_id"], "from_offset": made["offset"]}
    looked = world.server.call("cdc.poll", params)
    assert (looked["events"], looked["next_offset"]) == ([], looked["latest_offset"])
    made["offset"] = looked["next_offset"]
    world.write("CREATE INDEX by_team ON users(team, score)")
    world.write("UPDATE users SET score = score + 10 WHERE id = 1")
    (event,) = world.poll(made)
    assert (event["op"], event["seq"]) == ("invalidate", made["offset"] + 1)
    changed = world.get(query_id)
    assert changed.json()["data"]["rows"] == [["cat"]]
    assert changed.headers["etag"] == world.poll(made)[0]["etag"] != event["etag"]


def test_everything_is_there_after_a_restart(serve, path):
    source = ("--source", f"app=sqlite:///{path}")
    with world_of(serve(*source), path) as world:
        query_id = world.prepare("SELECT name FROM members WHERE id = ?", name="kept")
        made = world.subscribe(query_id, args=[1], format="plain_json")
        etag = world.get(query_id, [1]).headers["etag"]
        unchanged = world.get(query_id, [2]).headers["etag"]
        assert world.server.stop() == 0
        world.write("UPDATE users SET name = 'meanwhile' WHERE id = 1")
    with world_of(serve(*source), path) as world:
        (entry,) = world.server.call("query.list", {})["queries"]
        assert (entry["query_id"], entry["name"]) == (query_id, "kept")
        (event,) = world.poll(made)
        assert (event["op"], event["pk"], event["query_id"]) == ("invalidate", [1], query_id)
        answer = world.get(query_id, [1], etag=etag)
        assert (answer.status_code, answer.json()["data"]["rows"]) == (200, [["meanwhile"]])
        assert answer.headers["etag"] == world.poll(made)[0]["etag"] != event["etag"]
        assert world.get(query_id, [1], etag=answer.headers["etag"]).status_code == 304
        assert world.get(query_id, [2], etag=unchanged).status_code == 304
        listed = world.server.call("cdc.list", {})["subscriptions"]
        assert [entry.get("query_id") for entry in listed] == [None, query_id, None]


def test_results_go_along_with_events_while_they_are_small(world):
    query_id = world.prepare("SELECT name FROM users WHERE id > ? ORDER BY id")
    made = world.subscribe(query_id, args=[0], deliver="result", format="plain_json")
    world.write("INSERT INTO users VALUES(3, 'cid', 1, 0), (4, 'dan', 1, 0)")
    events = world.poll(made)
    assert ["result" in event for event in events] == [False, True]  # the last one of a batch
    assert events[-1]["result"] == {"columns": ["name"], "rows": [["ann"], ["bob"], ["cid"], ["dan"]]}
    assert events[-1]["etag"] == world.get(query_id, [0]).headers["etag"]

    numbers = "WITH RECURSIVE c(n) AS (SELECT 10 UNION ALL SELECT n + 1 FROM c WHERE n < 159)"
    world.write(f"INSERT INTO users {numbers} SELECT n, 'many', 1, 0 FROM c")
    made["offset"] = wait_until(lambda: (world.poll(made) or [{}])[-1].get("seq", 0) >= 152 and 152, "all came")
    world.write("DELETE FROM users WHERE id = 10")
    (event,) = world.poll(made)
    assert "result" not in event
    assert event.get("result_omitted") or event["delta"]["removed"] == [["many"]]
    made["offset"] = event["seq"]
    world.write("INSERT INTO users VALUES(5, 'eve', 1, 0)")
    (event,) = world.poll(made)
    assert {key: event["delta"][key] for key in ("added", "removed", "reordered")} == {
        "added": [["eve"]], "removed": [], "reordered": False
    }  # fmt: skip


def test_events_of_a_query_are_streamed_without_a_subscription(world):
    query_id = world.prepare("SELECT name FROM members WHERE id = ?")
    path = world.server.call("query.subscribe", {"query_id": query_id, "args": [1]})["sse_url"]
    with world.http.stream("GET", path) as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        lines = stream.iter_lines()
        assert next(lines) == ":"
        world.write("INSERT INTO notes VALUES(1, 'foreign')")
        world.write("UPDATE users SET name = 'anna' WHERE id = 1")
        assert next(lines) == ""
        record = [next(lines) for _ in range(2)]
    assert record[0] == "id: 2"
    data = json.loads(record[1].removeprefix("data: "))
    assert data == {"query_id": query_id, "table": "app.users", "changed": True}
    assert list(data) == ["query_id", "table", "changed"]
    with world.http.stream("GET", path, headers={"Last-Event-ID": "0"}) as stream:
        lines = stream.iter_lines()
        assert [next(lines) for _ in range(3)] == [":", "", "id: 2"]


def test_volatile_queries_are_run_each_time_and_compared(world):
    query_id = world.prepare("SELECT random()")
    etag = world.get(query_id).headers["etag"]
    again = world.get(query_id, etag=etag)
    assert again.status_code == 200
    assert again.headers["etag"] != etag
    query_id = world.prepare("SELECT name, date('now') > '2000' FROM users")
    etag = world.get(query_id).headers["etag"]
    assert world.get(query_id, etag=etag).status_code == 304


def test_a_result_that_was_touched_and_is_the_same_is_not_sent_again(world):
    query_id = world.prepare("SELECT count(*), max(score) FROM users")
    etag = world.get(query_id).headers["etag"]
    made = world.subscribe(query_id)
    world.write("BEGIN; UPDATE users SET score = 1 WHERE id = 2; COMMIT")
    assert world.get(query_id, etag=etag).status_code == 304
    (event,) = world.poll(made)
    assert event["etag"] == etag  # the one of the result, as somebody has run the query
    world.write("UPDATE users SET score = 9 WHERE id = 2")
    other = world.get(query_id, etag=etag)
    assert other.status_code == 200
    world.write("UPDATE users SET score = 1 WHERE id = 2")
    back = world.get(query_id, etag=f"{other.headers['etag']}, {etag}")
    assert (back.status_code, back.headers["etag"]) == (304, etag)


REFUSED = [
    ("not a query", "query.prepare", {"query": "DELETE FROM users"}, "invalid_request"),
    ("two statements", "query.prepare", {"query": "SELECT 1; SELECT 2"}, "invalid_request"),
    ("nothing", "query.prepare", {"query": ""}, "invalid_request"),
    ("no SQL", "query.prepare", {"query": "SELECT FROM WHERE"}, "invalid_request"),
    ("an unknown table", "query.prepare", {"query": "SELECT * FROM nowhere"}, "invalid_request"),
    ("an unknown column", "query.prepare", {"query": "SELECT nothing FROM users"}, "invalid_request"),
    ("our own tables", "query.prepare", {"query": "SELECT * FROM _tailrace_change"}, "invalid_request"),
    ("the schema table", "query.prepare", {"query": "SELECT * FROM sqlite_schema"}, "invalid_request"),
    ("a huge text", "query.prepare", {"query": "SELECT " + "1," * 40_000 + "1"}, "invalid_request"),
    ("a deep text", "query.prepare", {"query": "SELECT " + "(" * 500 + "1" + ")" * 500}, "invalid_request"),
    ("named arguments", "query.prepare", {"query": "SELECT :a"}, "invalid_request"),
    ("an unknown database", "query.prepare", {"query": "SELECT 1", "db": "nope"}, "not_found"),
    ("a broken tree", "query.prepare", {"query": {"body": {}}}, "invalid_request"),
    ("a number as query", "query.prepare", {"query": 5}, "invalid_request"),
    ("an unknown param", "query.prepare", {"query": "SELECT 1", "x": 1}, "invalid_request"),
    ("an unknown query", "query.execute_prepared", {"query_id": "q_nope"}, "not_found"),
    ("a missing argument", "query.execute_prepared", {"query_id": "ONE"}, "invalid_request"),
    ("too many arguments", "query.execute_prepared", {"query_id": "ONE", "args": [1, 2]}, "invalid_request"),
    ("a list as argument", "query.execute_prepared", {"query_id": "ONE", "args": [[1]]}, "invalid_request"),
    ("a broken literal", "query.execute_prepared", {"query_id": "ONE", "args": [{"t": "x"}]}, "invalid_request"),
    ("a huge integer", "query.execute_prepared", {"query_id": "ONE", "args": [2**70]}, "invalid_request"),
    ("an unknown format", "query.execute_prepared", {"query_id": "ONE", "args": [1], "result_format": "xml"},
     "invalid_request"),
    ("a subscription to nothing", "cdc.subscribe_query", {"query_id": "q_nope"}, "not_found"),
    ("a subscription without argument", "cdc.subscribe_query", {"query_id": "ONE"}, "invalid_request"),
    ("an unknown delivery", "cdc.subscribe_query", {"query_id": "ONE", "args": [1], "deliver": "x"}, "invalid_request"),
    ("an unknown op", "cdc.subscribe_query", {"query_id": "ONE", "args": [1], "ops": ["merge"]}, "invalid_request"),
    ("bounds without a bound", "cdc.subscribe_query", {"query_id": "ONE", "args": [1], "pk_range": {}},
     "invalid_request"),
    ("a broken key", "cdc.subscribe_query", {"query_id": "ONE", "args": [1], "pk": [1]}, "invalid_request"),
    ("a predicate that fits no table", "cdc.subscribe_query", {"query_id": "ONE", "args": [1], "where": "nope = 1"},
     "invalid_request"),
    ("an unknown query to watch", "query.subscribe", {"query_id": "q_nope"}, "not_found"),
]  # fmt: skip


def test_wrong_calls_are_refused_with_their_code(world):
    one = world.prepare("SELECT name FROM users WHERE id = ?")
    for case, method, params, code in REFUSED:
        params = {key: one if value == "ONE" else value for key, value in params.items()}
        found, message = world.refusal(method, params)
        assert (case, found) == (case, code)
        assert message, case


def test_wrong_requests_are_refused_with_their_status(world):
    one = world.prepare("SELECT name FROM users WHERE id = ?")
    assert (world.get("q_nope").status_code, world.get("q_nope").text) == (404, "unknown query_id")
    events = world.http.get("/api/v1/q/q_nope/events")
    assert (events.status_code, events.text) == (404, "unknown query_id")
    for params in ({}, {"args": "["}, {"args": "5"}, {"args": "[[1]]"}, {"args": "[1,2]"}):
        for path in (f"/api/v1/q/{one}", f"/api/v1/q/{one}/events"):
            answer = world.http.get(path, params=params)
            assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_request"), (path, params)
    assert world.http.get(f"/api/v1/q/{one}", params={"args": "[1]", "result_format": "x"}).status_code == 400
    events = world.http.get(f"/api/v1/q/{one}/events", params={"args": "[1]"}, headers={"Last-Event-ID": "x"})
    assert events.status_code == 400
    assert world.http.post(f"/api/v1/q/{one}").status_code == 405


def test_a_query_has_limits_in_rows_and_bytes(world):
    counting = "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < ?) SELECT n FROM c"
    many = world.get(world.prepare(counting), [10_001])
    assert (many.status_code, "10000 rows" in many.json()["error"]["message"]) == (400, True)
    assert len(world.get(world.prepare(counting), [10_000]).json()["data"]["rows"]) == 10_000
    large = world.get(world.prepare("SELECT zeroblob(?)"), [9 << 20])
    assert (large.status_code, large.json()["error"]["code"]) == (400, "invalid_request")
    huge = world.get(world.prepare("SELECT zeroblob(?)"), [1 << 30])
    assert (huge.status_code, huge.json()["error"]["code"]) == (400, "invalid_request")


def test_an_endless_query_is_ended_and_keeps_nobody_from_being_answered(world):
    endless = world.prepare("WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c) SELECT count(*) FROM c")
    plain = world.prepare("SELECT name FROM users")
    etag = world.get(plain).headers["etag"]
    found = []
    thread = threading.Thread(
        target=lambda: found.append(httpx.get(f"{world.server.url}/api/v1/q/{endless}", timeout=60))
    )
    thread.start()
    while thread.is_alive():
        assert world.get(plain, etag=etag).status_code == 304
        thread.join(0.05)
    assert (found[0].status_code, found[0].json()["error"]["code"]) == (504, "timeout")


QUERIES = [
    ("SELECT name FROM users WHERE team = ? ORDER BY id", [1]),
    ("SELECT t.name, count(u.id), sum(u.score) FROM teams t LEFT JOIN users u ON u.team = t.id GROUP BY t.id", None),
    ("SELECT * FROM members WHERE id BETWEEN ? AND ?", [2, 4]),
    ("SELECT name FROM users WHERE score > 5 UNION SELECT name FROM teams", None),
    (
        "WITH best AS (SELECT team, max(score) AS m FROM users GROUP BY team) SELECT * FROM best WHERE m IS NOT NULL",
        None,
    ),
    ("SELECT id FROM teams t WHERE NOT EXISTS (SELECT 1 FROM users u WHERE u.team = t.id)", None),
    ("SELECT count(*) FROM users", None),
]


def random_write(rng):
    """Return a statement that often changes nothing that matters."""
    identity, team = rng.randint(1, 8), rng.randint(1, 4)
    row = (identity, f"n{rng.randint(1, 3)}", team, rng.choice([None, 2, 9]))
    return rng.choice(
        [
            ("INSERT OR IGNORE INTO users VALUES(?, ?, ?, ?)", row),
            ("INSERT OR REPLACE INTO users VALUES(?, ?, ?, ?)", row),
            ("UPDATE users SET score = ? WHERE id = ?", (rng.choice([None, 1, 9]), identity)),
            ("UPDATE users SET team = ? WHERE id = ?", (team, identity)),
            ("DELETE FROM users WHERE id = ?", (identity,)),
            ("INSERT OR REPLACE INTO teams VALUES(?, ?)", (team, rng.choice("abc"))),
            ("DELETE FROM teams WHERE id = ?", (team,)),
            ("INSERT INTO notes(text) VALUES(?)", ("x",)),
        ]
    )  # fmt: skip


def test_neither_a_304_nor_silence_hides_a_changed_result(serve, path):
    """After each commit: whoever has a 304 has the result that the database gives now; who has another, was told."""
    with world_of(serve("--source", f"app=sqlite:///{path}"), path) as world:
        compare(world, random.Random(7))


def compare(world, rng):
    prepared = [(world.prepare(sql), sql, args) for sql, args in QUERIES]
    subscriptions = {query_id: world.subscribe(query_id, args=args or []) for query_id, _, args in prepared}
    precise = {query_id: world.subscribe(query_id, args=args or [], precise=True) for query_id, _, args in prepared}
    remembered = {}
    kept = changed = 0
    for _ in range(250):
        for _ in range(rng.choice([1, 1, 2])):
            statement, values = random_write(rng)
            world.write(statement, *values)
        query_id, sql, args = rng.choice(prepared)
        etag, rows = remembered.get(query_id, (None, None))
        answer = world.get(query_id, args, etag=etag)
        now = [list(row) for row in world.database.execute(sql, args or ())]
        now = now if "ORDER BY" in sql else sorted(now, key=repr)
        looked = world.server.call(
            "cdc.poll", {"sub_id": precise[query_id]["sub_id"], "from_offset": precise[query_id]["offset"]}
        )
        precise[query_id]["offset"] = looked["next_offset"]
        if rows is not None:
            assert bool(looked["events"]) == (rows != now), f"not told, or needlessly: {sql}"
        if looked["events"]:
            assert looked["events"][-1]["etag"] == answer.headers["etag"]
        if answer.status_code == 304:
            kept += 1
            assert rows == now, sql
        else:
            changed += 1
            assert answer.status_code == 200
            given = answer.json()["data"]["rows"]
            assert (given if "ORDER BY" in sql else sorted(given, key=repr)) == now, sql
            assert rows != now, f"the same was sent again: {sql}"
            events = world.poll(subscriptions[query_id], wait_ms=0)
            assert events or rows is None or rows == now, f"nobody was told: {sql}"
            if events:
                subscriptions[query_id]["offset"] = events[-1]["seq"]
                assert events[-1]["etag"] == answer.headers["etag"], sql
            remembered[query_id] = (answer.headers["etag"], now)
    assert kept > 20
    assert changed > 20


def test_a_precise_subscription_is_told_of_other_results_alone(world):
    query_id = world.prepare("SELECT max(score) FROM users")
    etag = world.get(query_id).headers["etag"]
    made = [
        world.subscribe(query_id, precise=True, deliver=how, format="plain_json") for how in ("invalidate", "result")
    ]
    plain = world.subscribe(query_id)
    for score in (0, 1, 0.5):
        world.write("UPDATE users SET score = ? WHERE id = 2", score)
    assert world.get(query_id, etag=etag).status_code == 304
    assert [event["seq"] for event in world.poll(plain)] == [1, 2, 3]
    assert [world.poll(one, wait_ms=0) for one in made] == [[], []]
    world.write("UPDATE users SET score = 3 WHERE id = 2")
    (event,), (with_result,) = (world.poll(one) for one in made)
    assert event["seq"] == with_result["seq"] == 4
    assert with_result["result"]["rows"] == [[3]]
    current = world.get(query_id, etag=event["etag"])
    assert (current.status_code, event["etag"]) == (304, with_result["etag"])
    (again,) = world.poll(made[0])  # what was not acknowledged comes again
    assert again == event
    checks = [line for line in world.http.get("/metrics").text.splitlines() if "query_checks_total{" in line]
    assert any('outcome="same"' in line for line in checks)
    assert any('outcome="changed"' in line for line in checks)


def test_a_result_that_was_another_for_a_moment_is_told_to_whoever_may_have_it(world):
    query_id = world.prepare("SELECT max(score) FROM users")
    made = world.subscribe(query_id, precise=True)
    world.write("UPDATE users SET score = 9 WHERE id = 2")
    for_a_moment = world.get(query_id).headers["etag"]
    world.write("UPDATE users SET score = 1 WHERE id = 2")
    now = world.get(query_id).headers["etag"]
    assert now != for_a_moment
    events = world.poll(made)
    assert events
    assert events[-1]["etag"] == now


def test_answers_runs_verdicts_and_invalidations_are_counted(world):
    query_id = world.prepare("SELECT name FROM users WHERE id = ?")
    many = world.prepare("SELECT a.id FROM users a, users b, users c")
    etag = world.get(query_id, [1]).headers["etag"]
    made = world.subscribe(query_id, args=[1])
    assert world.get(query_id, [1], etag=etag).status_code == 304
    world.write("UPDATE users SET name = name || '!' WHERE id = 2")
    assert world.get(query_id, [1], etag=etag).status_code == 304
    world.write("UPDATE users SET name = name || '!' WHERE id = 1")
    assert len(world.poll(made)) == 1
    assert world.server.call("query.execute_prepared", {"query_id": query_id, "args": [1], "if_none_match": etag})[
        "data"
    ]
    world.write("WITH RECURSIVE n(i) AS (SELECT 3 UNION ALL SELECT i + 1 FROM n WHERE i < 40) "
                "INSERT INTO users SELECT i, 'n', 1, 0 FROM n")  # fmt: skip
    assert world.get(many).status_code == 400
    text = world.http.get("/metrics").text.splitlines()
    for line in (
        "tailrace_queries_prepared 2.0",
        "tailrace_queries_followed 2.0",
        'tailrace_query_answers_total{answer="not_modified"} 2.0',
        'tailrace_query_answers_total{answer="result"} 2.0',
        'tailrace_query_run_seconds_count{outcome="ok"} 2.0',
        'tailrace_query_run_seconds_count{outcome="refused"} 1.0',
        'tailrace_query_changes_total{verdict="irrelevant"} 1.0',
        'tailrace_query_changes_total{verdict="relevant"} 1.0',
        "tailrace_query_invalidations_total 1.0",
    ):
        assert line in text, [found for found in text if "query" in found and "bucket" not in found]


TEAM = {
    "body": {
        "select": {
            "projection": [{"expr": {"col": "name"}}],
            "from": [{"db": "app", "table": "teams"}],
            "where": {"op": "eq", "a": {"col": "id"}, "b": {"param": 0}},
        }
    }
}


@pytest.fixture
def elsewhere(tmp_path):
    """Serve a database of the same schema, under the same name, from elsewhere."""
    path = tmp_path / "elsewhere.db"
    with contextlib.closing(apsw.Connection(str(path))) as made:
        made.execute(SCHEMA).fetchall()
    running = Running(tmp_path / "elsewhere", app=f"sqlite:///{path}")
    try:
        with world_of(running, path) as found:
            yield found
    finally:
        running.stop()


def test_subscriptions_to_queries_move_to_another_server(world, elsewhere):
    by_text = world.prepare("SELECT name FROM users WHERE id = ?", name="one user")
    by_tree = world.prepare(TEAM)
    first = world.subscribe(
        by_text, args=[1], deliver="result", format="plain_json", ops=["update"], where="name <> 'x'"
    )
    second = world.subscribe(by_tree, args=[{"t": "i64", "v": 1}], auto_ack=True, precise=True)
    world.subscribe(by_text, args=[2])
    world.write("UPDATE users SET name = 'x' WHERE id = 1")
    wait_until(lambda: world.poll(second | {"offset": 0}, wait_ms=0) == [], "captured")
    document = world.server.call("cdc.export", {})
    elsewhere.prepare("SELECT name FROM users WHERE id = ?")
    assert elsewhere.server.call("cdc.import", document) == {"imported": 4}
    assert elsewhere.server.call("cdc.import", document) == {"imported": 4}
    again = elsewhere.server.call("cdc.export", {})
    assert [entry | {"acked_offset": 0} for entry in again["subs"]] == [
        entry | {"acked_offset": 0} for entry in document["subs"]
    ]
    queries = {entry["query_id"]: entry["name"] for entry in elsewhere.server.call("query.list", {})["queries"]}
    assert queries == {by_text: "one user", by_tree: ""}
    elsewhere.write("UPDATE users SET name = 'y' WHERE id = 1")
    (event,) = elsewhere.poll(first | {"offset": 0})
    assert event["result"]["rows"] == [["y"]]
    elsewhere.write("UPDATE teams SET name = 'green' WHERE id = 1")
    (event,) = elsewhere.poll(second | {"offset": 0})
    assert (event["query_id"], event["table"]) == (by_tree, "teams")


@pytest.mark.parametrize(
    ("members", "said"),
    [
        ({"query": None}, "q_unknown"),
        ({"query": "SELECT nothing FROM users"}, "nothing"),
        ({"query": 5}, "SQL text or a tree"),
        ({"args": []}, "argument"),
        ({"args": 1}, "`args`"),
        ({"deliver": "cake"}, "`deliver`"),
        ({"precise": 1}, "`precise`"),
        ({"db": "nowhere"}, "nowhere"),
        ({"db": 1}, "`db`"),
    ],
)
def test_if_one_query_does_not_fit_nothing_is_imported(world, members, said):
    before = world.server.call("cdc.export", {})
    target = {"query_id": "q_unknown", "query": "SELECT name FROM users WHERE id = ?", "args": [1], "db": "app"}
    good = {"id": "sub_7", "acked_offset": 0, "target": {"Query": target}}
    bad = {"id": "sub_8", "acked_offset": 0, "target": {"Query": target | members}}
    assert said in world.refusal("cdc.import", {"subs": [good, bad]})[1]
    snapshot = good | {"options": {"snapshot": True}}
    assert "snapshot" in world.refusal("cdc.import", {"subs": [good, snapshot]})[1]
    assert world.server.call("cdc.export", {}) == before
    assert world.server.call("query.list", {})["queries"] == []


SLOW = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100000000) SELECT max(i) FROM n"


def test_the_limits_that_were_set_are_in_force(path, tmp_path):
    config = tmp_path / "tailrace.toml"
    config.write_text("[query]\ntimeout = '2s'\ninline_rows_max = 1\n")
    server = Server(
        tmp_path / "data",
        str(config),
        "--source",
        f"app=sqlite:///{path}",
        "--query-rows-max",
        "2",
        env={"TAILRACE_QUERY_PREPARED_MAX": "3"},
    ).wait_ready()
    try:
        with world_of(server, path) as world:
            users, slow = world.prepare("SELECT name FROM users"), world.prepare(SLOW)
            wide = world.prepare("SELECT id, zeroblob(9000000) FROM users")
            assert "3 prepared queries" in world.refusal("query.prepare", {"query": "SELECT 1"})[1]
            assert world.get(users).status_code == 200
            assert world.get(slow).status_code == 504
            assert world.get(wide).status_code == 400  # the default of a limit that was not set
            made = world.subscribe(users, deliver="result")
            world.write("INSERT INTO users VALUES(3, 'cat', 1, 0)")
            (event,) = world.poll(made)
            assert event["result_omitted"] is True
            refused = world.get(users)
            assert (refused.status_code, "2 rows" in refused.text) == (400, True)
    finally:
        server.stop()
