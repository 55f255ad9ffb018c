"""Spark reads the log of a running server: as a batch and as a stream, in this process's Spark."""

import json
from decimal import Decimal

import pytest
from pyspark.errors import PythonException, StreamingQueryException
from pyspark.sql.types import StringType

from sparking import Shop
from tailrace.clock import SystemClock

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def shop(tmp_path):
    shop = Shop(tmp_path)
    yield shop
    shop.close()


@pytest.fixture(scope="module")
def stocked(tmp_path_factory):
    """Give a shop with seven changes in four commits, for tests that only read."""
    shop = Shop(tmp_path_factory.mktemp("stocked"))
    shop.insert(1, 2, 3)
    shop.settle(3)
    shop.commit("UPDATE orders SET qty = 9 WHERE id = 2", "DELETE FROM orders WHERE id = 1")
    shop.settle(5)
    shop.commit("INSERT INTO notes VALUES ('hi')")
    shop.settle(6)
    shop.commit("INSERT INTO orders VALUES (7, 'pen', 'a dozen', 3)")
    shop.settle(7)
    yield shop
    shop.close()


@pytest.fixture
def read(spark, stocked):
    """Read a batch."""

    def load(**options):
        reader = spark.read.format("tailrace").option("server", stocked.server.url).option("source", "shop")
        return reader.options(**options).load()

    return load


class Query:
    """Runs a stream to the head, again and again, over one checkpoint, and keeps what each batch held."""

    def __init__(self, spark, shop, checkpoint):
        self.spark, self.shop, self.checkpoint = spark, shop, checkpoint
        self.batches = []

    def drain(self, **options):
        """Read all that is there; return the batches of this run."""
        reader = self.spark.readStream.format("tailrace").option("server", self.shop.server.url)
        stream = reader.option("source", "shop").options(**options).load()
        before = len(self.batches)

        def take(frame, _number):
            self.batches.append([row.asDict() for row in frame.collect()])

        query = (
            stream.writeStream.foreachBatch(take)
            .option("checkpointLocation", str(self.checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return self.batches[before:]


@pytest.fixture
def query(spark, shop, tmp_path):
    return Query(spark, shop, tmp_path / "checkpoint")


def offsets(rows):
    return [row["_offset"] for row in rows]


def test_a_batch_holds_the_rows_of_a_table_typed_in_sparks_change_format(read):
    frame = read(tables="orders", end="6")
    assert dict(frame.dtypes) == {
        "_change_type": "string",
        "_offset": "bigint",
        "_commit_version": "bigint",
        "_commit_timestamp": "timestamp",
        "id": "bigint",
        "item": "string",
        "qty": "bigint",
        "paid": "string",
    }
    rows = frame.orderBy("_offset", "_change_type").collect()
    assert [(row._change_type, row._offset, row._commit_version, row.id, row.qty) for row in rows] == [
        ("insert", 1, 1, 1, 1),
        ("insert", 2, 1, 2, 2),
        ("insert", 3, 1, 3, 3),
        ("update_postimage", 4, 2, 2, 9),
        ("update_preimage", 4, 2, 2, 2),
        ("delete", 5, 2, 1, 1),
    ]
    assert (rows[0].item, Decimal(rows[0].paid)) == ("item 1", Decimal("1.25"))
    now_s = SystemClock().now_us() / 1e6
    assert 0 <= now_s - rows[0]._commit_timestamp.timestamp() < 3600 * 24


def test_a_batch_is_read_by_several_tasks_cut_between_commits(read):
    frame = read(tables="orders", partitionChanges="4", columns="id", end="6")
    parts = [[row._offset for row in part] for part in frame.rdd.glom().collect()]
    assert parts == [[1, 2, 3], [4, 4, 5]]


@pytest.mark.parametrize("pushing", ["true", "false"])
def test_filters_give_the_same_whether_spark_hands_them_down_or_not(spark, read, pushing):
    spark.conf.set("spark.sql.python.filterPushdown.enabled", pushing)
    try:
        frame = read(tables="orders", end="6").where(
            "_offset > 1 AND id IN (2, 3) AND _change_type <> 'update_preimage'"
        )
        assert [(row._offset, row.qty) for row in frame.orderBy("_offset").collect()] == [(2, 2), (3, 3), (4, 9)]
    finally:
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")


@pytest.mark.parametrize(
    "where",
    [
        "_table = 'notes'",
        "_table IN ('orders', 'nothing') AND _offset >= 4 AND NOT _change_type = 'update_preimage'",
        "_table = 'nothing'",
        "_offset IN (2, 6) AND _commit_timestamp > timestamp'2026-01-01' AND _key LIKE '[%'",
        "_commit_version < 3 AND _txid IS NOT NULL AND _commit_timestamp < timestamp'2026-01-01'",
    ],
)
def test_conditions_on_tables_and_commits_give_the_same_when_they_are_handed_down(spark, read, where):
    frame = read().where(where)
    handed_down = sorted(frame.collect())
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "false")
    try:
        assert sorted(read().where(where).collect()) == handed_down
    finally:
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")


def test_rows_before_updates_that_keep_their_key_may_be_left_out(shop, spark):
    shop.insert(1, 2)
    shop.settle(2)
    shop.commit("UPDATE orders SET qty = 9 WHERE id = 1", "UPDATE orders SET id = 3 WHERE id = 2")
    shop.settle(5)  # SQLite tells a key that changes as a row that goes and one that comes
    reader = spark.read.format("tailrace").option("server", shop.server.url).option("source", "shop")
    frame = reader.option("tables", "orders").option("preimages", "moved").option("start", "2").load()
    rows = frame.select("_change_type", "id").collect()
    assert [tuple(row) for row in rows] == [("update_postimage", 1), ("delete", 2), ("insert", 3)]


def test_several_tables_come_as_json_or_as_whole_changes(read):
    rows = read(start="5").orderBy("_offset").collect()
    assert [(row._table, row._change_type) for row in rows] == [("notes", "insert"), ("orders", "insert")]
    assert json.loads(rows[1]._row) == {"id": 7, "item": "pen", "qty": "a dozen", "paid": 3}
    (change,) = read(layout="envelope", tables="notes").collect()
    assert (change._change_type, change._before, json.loads(change._after)) == ("insert", None, {"text": "hi"})


def test_a_table_without_a_key_shows_its_row_number(read):
    assert read(tables="notes").select("rowid", "text").collect() == [(1, "hi")]


def test_a_value_that_does_not_fit_is_named_and_may_be_read_as_text(read):
    with pytest.raises(PythonException, match=r"column 'qty' in the row with key \[7\] of table orders"):
        read(tables="orders", start="6").collect()
    frame = read(tables="orders", start="6", stringColumns="qty")
    assert isinstance(frame.schema["qty"].dataType, StringType)
    assert frame.first().qty == "a dozen"


def test_a_schema_of_ones_own_chooses_columns(spark, stocked):
    reader = spark.read.format("tailrace").option("server", stocked.server.url).option("source", "shop")
    reader = reader.option("tables", "orders").option("end", "1")
    assert reader.schema("item string, to_come double, _offset bigint").load().collect() == [("item 1", None, 1)]


def test_files_are_read_in_place_of_a_server(spark, stocked):
    reader = spark.read.format("tailrace").option("log_dir", str(stocked.directory / "data")).option("source", "shop")
    assert reader.option("tables", "notes").load().count() == 1


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"tables": "nothing"}, "table shop.nothing not found"),
        ({"source": "nowhere"}, "nowhere"),
        ({"tabels": "orders"}, "unknown option 'tabels'"),
        ({"tables": "orders", "columns": "nmae"}, "has no column 'nmae'"),
    ],
)
def test_a_wrong_option_is_told_when_the_frame_is_made(read, options, says):
    with pytest.raises(Exception, match=says):
        read(**options)


def test_a_stream_holds_whole_commits_in_rising_order_and_goes_on_where_it_ended(shop, query):
    for key in range(0, 12, 3):
        shop.insert(key, key + 1, key + 2)
        shop.settle(key + 3)  # commits that are read together may be one in the log
    first = query.drain(tables="orders", maxChangesPerTrigger="7")
    assert [offsets(batch) for batch in first] == [list(range(1, 7)), list(range(7, 13))]
    assert query.drain(tables="orders") == []
    shop.insert(50)
    shop.settle(13)
    assert [offsets(batch) for batch in query.drain(tables="orders")] == [[13]]
    commits = [row["_commit_version"] for batch in query.batches for row in batch]
    assert commits == sorted(commits)


def test_a_stream_acknowledges_one_subscription_over_all_its_runs(shop, query):
    shop.insert(1, 2)
    shop.settle(2)
    query.drain(tables="orders")
    (made,) = shop.server.call("cdc.list", {})["subscriptions"]
    shop.insert(3)
    shop.settle(3)
    query.drain(tables="orders")
    (kept,) = shop.server.call("cdc.list", {})["subscriptions"]
    assert (kept["sub_id"], kept["table"], kept["acked_offset"]) == (made["sub_id"], "orders", 3)
    assert kept["backpressure"]["lag"] == 0


def test_a_stream_over_an_empty_log_has_its_place_and_its_subscription(shop, query):
    assert query.drain(tables="orders") == [[]]
    (made,) = shop.server.call("cdc.list", {})["subscriptions"]
    shop.insert(1)
    shop.settle(1)
    assert [offsets(batch) for batch in query.drain(tables="orders")] == [[1]]
    (kept,) = shop.server.call("cdc.list", {})["subscriptions"]
    assert (kept["sub_id"], kept["acked_offset"]) == (made["sub_id"], 1)


def test_a_schema_change_in_the_middle_of_a_stream_does_not_end_it(shop, query):
    shop.insert(1)
    shop.settle(1)
    assert [row["item"] for row in query.drain(tables="orders")[0]] == ["item 1"]
    shop.commit("ALTER TABLE orders ADD COLUMN colour TEXT")
    shop.settle(2)  # a new version is known before its change can be read
    shop.commit("INSERT INTO orders VALUES (2, 'item 2', 2, 2, 'red')")
    shop.settle(3)
    (batch,) = query.drain(tables="orders", columns="id,colour,item")
    assert [(row["id"], row["colour"], row["item"]) for row in batch] == [(2, "red", "item 2")]


def test_a_stream_that_retention_has_overtaken_ends_with_a_typed_error(shop, query):
    shop.insert(1)
    shop.settle(1)
    query.drain(tables="orders")
    shop.insert(*range(2, 40))
    shop.settle(39)
    shop.server.stop()
    shop.start(events="10")
    with pytest.raises(StreamingQueryException, match=r"BehindHorizonError.*change 2 .*the oldest is"):
        query.drain(tables="orders")
