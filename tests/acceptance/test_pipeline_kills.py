"""kill -9 of workers, of what they start and of the server, at random, while tables are copied and followed.

Whatever is killed: the sink ends up as the source is, and what the sink keeps about its batches proves that each
change came once.
"""

import contextlib
import json
import os
import random
import signal
import sqlite3
import subprocess
from collections import Counter

import pytest
from deltalake import DeltaTable

from databases import DATABASE, Postgres, Servers
from killing import START_S, TABLES, Place
from object_server import KEY, ObjectServer
from serving import wait_until
from tailrace.model.op import Op

pytest.importorskip("pyspark")

LONG = bool(os.environ.get("LONG_TESTS"))
ROUNDS = int(os.environ.get("KILL_ROUNDS", "60" if LONG else "20"))
SEED = int(os.environ.get("KILL_SEED", "5"))
ROWS_PER_ROUND = 250
OBJECT_ROUNDS = 20 if LONG else 6
"""Of a lake in object storage, where each batch costs more."""

WHILE_COPYING = ("driver", "driver", "server", "both")
WHILE_FOLLOWING = ("driver", "python", "server", "python", "all")
"""What is killed, each as often as it stands here."""

COLUMNS = {"orders": ["id", "item", "qty"], "lines": ["a", "b", "amount", "note"]}

CHANGE_TYPES = {
    Op.INSERT: ("insert",),
    Op.UPDATE: ("update_preimage", "update_postimage"),
    Op.DELETE: ("delete",),
    Op.SCHEMA: (),
}


@pytest.fixture(scope="module")
def servers():
    servers = Servers()
    yield servers
    servers.stop()


@pytest.fixture
def place(request, tmp_path, servers):
    name, _, mode = request.param.partition("-")
    urls = {"delta": f"delta://{tmp_path}/lake/{{table}}", "sqlite": f"sqlite:///{tmp_path}/copy.db"}
    if name == "objects":
        objects = servers.get(ObjectServer)
        bucket = objects.bucket()
        urls[name] = f"delta:s3://{bucket}/lake/{{table}}?{objects.options()}"
    url = urls[name] if name in urls else servers.get(Postgres).url
    made = Place(tmp_path, url, mode, rows=(OBJECT_ROUNDS if name == "objects" else ROUNDS) * ROWS_PER_ROUND)
    made.kind, made.servers = name, servers
    if name == "objects":
        made.objects, made.bucket = objects, bucket
    yield made
    made.close()
    if name == "postgresql":
        with servers.get(Postgres).connect(DATABASE) as connection:
            connection.execute("DROP TABLE IF EXISTS orders, lines, _tailrace_batches")


def chosen(*kinds):
    return pytest.mark.parametrize("place", kinds, ids=kinds, indirect=True)


@chosen("delta-append", "delta-current", "sqlite-current", "postgresql-current")
@pytest.mark.timeout(3600 if LONG else 1500)
def test_nothing_is_lost_or_repeated_whatever_is_killed_at_random(place, request):
    kill_at_random(place, random.Random(f"{SEED} {request.node.name}"), ROUNDS)


@chosen("objects-append", "objects-current")
@pytest.mark.timeout(3600 if LONG else 900)
def test_nothing_is_lost_or_repeated_in_object_storage_whatever_is_killed_at_random(place, request):
    kill_at_random(place, random.Random(f"{SEED} {request.node.name}"), OBJECT_ROUNDS)


def kill_at_random(place, chance, rounds):
    """Kill something in each round, the first half of them while tables are copied; then look at the sink."""
    copying = rounds // 2
    with place.writer(chance.randrange(1000), alters=True):
        for number, what in enumerate(shuffled(WHILE_COPYING, copying, chance)):
            kill_while_copying(place, what, chance)
            print(f"round {number}: {what} killed, {place.copied()} rows copied", flush=True)
            place.free()
        assert place.offset() == 0, "all was copied before all was killed: let there be more rows"
        left = list(enumerate(shuffled(WHILE_FOLLOWING, rounds - copying, chance), copying))
        while left:
            with place.worker() as worker:
                while left and worker.alive:
                    number, what = left.pop(0)
                    kill_while_following(place, worker, what, chance)
                    print(f"round {number}: {what} killed, at offset {place.offset()}", flush=True)
            place.free()
    finish(place)


@pytest.mark.skipif(not LONG, reason="takes minutes")
@pytest.mark.long
@chosen("sqlite-current")
@pytest.mark.timeout(600)
def test_a_server_that_stays_away_ends_a_run_with_a_message_and_the_next_run_goes_on(place):
    with place.writer(SEED), place.worker("--once") as worker:
        wait_until(lambda: any(line["event"] == "starting" for line in worker.lines()), "Spark starts", START_S)
        place.server.kill()
        wait_until(lambda: not worker.alive, "the worker ends", START_S)
        assert worker.process.returncode == 1
        last = worker.output.read_text().splitlines()[-1]
        assert "cannot be reached" in last, last
        assert place.server.url in last
    place.serve()
    finish(place)


def shuffled(kinds, count, chance):
    """Return so many of these kinds in an order of chance."""
    drawn = [kinds[number % len(kinds)] for number in range(count)]
    chance.shuffle(drawn)
    return drawn


def kill_while_copying(place, what, chance):
    """Start a worker and kill it, or the server, some time after it has copied something."""
    begin = place.copied()
    with place.worker("--page-rows", "5") as worker:
        wait_until(lambda: place.copied() > begin or not worker.alive, "rows copied", START_S)
        pause(worker, chance.uniform(0, 0.7))
        if what != "driver":
            place.server.kill()
            place.serve()
        if what == "server":
            after = place.copied()
            wait_until(lambda: place.copied() > after or not worker.alive, "more rows copied", START_S)
        assert worker.alive, worker.output.read_text()[-3000:]


def kill_while_following(place, worker, what, chance):
    """Kill something some time after a worker has followed some changes. It goes on, unless it is itself killed."""
    place.goes_on(worker, "changes followed")
    pause(worker, chance.uniform(0, 2))
    assert worker.alive, worker.output.read_text()[-3000:]
    if what in ("python", "all"):
        for pid in chance.sample(found := worker.python(), (len(found) + 1) // 2):
            kill(pid)
    if what in ("server", "all"):
        place.server.kill()
        place.serve()
    if what in ("driver", "all"):
        worker.kill()
    else:
        place.goes_on(worker, "more changes followed")
        assert worker.alive, worker.output.read_text()[-3000:]


def pause(worker, pause_s):
    """Let a worker work for a time of chance."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        worker.process.wait(pause_s)


def kill(pid):
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def finish(place):
    """Let the pipeline catch up, and look whether all is there, once."""
    ended = place.pipeline("run", "--once")
    assert (ended["stage"], ended["lag"]) == ("incremental_log", 0)
    verdict = place.pipeline("verify")
    assert verdict["equal"], verdict
    found = {"delta": delta_numbers, "objects": delta_numbers, "sqlite": sqlite_numbers, "postgresql": postgres_numbers}
    numbers = found[place.kind](place)
    assert numbers == list(range(len(numbers)))
    for table, names in COLUMNS.items():
        if ended["mode"] == "append":
            appended_once(place, table)
        else:
            assert sink_rows(place, table, names) == source_rows(place, table, names)


def appended_once(place, table):
    """Look whether each change of the log behind the snapshot is there once, and each row of the snapshot at most."""
    rows = delta_table(place, table).to_pyarrow_table()
    kinds, offsets = rows["_change_type"].to_pylist(), rows["_offset"].to_pylist()
    found = Counter((offset, kind) for offset, kind in zip(offsets, kinds, strict=True) if kind != "read")
    expected = Counter((offset, kind) for offset, op in place.changes(table) for kind in CHANGE_TYPES[Op(op)])
    assert found == expected
    names = ["id"] if table == "orders" else ["a", "b"]
    keys = Counter(zip(*(rows[name].to_pylist() for name in names), kinds, strict=True))
    assert not [key for key, count in keys.items() if key[-1] == "read" and count > 1]


def source_rows(place, table, names):
    source = sqlite3.connect(place.path)
    rows = source.execute(f"SELECT {', '.join(names)} FROM {table} ORDER BY 1, 2").fetchall()
    source.close()
    return rows


def sink_rows(place, table, names):
    """Return the rows of a table in a sink, read past the sink."""
    if place.kind in ("delta", "objects"):
        rows = delta_table(place, table).to_pyarrow_table(columns=names)
        return sorted(zip(*(rows[name].to_pylist() for name in names), strict=True), key=lambda row: row[:2])
    query = f"SELECT {', '.join(names)} FROM {table}"
    if place.kind == "sqlite":
        copy = sqlite3.connect(place.directory / "copy.db")
        rows = copy.execute(query).fetchall()
        copy.close()
    else:
        with place.servers.get(Postgres).connect(DATABASE) as connection:
            rows = connection.execute(query).fetchall()
    return sorted(rows, key=lambda row: row[:2])


def delta_numbers(place):
    """Return the numbers of all batches in the logs of the tables: each table has some of them, rising."""
    union = set()
    for table in TABLES:
        own = []
        for entry in delta_log(place, table):
            actions = map(json.loads, entry.splitlines())
            own += [a["txn"]["version"] for a in actions if a.get("txn", {}).get("appId") == "tailrace:p"]
        assert own == sorted(set(own))
        union.update(own)
    return sorted(union)


def delta_table(place, table):
    if place.kind == "delta":
        return DeltaTable(place.directory / "lake" / table)
    options = {"AWS_ENDPOINT_URL": place.objects.endpoint, "AWS_REGION": "us-east-1", "AWS_ALLOW_HTTP": "true"}
    options |= {f"AWS_{name.upper()}": value for name, value in KEY.items()}
    return DeltaTable(f"s3://{place.bucket}/lake/{table}", storage_options=options)


def delta_log(place, table):
    """Return the entries of the log of a table."""
    if place.kind == "delta":
        entries = sorted((place.directory / "lake" / table / "_delta_log").glob("*.json"))
        return [entry.read_text() for entry in entries]
    found = place.objects.objects(place.bucket, f"lake/{table}/_delta_log/")
    return [found[name].decode() for name in sorted(found) if name.endswith(".json")]


def sqlite_numbers(place):
    copy = sqlite3.connect(place.directory / "copy.db")
    numbers = [row[0] for row in copy.execute("SELECT number FROM _tailrace_batches ORDER BY number")]
    copy.close()
    return numbers


def postgres_numbers(place):
    with place.servers.get(Postgres).connect(DATABASE) as connection:
        found = connection.execute("SELECT number FROM _tailrace_batches WHERE pipeline = 'p' ORDER BY number")
        return [row[0] for row in found]
