"""What tasks do to Delta tables, file by file."""

import json
from datetime import UTC, date, datetime
from decimal import Decimal

import msgspec
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from sink_changes import ChangingSource
from sink_places import rows_of
from spreading import LocalSpread, SpreadingSink
from tailrace.pipeline.sink.base import Mode
from tailrace.pipeline.sink.delta_file import PartWriter
from tailrace.pipeline.sink.local_storage import LocalStorage
from tailrace.pipeline.sink.spread import SpreadBatch
from tailrace.pipeline.sinks import sink_of


@pytest.fixture
def source():
    return ChangingSource()


def opened(directory, source, mode=Mode.CURRENT):
    sink = SpreadingSink(sink_of(f"delta://{directory}/lake/{{table}}", mode, pipeline="copy"))
    sink.open(source.schemas)
    return sink


def files(directory):
    return set(DeltaTable(directory / "lake" / "orders").file_uris())


def test_only_files_that_hold_a_changed_key_are_written_anew(tmp_path, source):
    orders = source.table()
    sink = opened(tmp_path, source)
    for first in (0, 100, 200):
        for number in range(first, first + 50):
            orders.insert(number, "Ann", 1.0)
        sink.apply(source.batch())
    before = files(tmp_path)
    orders.update(120, total=9.0)
    orders.delete(125)
    orders.insert(500, "new", 5.0)
    sink.apply(source.batch())
    after = files(tmp_path)
    assert len(before - after) < len(before)
    assert len(before & after) >= 2
    assert rows_of(sink, orders.schema) == orders.rows
    metrics = DeltaTable(tmp_path / "lake" / "orders").history(1)[0]
    assert metrics["operation"] == "WRITE"


def test_a_change_that_touches_no_row_writes_no_file_anew(tmp_path, source):
    orders = source.table()
    orders.insert(1, "Ann", 1.0)
    orders.insert(9, "Bob", 1.0)
    sink = opened(tmp_path, source)
    sink.apply(source.batch())
    before = files(tmp_path)
    orders.insert(5, "between", 2.0)
    sink.apply(source.batch())
    assert before < files(tmp_path)
    assert rows_of(sink, orders.schema) == orders.rows


def test_states_that_a_killed_process_left_are_removed_and_those_of_other_pipelines_stay(tmp_path, source):
    orders = source.table()
    orders.insert(1, "Ann", 1.0)
    sink = opened(tmp_path, source)
    sink.apply(source.batch())
    beside = tmp_path / "lake" / "orders" / "_tailrace"
    for name in ("copy.0f1e", "copy.2.0f1e", "other.0f1e"):
        (beside / name).mkdir(parents=True)
        (beside / name / "0-1.parquet").write_bytes(b"half a fi")
    (beside / "copy.json").write_text("of a lake with one table")
    orders.update(1, total=2.0)
    sink.apply(source.batch())
    assert sorted(path.name for path in beside.iterdir()) == ["copy.2.0f1e", "copy.json", "other.0f1e"]
    assert rows_of(sink, orders.schema) == orders.rows


@pytest.mark.parametrize("key", ["id", "photo"])
def test_what_a_merge_of_the_driver_has_written_is_read_by_tasks(tmp_path, source, key):
    columns = (("id", pa.int64()), ("photo", pa.binary()), ("note", pa.string()), ("kept", pa.string()))
    orders = source.table("orders", columns, (key,))
    for number in range(4):
        orders.insert(number, bytes([255, 0, number]), "first", "before")
    tasks = opened(tmp_path, source)
    driver = tasks._sink
    driver.apply(source.batch())
    keys = list(orders.rows)
    orders.update(keys[0], note="merged")
    driver.apply(source.batch())
    orders.alter(drop=["kept"])
    orders.update(keys[0], note="by tasks")
    orders.delete(keys[1])
    tasks.apply(source.batch())
    found = {row["id"]: row for row in DeltaTable(tmp_path / "lake" / "orders").to_pyarrow_table().to_pylist()}
    assert {number: (row["note"], row["kept"]) for number, row in found.items()} == {
        0: ("by tasks", "before"),
        2: ("first", "before"),
        3: ("first", "before"),
    }


def test_a_table_that_somebody_made_is_used_as_it_is(tmp_path, source):
    place = tmp_path / "lake" / "orders"
    for ids in ([7, 1, 4], [5, 2, 9]):
        rows = pa.table({"total": [1.5] * 3, "id": ids, "customer": ["old"] * 3, "extra": ["kept"] * 3})
        write_deltalake(place, rows, mode="append")
    orders = source.table()
    for number in (1, 2):
        orders.insert(number, "old", 1.5)
    source.batch()
    orders.update(1, customer="new")
    orders.delete(2)
    orders.insert(3, "new", 3.0)
    sink = opened(tmp_path, source)
    sink.apply(source.batch())
    found = {row["id"]: row for row in DeltaTable(place).to_pyarrow_table().to_pylist()}
    assert sorted(found) == [1, 3, 4, 5, 7, 9]
    assert (found[1]["customer"], found[1]["extra"], found[3]["extra"]) == ("new", "kept", None)
    assert found[7] == {"total": 1.5, "id": 7, "customer": "old", "extra": "kept", "_offset": None}


@pytest.mark.parametrize(
    ("options", "taken"),
    [
        ({}, True),
        ({"partition_by": ["customer"]}, False),
        ({"configuration": {"delta.enableChangeDataFeed": "true"}}, False),
    ],
    ids=["plain", "partitioned", "with a change data feed"],
)
def test_tables_that_ask_more_of_their_writers_are_left_to_the_driver(tmp_path, source, options, taken):
    rows = pa.table({"id": [1], "customer": ["Ann"], "total": [1.0], "_offset": [0]})
    write_deltalake(tmp_path / "lake" / "orders", rows, **options)
    orders = source.table()
    sink = opened(tmp_path, source)
    assert sink.takes_spread(source.schemas) is taken
    orders.insert(2, "Bob", 2.0)
    sink.apply(source.batch())
    assert len(DeltaTable(tmp_path / "lake" / "orders").to_pyarrow_table()) == 2


def test_a_history_is_left_to_the_driver(tmp_path, source):
    source.table()
    assert not opened(tmp_path, source, Mode.HISTORY).takes_spread(source.schemas)


def test_changes_that_the_sink_has_are_not_taken_under_another_number(tmp_path, source):
    orders = source.table()
    orders.insert(1, "Ann", 1.0)
    sink = opened(tmp_path, source, Mode.APPEND)
    first = LocalSpread(source.batch().tables)
    orders.insert(2, "Bob", 1.0)
    second = LocalSpread(source.batch().tables)
    for number, changes in enumerate([first, second, first, second]):
        sink.apply_spread(SpreadBatch("copy", number, "shop", changes, 10))
    assert len(DeltaTable(tmp_path / "lake" / "orders").to_pyarrow_table()) == 2
    assert (sink.applied(), sink.progress().offsets) == (1, {"shop": source.offset})


def test_a_type_that_changes_between_two_tasks_fits_all_files(tmp_path, source):
    orders = source.table("orders", (("id", pa.int64()), ("count", pa.int64())))
    orders.insert(1, 7)
    first = source.batch().tables[0]
    orders.alter(retype={"count": (pa.string(), str)})
    orders.insert(2, "many")
    batch = source.batch()
    both = msgspec.structs.replace(batch, tables=[first, *batch.tables])
    sink = opened(tmp_path, source, Mode.APPEND)
    sink.apply(both)
    found = DeltaTable(tmp_path / "lake" / "orders").to_pyarrow_table().select(["id", "count"]).to_pylist()
    assert sorted(found, key=lambda row: row["id"]) == [{"id": 1, "count": "7"}, {"id": 2, "count": "many"}]


LAST = "\U0010ffff"
TOLD = {
    "whole": (pa.array([3, None, -5]), (-5, 3)),
    "text": (pa.array(["b", "a", None]), ("a", "b")),
    "long text": (pa.array(["a" * 100, "b" * 100, None]), ("a" * 64, "b" * 64 + LAST)),
    "longest text": (pa.array(["a", LAST * 100, None]), ("a", None)),
    "real": (pa.array([1.5, -2.0, None]), (-2.0, 1.5)),
    "endless": (pa.array([1.5, float("inf"), None]), (1.5, None)),
    "not a number": (pa.array([1.5, float("nan"), None]), (None, None)),
    "day": (pa.array([date(2026, 1, 2), None, date(1, 1, 1)]), ("0001-01-01", "2026-01-02")),
    "time": (
        pa.array([datetime(2026, 1, 2, 3, 4, 5, 1500, tzinfo=UTC)] * 3, pa.timestamp("us", "UTC")),
        ("2026-01-02T03:04:05.001Z", "2026-01-02T03:04:05.002Z"),
    ),
    "last time": (pa.array([253402300799999999] * 3).cast(pa.timestamp("us")), ("9999-12-31 23:59:59.999", None)),
    "decimal": (
        pa.array([Decimal("-1.5"), None, Decimal(2)], pa.decimal128(20, 2)),
        (Decimal("-1.50"), Decimal("2.00")),
    ),
    "unsigned": (pa.array([Decimal(2**64 - 1)] * 3, pa.decimal128(20, 0)), (Decimal(2**64 - 1),) * 2),
    "exact": (
        pa.array([Decimal(f"{10**27}.0123456789")] * 3, pa.decimal128(38, 10)),
        (Decimal(f"{10**27}.0123456789"),) * 2,
    ),
    "nothing": (pa.array([None] * 3, pa.string()), (None, None)),
}


def test_statistics_are_bounds_that_no_value_passes(tmp_path):
    table = pa.table({name: column for name, (column, _) in TOLD.items()})
    writer = PartWriter(LocalStorage(tmp_path), table.schema)
    writer.write(table)
    (part,) = writer.close()
    stats = json.loads(part.stats, parse_float=Decimal)
    bounds = {name: (stats["minValues"].get(name), stats["maxValues"].get(name)) for name in TOLD}
    assert bounds == {name: told for name, (_, told) in TOLD.items()}
    assert stats["numRecords"] == 3
    assert stats["nullCount"] == {name: column.null_count for name, (column, _) in TOLD.items()}
