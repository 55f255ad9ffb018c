"""The sink alone knows how far a pipeline is: what Spark keeps of a run may be gone, older, or on another machine."""

import json
import shutil
import sqlite3
from collections import Counter

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from msgspec import structs
from pyiceberg.catalog.sql import SqlCatalog

from pipelines import PipelinePlace
from serving import wait_until
from tailrace.client.bulk_rows import BulkRowsClient
from tailrace.clock import SystemClock
from tailrace.pipeline import stream
from tailrace.pipeline.change_rows import table_changes
from tailrace.pipeline.copy import CopyOptions
from tailrace.pipeline.errors import SinkMovedError
from tailrace.pipeline.job import Job
from tailrace.pipeline.session import SparkChoice
from tailrace.pipeline.sink.base import Batch, Mode, TableMark
from tailrace.pipeline.sinks import sink_of
from tailrace.pipeline.watcher import Watcher

pytest.importorskip("pyspark")

pytestmark = pytest.mark.timeout(400)


class Moving(PipelinePlace):
    """A pipeline whose workers have nothing in common but the metadata database and the sink."""

    machine = 0

    def job(self, distributed=False):
        self.machine += 1
        choice = SparkChoice("spark://elsewhere" if distributed else None, session=self.spark)
        directory = self.directory / f"machine {self.machine}"
        return Job(self.store, directory, None, choice, SystemClock(), CopyOptions(3, 4))


@pytest.fixture
def place(tmp_path, spark):
    made = Moving(tmp_path, spark)
    made.shop.commit("CREATE TABLE lines (id INTEGER PRIMARY KEY, note TEXT)")
    wait_until(lambda: len(made.shop.info()["tables"]) == 3, "the table known")
    yield made
    made.close()


def sql(place, table):
    database = sqlite3.connect(place.directory / "p.db")
    database.row_factory = sqlite3.Row
    try:
        return [dict(row) for row in database.execute(f"SELECT * FROM {table}")]
    finally:
        database.close()


def delta(place, table):
    return DeltaTable(place.directory / "lake" / table).to_pyarrow_table().to_pylist()


def iceberg(place, table):
    warehouse = place.directory / "warehouse"
    catalog = SqlCatalog("tailrace", uri=f"sqlite:///{warehouse / 'catalog.db'}", warehouse=f"file://{warehouse}")
    return catalog.load_table(("shop", table)).scan().to_arrow().to_pylist()


def files(place, table, suffix, read):
    found = sorted((place.directory / "files").glob(f"pipeline=p/batch=*/table={table}/*.{suffix}"))
    return [row for path in found for row in read(path)]


def parquet(place, table):
    return files(place, table, "parquet", lambda path: pq.read_table(path, partitioning=None).to_pylist())


def jsonl(place, table):
    return files(place, table, "jsonl", lambda path: map(json.loads, path.read_text().splitlines()))


SINKS = {
    "sqlite": ("sqlite:///{}/p.db", sql),
    "delta": ("delta://{}/lake/{{table}}", delta),
    "iceberg": ("iceberg://{}/warehouse?namespace=shop", iceberg),
    "parquet": ("parquet://{}/files", parquet),
    "jsonl": ("jsonl://{}/files", jsonl),
}

KINDS = [
    *((kind, mode) for kind in ("sqlite", "delta", "iceberg") for mode in (Mode.CURRENT, Mode.APPEND, Mode.HISTORY)),
    ("parquet", Mode.APPEND),
    ("jsonl", Mode.APPEND),
]


def write(place, number):
    """Change both tables, so that a row has a version in each run."""
    place.shop.commit(
        f"INSERT INTO orders VALUES ({number}, 'item', {number}, 1)",
        f"INSERT INTO lines VALUES ({number}, 'line')",
        f"UPDATE orders SET qty = {100 * number} WHERE id = 1",
    )


@pytest.mark.parametrize(("kind", "mode"), KINDS, ids=[f"{kind}-{mode}" for kind, mode in KINDS])
def test_each_run_goes_on_from_the_sink_wherever_it_is_and_nothing_comes_twice(place, kind, mode):
    url, read = SINKS[kind]
    place.shop.insert(1)
    place.create(sink=url.format(place.directory), mode=mode, tables=("orders", "lines"))
    for number in range(2, 5):
        place.run()
        write(place, number)
    place.run()
    assert not list(place.directory.glob("machine */p")), "nothing of a run is left"
    assert place.verify().equal
    orders, lines = read(place, "orders"), read(place, "lines")
    match mode:
        case Mode.CURRENT:
            assert sorted((row["id"], row["qty"]) for row in orders) == [(1, 400), (2, 2), (3, 3), (4, 4)]
        case Mode.HISTORY:
            versions = sorted(row["qty"] for row in orders if row["id"] == 1)
            assert versions == [1, 200, 300, 400]
            assert len(orders) == 7
        case Mode.APPEND:
            kinds = Counter(row["_change_type"] for row in orders)
            assert kinds == {"read": 1, "insert": 3, "update_preimage": 3, "update_postimage": 3}
    assert sorted(row["id"] for row in lines) == [2, 3, 4]


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_batch_that_some_tables_of_a_lake_have_may_be_cut_otherwise_afterwards(place, kind):
    url, read = SINKS[kind]
    place.create(sink=url.format(place.directory), mode=Mode.APPEND, tables=("orders", "lines"))
    place.run()
    write(place, 2)
    give_one_table(place)
    write(place, 3)
    place.run()
    orders, lines = read(place, "orders"), read(place, "lines")
    assert sorted(row["id"] for row in orders if row["_change_type"] == "insert") == [2, 3]
    assert sorted(row["id"] for row in lines) == [2, 3]
    assert len({(row["_offset"], row["_change_type"]) for row in orders}) == len(orders)
    assert place.verify().equal


def give_one_table(place):
    """Give the orders of the sink what is in the log as the next batch, and no other table, as if killed in between.

    Return the sink and that batch.
    """
    client = BulkRowsClient(place.shop.server.url)
    through = client.committed("shop", "orders")
    found = list(client.batches("shop", 0, through, ["orders", "lines"]))
    client.close()
    tables = {one.schema.table.name: one for one in table_changes([batch for _, batch in found], found[-1][0])}
    schemas = [one.schema for one in tables.values()]
    sink = sink_of(place.store.get("p").definition.sink, Mode.APPEND, pipeline="p")
    sink.open(schemas)
    progress = sink.progress()
    batch = Batch("p", 0 if progress is None else progress.number + 1, {"shop": through}, list(tables.values()))
    orders = tables["orders"]
    known = sink._tables.mark(orders.schema) if sink._tables.exists(orders.schema) else None
    sink._tables.apply(orders, TableMark(batch.number, through), known)
    assert sink.ahead(schemas) == {"orders": through}
    return sink, batch


class Delayed:
    """Tables of a lake that commit only after something else was done."""

    def __init__(self, tables, before):
        self._tables, self._before = tables, before

    def apply(self, one, given, known):
        self._before()
        self._tables.apply(one, given, known)

    def __getattr__(self, name):
        return getattr(self._tables, name)


def test_a_worker_that_wakes_up_in_the_middle_of_a_batch_doubles_nothing(place):
    place.create(sink=SINKS["delta"][0].format(place.directory), mode=Mode.APPEND, tables=("orders", "lines"))
    place.run()
    write(place, 2)
    late, batch = give_one_table(place)
    write(place, 3)
    late._tables = Delayed(late._tables, place.run)
    with pytest.raises(SinkMovedError, match="another worker"):
        late.apply(structs.replace(batch, tables=[one for one in batch.tables if one.schema.table.name == "lines"]))
    assert sorted(row["id"] for row in delta(place, "lines")) == [2, 3]
    place.run()
    assert place.verify().equal


def test_a_sink_from_a_backup_gets_what_it_lacks_from_the_log(place):
    place.shop.insert(1)
    place.create(mode=Mode.APPEND)
    place.run()
    place.shop.insert(2)
    place.run()
    shutil.copy(place.directory / "p.db", place.directory / "backup.db")
    place.shop.insert(3)
    place.run()
    shutil.copy(place.directory / "backup.db", place.directory / "p.db")
    place.shop.insert(4)
    place.run()
    assert place.rows("SELECT _change_type, id FROM orders ORDER BY _offset") == [
        ("read", 1),
        ("insert", 2),
        ("insert", 3),
        ("insert", 4),
    ]


def test_a_sink_notes_that_it_has_changes_which_are_not_for_it(place, monkeypatch):
    place.shop.insert(1)
    place.create(tables=("orders",))
    place.run()
    place.shop.commit("INSERT INTO lines VALUES (1, 'other')", "INSERT INTO lines VALUES (2, 'other')")
    place.run()
    sink = sink_of(place.store.get("p").definition.sink, Mode.CURRENT, pipeline="p")
    sink.open([])
    assert sink.progress().offsets == {"shop": place.shop.info()["head"]}
    sink.close()
    started = []
    monkeypatch.setattr(stream.Follower, "_start", lambda *_, **__: started.append(1))
    place.run()
    assert not started, "nothing is read again"


def test_what_a_console_was_shown_is_not_shown_again(place, capfd):
    place.shop.insert(1)
    place.create(sink="console:")
    for number in range(2, 4):
        place.run()
        place.shop.insert(number)
    place.run()
    place.run()
    shown = [json.loads(line) for line in capfd.readouterr().out.splitlines() if line.startswith("{")]
    assert [(row["_change_type"], row["id"]) for row in shown] == [("read", 1), ("insert", 2), ("insert", 3)]


def test_a_query_that_fails_in_the_middle_of_a_run_is_started_again_behind_what_the_sink_has(place, monkeypatch):
    place.shop.insert(1)
    place.create(mode=Mode.APPEND)
    place.run()
    begun = []
    start = stream.Follower._start

    def failing(self, session, directory, offset, *, once):
        begun.append(offset)
        if len(begun) == 2:
            place.shop.insert(3)
        if len(begun) == 1:
            monkeypatch.setattr(type(self._writer), "settle", lambda *_: True)
            query = start(self, session, directory, offset, once=False)
            wait_until(lambda: query.lastProgress is not None and query.lastProgress.sources, "a batch", 200)
            query.stop()
            raise_spark()
        return start(self, session, directory, offset, once=once)

    def raise_spark():
        from pyspark.errors import StreamingQueryException

        raise StreamingQueryException("a process was killed")

    monkeypatch.setattr(stream.Follower, "_start", failing)
    head = place.shop.info()["head"]
    place.shop.insert(2)
    place.shop.settle(head + 1)
    place.run()
    assert len(begun) == 2
    assert begun == [head, head + 1]
    place.run()
    assert place.rows("SELECT id FROM orders ORDER BY _offset") == [(1,), (2,), (3,)]


def test_what_an_older_version_left_is_ignored_and_removed(place):
    place.shop.insert(1)
    place.create(mode=Mode.APPEND)
    place.run()
    place.shop.insert(2)
    place.run()
    job = PipelinePlace.job(place)
    left = place.directory / "work" / "p" / "checkpoint-0" / "offsets"
    left.mkdir(parents=True)
    (left / "7").write_text('v1\n{"batchWatermarkMs":0,"batchTimestampMs":0,"conf":{}}\n{"offset":1}')
    place.shop.insert(3)
    job.run("p", once=True, wait=False, watcher=Watcher(), stopped=lambda: False)
    assert place.rows("SELECT id FROM orders ORDER BY _offset") == [(1,), (2,), (3,)]
    assert not left.exists()
