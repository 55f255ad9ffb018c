"""Write the data directory of an older version, for tests that open it with today's code.

    git worktree add --detach /tmp/older COMMIT && cd /tmp/older && make setup
    PYTHONPATH=$PWD/src:$PWD/tests .venv/bin/python THIS_FILE RESULT.tar.xz

Run it with the code of the version whose directory is wanted: it uses that version's commands and test helpers.
`97f0300.tar.xz` was written by commit 97f0300, the last one with two metadata databases.

What is in it: `shop.db` with its capture triggers; `data` with a log of three tables and a schema change,
subscriptions with cursors, prepared queries, an API key, a registered consumer of change streams, a puller of ranges,
a sink with progress and dead letters, a pipeline into `copy.db` with its checkpoint, and one to a webhook with a dead
letter; `facts.json`, which says what a test must find.
"""

import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import grpc

from hooking import receiving
from pulling import Client, Puller
from serving import Server, run, wait_until
from tailrace.delivery.grpc.proto import coordinode_cdc_pb2 as cdc

SPARK_S = 300


def main(result):
    with tempfile.TemporaryDirectory() as temporary:
        directory = Path(temporary)
        os.chdir(directory)  # the pipeline's sink is named by a relative path
        facts = written(directory)
        (directory / "facts.json").write_text(json.dumps(facts, indent=1, sort_keys=True) + "\n")
        with tarfile.open(result, "w:xz") as archive:
            for name in ("shop.db", "copy.db", "data", "facts.json"):
                archive.add(name, filter=anonymous)


def anonymous(entry):
    """Leave out who wrote it, and what a clean stop leaves without meaning."""
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    entry.mode |= 0o600
    left_out = entry.name.endswith((".crc", "spark.log", "data/lock")) or "/pipeline/spark-" in entry.name
    assert not entry.name.endswith("-wal"), "a database was not closed"
    return None if left_out else entry


def written(directory):
    shop = sqlite3.connect(directory / "shop.db", isolation_level=None)
    shop.execute("PRAGMA journal_mode = WAL")
    shop.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, item TEXT, qty INTEGER)")
    shop.execute("CREATE TABLE people (name TEXT COLLATE NOCASE PRIMARY KEY, age INTEGER, photo BLOB) WITHOUT ROWID")
    shop.execute("CREATE TABLE notes (text TEXT)")
    server = Server(directory / "data", "--source", f"shop=sqlite:///{directory / 'shop.db'}").wait_ready()
    facts = {}
    with contextlib.closing(shop), receiving() as receiver:
        try:
            server.subscribe("orders", "shop")
            change(shop)
            wait_until(lambda: server.get("/api/v1/bulk/shop").json()["head"] >= 12, "all changes captured")
            subscribe(server, facts)
            stream_and_pull(server)
            feed(directory, server, receiver)
            copy(directory, server, receiver, shop)
            key = command("token", "create", "reader", "--table", "shop.orders", "--data-dir", directory / "data")
            facts["token"] = key["token"]
            facts["head"] = server.get("/api/v1/bulk/shop").json()["head"]
            facts["subscriptions"] = server.call("cdc.list", {})
            facts["orders"] = shop.execute("SELECT * FROM orders ORDER BY id").fetchall()
        finally:
            server.stop()
    return facts


def change(shop):
    shop.execute("INSERT INTO orders VALUES (1, 'cup', 3), (2, 'plate', 0), (3, 'fork', 5)")
    shop.execute("INSERT INTO people VALUES ('Ada', 36, x'00ff'), ('Émile', NULL, NULL)")
    shop.execute("INSERT INTO notes VALUES ('first'), (NULL)")
    shop.execute("UPDATE orders SET qty = 4 WHERE id = 1")
    shop.execute("ALTER TABLE orders ADD COLUMN paid DECIMAL(9, 2)")
    shop.execute("UPDATE orders SET paid = 12.5 WHERE id = 3")
    shop.execute("UPDATE orders SET qty = 7 WHERE id = 2")
    shop.execute("DELETE FROM people WHERE name = 'Ada'")


def subscribe(server, facts):
    whole = server.subscribe("orders", "shop", **{"from": "earliest"})
    server.call("cdc.ack", {"sub_id": whole["sub_id"], "offset": 4})
    narrow = server.subscribe("orders", "shop", **{"from": "earliest"}, where="qty > 3", include={"after": True})
    server.call("cdc.ack", {"sub_id": narrow["sub_id"], "offset": 2})
    server.call("cdc.pause", {"sub_id": narrow["sub_id"]})
    facts["resumed"] = whole["sub_id"]
    prepared = command("query", "prepare", "SELECT item FROM orders WHERE qty > ?", "--name", "busy", server=server)
    facts["query"] = prepared["query_id"]
    command("subs", "create", "--query", prepared["query_id"], "--arg", "3", server=server)


def stream_and_pull(server):
    """Register a consumer of change streams and a puller of ranges."""
    address = server.addresses["grpc"]
    with grpc.insecure_channel(address) as channel:
        calling = channel.unary_stream(
            "/coordinode.v1.replication.ChangeStreamService/Subscribe",
            request_serializer=cdc.SubscribeRequest.SerializeToString,
            response_deserializer=cdc.ChangeEvent.FromString,
        )
        strict = cdc.ConsumerRetention(strict=cdc.StrictRetention())
        stream = calling(cdc.SubscribeRequest(consumer_id="lasting", retention=strict), timeout=60)
        next(stream)
        stream.cancel()
    client = Client(address)
    puller = Puller(client, "people", "steady", "shop")
    for number in list(puller.progress):
        puller.step(number)
    client.close()


def feed(directory, server, receiver):
    """Run a sink that parks what fails for order 2."""
    arguments = ["sink", "run", "hook", "--url", hook(receiver), "--source", "shop", "--table", "orders"]
    arguments += ["--project", "*", "--project", "share = 100 / row.qty", "--envelope", "row", "--start", "earliest"]
    arguments += ["--server", server.url, "--data-dir", str(directory / "data"), "--json"]
    process = subprocess.Popen([sys.executable, "-m", "tailrace", *arguments], stdout=subprocess.DEVNULL)
    letters = ("sink", "dlq", "ls", "hook", "--data-dir", directory / "data")
    status = ("sink", "status", "hook", "--data-dir", directory / "data")
    try:
        wait_until(lambda: run(*letters).returncode == 0 and len(command(*letters)) == 2, "two letters parked")
        wait_until(lambda: command(*status)["offset"] >= 10, "the others arrived")
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def copy(directory, server, receiver, shop):
    """Run two pipelines: one into a database, one to a webhook that refuses order 3."""
    place = ("--data-dir", directory / "data")
    where = ("--source", "shop", "--server", server.url)
    tables = ("--table", "orders", "--table", "people")
    command("pipeline", "create", "copy", *where, *tables, "--sink", "sqlite:///copy.db", *place)
    for statement in ("UPDATE orders SET item = 'mug' WHERE id = 1", "DELETE FROM orders WHERE id = 2"):
        done = run("pipeline", "run", "copy", "--once", "--json", *place, timeout=SPARK_S)
        assert done.returncode == 0, done.stderr
        shop.execute(statement)
    receiver.answer = lambda _, body: 422 if json.loads(body).get("id") == 3 else 204
    told = ("--sink", hook(receiver), "--envelope", "row")
    command("pipeline", "create", "told", *where, "--table", "orders", *told, *place)
    done = run("pipeline", "run", "told", "--once", "--json", *place, timeout=SPARK_S)
    assert done.returncode == 0, done.stderr
    assert len(command("pipeline", "dlq", "ls", "told", *place)) == 1


def hook(receiver):
    return f"webhook+http://127.0.0.1:{receiver.port}/{{table}}?allow_private=true"


def command(*arguments, server=None):
    there = () if server is None else ("--server", server.url)
    done = run(*arguments, *there, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute())
