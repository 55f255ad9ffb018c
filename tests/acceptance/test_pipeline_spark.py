"""Facts about pipelines that follow the log with Spark, in one session."""

import pytest

from pipelines import PipelinePlace
from serving import wait_until
from tailrace.meta.pipeline import Stage
from tailrace.pipeline import batch_writer
from tailrace.pipeline.errors import PipelineFailedError, TransformError
from tailrace.pipeline.job import Watcher
from tailrace.pipeline.sink.base import Mode

pytest.importorskip("pyspark")

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def place(tmp_path, spark):
    made = PipelinePlace(tmp_path, spark)
    yield made
    made.close()


def test_changes_follow_the_copy_and_a_reset_copies_again(place):
    place.shop.insert(*range(1, 20))
    place.create()
    place.run(distributed=True)
    place.shop.commit("UPDATE orders SET qty = 99 WHERE id < 4", "DELETE FROM orders WHERE id = 9")
    place.shop.commit("UPDATE orders SET id = 700 WHERE id = 12", "ALTER TABLE orders ADD COLUMN note TEXT")
    place.shop.commit("UPDATE orders SET note = 'new' WHERE id = 700")
    place.run()
    assert place.verify().equal
    assert place.rows("SELECT qty, note FROM orders WHERE id IN (3, 9, 12, 700) ORDER BY id") == [
        (99, None),
        (12, "new"),
    ]
    place.run()
    place.shop.commit("INSERT INTO orders (id) VALUES (30)")
    place.job().reset("p", Watcher(), lambda: False)
    place.shop.commit("DELETE FROM orders WHERE id = 1")
    comparing = Comparing()
    place.run(watcher=comparing)
    assert place.verify().equal
    assert place.rows("SELECT count(*) FROM orders") == [(18,)]
    assert len(comparing.reasons) == 1
    place.shop.commit("INSERT INTO orders (id) VALUES (31)")
    place.run(watcher=comparing)
    assert len(comparing.reasons) == 1, "once is enough"


class Comparing(Watcher):
    """Notes whether source and sink were compared."""

    def __init__(self):
        self.reasons = []

    def comparing(self, reason):
        self.reasons.append(reason)


def test_a_pipeline_made_again_under_its_name_begins_again(place):
    place.shop.insert(1)
    place.create(mode=Mode.APPEND)
    place.run()
    place.shop.insert(2)
    place.run()
    place.job().remove("p", Watcher(), lambda: False)
    (place.directory / "p.db").unlink()
    place.shop.insert(3)
    place.create(mode=Mode.APPEND)
    place.run()
    place.shop.insert(4)
    place.run()
    changes = [("read", 1), ("read", 2), ("read", 3), ("insert", 4)]
    assert place.rows("SELECT _change_type, id FROM orders ORDER BY _offset, id") == changes


def test_a_transformation_is_applied_to_rows_and_changes_alike(place):
    place.shop.insert(1, 2, 3, 4)
    place.create(tables=("orders",), transform="SELECT *, qty * 2 AS twice FROM changes WHERE qty % 2 = 0")
    place.run()
    place.shop.insert(5, 6)
    place.shop.commit("UPDATE orders SET qty = 7 WHERE id = 2", "UPDATE orders SET qty = 8 WHERE id = 3")
    place.run()
    assert place.rows("SELECT id, twice FROM orders ORDER BY id") == [(3, 16), (4, 8), (6, 12)]
    assert place.verify().equal
    place.create("bad", transform="SELECT id FROM changes")
    with pytest.raises(TransformError, match="_change_type"):
        place.run("bad")
    place.create("worse", transform="SELEKT")
    with pytest.raises(TransformError):
        place.run("worse")
    assert "_change_type" in place.store.get("bad").figures.problem


def test_a_transformation_sees_the_rows_of_one_table_alone(place):
    place.shop.commit("CREATE TABLE people (id INTEGER PRIMARY KEY, name TEXT)", "INSERT INTO people VALUES (1, 'Ann')")
    wait_until(lambda: len(place.shop.info()["tables"]) == 3, "the table known")
    place.shop.insert(1, 2)
    place.create(tables=("orders", "people"), transform="SELECT * FROM orders")
    with pytest.raises(TransformError, match=r"of table people.*TABLE_OR_VIEW_NOT_FOUND"):
        place.run()


def test_a_transformation_that_fails_on_a_row_is_told_without_its_values(place):
    place.shop.insert(1)
    place.create(transform="SELECT *, CAST(item AS INT) AS number FROM changes")
    with pytest.raises(TransformError, match=r"of table orders.*CAST_INVALID_INPUT, in CAST\(item AS INT\)") as failed:
        place.run()
    assert "item 1" not in str(failed.value) + place.store.get("p").figures.problem
    place.create("offset", transform="SELECT * EXCEPT (_offset), item AS _offset FROM changes")
    with pytest.raises(TransformError, match="leave them unchanged"):
        place.run("offset")


def test_an_empty_table_is_transformed_and_verified(place):
    place.create(transform="SELECT *, qty * 2 AS twice FROM changes")
    place.run()
    assert place.verify().equal


def test_appended_changes_are_there_once_each_after_the_rows(place):
    place.shop.insert(1, 2)
    place.create(mode=Mode.APPEND, tables=("orders", "notes"))
    place.run()
    place.shop.commit("UPDATE orders SET qty = 7 WHERE id = 2", "INSERT INTO notes VALUES ('hello')")
    place.run()
    place.run()
    assert place.rows("SELECT _change_type, id FROM orders ORDER BY _offset, _change_type DESC") == [
        ("read", 1),
        ("read", 2),
        ("update_preimage", 2),
        ("update_postimage", 2),
    ]
    assert place.rows("SELECT _change_type, text FROM notes") == [("insert", "hello")]


def test_a_table_that_is_dropped_does_not_keep_the_others_from_being_followed(place):
    place.shop.insert(1, 2)
    place.create(tables=("orders", "notes"))
    place.run()
    place.shop.commit("INSERT INTO notes VALUES ('hello')", "DELETE FROM orders WHERE id = 1")
    place.shop.commit("DROP TABLE orders")
    wait_until(lambda: place.shop.info()["head"] >= 4, "the changes captured")
    place.run()
    assert place.rows("SELECT id FROM orders") == []  # they went with the table
    assert place.rows("SELECT text FROM notes") == [("hello",)]


def test_changes_come_in_batches_that_are_not_too_large_for_the_driver(place, monkeypatch):
    monkeypatch.setattr(batch_writer, "_BYTES_MAX", 1 << 20)
    place.create(mode=Mode.APPEND)
    place.run()
    for number in range(1, 41):
        place.shop.commit(f"INSERT INTO orders VALUES ({number}, '{'long' * 25_000}', 1, 1)")
        place.shop.settle(number)  # what is appended to the log at once is not cut by its bytes
    place.run()
    batches = place.rows("SELECT count(*) FROM _tailrace_batches")[0][0]
    assert 4 <= batches < 40
    assert place.rows("SELECT count(DISTINCT id), count(*) FROM orders") == [(40, 40)]


@pytest.mark.parametrize("mode", [Mode.CURRENT, Mode.HISTORY])
def test_what_differs_is_copied_anew_where_retention_removed_changes(place, mode):
    place.shop.server.stop()
    place.shop.start(events="10")
    place.shop.insert(1, 2, 3)
    place.create(mode=mode)
    place.run()
    place.shop.commit("UPDATE orders SET qty = 9 WHERE id = 2", "DELETE FROM orders WHERE id = 1")
    place.lose_changes()
    place.run()
    assert place.verify().equal
    still = " WHERE valid_to_offset IS NULL" if mode is Mode.HISTORY else ""
    assert place.rows(f"SELECT count(*), min(id) FROM orders{still}") == [(39, 2)]
    assert place.rows(f"SELECT qty FROM orders{still}{' AND' if still else ' WHERE'} id = 2") == [(9,)]
    place.shop.commit("UPDATE orders SET qty = 10 WHERE id = 2")
    place.run()
    assert place.verify().equal
    assert place.rows(f"SELECT qty FROM orders{still}{' AND' if still else ' WHERE'} id = 2") == [(10,)]


def test_a_table_that_was_empty_is_copied_where_retention_removed_its_changes(place):
    place.shop.server.stop()
    place.shop.start(events="10")
    place.create()
    place.run()
    place.lose_changes()
    place.run()
    assert place.verify().equal
    assert place.rows("SELECT count(*) FROM orders") == [(37,)]


def test_appended_changes_that_retention_removed_are_told_and_reset_copies_anew(place):
    place.shop.server.stop()
    place.shop.start(events="10")
    place.shop.insert(1)
    place.create(mode=Mode.APPEND)
    place.run()
    place.lose_changes()
    for _ in range(2):
        with pytest.raises(PipelineFailedError, match=r"no longer in the log.*pipeline reset p"):
            place.run()
    assert {one.stage for one in place.store.progress("p")} == {Stage.FAILED}
    place.shop.commit("DELETE FROM orders WHERE id = 1")
    place.job().reset("p", Watcher(), lambda: False)
    place.run()
    assert place.verify().equal
