"""JimDB's service over gRPC, against a server in this process and a real database."""

import contextlib
import importlib
import math
import sqlite3
import sys
import threading
from importlib.resources import files
from pathlib import Path

import apsw
import grpc
import pytest
from grpc_tools import protoc

from pulling import DEADLINE_S, LOG, Client, Puller, details, epoch, values_of
from running import Running
from serving import wait_until
from tailrace.access.options import AuthConfig, PrincipalConfig
from tailrace.clock import SystemClock
from tailrace.config import CaptureConfig, RetentionConfig
from tailrace.delivery.grpc.proto import jimdb_base_pb2 as base
from tailrace.interface.jimdb.options import JimdbConfig
from tailrace.meta.ordered_key import encode_ordered
from tailrace.meta.pipeline import Definition
from tailrace.model.errors import MetadataError
from tailrace.model.table import Kind
from tailrace.model.value import Text
from tailrace.pipeline.store import PipelineStore

QUICK = JimdbConfig(log_wait="0.05s", page_rows=7)


class World:
    """A database, a server that can be started again, and a client of it."""

    def __init__(self, directory):
        self.directory = directory
        self.database = apsw.Connection(str(directory / "shop.db"))  # the same library as the server: it is one process
        self.database.set_busy_timeout(60_000)
        self.execute("PRAGMA journal_mode = wal")
        self.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, n INTEGER, note TEXT)")
        self.server = self.client = None

    def start(self, jimdb=QUICK, **options):
        options.setdefault("shop", f"sqlite:///{self.directory}/shop.db")
        self.server = Running(self.directory / "data", jimdb=jimdb, **options)
        wait_until(self.server.is_ready, "the server is ready")
        self.client = Client(self.server.grpc)
        return self

    def stop(self):
        if self.client is not None:
            self.client.close()
        if self.server is not None:
            self.server.stop()
        self.server = self.client = None

    def close(self):
        self.stop()
        self.database.close()

    def execute(self, sql, arguments=()):
        return self.database.execute(sql, arguments).fetchall()

    def fill(self, *numbers, n=0):
        for number in numbers:
            self.execute("INSERT OR REPLACE INTO orders VALUES (?, ?, 'x')", (number, n))

    def fill_apart(self, number):
        """Write a row from another thread, which must not use the connection of this one."""
        with contextlib.closing(apsw.Connection(str(self.directory / "shop.db"))) as database:
            database.set_busy_timeout(60_000)
            database.execute("INSERT INTO orders VALUES (?, 0, 'x')", (number,)).fetchall()

    def rows(self, table="orders", order="id"):
        return self.execute(f"SELECT * FROM {table} ORDER BY {order}")

    def puller(self, name="one", table="orders", client=None):
        return Puller(client or self.client, table, name, "shop")

    def ranges(self, table="orders"):
        return list(self.client.ranges(table, "shop").ranges)

    def converge(self, *pullers, table="orders", order="id"):
        """Pull until the pullers have what the table has."""
        for puller in pullers:

            def equal(puller=puller):
                for number in list(puller.progress):
                    puller.step(number)
                return all(one.stage == LOG for one in puller.progress.values()) and puller.table == self.rows(
                    table, order
                )

            wait_until(equal, "the puller has the table")


@pytest.fixture
def world(tmp_path):
    made = World(tmp_path)
    yield made
    made.close()


def kind(answer):
    assert answer.HasField("error"), answer
    return answer.error.WhichOneof("err")


def refused(call, *arguments, **options):
    with pytest.raises(grpc.RpcError) as caught:
        call(*arguments, **options)
    return caught.value


def keys(changes):
    return [values_of(change.key)[0] for change in changes]


# ---- register, copy, follow


def test_a_puller_copies_a_table_and_follows_it(world):
    world.fill(*range(1, 31))
    world.start()
    puller = world.puller()
    (number,) = puller.progress
    assert puller.step(number) == 0
    assert puller.step(number) == 7
    world.fill(2, 40, n=5)
    world.execute("DELETE FROM orders WHERE id = 3")
    world.execute("UPDATE orders SET id = 1000 WHERE id = 30")
    world.converge(puller)
    world.execute("UPDATE orders SET note = NULL, n = -1 WHERE id % 2")
    world.execute("DELETE FROM orders WHERE id < 10")
    world.converge(puller)


def test_keys_and_values_of_all_kinds_arrive(world):
    world.execute("CREATE TABLE odd (a TEXT NOT NULL, b NOT NULL, c BLOB, d REAL, PRIMARY KEY (a, b))")
    world.start()
    rows = [("", 1, b"\0\xff", 1.0), ("a\0b", -2.5, None, None), ("a", b"\0", b"", 5e300), ("ü", "text", b"x", -0.5)]
    for row in rows:
        world.execute("INSERT INTO odd VALUES (?, ?, ?, ?)", row)
    wait_until(lambda: not world.client.ranges("odd", "shop").HasField("error"), "the table is known")
    for name in ("before", "after"):
        puller = world.puller(name, "odd")
        wait_until(lambda puller=puller: [puller.step(n) for n in puller.progress] and len(puller.rows) == 4, name)
        found = {tuple(row[:2]) for row in puller.table}
        assert found == {row[:2] for row in rows}
        assert {"b64": "AP8=", "t": "bytes"} in [row[2] for row in puller.table]


def test_a_table_without_a_key_is_pulled_by_its_row_numbers(world):
    world.execute("CREATE TABLE loose (x TEXT)")
    world.execute("INSERT INTO loose VALUES ('a'), ('b')")
    world.start()
    puller = world.puller("one", "loose")
    assert puller.key_columns == ["rowid"]
    wait_until(lambda: [puller.step(n) for n in puller.progress] and len(puller.rows) == 2, "both rows")
    world.execute("DELETE FROM loose WHERE x = 'a'")
    wait_until(lambda: [puller.step(n) for n in puller.progress] and len(puller.rows) == 1, "one is deleted")
    assert puller.table == [("b",)]


def test_stubs_made_from_the_seed_alone_can_pull(world, tmp_path, monkeypatch):
    include = files("grpc_tools") / "_proto"
    source = Path(__file__).parents[1]
    assert protoc.main(["", f"-I{source}", f"-I{include}", f"--python_out={tmp_path}", "jimdb_document.proto"]) == 0
    monkeypatch.syspath_prepend(str(tmp_path))
    document = importlib.import_module("jimdb_document_pb2")
    monkeypatch.delitem(sys.modules, "jimdb_document_pb2")
    world.fill(*range(1, 21))
    world.execute("INSERT INTO orders VALUES (-5, 1, 'below')")
    world.start()
    (one,) = world.ranges()
    known = {
        "range_id": one.id,
        "range_epoch": document.RangeEpoch(conf_ver=one.range_epoch.conf_ver, version=one.range_epoch.version),
        "subscriber_name": "seed",
    }
    register = world.client.call("CdcRegister", document.CdcRegisterRequest(**known), document.CdcRegisterResponse)
    rows, version, last, end = {}, 0, "", False
    while not end:
        request = document.CdcPullSnapshotRequest(**known, current_snapshot_version=version, last_key=last)
        answer = world.client.call("CdcPullSnapshot", request, document.CdcPullSnapshotResponse)
        assert not answer.HasField("error")
        rows |= {change.key: change.value for change in answer.snapshot_data}
        version, end = answer.current_snapshot_version, answer.end
        last = answer.snapshot_data[-1].key.decode() if answer.snapshot_data else last
    assert [values_of(key)[0] for key in sorted(rows)] == [-5, *range(1, 21)]
    world.fill(50)
    index, found = register.init_snapshot_version, []
    while not found:
        request = document.CdcPullLogRequest(**known, last_log_index=index)
        answer = world.client.call("CdcPullLog", request, document.CdcPullLogResponse)
        index, found = answer.current_log_index, list(answer.log_data)
    assert [(change.type, values_of(change.key)) for change in found] == [(document.CdcChangeData.WRITE, [50])]


def test_answers_are_bounded_however_large_rows_are(world):
    for number in range(40):
        world.execute("INSERT INTO orders VALUES (?, 0, ?)", (number, "x" * (300_000 if number % 2 else 10)))
    world.start(JimdbConfig(log_wait="0.05s", answer_bytes="1MB"))
    (one,) = world.ranges()
    world.client.register(one, "one")
    found, version, last, end = [], 0, b"", False
    while not end:
        answer = world.client.pull_snapshot(one, "one", version, last)
        assert answer.ByteSize() < 1_001_000
        version, end = answer.current_snapshot_version, answer.end
        found += keys(answer.snapshot_data)
        last = answer.snapshot_data[-1].key if answer.snapshot_data else last
    assert found == list(range(40))
    world.execute("UPDATE orders SET n = 1")
    index, found = 0, []
    while len(found) < 40:
        answer = world.client.pull_log(one, "one", index)
        assert answer.ByteSize() < 1_001_000
        index = answer.current_log_index
        found += keys(answer.log_data)
    assert found == list(range(40))


def test_no_row_is_left_out_where_an_answer_is_full_among_rows_with_the_same_null_key(world):
    world.execute("CREATE TABLE loose (name TEXT COLLATE NOCASE, id INTEGER, note TEXT, PRIMARY KEY (name, id))")
    names = [*[None] * 9, *"aAaAbBc"]
    for name in names:
        world.execute("INSERT INTO loose VALUES (?, NULL, ?)", (name, "x" * 300))
    world.start(JimdbConfig(log_wait="0.05s", page_rows=3, answer_bytes=1000))
    (one,) = world.ranges("loose")
    world.client.register(one, "one")
    found, version, last, end = [], 0, b"", False
    while not end:
        answer = world.client.pull_snapshot(one, "one", version, last)
        version, end = answer.current_snapshot_version, answer.end
        found += keys(answer.snapshot_data)
        last = answer.snapshot_data[-1].key if answer.snapshot_data else last
    assert found == names


def test_an_empty_log_and_an_empty_table_are_pulled_too(world):
    world.start()
    puller = world.puller()
    world.converge(puller)
    world.fill(1)
    world.converge(puller)


def test_a_request_at_the_head_waits_for_a_change_but_not_for_long(world):
    world.start(JimdbConfig(log_wait="20s"))
    puller = world.puller()
    world.fill(1)
    (number,) = puller.progress
    puller.drain(1)
    writing = threading.Timer(0.2, world.fill_apart, [2])
    writing.start()
    puller.drain(2)  # the change comes while the call waits
    writing.join()
    assert puller.table == world.rows()
    known = puller.progress[number]

    def wait_at_the_head():
        with contextlib.suppress(grpc.RpcError):  # a busy server may end before it has answered
            while kind_or_none(world.client.pull_log(known.range, "one", known.index)) == "busy":
                continue  # the question below came first

    waiting = threading.Thread(target=wait_at_the_head)
    waiting.start()
    wait_until(lambda: kind_or_none(world.client.pull_log(known.range, "one", 0)) == "busy", "waits")
    world.server.stop()
    waiting.join(DEADLINE_S)
    assert not waiting.is_alive()
    world.server = None


def kind_or_none(answer):
    return answer.error.WhichOneof("err") if answer.HasField("error") else None


# ---- ranges and epochs


def test_a_large_table_is_divided_into_ranges_that_have_all_keys_once(world):
    numbers = "WITH RECURSIVE c(x) AS (VALUES (1) UNION ALL SELECT x + 1 FROM c WHERE x < 150000)"
    world.execute(f"{numbers} INSERT INTO orders SELECT x, 0, '' FROM c")
    world.execute("CREATE TABLE plain (k TEXT COLLATE NOCASE NOT NULL PRIMARY KEY)")
    world.start(JimdbConfig(log_wait="0.05s", page_rows=100_000, answer_bytes="64MiB"))
    ranges = world.ranges()
    assert len(ranges) == 3
    assert [one.end_key for one in ranges[:-1]] == [one.start_key for one in ranges[1:]]
    assert {(one.db_id, one.table_id, one.range_epoch.version) for one in ranges} == {(0, ranges[0].table_id, 1)}
    assert [column.name for column in ranges[0].key_schema.key_cols] == ["id"]
    small = world.client.pull_log  # a range answers for its own keys alone
    for one in ranges:
        world.client.register(one, "one")
    world.execute("UPDATE orders SET n = 1 WHERE id IN (1, 75000, 150000)")
    found = []
    for one in ranges:
        index, got = 0, []
        while not got:
            answer = small(one, "one", index)
            index, got = answer.current_log_index, keys(answer.log_data)
        found.append(got)
    assert found == [[1], [75000], [150000]]
    assert len(world.ranges("plain")) == 1
    assert kind(world.client.split(world.ranges("plain")[0])) == "server_error"


def test_a_row_that_moves_between_ranges_is_deleted_in_one_and_written_in_the_other(world):
    world.fill(*range(1, 11))
    world.start()
    low, high = world.client.split(world.ranges()[0]).ranges
    for one in (low, high):
        world.client.register(one, "one")
    start = world.client.register(low, "one").init_snapshot_version
    world.execute("UPDATE orders SET id = 100 WHERE id = 1")

    def pulled(one):
        return list(world.client.pull_log(one, "one", start).log_data)

    wait_until(lambda: pulled(low) and pulled(high), "both changes")
    assert [(change.type, keys([change])) for change in pulled(low)] == [(1, [1])]
    assert [(change.type, keys([change])) for change in pulled(high)] == [(0, [100])]


def test_pullers_go_on_through_splits_at_every_stage(world):
    world.fill(*range(1, 61))
    world.start()
    fresh, copying, following = (world.puller(name) for name in ("fresh", "copying", "following"))
    (number,) = copying.progress
    for _ in range(4):
        copying.step(number)
    world.converge(following)
    one = world.ranges()[0]
    left, right = world.client.split(one).ranges
    assert (left.id, left.range_epoch.version, right.range_epoch.version) == (one.id, 2, 2)
    assert left.end_key == right.start_key
    left, _ = world.client.split(left, key_of(left, 12)).ranges
    assert keys_in(left) == 12
    world.execute("DELETE FROM orders WHERE id % 5 = 0")
    world.fill(*range(40, 80), n=9)
    for puller in (fresh, copying, following):
        world.converge(puller)
        assert len(puller.progress) == 3


def key_of(one, number):
    from tailrace.meta.ordered_key import encode_ordered

    return encode_ordered(one.table_id, [number])


def keys_in(one):
    """The last key of a range, without the byte behind it."""
    return values_of(one.end_key[:-1])[0]


def test_ranges_epochs_and_registrations_survive_a_restart(world):
    world.fill(*range(1, 31))
    world.start()
    puller = world.puller()
    for _ in range(3):
        puller.step(next(iter(puller.progress)))
    version = puller.progress[1].version
    split = world.client.split(world.ranges()[0]).ranges
    world.stop()
    world.fill(100, n=1)
    world.start()
    assert world.ranges() == list(split)
    puller.client = world.client
    world.converge(puller)
    assert puller.progress[1].version == version  # the copy went on where it was
    assert world.client.register(split[0], "one").init_snapshot_version == 0


def test_a_copy_begins_anew_when_the_schema_changes(world):
    world.fill(*range(1, 31))
    world.start()
    puller = world.puller()
    for _ in range(3):
        puller.step(1)
    before = puller.progress[1].version
    world.execute("ALTER TABLE orders ADD COLUMN more TEXT DEFAULT 'm'")
    assert puller.step(1) == 7
    assert puller.progress[1].version > before
    assert values_of(puller.progress[1].last_key) == [7]
    puller.columns.append("more")
    world.converge(puller)
    assert {row[3] for row in puller.table} == {"m"}


def test_a_copy_begins_anew_where_another_version_is_asked_for(world):
    world.fill(*range(1, 31))
    world.start()
    (one,) = world.ranges()
    world.client.register(one, "one")
    first = world.client.pull_snapshot(one, "one")
    again = world.client.pull_snapshot(one, "one", 999, first.snapshot_data[-1].key)
    assert keys(again.snapshot_data) == keys(first.snapshot_data) == list(range(1, 8))
    more = world.client.pull_snapshot(one, "one", again.current_snapshot_version, again.snapshot_data[-1].key)
    assert keys(more.snapshot_data) == list(range(8, 15))


def test_a_table_that_is_dropped_and_made_again_has_other_ranges(world):
    world.fill(1, 2)
    world.start()
    puller = world.puller()
    world.converge(puller)
    world.execute("DROP TABLE orders")
    world.execute("CREATE TABLE orders (a TEXT NOT NULL, b INTEGER NOT NULL, n, PRIMARY KEY (a, b))")
    world.execute("INSERT INTO orders VALUES ('x', 1, 2)")
    old = puller.progress[1].range
    index = [puller.progress[1].index]

    def gone():
        answer = world.client.pull_log(old, "one", index[0])
        index[0] = answer.current_log_index or index[0]
        return kind_or_none(answer) == "range_not_found"

    wait_until(gone, "the range is gone")

    def remade():
        return [one for one in world.ranges() if [column.name for column in one.key_schema.key_cols] == ["a", "b"]]

    (new,) = wait_until(remade, "the new table is known")
    assert new.id > old.id
    assert new.table_id > old.table_id
    again = world.puller()
    world.converge(again, order="a, b")


def test_a_copy_of_a_table_that_gets_another_key_ends_with_its_ranges(world):
    world.fill(*range(1, 31))
    world.start()
    puller = world.puller()
    (number,) = puller.progress
    assert [puller.step(number), puller.step(number)] == [0, 7]
    world.execute("DROP TABLE orders")
    world.execute("CREATE TABLE orders (a INTEGER, b TEXT, PRIMARY KEY (a, b))")
    progress = puller.progress[number]

    def gone():
        answer = world.client.pull_snapshot(progress.range, "one", progress.version, progress.last_key)
        return kind_or_none(answer) == "range_not_found"

    wait_until(gone, "the range is gone")


# ---- errors


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    made = World(tmp_path_factory.mktemp("errors"))
    made.fill(*range(1, 31))
    made.start(JimdbConfig(log_wait="0.05s", cluster_id=3))
    made.one = next(iter(made.client.ranges("orders", "shop", 3).ranges))
    made.client.register(made.one, "one")
    yield made
    made.close()


def stale(one):
    return base.Range(id=one.id, range_epoch=epoch(1, 7))


def unknown(one):
    return base.Range(id=99, range_epoch=one.range_epoch)


@pytest.mark.parametrize(("changed", "expected"), [(stale, "stale_epoch"), (unknown, "range_not_found")])
def test_each_method_tells_of_unknown_ranges_and_stale_epochs(shared, changed, expected):
    one, client = changed(shared.one), shared.client
    assert kind(client.pull_snapshot(one, "one")) == expected
    assert kind(client.pull_log(one, "one", 0)) == expected
    assert kind(client.split(one)) == expected
    assert kind(client.unregister(one, "one")) == expected
    error = refused(client.register, one, "one")
    assert details(error).WhichOneof("err") == expected
    assert (
        error.code()
        == {
            "stale_epoch": grpc.StatusCode.ABORTED,
            "range_not_found": grpc.StatusCode.NOT_FOUND,
        }[expected]
    )


def test_a_stale_epoch_is_told_with_the_range_as_it_is(shared):
    answer = shared.client.pull_log(base.Range(id=shared.one.id), "one", 0)
    assert answer.error.stale_epoch.old_range == shared.one
    assert not answer.error.stale_epoch.HasField("new_range")


def test_whoever_has_not_registered_is_told_so(shared):
    assert kind(shared.client.pull_snapshot(shared.one, "two")) == "not_registered"
    assert kind(shared.client.pull_log(shared.one, "two", 0)) == "not_registered"
    assert kind(shared.client.unregister(shared.one, "two")) == "not_registered"
    shared.client.register(shared.one, "three")
    assert not shared.client.unregister(shared.one, "three").HasField("error")
    assert kind(shared.client.pull_log(shared.one, "three", 0)) == "not_registered"


@pytest.mark.parametrize("key", [b"\0", b"\xff", b"\0\0\0\1?", b"\0\0\0\1\x30a", b"\0\0\0\1\x23\x7f\x7f\x7f\x0b\0"])
def test_a_key_that_is_none_of_the_range_is_told(shared, key):
    first = shared.client.pull_snapshot(shared.one, "one")
    answer = shared.client.pull_snapshot(shared.one, "one", first.current_snapshot_version, key)
    assert kind(answer) == "out_of_bound"
    told = answer.error.out_of_bound
    assert (told.key, told.range_id) == (key, shared.one.id)
    assert (told.range_start, told.range_limit) == (shared.one.start_key, shared.one.end_key)
    assert kind(shared.client.split(shared.one, key)) == "out_of_bound"


@pytest.mark.parametrize("value", [10**30, -(2**63) - 1, "5", math.nan, Text(Kind.DATE, "2020-01-01")], ids=str)
def test_a_key_that_no_row_can_have_is_told_and_nothing_is_split_there(shared, value):
    key = encode_ordered(shared.one.table_id, [value])
    assert kind(shared.client.split(shared.one, key)) == "out_of_bound"
    if value != "5":  # which the database takes for the number
        first = shared.client.pull_snapshot(shared.one, "one")
        assert (
            kind(shared.client.pull_snapshot(shared.one, "one", first.current_snapshot_version, key)) == "out_of_bound"
        )


def test_a_text_column_is_not_split_at_a_number(world):
    world.execute("CREATE TABLE words (word TEXT NOT NULL PRIMARY KEY)")
    for word in ("1", "3", "7", "x"):
        world.execute("INSERT INTO words VALUES (?)", (word,))
    world.start()
    (one,) = world.ranges("words")
    assert kind(world.client.split(one, encode_ordered(one.table_id, [5]))) == "out_of_bound"
    left, right = world.client.split(one, encode_ordered(one.table_id, ["5"])).ranges
    for part in (left, right):
        world.client.register(part, "one")
    parts = [world.client.pull_snapshot(part, "one") for part in (left, right)]
    assert [keys(part.snapshot_data) for part in parts] == [["1", "3"], ["7", "x"]]


def test_another_cluster_is_refused(shared):
    answer = shared.client.ranges("orders", "shop", 4)
    assert kind(answer) == "cluster_mismatch"
    told = answer.error.cluster_mismatch
    assert (told.request_cluster, told.actual_cluster) == (4, 3)
    for call in (shared.client.subscribe, shared.client.unsubscribe):
        arguments = ("orders", "x", "console", {"url": "console:"})[: 4 if call == shared.client.subscribe else 2]
        error = refused(call, *arguments, db="shop", cluster=0)
        assert details(error).WhichOneof("err") == "cluster_mismatch"


def test_an_index_beyond_the_log_is_told(shared):
    for index in (10**6, 2**64 - 1):
        assert kind(shared.client.pull_log(shared.one, "one", index)) == "raft_fail"


def test_tables_and_sources_that_are_not_there_are_told(shared):
    answer = shared.client.ranges("none", "shop", 3)
    assert (kind(answer), answer.error.detail) == ("server_error", "table shop.none not found")
    assert kind(shared.client.ranges("orders", "none", 3)) == "server_error"


def test_a_message_that_is_none_is_refused(shared):
    calling = shared.client.channel.unary_unary("/dspb.CdcService/CdcPullLog", bytes, bytes)
    assert refused(calling, b"\xff\xff", timeout=20).code() is grpc.StatusCode.INVALID_ARGUMENT


def test_a_subscriber_needs_a_name(shared):
    error = refused(shared.client.register, shared.one, "")
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert details(error).WhichOneof("err") == "server_error"


def test_the_answer_of_a_failed_registration_has_the_error_too(shared):
    """Clients of gRPC do not hand it out, so that its frames are read by hand."""
    from grpc_serving import DATA, Bare, frame
    from tailrace.delivery.grpc.proto import jimdb_cdc_pb2 as proto

    request = proto.CdcRegisterRequest(range_id=99, subscriber_name="one").SerializeToString()
    shared.port = int(shared.server.grpc.rpartition(":")[2])
    with Bare(shared) as bare:
        body = b"\0" + len(request).to_bytes(4, "big") + request
        bare.send(bare.headers("/dspb.CdcService/CdcRegister"), frame(DATA, 1, 1, body))
        message = bare.await_frame(DATA, 1)
        answer = proto.CdcRegisterResponse.FromString(message[5:])
        assert answer.error.range_not_found.range_id == 99


def test_what_retention_removed_is_told_and_a_puller_that_registers_anew_is_well(world):
    world.fill(1)
    world.start(JimdbConfig(log_wait="0.05s", silence="0.05s"), retention=RetentionConfig(events=5))
    puller = world.puller()
    world.converge(puller)
    index, written = puller.progress[1].index, 0

    def lost():
        nonlocal written
        world.fill(*range(20))
        written += 20
        # The puller says nothing meanwhile: each pull would hold the log for it again.
        if world.server.get("/api/v1/bulk/shop").json()["horizon"] <= index + 1:
            return False
        answer = world.client.pull_log(puller.progress[1].range, "one", index)
        return kind_or_none(answer) == "log_lost" and answer.error.log_lost

    told = wait_until(lost, "retention goes on without the puller")
    assert told.requested_index == index + 1
    assert told.oldest_index > told.requested_index
    wait_until(
        lambda: world.server.get("/api/v1/bulk/shop").json()["head"] == written, "no change is to come that may be lost"
    )
    again = world.puller()
    world.converge(again)
    assert again.progress[1].index >= told.oldest_index - 1


def test_retention_keeps_what_a_puller_needs(world):
    world.start(JimdbConfig(log_wait="0.05s"), retention=RetentionConfig(events=5))
    puller = world.puller()
    world.converge(puller)
    index = puller.progress[1].index
    for number in range(50):
        world.fill(number)
    world.stop()
    world.fill(60)
    world.start(JimdbConfig(log_wait="0.05s"), retention=RetentionConfig(events=5))
    puller.client = world.client
    world.converge(puller)
    assert puller.progress[1].index >= index + 51


def test_a_server_that_does_not_capture_says_so(world):
    world.start()
    (one,) = world.ranges()
    world.stop()
    world.start(capture=CaptureConfig(enabled=False))
    calls = [
        lambda: world.client.ranges("orders", "shop"),
        lambda: world.client.register(one, "one"),
        lambda: world.client.pull_log(one, "one", 0),
        lambda: world.client.pull_snapshot(one, "one"),
    ]
    for call in calls:
        assert refused(call).code() is grpc.StatusCode.FAILED_PRECONDITION


# ---- who may


AUTH = AuthConfig(
    enabled=True,
    tokens=("master",),
    principals={
        "seven": PrincipalConfig(tokens=("seven-key",), rows={"shop.orders": "n = 7"}),
        "chief": PrincipalConfig(tokens=("chief-key",), capabilities=("admin",), rows={"shop.orders": "n = 7"}),
        "items": PrincipalConfig(tokens=("items-key",), tables=("shop.items",)),
        "clerk": PrincipalConfig(tokens=("clerk-key",), capabilities=("admin",), tables=("shop.items",)),
    },
)
MASTER, SEVEN, CHIEF, ITEMS, CLERK = "master", "seven-key", "chief-key", "items-key", "clerk-key"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    made = World(tmp_path_factory.mktemp("guarded"))
    made.execute("CREATE TABLE items (id INTEGER PRIMARY KEY)")
    made.fill(*range(1, 11), n=7)
    made.fill(*range(11, 200), n=8)
    made.start(auth=AUTH)
    made.clients = {token: Client(made.server.grpc, token) for token in (MASTER, SEVEN, CHIEF, ITEMS, CLERK)}
    yield made
    for client in made.clients.values():
        client.close()
    made.close()


def test_nobody_pulls_without_credentials(guarded):
    one = base.Range(id=1)
    calls = [
        lambda: guarded.client.ranges("orders", "shop"),
        lambda: guarded.client.register(one, "x"),
        lambda: guarded.client.pull_snapshot(one, "x"),
        lambda: guarded.client.pull_log(one, "x", 0),
        lambda: guarded.client.split(one),
        lambda: guarded.client.unregister(one, "x"),
        lambda: guarded.client.subscribe("orders", "x", "console", {"url": "console:"}, "shop"),
        lambda: guarded.client.unsubscribe("orders", "x", "shop"),
    ]
    for call in calls:
        assert refused(call).code() is grpc.StatusCode.UNAUTHENTICATED


def test_a_principal_that_may_see_some_rows_gets_those(guarded):
    puller = guarded.puller("mine", client=guarded.clients[SEVEN])
    number = next(iter(puller.progress))

    def mine():
        puller.step(number)
        seen = guarded.execute("SELECT * FROM orders WHERE n = 7 ORDER BY id")
        return puller.progress[number].stage == LOG and puller.table == seen

    wait_until(mine, "the rows of the principal")
    guarded.execute("UPDATE orders SET n = 8 WHERE id = 1")
    guarded.execute("UPDATE orders SET n = 7 WHERE id = 150")
    wait_until(mine, "rows go out of sight and come into sight")
    assert {values_of(key)[0] for key in puller.rows} == {*range(2, 11), 150}


def test_a_table_that_may_not_be_seen_has_no_ranges(guarded):
    (one,) = guarded.clients[MASTER].ranges("orders", "shop").ranges
    other = guarded.clients[ITEMS]
    assert refused(other.ranges, "orders", "shop").code() is grpc.StatusCode.PERMISSION_DENIED
    assert kind(other.pull_snapshot(one, "x")) == kind(other.pull_log(one, "x", 0)) == "range_not_found"
    assert details(refused(other.register, one, "x")).range_not_found.range_id == one.id
    stale = base.Range(id=one.id)
    assert kind(other.pull_log(stale, "x", 0)) == "range_not_found"


def test_each_principal_has_subscribers_of_its_own(guarded):
    (one,) = guarded.clients[MASTER].ranges("orders", "shop").ranges
    guarded.clients[MASTER].register(one, "same")
    assert kind(guarded.clients[SEVEN].pull_log(one, "same", 0)) == "not_registered"


def test_only_an_administrator_who_sees_the_whole_table_subscribes_and_splits(guarded):
    (one,) = guarded.clients[MASTER].ranges("orders", "shop").ranges
    sink = ("console", {"url": "console:"}, "shop")
    for client in (guarded.clients[SEVEN], guarded.clients[ITEMS]):
        assert refused(client.subscribe, "orders", "x", *sink).code() is grpc.StatusCode.PERMISSION_DENIED
        assert refused(client.unsubscribe, "orders", "x", "shop").code() is grpc.StatusCode.PERMISSION_DENIED
        assert refused(client.split, one).code() is grpc.StatusCode.PERMISSION_DENIED
    chief = guarded.clients[CHIEF]
    assert refused(chief.subscribe, "orders", "x", *sink).code() is grpc.StatusCode.PERMISSION_DENIED
    assert guarded.clients[MASTER].subscribe("orders", "x", *sink).subscriber_name == "x"


def test_nobody_ends_a_pipeline_with_a_table_that_may_not_be_seen(guarded):
    clerk = guarded.clients[CLERK]
    clerk.subscribe("items", "own", "console", {"url": "console:"}, "shop")
    store = PipelineStore.open(f"sqlite:///{guarded.directory}/data/metadata.db", SystemClock())
    store.create(Definition(name="pair", source="shop", tables=("orders", "items"), sink="console:"))
    assert refused(clerk.unsubscribe, "items", "pair", "shop").code() is grpc.StatusCode.NOT_FOUND
    assert not store.get("pair").cancelled
    assert clerk.unsubscribe("items", "own", "shop").cancel
    assert guarded.clients[MASTER].unsubscribe("items", "pair", "shop").cancel
    store.close()


def test_what_fails_inside_is_told_in_the_log_of_the_server_alone_and_without_values(guarded, caplog):
    master = guarded.clients[MASTER]
    master.subscribe("items", "first", "console", {"url": "console:"}, "shop")
    database = sqlite3.connect(guarded.directory / "data" / "metadata.db")
    database.execute("ALTER TABLE subscribe RENAME TO elsewhere")
    sink = ("mysql", {"url": "mysql://me:s3cret@db/copy"}, "shop")
    error = refused(master.subscribe, "items", "second", *sink)
    database.execute("ALTER TABLE elsewhere RENAME TO subscribe")
    database.close()
    assert (error.code(), error.details()) == (grpc.StatusCode.INTERNAL, "internal error: see the log of the server")
    (record,) = [one for one in caplog.records if one.getMessage() == "a call of JimDB failed"]
    assert isinstance(record.exc_info[1], MetadataError)
    assert "s3cret" not in caplog.text
