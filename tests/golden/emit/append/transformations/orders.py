"""Table orders of source shop, from the log of Tailrace."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

spark = SparkSession.active()


@dp.table(name="orders")
def changes() -> DataFrame:
    """The changes of the table."""
    return (
        spark.readStream.format("tailrace")
        .option("server", "http://127.0.0.1:8080")
        .option("source", "shop")
        .option("tables", "orders")
        .option("layout", "typed")
        .option("start", "earliest")
        .load()
    )
