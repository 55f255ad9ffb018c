"""Facts about the Python client against a server as a process, over connections that break."""

import asyncio
import contextlib
import itertools
import random
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime

import pytest

from serving import DEADLINE_S, Server, wait_until
from tailrace.client import (
    AsyncClient,
    Client,
    ClientOptions,
    ConnectionFailed,
    InvalidRequest,
    NotFound,
    ResnapshotRequired,
    Unauthorized,
)
from tailrace.retry import Backoff

QUICK = ClientOptions(backoff=Backoff(first_s=0.01, longest_s=0.2))


class Table:
    """A table of the source, into which rows are put that are numbered from 1."""

    def __init__(self, path, name):
        self.source = f"app=sqlite:///{path}"
        self.name = name
        self.count = 0
        self._connection = sqlite3.connect(path, isolation_level=None, timeout=60, check_same_thread=False)
        self.execute(f"CREATE TABLE {name} (id INTEGER PRIMARY KEY, note)")

    def insert(self, count=1, note="x"):
        """Put in rows, each in a transaction of its own."""
        for _ in range(count):
            self.count += 1
            self.execute(f"INSERT INTO {self.name} VALUES (?, ?)", self.count, note)

    def execute(self, sql, *values):
        self._connection.execute(sql, values)

    def close(self):
        self._connection.close()


@pytest.fixture
def database(tmp_path):
    """A database of the test's own, with a table `t`."""
    table = Table(tmp_path / "app.db", "t")
    yield table
    table.close()


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """A server for the tests that leave it alone."""
    directory = tmp_path_factory.mktemp("shared")
    Table(directory / "app.db", "first").close()
    server = Server(directory / "data", "--source", f"app=sqlite:///{directory / 'app.db'}")
    yield server.wait_ready()
    server.kill()


_NUMBERS = itertools.count()


@pytest.fixture
def table(shared):
    """A table of the test's own in the database of the shared server."""
    table = Table(shared.data_dir.parent / "app.db", f"t{next(_NUMBERS)}")
    shared.subscribe(table.name, "app")
    yield table
    table.close()


class Network:
    """A TCP proxy in front of a server: it can cut, stall, and change its server."""

    def __init__(self, url):
        self.target = url
        self.accepted = 0
        self.cut_bytes = None
        """About how many bytes a connection carries to the client before it is cut; None for no end."""

        self._random = random.Random(11)
        self._pairs = []
        self._stalled = set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self):
        """Cut all connections."""
        for pair in list(self._pairs):
            self._end(pair)

    def stall(self):
        """Let the open connections carry nothing any more, without closing them."""
        self._stalled |= set(self._pairs)

    def close(self):
        end(self._listener)
        self.cut()

    def _accept(self):
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self.accepted += 1
            host, port = self.target.removeprefix("http://").split(":")
            try:
                server = socket.create_connection((host, int(port)), timeout=DEADLINE_S)
            except OSError:
                end(client)
                continue
            pair = (client, server)
            self._pairs.append(pair)
            limit = None if self.cut_bytes is None else self._random.randint(1, 2 * self.cut_bytes)
            threading.Thread(target=self._carry, args=(pair, client, server, None), daemon=True).start()
            threading.Thread(target=self._carry, args=(pair, server, client, limit), daemon=True).start()

    def _carry(self, pair, source, target, limit):
        try:
            while data := source.recv(1 << 14):
                if pair in self._stalled:
                    continue
                if limit is not None and len(data) >= limit:
                    target.sendall(data[:limit])
                    break
                target.sendall(data)
                limit = None if limit is None else limit - len(data)
        except OSError:
            pass
        if pair not in self._stalled:
            self._end(pair)

    def _end(self, pair):
        for one in pair:
            end(one)
        if pair in self._pairs:
            self._pairs.remove(pair)


def end(connection):
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()


@pytest.fixture
def network():
    networks = []

    def make(url):
        networks.append(Network(url))
        return networks[-1]

    yield make
    for one in networks:
        one.close()


class Reader(threading.Thread):
    """Reads a feed in a thread; notes the keys, and the error that ended it."""

    def __init__(self, subscription, **options):
        super().__init__(daemon=True)
        self.keys = []
        self.error = None
        self._events = subscription.events(**options)
        self.start()

    def run(self):
        try:
            for event in self._events:
                self.keys.append(event.pk[0])
        except Exception as error:
            self.error = error

    def wait_for(self, count):
        wait_until(lambda: self.error or len(self.keys) >= count, f"{count} changes, {len(self.keys)} so far")
        assert self.error is None, self.error


@pytest.fixture
def client():
    clients = []

    def connect(url, token=None, options=QUICK):
        clients.append(Client(url, token, options=options))
        return clients[-1]

    yield connect
    for one in clients:
        one.disconnect()


def subscribe(client, table, **options):
    """Subscribe as soon as the server knows the table."""

    def attempt():
        try:
            return client.subscribe_table("app", table.name, **options)
        except NotFound:
            return None

    return wait_until(attempt, "the table is known")


def test_changes_come_as_they_are_committed(shared, table, client):
    connected = client(shared.url)
    assert connected.ping().pong
    assert connected.version().name == "tailrace"
    assert "cdc.subscribe_table" in connected.capabilities().methods
    seen = []
    subscription = connected.subscribe("app", table.name, ops=["insert", "delete"])
    table.insert(2)
    table.execute(f"UPDATE {table.name} SET note = 'y'")
    table.execute(f"DELETE FROM {table.name} WHERE id = 1")
    for event in subscription:
        seen.append((event.op, event.pk, event.before, event.after))
        if len(seen) == 3:
            break
    assert seen == [
        ("insert", (1,), None, {"id": 1, "note": "x"}),
        ("insert", (2,), None, {"id": 2, "note": "x"}),
        ("delete", (1,), {"id": 1, "note": "y"}, None),
    ]
    with pytest.raises(NotFound):
        connected.poll(subscription.sub_id)


def test_values_are_without_loss(shared, table, client):
    values = [2**62 + 1, 0.1, b"\0\xff", None, "a\u2028\r\nb", float("-inf")]
    with client(shared.url).subscribe("app", table.name) as subscription:
        for value in values:
            table.insert(note=value)
        events = itertools.islice(subscription, len(values))
        assert [event.after["note"] for event in events] == values


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_a_restart_of_the_server_leaves_no_gap_and_no_repeat(serve, database, client, network, how):
    server = serve("--source", database.source)
    between = network(server.url)
    reader = Reader(subscribe(client(between.url), database))
    for _ in range(2):
        database.insert(20)
        reader.wait_for(database.count - 10)
        database.insert(20)
        getattr(server, how)()
        database.insert(20)
        server = serve("--source", database.source)
        between.target = server.url
        database.insert(20)
    reader.wait_for(database.count)
    assert reader.keys == list(range(1, database.count + 1))


def test_connections_that_are_cut_leave_no_gap_and_no_repeat(shared, table, client, network):
    between = network(shared.url)
    subscription = subscribe(client(between.url), table)
    between.cut_bytes = 4000
    reader = Reader(subscription)
    for _ in range(10):
        table.insert(50)
        between.cut()
    reader.wait_for(table.count)
    assert reader.keys == list(range(1, 501))
    assert between.accepted > 20


def test_a_connection_that_falls_silent_is_given_up(shared, table, client, network):
    between = network(shared.url)
    options = ClientOptions(backoff=QUICK.backoff, idle_s_max=0.3)
    reader = Reader(subscribe(client(between.url, options=options), table))
    table.insert()
    reader.wait_for(1)
    between.stall()
    table.insert()
    reader.wait_for(2)
    assert reader.keys == [1, 2]


def test_a_wrong_token_is_told_by_calls_and_feeds(serve, database, client):
    server = serve("--source", database.source, "--auth", env={"TAILRACE_AUTH_TOKENS": "right"})
    subscription = subscribe(client(server.url, "right"), database)
    database.insert()
    assert next(iter(subscription)).pk == (1,)
    for token in (None, "wrong"):
        stranger = client(server.url, token)
        with pytest.raises(Unauthorized):
            stranger.ping()
        with pytest.raises(Unauthorized):
            next(iter(stranger.subscription(subscription.sub_id)))


def test_a_subscription_that_somebody_closes_ends_its_feeds_with_an_error(shared, table, client):
    subscription = subscribe(client(shared.url), table)
    reader = Reader(subscription)
    table.insert()
    reader.wait_for(1)
    assert client(shared.url).close(subscription.sub_id).closed
    reader.join(DEADLINE_S)
    assert isinstance(reader.error, NotFound)
    with pytest.raises(NotFound):
        subscription.ack(1)


def test_a_subscription_that_its_handle_closes_ends_its_feeds(shared, table, client):
    subscription = subscribe(client(shared.url), table)
    reader = Reader(subscription)
    table.insert()
    reader.wait_for(1)
    subscription.close()
    reader.join(DEADLINE_S)
    assert not reader.is_alive()
    assert reader.error is None


def test_changes_lost_to_retention_are_told_with_the_numbers(serve, database, client):
    server = serve("--source", database.source, "--retention-events", 10)
    subscription = subscribe(client(server.url), database)
    database.insert(50)
    lost = wait_until(lambda: (p := subscription.poll()).latest_offset >= 50 and p.resnapshot_required and p, "lost")
    assert lost.events == ()
    assert lost.resnapshot_from_offset == lost.earliest_offset - 1
    with pytest.raises(ResnapshotRequired) as caught:
        next(iter(subscription))
    assert caught.value.sub_id == subscription.sub_id
    assert caught.value.resnapshot_from_offset == caught.value.earliest_offset - 1 >= 40
    assert caught.value.latest_offset >= 50
    assert caught.value.reason == "wal_horizon_exceeded"


def test_what_was_acknowledged_does_not_come_again(shared, table, client):
    subscription = subscribe(client(shared.url), table)
    table.insert(6)
    keys = []
    for event in subscription:
        keys.append(event.pk[0])
        if len(keys) == 4:
            assert event.ack().acked_offset == event.offset
            break
    again = client(shared.url).subscription(subscription.sub_id)
    assert again.poll().events[0].pk == (5,)
    assert next(iter(again)).pk == (5,)


def test_auto_ack_acknowledges_what_was_worked_off(shared, table, client):
    subscription = subscribe(client(shared.url), table)
    reader = Reader(subscription, auto_ack=True)
    table.insert(30)
    reader.wait_for(30)
    wait_until(lambda: client(shared.url).poll(subscription.sub_id).backpressure.lag == 0, "all acknowledged")
    assert subscription.poll().events == ()


def test_filters_choose_the_changes(shared, table, client):
    connected = client(shared.url)
    if "cdc.reset" not in connected.capabilities().methods:
        pytest.skip("the server has no filters on rows yet")
    chosen = {
        "key": connected.subscribe("app", table.name, pk=[2]),
        "range": connected.subscribe("app", table.name, pk_range=(3, None)),
        "where": connected.subscribe("app", table.name, where="note = 'b'"),
        "columns": connected.subscribe("app", table.name, columns=["note"], ops=["update"]),
    }
    for note in "abc":
        table.insert(note=note)
    table.execute(f"UPDATE {table.name} SET note = 'd' WHERE id = 1")
    first = {name: next(iter(subscription)).after for name, subscription in chosen.items()}
    assert first == {
        "key": {"id": 2, "note": "b"},
        "range": {"id": 3, "note": "c"},
        "where": {"id": 2, "note": "b"},
        "columns": {"note": "d"},
    }
    with pytest.raises(InvalidRequest, match="nowhere"):
        connected.subscribe("app", table.name, where="nowhere = 1")


def test_a_subscription_can_begin_in_the_past_and_be_moved(shared, table, client):
    connected = client(shared.url)
    if "cdc.reset" not in connected.capabilities().methods:
        pytest.skip("the server cannot begin in the past yet")
    live = connected.subscribe("app", table.name)
    table.insert(3)
    offsets = [event.offset for event in itertools.islice(live, 3)]
    begun = connected.subscribe_table("app", table.name, from_="earliest")
    assert next(iter(begun)).pk == (1,)
    begun = connected.subscribe_table("app", table.name, from_=offsets[0])
    assert next(iter(begun)).pk == (2,)
    assert connected.reset(begun.sub_id, offsets[1]).acked_offset == offsets[1]
    assert next(iter(begun)).pk == (3,)
    assert connected.reset(begun.sub_id, datetime(2001, 1, 1, tzinfo=UTC)).acked_offset < offsets[0]


def test_pressure_is_told_between_the_changes(serve, database, client):
    server = serve("--source", database.source, "--retention-events", 20)
    connected = client(server.url)
    if "cdc.pause" not in connected.capabilities().methods:
        pytest.skip("the server does not tell of pressure yet")
    controls = []
    reader = Reader(subscribe(connected, database), on_control=controls.append)
    database.insert(12)
    reader.wait_for(12)
    wait_until(lambda: controls, "a control event")
    assert (controls[0].state, controls[0].paused) == ("pressure", False)
    assert controls[0].lag >= 10


def test_an_offset_that_the_log_has_not_reached_is_refused(shared, table, client):
    subscription = subscribe(client(shared.url), table)
    with pytest.raises(InvalidRequest):
        next(subscription.events(after=10**9))


def test_a_server_that_is_not_there_is_told(client):
    nowhere = client("http://127.0.0.1:1", options=ClientOptions(backoff=QUICK.backoff, outage_s_max=0.1))
    with pytest.raises(ConnectionFailed, match=r"127\.0\.0\.1:1"):
        nowhere.ping()
    with pytest.raises(ConnectionFailed, match=r"127\.0\.0\.1:1"):
        next(iter(nowhere.subscription("sub_0000000000000001")))


async def test_many_feeds_share_a_client(shared, table):
    async with AsyncClient(shared.url, options=QUICK) as client:

        async def read():
            keys = []
            async with await client.subscribe("app", table.name, format="plain_json", include=()) as subscription:
                ready.release()
                async for event in subscription.events(auto_ack=True):
                    assert (event.before, event.after) == (None, None)
                    keys.append(event.pk[0])
                    if len(keys) == 100:
                        break
            return keys

        ready = asyncio.Semaphore(0)
        async with asyncio.TaskGroup() as group, asyncio.timeout(DEADLINE_S):
            tasks = [group.create_task(read()) for _ in range(20)]
            for _ in tasks:
                await ready.acquire()
            await asyncio.to_thread(table.insert, 100)
    assert [task.result() for task in tasks] == [list(range(1, 101))] * 20


async def test_waiting_with_a_time_limit_loses_nothing(shared, table):
    keys = []
    async with AsyncClient(shared.url, options=QUICK) as client:
        feed = (await client.subscribe("app", table.name)).events()
        for _ in range(5):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(anext(feed), 0.05)
            await asyncio.to_thread(table.insert, 2)
            keys += [(await asyncio.wait_for(anext(feed), DEADLINE_S)).pk[0] for _ in range(2)]
    assert keys == list(range(1, 11))


SCRIPT = """
import sys
from tailrace.client import Client
with Client(sys.argv[1]) as client:
    subscription = client.subscribe("app", sys.argv[2])
    print(subscription.sub_id, flush=True)
    for event in subscription:
        print(event.pk[0], flush=True)
"""


def test_an_interrupted_program_ends_at_once_and_leaves_no_subscription(shared, table, client):
    connected = client(shared.url)
    program = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, shared.url, table.name],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        sub_id = program.stdout.readline().strip()
        table.insert()
        assert program.stdout.readline() == "1\n"
        begun = time.monotonic()
        program.send_signal(signal.SIGINT)
        _, errors = program.communicate(timeout=DEADLINE_S)
        assert time.monotonic() - begun < 12  # before the server's next sign of life
        assert errors.strip().endswith("KeyboardInterrupt")
    finally:
        program.kill()
        program.wait()
    with pytest.raises(NotFound):
        connected.poll(sub_id)
