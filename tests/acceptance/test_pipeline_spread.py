"""Facts about pipelines whose Delta tables are written by tasks of Spark."""

import os
import signal
from pathlib import Path

import pytest
from deltalake import DeltaTable

from sparking import Shop
from tailrace.clock import SystemClock
from tailrace.model.errors import SinkUnavailableError
from tailrace.pipeline.copy import CopyOptions
from tailrace.pipeline.definition import Definition
from tailrace.pipeline.job import Job
from tailrace.pipeline.session import SparkChoice
from tailrace.pipeline.sink.base import Mode
from tailrace.pipeline.sink.delta import DeltaTables
from tailrace.pipeline.sink.delta_append import Appending
from tailrace.pipeline.store import PipelineStore
from tailrace.pipeline.typed import MisfitError
from tailrace.pipeline.watcher import Watcher

pytest.importorskip("pyspark")

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def place(tmp_path, spark, monkeypatch):
    monkeypatch.setattr("tailrace.pipeline.batch_writer._SPREAD_MIN_DISTRIBUTED", 1)
    made = Place(tmp_path, spark)
    yield made
    made.store.close()
    made.shop.close()


class Place:
    """A shop, and pipelines of it that use the session of the tests as if it were a cluster."""

    def __init__(self, directory, spark):
        self.directory = directory
        self.spark = spark
        self.shop = Shop(directory)
        self.store = PipelineStore.open(f"sqlite:///{directory / 'pipelines.db'}", SystemClock())
        self.master = "spark://elsewhere"

    def job(self):
        choice = SparkChoice(self.master, session=self.spark)
        return Job(self.store, self.directory / "work", None, choice, SystemClock(), CopyOptions(3, 1))

    def create(self, mode, tables=("orders",)):
        sink = f"delta://{self.directory}/lake/{{table}}"
        server = self.shop.server.url
        self.store.create(Definition(name="p", source="shop", server=server, tables=tables, sink=sink, mode=mode))

    def run(self):
        self.job().run("p", once=True, wait=False, watcher=Watcher(), stopped=lambda: False)

    def verify(self):
        return self.job().verify("p", repair=False, watcher=Watcher(), stopped=lambda: False)

    def table(self, name="orders"):
        return DeltaTable(self.directory / "lake" / name)

    def rows(self, *columns, name="orders"):
        found = self.table(name).to_pyarrow_table().select(list(columns)).to_pylist()
        return sorted(tuple(row.values()) for row in found)

    def batches(self, name="orders"):
        """Return how many commits of the table brought a batch."""
        return sum(1 for one in self.table(name).history() if one["operation"] == "WRITE")


def test_a_table_that_tasks_copy_and_change_equals_its_source(place):
    place.shop.insert(*range(1, 30))
    place.create(Mode.CURRENT, ("orders", "notes"))
    place.run()
    copied = place.batches()
    assert copied >= 2, "a page is a batch"
    assert len(place.rows("id")) == 29
    place.shop.commit("UPDATE orders SET qty = 99 WHERE id < 4", "DELETE FROM orders WHERE id = 9")
    place.shop.commit("UPDATE orders SET id = 700 WHERE id = 12", "INSERT INTO notes VALUES ('hello')")
    place.run()
    assert place.batches() == copied + 1, "one commit brings a batch"
    place.shop.commit("ALTER TABLE orders ADD COLUMN note TEXT", "UPDATE orders SET note = 'new' WHERE id = 700")
    place.shop.commit("INSERT INTO orders (id, note) VALUES (31, 'more')", "DELETE FROM orders WHERE id = 1")
    place.run()
    assert place.verify().equal
    assert [row for row in place.rows("id", "qty", "note") if row[0] in {1, 3, 9, 12, 31, 700}] == [
        (3, 99, None),
        (31, None, "more"),
        (700, 12, "new"),
    ]
    assert place.rows("text", name="notes") == [("hello",)]
    files = {Path(path).name for path in place.table().file_uris()}
    assert not [path for path in (place.directory / "lake" / "orders" / "_tailrace").glob("*") if path.is_dir()]
    assert files


@pytest.mark.parametrize(("mode", "spread"), [(Mode.APPEND, 1), (Mode.CURRENT, 0)])
def test_on_one_machine_tasks_append_and_the_driver_merges_what_is_large(place, monkeypatch, mode, spread):
    monkeypatch.setattr("tailrace.pipeline.batch_writer._SPREAD_MIN", 1)
    place.master = None
    drafted, batches = DeltaTables.drafted, []
    monkeypatch.setattr(DeltaTables, "drafted", lambda self, batch: batches.append(batch) or drafted(self, batch))
    place.shop.insert(1, 2)
    place.create(mode)
    place.run()
    place.shop.commit("UPDATE orders SET qty = 9 WHERE id = 1")
    place.run()
    assert len(batches) == spread
    assert place.verify().equal


def test_changes_that_tasks_append_are_there_once_each(place):
    place.shop.insert(*range(1, 10))
    place.create(Mode.APPEND)
    place.run()
    place.shop.commit("UPDATE orders SET qty = 7 WHERE id = 2", "INSERT INTO orders (id) VALUES (20)")
    place.run()
    place.run()
    assert [row for row in place.rows("_change_type", "id") if row[0] != "read"] == [
        ("insert", 20),
        ("update_postimage", 2),
        ("update_preimage", 2),
    ]
    assert [row[1] for row in place.rows("_change_type", "id") if row[0] == "read"] == list(range(1, 10))


@pytest.mark.parametrize("mode", [Mode.CURRENT, Mode.APPEND])
def test_a_driver_that_fails_between_the_files_and_the_commit_repeats_no_change(place, mode, monkeypatch):
    place.shop.insert(*range(1, 10))
    place.create(mode)
    commit, failures = DeltaTables.commit, []

    def failing(self, draft, mark, expected):
        if len(failures) % 2 == 0:
            failures.append(mark)
            raise SinkUnavailableError("not now")
        commit(self, draft, mark, expected)
        failures.append(mark)
        if len(failures) == 4:
            raise SinkUnavailableError("the answer is lost")

    monkeypatch.setattr(DeltaTables, "commit", failing)
    place.run()
    place.shop.commit("UPDATE orders SET qty = qty + 1")
    place.run()
    monkeypatch.undo()
    expected = 9 if mode is Mode.CURRENT else 27
    assert len(place.rows("id")) == expected
    assert place.verify().equal
    referred = {Path(path).name for path in place.table().file_uris()}
    assert {path.name for path in (place.directory / "lake" / "orders").glob("*.parquet")} > referred


def test_a_task_that_is_killed_is_run_again(place, monkeypatch):
    flag = place.directory / "killed"
    monkeypatch.setattr(
        "tailrace.pipeline.sink.delta_spread.Appending", lambda *given: dying(Appending(*given), str(flag))
    )
    place.shop.insert(*range(1, 10))
    place.create(Mode.APPEND)
    place.run()
    assert flag.exists()
    assert [row[0] for row in place.rows("id")] == list(range(1, 10))


def dying(write, flag):
    """Return what kills the process of the first task that writes, when it has written."""

    def work(changes):
        written = list(write(changes))
        if not os.path.exists(flag):  # noqa: PTH110 - this is sent to another process
            os.close(os.open(flag, os.O_CREAT))
            os.kill(os.getpid(), signal.SIGKILL)
        return iter(written)

    return work


def test_a_value_that_does_not_fit_is_named_by_the_driver(place):
    place.shop.insert(1, 2)
    place.create(Mode.CURRENT)
    place.run()
    place.shop.commit("UPDATE orders SET qty = 'many' WHERE id = 2")
    with pytest.raises(MisfitError) as misfit:
        place.run()
    assert (misfit.value.table, misfit.value.key, misfit.value.column) == ("orders", "[2]", "qty")
    place.shop.commit("UPDATE orders SET qty = 5 WHERE id = 2")
    assert place.rows("id", "qty") == [(1, 1), (2, 2)]
