"""Tables whose columns change while a pipeline follows them, in every mode, from the source to the sink."""

import sqlite3

import pytest

from sparking import Shop
from tailrace.clock import SystemClock
from tailrace.meta.pipeline import OnDrop
from tailrace.pipeline.alter import altered
from tailrace.pipeline.copy import CopyOptions
from tailrace.pipeline.definition import Definition
from tailrace.pipeline.errors import TableDroppedError
from tailrace.pipeline.job import Job, SparkChoice, Watcher
from tailrace.pipeline.sink.base import Mode
from tailrace.pipeline.store import PipelineStore
from tailrace.source.sqlite.capture_setup import exec_ddl

pytest.importorskip("pyspark")


class Place:
    """A shop, and one pipeline of it for each mode, into an SQLite file each."""

    def __init__(self, directory, spark):
        self.directory = directory
        self.shop = Shop(directory)
        self.store = PipelineStore.open(f"sqlite:///{directory / 'pipelines.db'}", SystemClock())
        choice = SparkChoice(session=spark)
        self.job = lambda: Job(self.store, directory / "work", None, choice, SystemClock(), CopyOptions())
        for mode in Mode:
            self.create(mode, mode)

    def create(self, name, mode, **others):
        sink = f"sqlite:///{self.directory / name}.db"
        server = self.shop.server.url
        self.store.create(
            Definition(name=name, source="shop", tables=("orders",), sink=sink, mode=mode, server=server, **others)
        )

    def run(self):
        """Let all pipelines catch up; return how what they have compares with the source, by mode."""
        for mode in Mode:
            self.run_one(mode)
        return self.verify()

    def run_one(self, name):
        self.job().run(name, once=True, wait=False, watcher=Watcher(), stopped=lambda: False)

    def verify(self, *, repair=False):
        look = {"repair": repair, "watcher": Watcher(), "stopped": lambda: False}
        return {mode: self.job().verify(mode, **look) for mode in Mode}

    def alter(self, statement):
        """Change the schema in a way that triggers forbid."""
        exec_ddl(self.directory / "shop.db", statement)

    def rows(self, mode, query):
        database = sqlite3.connect(self.directory / f"{mode}.db")
        try:
            return database.execute(query).fetchall()
        finally:
            database.close()


@pytest.fixture
def place(tmp_path, spark):
    made = Place(tmp_path, spark)
    yield made
    made.store.close()
    made.shop.close()


def equal(verdicts):
    return [mode for mode, verdict in verdicts.items() if verdict.equal] == list(Mode)


@pytest.mark.timeout(300)
def test_columns_that_are_added_with_a_default_dropped_and_renamed_are_followed(place):
    place.shop.insert(1, 2, 3)
    assert equal(place.run())
    place.shop.commit("INSERT INTO orders VALUES (4, 'four', 4, 4)", "ALTER TABLE orders ADD COLUMN note TEXT")
    place.shop.commit("UPDATE orders SET note = 'new' WHERE id = 2")
    place.shop.commit("ALTER TABLE orders ADD COLUMN state TEXT DEFAULT 'open'")
    place.shop.commit("INSERT INTO orders (id) VALUES (5)", "UPDATE orders SET state = 'done' WHERE id = 1")
    assert equal(place.run())
    assert place.rows("current", "SELECT id, note, state FROM orders ORDER BY id") == [
        (1, None, "done"),
        (2, "new", "open"),
        (3, None, "open"),
        (4, None, "open"),
        (5, None, "open"),
    ]
    place.alter("ALTER TABLE orders DROP COLUMN note")
    place.shop.commit("UPDATE orders SET qty = 22 WHERE id = 2", "DELETE FROM orders WHERE id = 3")
    place.shop.commit("ALTER TABLE orders RENAME COLUMN item TO title")
    place.shop.commit("INSERT INTO orders (id, title) VALUES (6, 'six')")
    assert equal(place.run())
    assert place.rows("current", "SELECT id, title FROM orders WHERE id IN (1, 6)") == [(1, "item 1"), (6, "six")]


@pytest.mark.timeout(300)
def test_a_table_that_is_dropped_and_made_again_with_wider_columns_is_followed_without_its_old_rows(place):
    place.shop.insert(1, 2, 3)
    assert equal(place.run())
    place.shop.commit("DROP TABLE orders")
    wider = "id INTEGER PRIMARY KEY, item TEXT, qty TEXT, paid DECIMAL(12,4), extra REAL"
    place.shop.commit(f"CREATE TABLE orders ({wider})")
    place.shop.commit("INSERT INTO orders VALUES (2, 'two', 'a dozen', 1.2345, 0.5), (9, 'nine', '9', 9, NULL)")
    assert equal(place.run())
    found = place.rows("current", "SELECT id, qty, extra FROM orders ORDER BY id")
    assert found == [(2, "a dozen", 0.5), (9, "9", None)]
    versions = "SELECT id, valid_to_offset IS NULL FROM orders ORDER BY id, valid_from_offset"
    assert place.rows("history", versions) == [(1, 0), (2, 0), (2, 1), (3, 0), (9, 1)]
    kinds = [kind for (kind,) in place.rows("append", "SELECT _change_type FROM orders ORDER BY _offset")]
    assert kinds == ["read", "read", "read", "drop", "insert", "insert"]


@pytest.mark.timeout(300)
def test_rows_of_a_table_that_is_dropped_are_kept_or_the_pipeline_stops_until_it_is_altered(place):
    place.create("keeps", Mode.CURRENT, on_drop=OnDrop.KEEP)
    place.create("stops", Mode.CURRENT, on_drop=OnDrop.STOP)
    place.shop.insert(1, 2)
    for name in ("keeps", "stops"):
        place.run_one(name)
    place.shop.commit("DROP TABLE orders")
    place.shop.commit("CREATE TABLE orders (id INTEGER PRIMARY KEY, item TEXT, qty INTEGER, paid REAL)")
    place.shop.commit("INSERT INTO orders (id) VALUES (7)")
    place.run_one("keeps")
    listed = "SELECT id FROM orders ORDER BY id"
    assert place.rows("keeps", listed) == [(1,), (2,), (7,)]
    with pytest.raises(TableDroppedError, match="table orders was dropped at offset"):
        place.run_one("stops")
    assert place.rows("stops", listed) == [(1,), (2,)]
    place.store.alter(altered(place.store.get("stops").definition, on_drop=OnDrop.MIRROR, begun=True))
    place.run_one("stops")
    assert place.rows("stops", listed) == [(7,)]
