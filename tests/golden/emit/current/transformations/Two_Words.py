"""Table Two Words of source shop, from the log of Tailrace."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

spark = SparkSession.active()


@dp.table(name="`Two Words_changes`")
def changes() -> DataFrame:
    """The changes of the table."""
    return (
        spark.readStream.format("tailrace")
        .option("server", "http://127.0.0.1:8080")
        .option("source", "shop")
        .option("tables", '["Two Words"]')
        .option("layout", "typed")
        .option("start", "earliest")
        .option("preimages", "moved")
        .load()
        .where(
            "assert_true(_change_type NOT IN ('truncate', 'drop'), "
            "'the table was emptied, which AUTO CDC cannot apply: run a full refresh of it') IS NULL"
        )
    )


dp.create_streaming_table("`Two Words`")
dp.create_auto_cdc_flow(
    target="`Two Words`",
    source="`Two Words_changes`",
    keys=["rowid"],
    sequence_by="_offset",
    apply_as_deletes="_change_type IN ('delete', 'update_preimage')",
    except_column_list=["_change_type", "_commit_version", "_commit_timestamp"],
    stored_as_scd_type=1,
)
