"""Rows of PostgreSQL served while others write: snapshots of subscriptions, ranges for pullers, and pipelines."""

import contextlib
import json
import os
import random
import sqlite3
import threading

import httpx
import psycopg
import pytest
from deltalake import DeltaTable

import postgres_servers
from killing import START_S, Worker
from postgres_capture import Database
from pulling import Client, Puller
from serving import DEADLINE_S, run, wait_until
from tailrace.clock import SystemClock
from tailrace.meta.pipeline import Stage
from tailrace.pipeline.store import PipelineStore

LONG = bool(os.environ.get("LONG_TESTS"))
ROWS = 3000


@pytest.fixture(params=postgres_servers.VERSIONS)
def database(request):
    made = Database(postgres_servers.shared(request.param))
    made.run(
        "CREATE TABLE item (id int PRIMARY KEY, name text, price numeric(10,2))",
        'CREATE TABLE line (a int, b text COLLATE "de-x-icu", amount float8, note text, PRIMARY KEY (b, a))',
        f"INSERT INTO item SELECT i, 'name ' || i, i / 7.0 FROM generate_series(1, {ROWS}) i",
        f"INSERT INTO line SELECT i, chr(97 + i % 26), i / 3.0 FROM generate_series(1, {ROWS}) i",
    )
    yield made
    made.close()


class Writer:
    """Writes at random until it is stopped."""

    def __init__(self, database, seed, rest_s=0.005):
        self.connection = database.connect()
        self.chance = random.Random(seed)
        self.rest_s = rest_s
        self.stopping = threading.Event()
        self.problem = None
        self.thread = threading.Thread(target=self.run)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stop()

    def stop(self):
        self.stopping.set()
        self.thread.join()
        assert self.problem is None

    def run(self):
        try:
            while not self.stopping.wait(self.rest_s):
                with self.connection.transaction():
                    for _ in range(self.chance.choice((1, 1, 2, 12))):
                        self.write()
                    if self.chance.random() < 0.1:
                        raise psycopg.Rollback
        except Exception as error:
            self.problem = error

    def write(self):
        some, other = self.chance.randrange(1, ROWS), self.chance.randrange(ROWS, 2 * ROWS)
        match self.chance.randrange(6):
            case 0:
                self.connection.execute("DELETE FROM item WHERE id = %s", [some])
            case 1:
                self.connection.execute(
                    "UPDATE item SET id = %s WHERE id = %s AND NOT EXISTS (SELECT FROM item WHERE id = %s)",
                    [other, some, other],
                )
            case 2:
                self.connection.execute("UPDATE line SET note = repeat('n', %s) WHERE a = %s", [some % 90, some])
            case 3:
                self.connection.execute("DELETE FROM line WHERE a = %s", [some])
            case _:
                self.connection.execute(
                    "INSERT INTO item VALUES (%s, %s, 1) ON CONFLICT (id) DO UPDATE SET name = excluded.name",
                    [some, f"new {other}"],
                )


def items(database):
    return {id_: (name, str(price)) for id_, name, price in database.rows("SELECT * FROM item")}


def test_a_subscription_begins_with_the_rows_and_goes_on_with_the_changes_that_they_lack(database, serve):
    server = serve("--source", f"shop={database.url}")
    made = server.subscribe("item", "shop", snapshot=True, format="plain_json", include={"after": True})
    rows, reads, changes = {}, 0, 0
    with contextlib.ExitStack() as writing:
        writer = writing.enter_context(Writer(database, 1))
        url = f"{server.url}/api/v1/cdc/sse/{made['sub_id']}"
        answer = writing.enter_context(httpx.stream("GET", url, timeout=DEADLINE_S))
        lines = (line.removeprefix("data: ") for line in answer.iter_lines() if line.startswith("data: "))
        for event in (one for one in map(json.loads, lines) if "op" in one):
            key = event["pk"][0]
            match event["op"]:
                case "delete":
                    del rows[key]
                case "insert" | "read":
                    assert key not in rows
                    rows[key] = (event["after"]["name"], event["after"]["price"])
                case "update":
                    assert key in rows
                    rows[key] = (event["after"]["name"], event["after"]["price"])
            reads += event["op"] == "read"
            changes += event["op"] != "read"
            if changes == 200:
                writer.stop()
                database.run("INSERT INTO item VALUES (0, 'last', 0)")
            if key == 0:
                break
    assert reads > ROWS // 2
    assert rows == items(database)


def test_pullers_copy_a_table_by_ranges_and_follow_it(database, serve):
    server = serve("--source", f"shop={database.url}", "--jimdb-log-wait", "0.02s", "--jimdb-page-rows", "200")
    wait_until(server.is_ready, "the source is captured")
    client = Client(str(server.addresses["grpc"]))
    try:
        pullers = {name: Puller(client, name, "one", "shop") for name in ("item", "line")}
        with Writer(database, 2):
            for round_ in range(40):
                for puller in pullers.values():
                    for number in list(puller.progress):
                        puller.step(number)
                if round_ == 5:
                    assert not client.split(client.ranges("item", "shop").ranges[0]).HasField("error")
                    # The server orders this text by a language, and ranges are of bytes.
                    assert client.split(client.ranges("line", "shop").ranges[0]).HasField("error")
        database.run("INSERT INTO item VALUES (0, 'last', 0)")
        item = pullers["item"]
        assert len(item.progress) == 2

        def has_last():
            for number in item.progress:
                item.step(number)
            return any(row[1] == "last" for row in item.table)

        wait_until(has_last, "the last row has come")
        head = max(one.index for one in item.progress.values())
        for puller in pullers.values():
            puller.drain(head)
        assert [row[:2] for row in pullers["item"].table] == database.rows("SELECT id, name FROM item ORDER BY id")
        found = {(row[0], row[1]): (row[2], row[3]) for row in pullers["line"].table}
        assert found == {(a, b): (amount, note) for a, b, amount, note in database.rows("SELECT * FROM line")}
    finally:
        client.close()


@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", ["delta", "sqlite"])
def test_a_pipeline_copies_follows_and_verifies_though_its_worker_is_killed(database, serve, tmp_path, kind):
    pytest.importorskip("pyspark")
    if not LONG and database.version != postgres_servers.VERSIONS[-1 if kind == "delta" else 0]:
        pytest.skip("takes minutes: each sink has one version")
    server = serve("--source", f"shop={database.url}", "--logging-level", "error")
    server.subscribe("line", "shop")
    sink = f"delta://{tmp_path}/lake/{{table}}" if kind == "delta" else f"sqlite:///{tmp_path}/copy.db"
    arguments = ("--source", "shop", "--table", "item", "--table", "line", "--server", server.url, "--mode", "current")
    pipeline(tmp_path, "create", *arguments, "--sink", sink)
    store = PipelineStore.open(f"sqlite:///{tmp_path / 'work' / 'metadata.db'}", SystemClock())
    try:
        with Writer(database, 3, rest_s=0.05):
            worked(tmp_path, store, lambda: 0 < sum(one.rows_copied for one in store.progress("p")) < 2 * ROWS)
            worked(tmp_path, store, lambda: all_of(store, lambda one: one.stage is Stage.INCREMENTAL_LOG))
            before = max(one.last_log_index for one in store.progress("p"))
            worked(tmp_path, store, lambda: all_of(store, lambda one: one.last_log_index > before))
        pipeline(tmp_path, "run", "--once", "--master", "local[2]")
        verified = pipeline(tmp_path, "verify", "--master", "local[2]")
    finally:
        store.close()
    assert verified["equal"], verified
    expected = sorted((id_, name) for id_, (name, _) in items(database).items())
    if kind == "delta":
        table = DeltaTable(f"{tmp_path}/lake/item").to_pyarrow_table(columns=["id", "name"])
        found = list(zip(*(table.column(name).to_pylist() for name in ("id", "name")), strict=True))
    else:
        with contextlib.closing(sqlite3.connect(tmp_path / "copy.db")) as copy:
            found = copy.execute("SELECT id, name FROM item").fetchall()
    assert sorted(found) == expected


def pipeline(directory, verb, *options):
    """Run a command to its end; return what it printed last."""
    ran = run("pipeline", verb, "p", *options, "--json", "--data-dir", directory / "work", timeout=START_S)
    assert ran.returncode == 0, f"{ran.stdout[-1000:]} {ran.stderr[-4000:]}"
    return json.loads(ran.stdout.splitlines()[-1])


def worked(directory, store, enough):
    """Have a worker run until enough is done, and kill it then."""
    worker = Worker(directory)
    try:
        wait_until(lambda: enough() or not worker.alive, "the worker does its part", START_S)
        assert worker.alive, worker.output.read_text()[-4000:]
    finally:
        worker.kill()
    with store.database.engine.begin() as connection:  # the lease of a dead worker, for which nobody waits here
        connection.exec_driver_sql("UPDATE tailrace_pipeline SET lease_end_us = 0")


def all_of(store, holds):
    ranges = store.progress("p")
    return bool(ranges) and all(map(holds, ranges))
