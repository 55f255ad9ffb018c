"""Table orders of source shop, from the log of Tailrace."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

from tailrace.pipeline.transform_function import call_function

spark = SparkSession.active()


@dp.temporary_view(name="orders_changes_read")
def read() -> DataFrame:
    """The changes as they are."""
    return (
        spark.readStream.format("tailrace")
        .option("server", "http://127.0.0.1:8080")
        .option("source", "shop")
        .option("tables", "orders")
        .option("layout", "typed")
        .option("start", "earliest")
        .option("preimages", "moved")
        .load()
        .where(
            "assert_true(_change_type NOT IN ('truncate', 'drop'), "
            "'the table was emptied, which AUTO CDC cannot apply: run a full refresh of it') IS NULL"
        )
    )


@dp.table(name="orders_changes")
def changes() -> DataFrame:
    """The changes, transformed."""
    return call_function("shop.rules:totals", spark.readStream.table("orders_changes_read"), "orders")


dp.create_streaming_table("orders")
dp.create_auto_cdc_flow(
    target="orders",
    source="orders_changes",
    keys=["id"],
    sequence_by="_offset",
    apply_as_deletes="_change_type IN ('delete', 'update_preimage')",
    except_column_list=["_change_type", "_commit_version", "_commit_timestamp"],
    stored_as_scd_type=1,
)
