"""Pullers of JimDB against `tailrace serve` while somebody writes, and the server is killed."""

import os
import random
import sqlite3
import threading

import grpc
import pytest

from databases import free_port
from pulling import LOG, Client, Puller, values_of
from serving import DEADLINE_S, wait_until
from tailrace.meta.ordered_key import encode_ordered

LONG = bool(os.environ.get("LONG_TESTS"))
KEYS = 1500
LAST = 10 * KEYS
ROUNDS = 20 if LONG else 2
AWAY = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
ARGUMENTS = ("--jimdb-log-wait", "0.02s", "--jimdb-page-rows", "200", "--retention-events", "2000")


class Writer:
    """Writes at random to a table until it is stopped."""

    def __init__(self, path, seed):
        self.path = path
        self.random = random.Random(seed)
        self.stopping = threading.Event()
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        database = opened(self.path)
        while not self.stopping.wait(0.02):
            database.execute("BEGIN IMMEDIATE")
            for _ in range(self.random.randrange(1, 12)):
                self.write(database)
            database.execute("COMMIT")
        database.close()

    def write(self, database):
        key, other, n = (self.random.randrange(KEYS) for _ in range(3))
        match self.random.randrange(5):
            case 0:
                database.execute("DELETE FROM t WHERE id = ?", (key,))
            case 1:
                database.execute("UPDATE OR REPLACE t SET id = ?, n = ? WHERE id = ?", (other, n, key))
            case _:
                database.execute("INSERT OR REPLACE INTO t VALUES (?, ?)", (key, n))

    def stop(self):
        self.stopping.set()
        self.thread.join(DEADLINE_S)


class Pulling:
    """One puller on a thread of its own. Where the server is away, it tries again."""

    def __init__(self, address, name):
        self.name = name
        self.client = Client(address)
        self.puller = Puller(self.client, "t", name)
        self.stopping = threading.Event()
        self.problem = None
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        try:
            while not self.stopping.is_set():
                for number in list(self.puller.progress):
                    self.step(number)
        except BaseException as error:
            self.problem = error
            raise

    def step(self, number):
        try:
            self.puller.step(number)
        except grpc.RpcError as error:
            if error.code() not in AWAY:
                raise

    def stop(self):
        self.stopping.set()
        self.thread.join(DEADLINE_S)
        self.client.close()
        assert self.problem is None


def opened(path):
    database = sqlite3.connect(path, isolation_level=None, timeout=DEADLINE_S)
    database.execute("PRAGMA journal_mode = WAL")
    return database


@pytest.mark.timeout(900 if LONG else 400)
def test_pullers_have_the_table_in_the_end_whatever_happens_to_the_server(serve, tmp_path):
    path = tmp_path / "app.db"
    database = opened(path)
    database.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, n INTEGER)")
    database.executemany("INSERT INTO t VALUES (?, 0)", [(number,) for number in range(1000)])

    port = free_port()
    address = f"127.0.0.1:{port}"

    def start():
        server = serve(*ARGUMENTS, "--source", f"sqlite:///{path}", "--grpc-port", port)
        wait_until(server.is_ready, "the source is captured")
        return server

    server = start()
    writer = Writer(path, seed=7)
    pullings = [Pulling(address, name) for name in ("one", "two")]
    try:
        for round_ in range(ROUNDS):
            before = [pulling.puller.requests for pulling in pullings]
            client = Client(address)
            assert not client.split(max(client.ranges("t").ranges, key=width)).HasField("error")
            client.close()
            wait_until(
                lambda before=before: all(
                    pulling.problem or pulling.puller.requests > number + 20
                    for pulling, number in zip(pullings, before, strict=True)
                ),
                "both pull",
            )
            server.kill() if round_ % 2 else server.stop()
            server = start()
        pullings.append(Pulling(address, "late"))
        writer.stop()
        database.execute("INSERT INTO t VALUES (?, 0)", (LAST,))  # whoever has this has seen all of the log
        for pulling in pullings:
            wait_until(lambda puller=pulling.puller: has_all(puller), f"{pulling.name} is at the head", 180)
    finally:
        writer.stop()
        for pulling in pullings:
            pulling.stop()
        expected = database.execute("SELECT * FROM t ORDER BY id").fetchall()
        database.close()
    for pulling in pullings:
        assert pulling.puller.table == expected
        assert len(pulling.puller.progress) == ROUNDS + 1


def has_all(puller):
    progress = list(puller.progress.values())
    indexes = {one.index for one in progress}
    arrived = encode_ordered(progress[0].range.table_id, [LAST]) in puller.rows
    return arrived and len(indexes) == 1 and all(one.stage == LOG for one in progress)


def width(one):
    """How many keys a range may have."""
    lower, upper = (values_of(key[:-1]) for key in (one.start_key, one.end_key))
    return (upper[0] if upper else KEYS) - (lower[0] if lower else 0)
