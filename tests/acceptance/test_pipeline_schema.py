"""Tables whose columns change while a pipeline follows them, in every mode, from the source to the sink."""

import sqlite3

import pytest

from sparking import Shop
from tailrace.clock import SystemClock
from tailrace.pipeline.copy import CopyOptions
from tailrace.pipeline.definition import Definition
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
            sink = f"sqlite:///{directory / mode}.db"
            made = Definition(
                name=mode, source="shop", tables=("orders",), sink=sink, mode=mode, server=self.shop.server.url
            )
            self.store.create(made)

    def run(self):
        """Let all pipelines catch up; return how what they have compares with the source, by mode."""
        for mode in Mode:
            self.job().run(mode, once=True, wait=False, watcher=Watcher(), stopped=lambda: False)
        return self.verify()

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
def test_a_table_that_is_made_again_with_wider_columns_is_followed_and_what_it_lost_is_told_and_mended(place):
    place.shop.insert(1, 2, 3)
    assert equal(place.run())
    place.shop.commit("DROP TABLE orders")
    wider = "id INTEGER PRIMARY KEY, item TEXT, qty TEXT, paid DECIMAL(12,4), extra REAL"
    place.shop.commit(f"CREATE TABLE orders ({wider})")
    place.shop.commit("INSERT INTO orders VALUES (2, 'two', 'a dozen', 1.2345, 0.5), (9, 'nine', '9', 9, NULL)")
    for verdict in place.run().values():
        assert verdict.tables[0].keys == [("[1]", "extra"), ("[3]", "extra")]
    assert equal(place.verify(repair=True))
    found = place.rows("current", "SELECT id, qty, extra FROM orders ORDER BY id")
    assert found == [(2, "a dozen", 0.5), (9, "9", None)]
    assert place.rows("history", "SELECT count(*) FROM orders WHERE valid_to_offset IS NULL") == [(2,)]
