"""How pipelines are operated: intervals, limits, maintenance, tables that come and go."""

import shutil
import threading

import pytest
from deltalake import DeltaTable

from pipelines import PipelinePlace
from serving import wait_until
from tailrace.client.bulk import BulkClient
from tailrace.model.errors import TailraceError
from tailrace.pipeline.alter import altered
from tailrace.pipeline.errors import PipelineError, SinkTableGoneError
from tailrace.pipeline.maintenance import maintain
from tailrace.pipeline.sink.upkeep import UpkeepOptions
from tailrace.pipeline.watcher import Watcher

pytest.importorskip("pyspark")

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def place(tmp_path, spark):
    made = PipelinePlace(tmp_path, spark)
    yield made
    made.close()


def lake_of(place, **members):
    place.create(sink=f"delta://{place.directory}/lake/{{table}}", **members)
    return place.directory / "lake" / "orders"


def test_batches_have_no_more_changes_than_they_may_and_tables_are_maintained_by_the_schedule(place):
    place.shop.insert(1)
    lake = lake_of(place, batch_changes=2, trigger_s=0.2, maintain_every_s=60.0)
    place.run()
    for key in range(2, 12):
        place.shop.insert(key)
        place.shop.settle(key)  # a commit of its own
    table = DeltaTable(lake)
    before = table.version()
    place.run()
    table.update_incremental()
    operations = [one["operation"] for one in table.history(table.version() - before)]
    assert sum(one in ("WRITE", "MERGE") for one in operations) >= 5, operations
    began_us = place.store.get("p").figures.maintained_time_us
    with place.store.database.engine.begin() as connection:  # as if it had begun long ago
        text = connection.exec_driver_sql("SELECT figures FROM tailrace_pipeline").scalar()
        connection.exec_driver_sql("UPDATE tailrace_pipeline SET figures = ?", (text.replace(str(began_us), "1"),))
    place.run()
    table.update_incremental()
    assert "OPTIMIZE" in [one["operation"] for one in table.history(4)]
    assert place.store.get("p").figures.maintained_time_us > began_us > 1
    assert place.verify().equal


class Runner:
    """A worker in a thread."""

    def __init__(self, place):
        self.stop = threading.Event()
        self.errors = []
        job = place.job()

        def run():
            try:
                job.run("p", once=False, wait=False, watcher=Watcher(), stopped=self.stop.is_set)
            except TailraceError as error:
                self.errors.append(error)

        self.thread = threading.Thread(target=run, daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stop.set()
        self.thread.join(60)
        assert not self.thread.is_alive()
        assert self.errors == []


def test_maintenance_beside_a_worker_loses_and_repeats_nothing(place):
    place.shop.insert(*range(1, 5))
    lake = lake_of(place)
    definition = place.store.get("p").definition
    client = BulkClient(definition.server)
    with Runner(place):
        wait_until(lambda: place.copied("p") and lake.exists(), "the table copied", 120)
        schemas = client.info("shop", ("orders",)).newest()
        for key in range(5, 25):
            place.shop.insert(key)
            place.shop.commit(f"UPDATE orders SET qty = {key * 10} WHERE id = {key - 3}")
            if key % 4 == 0:
                maintain(definition, schemas, UpkeepOptions(retention_s=3600))
        client.close()
        head = place.shop.info()["head"]
        wait_until(lambda: min(one.last_log_index for one in place.store.progress("p")) >= head, "all applied", 120)
    assert place.verify().equal
    assert DeltaTable(lake).to_pyarrow_table().num_rows == 24


def with_people(place):
    place.shop.commit("CREATE TABLE people (id INTEGER PRIMARY KEY, name TEXT)")
    wait_until(lambda: len(place.shop.info()["tables"]) == 3, "the table known")


def people(place, *keys):
    place.shop.commit(*[f"INSERT INTO people VALUES ({key}, 'name {key}')" for key in keys])


def alter(place, **given):
    place.store.alter(altered(place.store.get("p").definition, begun=True, **given))


def settled(place, tables):
    """Tell whether a worker has copied these tables, and applied all changes."""
    ranges, head = place.store.progress("p"), place.shop.info()["head"]
    done = place.copied("p") and min(one.last_log_index for one in ranges) >= head
    return done and {one.table for one in ranges} == set(tables)


def test_a_table_is_added_to_a_running_pipeline_and_removed_from_it_and_added_again(place):
    with_people(place)
    place.shop.insert(1, 2)
    people(place, 1, 2, 3)
    place.create(tables=("orders",))
    with Runner(place):
        wait_until(lambda: settled(place, ["orders"]), "orders followed", 120)
        place.shop.insert(3)
        alter(place, tables=("orders", "people"))
        people(place, 4)
        place.shop.commit("DELETE FROM people WHERE id = 1")
        wait_until(lambda: settled(place, ["orders", "people"]), "people followed", 120)
        people(place, 5)
        wait_until(lambda: len(place.rows("SELECT id FROM people")) == 4, "the change of the added table", 60)
        alter(place, tables=("people",))
        wait_until(lambda: settled(place, ["people"]), "orders let go", 60)
    assert place.verify().equal
    assert place.rows("SELECT id FROM orders ORDER BY id") == [(1,), (2,), (3,)]
    place.shop.commit("DELETE FROM orders WHERE id = 2", "UPDATE orders SET qty = 50 WHERE id = 3")
    place.run()
    assert len(place.rows("SELECT id FROM orders")) == 3
    alter(place, tables=("people", "orders"))
    place.run()
    assert place.rows("SELECT id, qty FROM orders ORDER BY id") == [(1, 1), (3, 50)]
    assert place.verify().equal


def test_one_table_is_copied_again_whether_it_is_damaged_or_gone(place):
    with_people(place)
    place.shop.insert(1, 2)
    people(place, 1, 2, 3)
    place.create(tables=("orders", "people"), sink=f"delta://{place.directory}/lake/{{table}}")
    place.run()
    lake = place.directory / "lake"
    DeltaTable(lake / "people").delete("id = 2")
    place.job().copy_again("p", ["people"], Watcher())
    place.shop.insert(3)
    place.run()
    assert place.verify().equal
    shutil.rmtree(lake / "people")
    with pytest.raises(SinkTableGoneError):
        place.run()
    place.job().copy_again("p", ["people"], Watcher())
    people(place, 4)
    version = DeltaTable(lake / "orders").version()
    place.run()
    assert place.verify().equal
    assert DeltaTable(lake / "people").to_pyarrow_table().num_rows == 4
    assert DeltaTable(lake / "orders").version() == version
    with pytest.raises(PipelineError, match="has no table nowhere"):
        place.job().copy_again("p", ["nowhere"], Watcher())
