"""Facts about subscriptions that begin with the rows of their table."""

import contextlib
import json
import subprocess
import sys

import apsw
import httpx
import pytest
import websockets.sync.client

from running import Running
from serving import DEADLINE_S
from tailrace.client import Client

SCHEMA = """
PRAGMA journal_mode = WAL;
CREATE TABLE users(id INTEGER PRIMARY KEY, name TEXT, team INTEGER);
CREATE TABLE loose(word TEXT);
CREATE TABLE pairs(a TEXT, b INTEGER, v BLOB, PRIMARY KEY(a, b)) WITHOUT ROWID;
"""

WRITER = """
import random, sqlite3, sys
database = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=60)
choose = random.Random(7)
print("ready", flush=True)
for number in range(int(sys.argv[2])):
    database.execute("BEGIN IMMEDIATE")
    for _ in range(choose.randrange(1, 4)):
        key = choose.randrange(1, 4000)
        statement = choose.choice([
            "INSERT OR REPLACE INTO users VALUES(:key, :name, 1)",
            "UPDATE users SET name = :name WHERE id = :key",
            "DELETE FROM users WHERE id = :key",
        ])
        database.execute(statement, {"key": key, "name": f"n{number}"})
    database.execute("COMMIT")
database.execute("INSERT INTO users VALUES(1000000, 'last', 1)")
"""
"""Another process that writes, in transactions of several changes."""


class World:
    """A server over a database, which may be started anew."""

    def __init__(self, tmp_path):
        self.path = tmp_path / "app.db"
        self.data = tmp_path / "data"
        self.database = apsw.Connection(str(self.path))
        self.database.set_busy_timeout(30_000)
        self.write(SCHEMA)
        self.start()

    def start(self):
        self.server = Running(self.data, app=f"sqlite:///{self.path}")

    def write(self, sql, *args):
        return self.database.execute(sql, args).fetchall()

    def fill(self, count):
        self.write(
            "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < ?) "
            "INSERT INTO users SELECT n, 'name ' || n, n % 3 FROM c",
            count,
        )

    def fill_name(self, name):
        self.write("UPDATE users SET name = ?", name)

    def rows_of_users(self):
        return self.write("SELECT id, name, team FROM users")

    def subscribe(self, table="users", **params):
        params = {"format": "plain_json", "include": {"before": True, "after": True}, **params}
        return self.server.subscribe(table, db="app", snapshot=True, **params)["sub_id"]

    def entry(self, sub_id):
        return next(e for e in self.server.call("cdc.list", {})["subscriptions"] if e["sub_id"] == sub_id)

    def ack(self, sub_id, offset):
        return self.server.call("cdc.ack", {"sub_id": sub_id, "offset": offset})["acked_offset"]

    def refusal(self, method, **params):
        with pytest.raises(AssertionError) as caught:
            self.server.call(method, params)
        return str(caught.value)

    @contextlib.contextmanager
    def stream(self, path, **headers):
        """Give an iterator of the records of a stream as dictionaries; `data` is decoded."""
        with httpx.stream("GET", f"{self.server.url}/api/v1/cdc/sse{path}", headers=headers, timeout=DEADLINE_S) as got:
            assert got.status_code == 200
            yield _records(got.iter_lines())

    def rows(self, sub_id):
        """Return the records of a snapshot up to its end."""
        with self.stream(f"/{sub_id}") as records:
            return _through(records, "snapshot")


def _records(lines):
    record = {}
    for line in lines:
        if line.startswith(":"):
            continue
        if line:
            name, _, text = line.partition(": ")
            record[name] = json.loads(text) if name == "data" else text
        elif record:
            yield record
            record = {}


def _through(records, event):
    """Return the records up to the first one with that event."""
    found = []
    for record in records:
        found.append(record)
        if record["event"] == event:
            return found
    raise AssertionError(f"no {event}")


@pytest.fixture
def world(tmp_path):
    made = World(tmp_path)
    try:
        yield made
    finally:
        made.server.stop()
        made.database.close()


def test_rows_come_first_all_at_one_offset_and_then_changes(world):
    world.fill(3)
    sub_id = world.subscribe()
    with world.stream(f"/{sub_id}") as records:
        *reads, end = _through(records, "snapshot")
        assert [(read["event"], read["data"]["op"], read["data"]["pk"]) for read in reads] == [
            ("read", "read", [number]) for number in (1, 2, 3)
        ]
        assert reads[0]["data"]["after"] == {"id": 1, "name": "name 1", "team": 1}
        assert list(reads[0]["data"]) == ["seq", "db", "table", "op", "pk", "after", "commit_ts_ms", "lsn"]
        # Without an id, a browser that reconnects inside the snapshot names no place, and gets it anew.
        assert not any("id" in read for read in reads)
        offset = end["data"]["offset"]
        assert end == {
            "id": str(offset),
            "event": "snapshot",
            "data": {"sub_id": sub_id, "offset": offset, "rows": 3},
        }
        assert {read["data"]["seq"] for read in reads} == {offset}
        world.write("UPDATE users SET name = 'b' WHERE id = 2")
        change = next(records)
        assert (change["event"], change["data"]["seq"] > offset) == ("update", True)
        assert change["data"]["before"] == reads[1]["data"]["after"]


@pytest.mark.parametrize("mode", ["WAL", "DELETE"])
def test_rows_and_changes_make_the_table_while_another_process_writes(world, mode):
    world.server.stop()
    world.write(f"PRAGMA journal_mode = {mode}")
    world.start()
    world.fill(3000)
    sub_ids = [world.subscribe() for _ in range(2)]
    writer = subprocess.Popen([sys.executable, "-c", WRITER, world.path, "400"], stdout=subprocess.PIPE)
    assert writer.stdout.readline() == b"ready\n"
    try:
        for sub_id in sub_ids:
            table, seen, changed = {}, 0, 0
            with world.stream(f"/{sub_id}") as records:
                for record in records:
                    event, data = record["event"], record["data"]
                    if event == "backpressure":
                        continue
                    if event == "snapshot":
                        seen = data["offset"]
                        assert data["rows"] == len(table)
                        continue
                    key = data["pk"][0]
                    if event == "read":
                        assert key not in table
                    else:
                        # A change that the rows have already, or one that is missing, would not fit.
                        assert table.get(key) == data.get("before"), (event, data)
                        assert data["seq"] > seen
                        seen, changed = data["seq"], changed + 1
                    if event == "delete":
                        del table[key]
                    else:
                        table[key] = data["after"]
                    if key == 1_000_000:
                        break
            expected = {row[0]: dict(zip(("id", "name", "team"), row, strict=True)) for row in world.rows_of_users()}
            assert table == expected
    finally:
        assert writer.wait(DEADLINE_S) == 0
        writer.stdout.close()


def test_filters_choose_rows_as_if_they_were_inserted_and_ops_do_not_matter(world):
    world.fill(9)
    chosen = {
        "pk": ({"pk": [{"t": "i64", "v": 4}]}, [4]),
        "range": ({"pk_range": {"lower_bound": {"t": "i64", "v": 8}}}, [8, 9]),
        "where": ({"where": "team = 2", "ops": ["delete"]}, [2, 5, 8]),
        "cel": ({"cel": "after.team == 0"}, [3, 6, 9]),
        "none": ({"where": "team = 7"}, []),
    }
    for params, keys in chosen.values():
        *reads, end = world.rows(world.subscribe(**params))
        assert [read["data"]["pk"][0] for read in reads] == keys
        assert end["data"]["rows"] == len(keys)
    *reads, _ = world.rows(world.subscribe(columns=["team"], where="id = 1", format="objects_json"))
    assert reads[0]["data"]["after"] == {"team": {"t": "i64", "v": 1}}
    assert reads[0]["data"]["pk"] == [{"t": "i64", "v": 1}]


def test_rows_have_the_keys_and_images_that_their_changes_have(world):
    world.write("INSERT INTO loose VALUES('a'), (NULL)")
    world.write("INSERT INTO pairs VALUES('x', 1, x'00ff'), ('é', 2, 1.5)")
    for table in ("loose", "pairs"):
        sub_id = world.subscribe(table)
        with world.stream(f"/{sub_id}") as records:
            *reads, _ = _through(records, "snapshot")
            world.write(f"DELETE FROM {table}")
            gone = [next(records)["data"] for _ in reads]
        assert [(read["data"]["pk"], read["data"]["after"]) for read in reads] == [(e["pk"], e["before"]) for e in gone]
        assert len(reads) == 2


def test_an_empty_table_has_an_empty_snapshot_that_is_acknowledged_like_any(world):
    sub_id = world.subscribe()
    (end,) = world.rows(sub_id)
    assert end["data"]["rows"] == 0
    (again,) = world.rows(sub_id)
    assert again["event"] == "snapshot"
    world.ack(sub_id, end["data"]["offset"])
    world.write("INSERT INTO users VALUES(1, 'a', 1)")
    with world.stream(f"/{sub_id}") as records:
        assert next(records)["event"] == "insert"


def test_a_stream_that_breaks_inside_the_snapshot_gets_it_anew(world):
    world.fill(5000)
    world.fill_name("x" * 2000)  # more than connections hold
    sub_id = world.subscribe(auto_ack=True)
    with world.stream(f"/{sub_id}") as records:
        first = next(records)
        # All rows have one offset: nobody can say that he has some of them.
        assert world.ack(sub_id, first["data"]["seq"]) == world.entry(sub_id)["acked_offset"]
    world.write("UPDATE users SET name = 'new' WHERE id = 1")
    world.server.stop()
    world.start()
    *reads, end = world.rows(sub_id)
    assert [read["data"]["pk"][0] for read in reads] == list(range(1, 5001))
    assert reads[0]["data"]["after"]["name"] == "new"
    assert end["data"]["rows"] == 5000


def test_the_end_of_the_snapshot_is_a_place_to_resume_from_also_after_a_restart(world):
    world.fill(2)
    sub_id = world.subscribe()
    *_, end = world.rows(sub_id)
    assert world.entry(sub_id)["options"]["snapshot"] is True
    world.server.stop()
    world.write("DELETE FROM users WHERE id = 1")
    world.start()
    with world.stream(f"/{sub_id}", **{"Last-Event-ID": end["id"]}) as records:
        assert next(records)["event"] == "delete"
    assert world.ack(sub_id, end["data"]["offset"]) == end["data"]["offset"]
    assert "snapshot" not in world.entry(sub_id)["options"]
    world.server.stop()
    world.start()
    with world.stream(f"/{sub_id}") as records:
        assert next(records)["event"] == "delete"


def test_polls_come_after_the_snapshot(world):
    world.fill(1)
    sub_id = world.subscribe()
    poll = {"sub_id": sub_id, "from_offset": 0}
    assert "begins with a snapshot" in world.refusal("cdc.poll", **poll)
    *_, end = world.rows(sub_id)
    world.ack(sub_id, end["data"]["offset"])
    assert world.server.call("cdc.poll", poll)["events"] == []


def test_a_reset_takes_the_place_of_the_snapshot(world):
    world.fill(1)
    sub_id = world.subscribe()
    world.server.call("cdc.reset", {"sub_id": sub_id, "to": "latest"})
    world.write("DELETE FROM users")
    with world.stream(f"/{sub_id}") as records:
        assert next(records)["event"] == "delete"


def test_a_paused_subscription_gets_no_rows_until_it_is_resumed(world):
    world.fill(1)
    sub_id = world.subscribe()
    world.server.call("cdc.pause", {"sub_id": sub_id})
    with world.stream(f"/{sub_id}") as records:
        world.fill_name("later")
        world.server.call("cdc.resume", {"sub_id": sub_id})
        read, end = _through(records, "snapshot")
        assert (read["data"]["after"]["name"], end["data"]["rows"]) == ("later", 1)


def test_a_snapshot_from_another_place_is_refused(world):
    world.subscribe()
    for place in ("earliest", 0, {"timestamp": 0}):
        params = {"db": "app", "table": "users", "snapshot": True, "from": place}
        assert world.refusal("cdc.subscribe_table", **params).startswith("invalid_request: a snapshot is of the rows")
    assert world.refusal("cdc.subscribe_table", db="app", table="users", snapshot=1).startswith("invalid_request")


def test_several_snapshots_share_a_connection_with_changes(world):
    world.fill(700)
    plain = world.server.subscribe("users", db="app")["sub_id"]
    sub_id = world.subscribe()
    world.write("DELETE FROM users WHERE id = 700")
    with world.stream(f"?sub={plain}&sub={sub_id}") as records:
        found = [next(records) for _ in range(701)]
    numbered = [record for record in found if "id" in record]
    assert sorted({record["event"] for record in numbered}) == ["delete", "snapshot"]
    for record in numbered:
        complete = f"{int(sub_id[4:], 16):x}:" in record["id"]
        assert complete == (found.index(record) >= [r["event"] for r in found].index("snapshot"))
    assert {record["data"]["sub_id"] for record in found if record["event"] == "read"} == {sub_id}


def test_a_websocket_carries_the_same_rows(world):
    world.fill(3)
    for path, begin in (("/{}", None), ("", {"type": "subscribe"})):
        sub_id = world.subscribe()
        url = world.server.url.replace("http", "ws") + f"/api/v1/cdc/ws{path.format(sub_id)}"
        with websockets.sync.client.connect(url, proxy=None) as socket:
            if begin:
                socket.send(json.dumps(begin | {"sub_id": sub_id}))
                assert json.loads(socket.recv(DEADLINE_S))["event"] == "subscribe"
            frames = [json.loads(socket.recv(DEADLINE_S)) for _ in range(4)]
        assert [frame["event"] for frame in frames] == ["read"] * 3 + ["snapshot"]
        assert ["id" in frame for frame in frames] == [False] * 3 + [True]


def test_a_dropped_table_ends_the_stream_with_an_error_that_is_no_place(world):
    world.write("CREATE TABLE short(id INTEGER PRIMARY KEY)")
    sub_id = world.subscribe("short")
    world.write("DROP TABLE short")
    with world.stream(f"/{sub_id}") as records:
        (error,) = list(records)
    assert (error["event"], error["data"]["code"], "id" in error) == ("error", "not_found", False)


def test_the_client_gives_rows_and_then_changes_and_acknowledges_them(world):
    world.fill(3)
    world.server.subscribe("users", db="app")
    with Client(world.server.url) as client:
        subscription = client.subscribe_table("app", "users", snapshot=True, include=("after",), format="plain_json")
        ops = []
        for event in subscription:
            if len(ops) == 3:
                event.ack()
                break
            ops.append(event.op)
            if len(ops) == 3:
                world.write("DELETE FROM users WHERE id = 1")
    assert ops == ["read"] * 3
    assert "snapshot" not in world.entry(subscription.sub_id)["options"]
