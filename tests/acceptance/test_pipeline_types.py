"""Types that are declared for columns, in sinks, in messages of files and in the Spark source."""

import datetime as dt
from decimal import Decimal

import pytest

from pipelines import PipelinePlace
from serving import wait_until
from tailrace.pipeline.sink.base import Mode
from tailrace.pipeline.typed import MisfitError

pytest.importorskip("pyspark")

pytestmark = pytest.mark.timeout(300)

TYPES = {
    "bills.paid": "boolean",
    "bills.total": "decimal(12,2)",
    "bills.day": "date",
    "bills.at": "timestamp",
    "bills.price": "decimal(6,3)",
}


@pytest.fixture
def place(tmp_path, spark):
    made = PipelinePlace(tmp_path, spark)
    made.shop.commit(
        "CREATE TABLE bills "
        "(id INTEGER PRIMARY KEY, paid BOOLEAN, total DECIMAL(12,2), day DATE, at DATETIME, price REAL)"
    )
    wait_until(lambda: len(made.shop.info()["tables"]) == 3, "the table known")
    yield made
    made.close()


def insert(place, key, total="19.9", paid="1"):
    place.shop.commit(
        f"INSERT INTO bills VALUES ({key}, {paid}, {total}, '2026-01-0{key}', '2026-01-0{key} 10:00:00', {key}.125)"
    )


def rows_of(key, paid=True, total="19.90"):
    at = dt.datetime(2026, 1, key, 10, tzinfo=dt.UTC)
    return (key, paid, Decimal(total), dt.date(2026, 1, key), at, Decimal(f"{key}.125"))


def delta_rows(place):
    from deltalake import DeltaTable

    table = DeltaTable(str(place.directory / "lake" / "bills")).to_pyarrow_table().sort_by("id")
    return [tuple(row[name] for name in ("id", "paid", "total", "day", "at", "price")) for row in table.to_pylist()]


@pytest.mark.parametrize("mode", [Mode.CURRENT, Mode.HISTORY])
def test_copied_rows_and_changes_have_the_declared_types_and_are_verified(place, mode):
    insert(place, 1)
    insert(place, 2)
    sink = f"delta://{place.directory}/lake/{{table}}"
    place.create(tables=("bills",), sink=sink, types=TYPES, mode=mode)
    place.run()
    insert(place, 3, total="7", paid="'false'")
    place.shop.commit("DELETE FROM bills WHERE id = 2")
    place.run()
    expected = [rows_of(1), rows_of(3, paid=False, total="7.00")]
    found = delta_rows(place)
    assert [row for row in found if row[0] != 2] == expected
    assert place.verify().equal


def test_a_value_that_does_not_fit_ends_the_run_and_another_type_takes_it(place):
    insert(place, 1)
    place.create(tables=("bills",), types=TYPES)
    place.run()
    insert(place, 2, total="'a lot'")
    with pytest.raises(MisfitError, match=r"'total' in the row with key \[2\] of table bills is no decimal128"):
        place.run()
    assert "'total'" in place.store.get("p").figures.problem
    assert place.rows("SELECT count(*) FROM bills") == [(1,)]
    place.create("text", tables=("bills",), types={**TYPES, "bills.total": "string", "bills.price": "string"})
    place.run("text")
    insert(place, 3)
    place.run("text")
    found = place.rows("SELECT total, price FROM bills ORDER BY id", "text")
    assert found == [("19.9", "1.125"), ("a lot", "2.125"), ("19.9", "3.125")]
    assert place.verify("text").equal


def test_a_transformation_sees_declared_types(place):
    insert(place, 1)
    place.create(
        tables=("bills",), types=TYPES, transform="SELECT *, total * 2 AS twice, year(day) AS y FROM changes WHERE paid"
    )
    place.run()
    insert(place, 2)
    place.run()
    assert place.rows("SELECT id, twice, y FROM bills ORDER BY id") == [(1, "39.80", 2026), (2, "39.80", 2026)]
    assert place.verify().equal


def test_the_spark_source_has_declared_types(place):
    insert(place, 1)
    place.shop.settle(2)
    types = "total decimal(12,2), paid boolean, at timestamp"
    reader = place.spark.read.format("tailrace").option("server", place.shop.server.url).option("source", "shop")
    frame = reader.option("tables", "bills").option("types", types).load()
    assert dict(frame.dtypes) | {"total": "decimal(12,2)", "paid": "boolean", "at": "timestamp"} == dict(frame.dtypes)
    (row,) = frame.where("paid AND total = 19.9").select("total", "day").collect()
    assert (row.total, row.day) == (Decimal("19.90"), "2026-01-01")
