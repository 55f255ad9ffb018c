"""A pipeline into a catalog of the Spark that runs it. That one cannot merge: what merging does is shown elsewhere."""

from pathlib import Path

import pytest

from pipelines import PipelinePlace
from serving import wait_until
from tailrace.model.errors import SinkRefusedError
from tailrace.pipeline.sink.base import Mode

pytestmark = pytest.mark.timeout(300)

STATEMENTS = sorted(Path(__file__).parents[1].joinpath("golden", "catalog").glob("*.sql"))


@pytest.fixture
def place(tmp_path, spark):
    made = PipelinePlace(tmp_path, spark)
    spark.sql(f"CREATE DATABASE copied LOCATION '{tmp_path / 'warehouse'}'")
    yield made
    spark.sql("DROP DATABASE copied CASCADE")
    made.close()


def test_changes_are_appended_to_a_table_of_the_session_once_each(place):
    place.shop.insert(1, 2)
    place.create(sink="catalog:spark_catalog.copied.{table}?using=parquet", mode=Mode.APPEND)
    place.run()
    place.shop.commit("UPDATE orders SET qty = 7 WHERE id = 2", "DELETE FROM orders WHERE id = 1")
    place.run()
    place.shop.commit("ALTER TABLE orders ADD COLUMN note TEXT")
    wait_until(lambda: 2 in [len(one["versions"]) for one in place.shop.info()["tables"]], "the new column captured")
    place.shop.commit("INSERT INTO orders VALUES (3, 'item 3', 3, 3.25, 'new')")
    place.run()
    rows = place.spark.sql("SELECT _change_type, id, qty, note FROM copied.orders ORDER BY _offset, id, qty").collect()
    assert [tuple(row) for row in rows] == [
        ("read", 1, 1, None),
        ("read", 2, 2, None),
        ("update_preimage", 2, 2, None),
        ("update_postimage", 2, 7, None),
        ("delete", 1, 1, None),
        ("insert", 3, 3, "new"),
    ]
    assert place.verify().equal
    numbers = place.spark.sql("SELECT number FROM copied._tailrace_batches ORDER BY number").collect()
    assert [number for (number,) in numbers] == list(range(len(numbers)))


def test_a_table_that_cannot_be_merged_into_is_told_and_nothing_is_lost(place):
    place.shop.insert(1)
    place.create(sink="catalog:spark_catalog.copied.{table}?using=parquet")
    with pytest.raises(SinkRefusedError, match="needs a format that can, such as delta or iceberg"):
        place.run()
    assert place.spark.sql("SELECT * FROM copied.orders").collect() == []


def test_this_spark_takes_the_words_of_each_statement(spark):
    assert STATEMENTS
    for path in STATEMENTS:
        spark.sql(f"EXPLAIN {path.read_text()}").collect()  # only what cannot be read raises: the tables are missing
