"""Facts about copying tables and keeping sinks right, through a server on real sockets; Spark is not started."""

import itertools
import shutil
import sqlite3

import apsw
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, write_deltalake
from msgspec import structs

from running import Running
from serving import wait_until
from tailrace.client.bulk_rows import BulkRowsClient
from tailrace.clock import SystemClock
from tailrace.model.errors import SinkRefusedError
from tailrace.model.key_interval import KeyInterval
from tailrace.pipeline import copy
from tailrace.pipeline.change_rows import table_changes
from tailrace.pipeline.copy import CopyOptions
from tailrace.pipeline.definition import Definition
from tailrace.pipeline.errors import LeaseError, PipelineError, SinkTableGoneError
from tailrace.pipeline.job import Job, SparkChoice, Watcher
from tailrace.pipeline.keeper import taken
from tailrace.pipeline.sink.base import Batch, Mode, TableMark
from tailrace.pipeline.sinks import sink_of
from tailrace.pipeline.store import PipelineStore

ROWS = 61
TABLES = {
    "numbered": "CREATE TABLE numbered (id INTEGER PRIMARY KEY, name TEXT, price REAL)",
    "named": "CREATE TABLE named (name TEXT PRIMARY KEY, data BLOB)",
    "paired": "CREATE TABLE paired (name TEXT, id INTEGER, price REAL, PRIMARY KEY (name, id)) WITHOUT ROWID",
    "plain": "CREATE TABLE plain (name TEXT, data BLOB)",
}


class Crash(Exception):  # noqa: N818 (it stands for no error of ours)
    """The worker dies here."""


class CrashingStore(PipelineStore):
    """Dies before or after its nth write."""

    writes_left = None
    before = True

    def _fenced(self, lease, statements, **values):
        if self.writes_left is not None:
            self.writes_left -= 1
        if self.writes_left == 0 and self.before:
            raise Crash
        super()._fenced(lease, statements, **values)
        if self.writes_left == 0:
            raise Crash


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    directory = tmp_path_factory.mktemp("shop")
    database = apsw.Connection(str(directory / "shop.db"))
    database.set_busy_timeout(60_000)
    for ddl in TABLES.values():
        database.execute(ddl)
    rows = range(ROWS)
    with database:
        database.executemany("INSERT INTO numbered VALUES (?, ?, ?)", [(i * i, f"n{i}", i / 3) for i in rows])
        database.executemany("INSERT INTO named VALUES (?, ?)", [(f"key {i}", b"\0" * i) for i in rows])
        database.executemany("INSERT INTO paired VALUES (?, ?, ?)", [("ab"[i % 7 == 0], i, None) for i in rows])
        database.executemany("INSERT INTO plain VALUES (?, ?)", [(None, str(i).encode()) for i in rows])
    server = Running(directory / "data", shop=f"sqlite:///{directory / 'shop.db'}")
    client = BulkRowsClient(server.url)
    wait_until(lambda: len(client.info("shop").tables) == len(TABLES), "the tables known")
    server.database, server.client = database, client
    yield server
    client.close()
    server.stop()
    database.close()


@pytest.fixture
def store(tmp_path):
    opened = CrashingStore.open(f"sqlite:///{tmp_path / 'pipelines.db'}", SystemClock())
    yield opened
    opened.close()


def job(store, tmp_path, page_rows=20):
    return Job(store, tmp_path / "work", None, SparkChoice(), SystemClock(), CopyOptions(1, page_rows))


def run(store, tmp_path, name="p", **options):
    job(store, tmp_path, **options).run(name, once=True, wait=False, watcher=Watcher(), stopped=lambda: False)


def verify(store, tmp_path, *, repair=False):
    return job(store, tmp_path).verify("p", repair=repair, watcher=Watcher(), stopped=lambda: False)


def create(store, shop, tmp_path, *tables, mode=None, scheme="sqlite", **members):
    sink = {"sqlite": f"sqlite:///{tmp_path / 'copy.db'}", "delta": f"delta:///{tmp_path}/lake/{{table}}"}[scheme]
    made = Definition(name="p", source="shop", tables=tables, sink=sink, mode=mode, server=shop.url, **members)
    store.create(made)


def commit(shop, *statements):
    """Run statements in one transaction. Not by `with`: apsw would wait for the server without letting it run."""
    for statement in ("BEGIN IMMEDIATE", *statements, "COMMIT"):
        shop.database.execute(statement)


def copied(tmp_path, table, columns):
    database = sqlite3.connect(tmp_path / "copy.db")
    try:
        return sorted(database.execute(f"SELECT {columns} FROM {table}").fetchall())
    finally:
        database.close()


def source(shop, table, columns):
    return sorted(shop.database.execute(f"SELECT {columns} FROM {table}").fetchall())


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("parts", [1, 7, 20])
def test_the_parts_of_a_table_hold_each_row_once_and_about_as_many_rows(shop, table, parts):
    plan = shop.client.plan("shop", table, parts)
    assert plan.rows == ROWS
    bounds = [None, *plan.cuts, None]
    found, sizes = [], []
    for after, through in itertools.pairwise(bounds):
        keys = [
            key
            for page in shop.client.rows("shop", table, KeyInterval(after, through))
            for key in page.rows.column("key").to_pylist()
        ]
        found += keys
        sizes.append(len(keys))
    assert len(found) == len(set(found)) == ROWS
    assert max(sizes) <= -(-ROWS // parts)
    assert len(plan.cuts) <= parts


@pytest.mark.parametrize("table", TABLES)
def test_runs_of_rows_are_cut_after_exactly_so_many(shop, table):
    cuts = shop.client.cut_rows("shop", table, KeyInterval(), rows=25, count=9)
    assert len(cuts) == 2
    (page,) = shop.client.rows("shop", table, KeyInterval(cuts[0], cuts[1]))
    assert page.rows.num_rows == 25
    assert page.rows.column("key")[24].as_py().decode() == cuts[1]
    assert shop.client.cut_rows("shop", table, KeyInterval(cuts[1], None), rows=25, count=9) == []


@pytest.mark.parametrize("scheme", ["sqlite", "delta"])
def test_a_copy_is_equal_to_its_source_and_verify_says_so(shop, store, tmp_path, scheme):
    create(store, shop, tmp_path, "numbered", "named", "paired", "plain", scheme=scheme)
    run(store, tmp_path)
    verdict = verify(store, tmp_path)
    assert verdict.equal
    assert [(one.table, one.rows) for one in verdict.tables] == [(table, ROWS) for table in TABLES]
    assert {one.rows_copied for one in store.progress("p")} == {ROWS}


@pytest.mark.parametrize(("batch_bytes", "batches"), [(1 << 30, 2), (1, 52)])
def test_a_batch_holds_what_fits_by_the_rows_that_were_read_last(
    shop, store, tmp_path, monkeypatch, batch_bytes, batches
):
    monkeypatch.setattr(copy, "_FIRST_ROWS", 10)
    monkeypatch.setattr(copy, "_BATCH_BYTES", batch_bytes)
    create(store, shop, tmp_path, "numbered")
    run(store, tmp_path, page_rows=1000)
    assert len(copied(tmp_path, "_tailrace_batches", "number")) == batches
    assert copied(tmp_path, "numbered", "id, name, price") == source(shop, "numbered", "id, name, price")


def test_before_a_copy_there_is_nothing_to_verify(shop, store, tmp_path):
    create(store, shop, tmp_path, "named")
    with pytest.raises(PipelineError, match="run it first"):
        verify(store, tmp_path)


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("mode", [Mode.APPEND, Mode.CURRENT])
def test_wherever_the_worker_dies_each_row_is_copied_once(shop, store, tmp_path, mode, before):
    create(store, shop, tmp_path, "named", "paired", mode=mode)
    store.before = before
    deaths = 0
    for writes in (*range(1, 7), *range(1, 7), None):
        store.writes_left = writes
        try:
            run(store, tmp_path)
        except Crash:
            deaths += 1
        store.writes_left = None
        store.database.engine.dispose()
        if store.get("p").leased:
            force(store)
    assert deaths > 3
    assert copied(tmp_path, "named", "name, data") == source(shop, "named", "name, data")
    assert copied(tmp_path, "paired", "name, id, price") == source(shop, "paired", "name, id, price")
    assert verify(store, tmp_path).equal


def force(store):
    """Let the lease of a dead worker end."""
    found = store.get("p")
    with store.database.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE tailrace_pipeline SET lease_end_us = 0")
    assert found.owner


def test_what_differs_is_named_and_only_that_is_mended(shop, store, tmp_path):
    create(store, shop, tmp_path, "numbered", "named")
    run(store, tmp_path)
    database = sqlite3.connect(tmp_path / "copy.db")
    database.execute("DELETE FROM numbered WHERE id = 4")
    database.execute("UPDATE numbered SET price = 1e9 WHERE id = 9")
    database.execute("INSERT INTO named (name, data, _offset) VALUES ('nobody', NULL, 0)")
    database.commit()
    database.close()
    verdict = verify(store, tmp_path)
    assert not verdict.equal
    assert verdict.tables[0].keys == [("[4]", "missing"), ("[9]", "differs")]
    assert verdict.tables[1].keys == [('["nobody"]', "extra")]
    mended = verify(store, tmp_path, repair=True)
    assert (mended.equal, mended.repaired) == (True, 3)
    assert copied(tmp_path, "numbered", "id, name, price") == source(shop, "numbered", "id, name, price")


def test_a_sink_is_verified_while_a_worker_has_the_pipeline(shop, store, tmp_path):
    create(store, shop, tmp_path, "numbered")
    run(store, tmp_path)
    store.acquire("p", "other", 60)
    assert verify(store, tmp_path).equal
    commit(shop, "INSERT INTO numbered VALUES (1000000, 'late', 1)")
    assert verify(store, tmp_path).equal
    database = sqlite3.connect(tmp_path / "copy.db")
    database.execute("DELETE FROM numbered WHERE id = 4")
    database.commit()
    database.close()
    assert verify(store, tmp_path).tables[0].keys == [("[4]", "missing")]
    commit(shop, "DELETE FROM numbered WHERE id = 1000000")


def test_a_row_that_a_lake_has_twice_is_found_and_mended(shop, store, tmp_path):
    create(store, shop, tmp_path, "numbered", scheme="delta")
    run(store, tmp_path)
    table = DeltaTable(tmp_path / "lake" / "numbered")
    held = table.to_pyarrow_dataset().to_table()
    write_deltalake(table, held.filter(pc.equal(held["id"], 9)), mode="append")
    assert verify(store, tmp_path).tables[0].keys == [("[9]", "twice")]
    mended = verify(store, tmp_path, repair=True)
    assert mended.equal
    assert mended.tables[0].rows == ROWS


def half_applied(shop, store, tmp_path, mode):
    """Change two tables, and give one of them its changes as the next batch; return the sink and that batch."""
    create(store, shop, tmp_path, "numbered", "named", mode=mode, scheme="delta")
    run(store, tmp_path)
    head = shop.client.info("shop").head
    commit(shop, "INSERT INTO numbered VALUES (-1, 'late', 1)", "INSERT INTO named VALUES ('late', NULL)")
    through = shop.client.committed("shop", "numbered")
    commit(shop, "DELETE FROM numbered WHERE id = -1", "DELETE FROM named WHERE name = 'late'")
    found = list(shop.client.batches("shop", head, through, ["numbered", "named"]))
    tables = list(table_changes([batch for _, batch in found], found[-1][0]))
    sink = sink_of(store.get("p").definition.sink, mode, pipeline="p")
    sink.open([one.schema for one in tables])
    batch = Batch("p", sink.progress().number + 1, {"shop": through}, tables)
    one = next(one for one in tables if one.schema.table.name == "numbered")
    sink._tables.apply(one, TableMark(batch.number, through), sink._tables.mark(one.schema))
    return sink, batch


def damage(tmp_path):
    DeltaTable(tmp_path / "lake" / "numbered").delete("id = 9")
    DeltaTable(tmp_path / "lake" / "named").delete("name = 'key 3'")


@pytest.mark.parametrize("mode", [Mode.CURRENT, Mode.HISTORY])
def test_a_lake_that_has_a_batch_in_part_is_mended_under_other_numbers(shop, store, tmp_path, mode):
    sink, batch = half_applied(shop, store, tmp_path, mode)
    damage(tmp_path)
    mended = verify(store, tmp_path, repair=True)
    assert (mended.equal, mended.repaired) == (True, 2)
    sink.open([one.schema for one in batch.tables])
    newest = sink.newest([one.schema for one in batch.tables])
    assert newest == sink.applied() > batch.number
    assert sink.progress().offsets["shop"] < batch.offsets["shop"]
    sink.apply(structs.replace(batch, number=newest + 1))
    assert verify(store, tmp_path).equal


def test_a_lake_of_changes_that_has_a_batch_in_part_is_mended_after_that_one_only(shop, store, tmp_path):
    sink, batch = half_applied(shop, store, tmp_path, Mode.APPEND)
    damage(tmp_path)
    with pytest.raises(PipelineError, match="'p' have a batch that others lack: run it once"):
        verify(store, tmp_path, repair=True)
    sink.apply(batch)
    assert verify(store, tmp_path, repair=True).equal
    late = [row for row in DeltaTable(tmp_path / "lake" / "numbered").to_pyarrow_table().to_pylist() if row["id"] == -1]
    assert [row["_change_type"] for row in late] == ["insert"]


def test_a_batch_after_a_mending_that_was_cut_off_is_not_taken_for_it(shop, store, tmp_path):
    create(store, shop, tmp_path, "numbered", scheme="delta")
    run(store, tmp_path)
    marker = tmp_path / "lake" / "_tailrace" / "p.json"
    before = marker.read_bytes()
    DeltaTable(tmp_path / "lake" / "numbered").delete("id = 9")
    for _ in range(2):
        assert verify(store, tmp_path, repair=True).equal
        marker.write_bytes(before)  # as if it had not been noted any more
        DeltaTable(tmp_path / "lake" / "numbered").delete("id = 9")
    assert verify(store, tmp_path, repair=True).equal


@pytest.mark.parametrize("scheme", ["sqlite", "delta"])
def test_another_batch_of_the_number_of_a_copy_is_not_taken_for_it(shop, store, tmp_path, scheme):
    create(store, shop, tmp_path, "numbered", scheme=scheme)
    store.before = False
    while store.get("p").copying is None:
        store.writes_left = 1
        with pytest.raises(Crash):
            run(store, tmp_path)
    copying = store.get("p").copying
    sink = sink_of(store.get("p").definition.sink, store.get("p").definition.mode, pipeline="p")
    sink.open(list(shop.client.info("shop", ["numbered"]).newest()))
    sink.apply(Batch("p", copying.number, {"shop": copying.reached + 1}, []))
    sink.close()
    with pytest.raises(SinkRefusedError, match="another batch 0 than the one that was copied of table numbered"):
        run(store, tmp_path)


GONE = {
    "sqlite": lambda tmp_path: drop(tmp_path / "copy.db", "numbered"),
    "delta": lambda tmp_path: shutil.rmtree(tmp_path / "lake" / "numbered"),
}


def drop(path, table):
    database = sqlite3.connect(path)
    database.execute(f"DROP TABLE {table}")
    database.commit()
    database.close()


@pytest.mark.parametrize("scheme", GONE)
def test_a_reset_copies_tables_anew_that_are_gone_from_the_sink(shop, store, tmp_path, scheme):
    create(store, shop, tmp_path, "numbered", "named", scheme=scheme)
    run(store, tmp_path)
    GONE[scheme](tmp_path)
    for use in (run, verify):
        with pytest.raises(SinkTableGoneError, match="table numbered: it is gone"):
            use(store, tmp_path)
    assert "it is gone" in store.get("p").figures.problem
    job(store, tmp_path).reset("p", Watcher(), lambda: False)
    run(store, tmp_path)
    verdict = verify(store, tmp_path)
    assert verdict.equal
    assert [one.rows for one in verdict.tables] == [ROWS, ROWS]


@pytest.mark.parametrize("scheme", GONE)
def test_of_several_tables_that_are_gone_none_is_forgotten_that_is_not_copied_again(shop, store, tmp_path, scheme):
    create(store, shop, tmp_path, "numbered", "named", "paired", scheme=scheme)
    run(store, tmp_path)
    GONE[scheme](tmp_path)
    drop(tmp_path / "copy.db", "named") if scheme == "sqlite" else shutil.rmtree(tmp_path / "lake" / "named")
    for one, other in (("named", "numbered"), ("numbered", "named")):
        with pytest.raises(SinkTableGoneError, match=f"table {other}: it is gone"):
            job(store, tmp_path).copy_again("p", [one], Watcher())
    with pytest.raises(SinkTableGoneError, match="it is gone"):
        run(store, tmp_path)
    job(store, tmp_path).copy_again("p", ["numbered", "named"], Watcher())
    run(store, tmp_path)
    verdict = verify(store, tmp_path)
    assert verdict.equal
    assert [one.rows for one in verdict.tables] == [ROWS, ROWS, ROWS]


def add_table(store, table):
    definition = store.get("p").definition
    store.alter(structs.replace(definition, tables=(*definition.tables, table)))


def test_a_table_that_is_added_before_the_pipeline_has_subscribed_is_copied_with_the_others(
    shop, store, tmp_path, monkeypatch
):
    create(store, shop, tmp_path, "numbered")

    def dies(lease, subscription):
        raise Crash

    with monkeypatch.context() as patched:
        patched.setattr(store, "subscribed", dies)
        with pytest.raises(Crash):
            run(store, tmp_path)
    add_table(store, "named")
    run(store, tmp_path)
    assert store.get("p").subscription is not None
    assert {one.rows_copied for one in store.progress("p")} == {ROWS}
    assert verify(store, tmp_path).equal


def test_a_table_that_is_added_to_a_sink_without_marks_repeats_no_changes_of_the_others(
    shop, store, tmp_path, monkeypatch, capfd
):
    store.create(Definition(name="p", source="shop", tables=("numbered",), sink="console:", server=shop.url))
    run(store, tmp_path)
    commit(shop, "INSERT INTO numbered VALUES (-5, 'late', 1)")
    commit(shop, "DELETE FROM numbered WHERE id = -5")
    head = shop.client.committed("shop", "numbered")
    with taken(store, "p", wait=False, watcher=Watcher(), stopped=lambda: False) as having:
        store.advance(having.lease, head, store.get("p").figures)  # as if Spark had given the sink these changes
    capfd.readouterr()
    add_table(store, "named")
    monkeypatch.setattr(Job, "session", lambda *_: pytest.fail("changes are read that the sink has"))
    run(store, tmp_path)
    lines = capfd.readouterr().out.splitlines()
    assert len(lines) == ROWS
    assert all("named" in line for line in lines)


def test_a_table_is_not_added_to_a_sink_that_has_lost_the_others(shop, store, tmp_path):
    create(store, shop, tmp_path, "numbered")
    run(store, tmp_path)
    (tmp_path / "copy.db").unlink()
    add_table(store, "named")
    with pytest.raises(SinkTableGoneError, match="table numbered: it is gone from the sink"):
        run(store, tmp_path)


@pytest.mark.parametrize("scheme", GONE)
def test_a_sink_that_is_gone_as_a_whole_is_not_followed_into(shop, store, tmp_path, scheme):
    create(store, shop, tmp_path, "numbered", scheme=scheme)
    run(store, tmp_path)
    (tmp_path / "copy.db").unlink() if scheme == "sqlite" else shutil.rmtree(tmp_path / "lake")
    with pytest.raises(SinkTableGoneError, match="table numbered: it is gone from the sink"):
        run(store, tmp_path)
    job(store, tmp_path).reset("p", Watcher(), lambda: False)
    run(store, tmp_path)
    assert verify(store, tmp_path).equal


def test_a_worker_goes_on_with_what_was_altered(shop, store, tmp_path):
    create(store, shop, tmp_path, "numbered")
    definition = store.get("p").definition
    store.alter(structs.replace(definition, server="http://127.0.0.1:9"))
    with taken(store, "p", wait=False, watcher=Watcher(), stopped=lambda: False) as having:
        having.begin(store.get("p"))
        assert having.wanted
        store.alter(definition)
        having._seen = store.renew(having.lease, 10)
        assert (having.wanted, having.altered) == (False, True)
        having.begin(store.get("p"))
        assert having.wanted
    run(store, tmp_path)
    assert verify(store, tmp_path).equal


def test_a_pipeline_that_is_cancelled_is_removed_by_who_runs_it(shop, store, tmp_path):
    create(store, shop, tmp_path, "named")
    run(store, tmp_path)
    store.cancel("p")
    run(store, tmp_path)
    assert store.all() == []
    assert not (tmp_path / "work" / "p").exists()


def test_a_reset_pipeline_copies_anew_and_leaves_nothing_old(shop, store, tmp_path):
    create(store, shop, tmp_path, "numbered", scheme="delta")
    run(store, tmp_path)
    commit(shop, "DELETE FROM numbered WHERE id = 16", "UPDATE numbered SET name = 'other' WHERE id = 25")
    job(store, tmp_path).reset("p", Watcher(), lambda: False)
    assert store.progress("p") == []
    run(store, tmp_path)
    assert verify(store, tmp_path).equal
    commit(shop, "INSERT INTO numbered VALUES (16, 'n4', 1.3333333333333333)")


def test_a_paused_pipeline_does_not_run_until_it_is_resumed(shop, store, tmp_path):
    create(store, shop, tmp_path, "named")
    store.pause("p", paused=True)
    with pytest.raises(PipelineError, match="resume p"):
        run(store, tmp_path)
    store.pause("p", paused=False)
    run(store, tmp_path)


def test_a_pipeline_that_another_worker_has_is_left_alone(shop, store, tmp_path):
    create(store, shop, tmp_path, "named")
    store.acquire("p", "other", 60)
    with pytest.raises(LeaseError, match="other"):
        run(store, tmp_path)
    with pytest.raises(LeaseError, match="other"):
        verify(store, tmp_path, repair=True)


def test_a_removed_pipeline_is_gone_with_its_subscription(shop, store, tmp_path):
    create(store, shop, tmp_path, "named")
    run(store, tmp_path)
    subscription = store.get("p").subscription
    assert subscription in str(shop.call("cdc.list", {}))
    job(store, tmp_path).remove("p", Watcher(), lambda: False)
    assert store.all() == []
    assert subscription not in str(shop.call("cdc.list", {}))
    assert copied(tmp_path, "named", "name, data") == source(shop, "named", "name, data")


def test_rows_whose_key_is_null_in_part_are_appended_once_and_else_refused_by_name(shop, store, tmp_path):
    rows = [(text, number) for text in (None, None, "a", "b", "c") for number in (None, None, 1, 2)]
    values = ", ".join(f"({text!r}, {number}, {place})" for place, (text, number) in enumerate(rows))
    made = "CREATE TABLE loose (name TEXT, id INTEGER, mark INTEGER, PRIMARY KEY (name, id))"
    commit(shop, made, f"INSERT INTO loose VALUES {values.replace('None', 'NULL')}")
    wait_until(lambda: len(shop.client.info("shop").tables) > len(TABLES), "the table known")
    create(store, shop, tmp_path, "loose", mode=Mode.APPEND)
    run(store, tmp_path, page_rows=3)
    assert copied(tmp_path, "loose", "mark") == [(place,) for place in range(len(rows))]
    with pytest.raises(PipelineError, match="table loose has rows with NULL in a key column"):
        verify(store, tmp_path, repair=True)
    job(store, tmp_path).remove("p", Watcher(), lambda: False)
    create(store, shop, tmp_path, "loose", scheme="delta")
    with pytest.raises(SinkRefusedError, match="of table loose: column 'name' of the key is null"):
        run(store, tmp_path, page_rows=3)
