"""Tables of a lake that are maintained, and tables that are made with partitions and properties."""

import os
import time

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError
from deltalake.table import TableOptimizer

from sink_changes import ChangingSource
from sink_places import rows_of
from tailrace.model.errors import SinkRefusedError
from tailrace.pipeline.sink.base import Mode
from tailrace.pipeline.sink.upkeep import TableLayout, UpkeepOptions
from tailrace.pipeline.sinks import sink_of

pytest.importorskip("pyiceberg")

MODES = [Mode.CURRENT, Mode.HISTORY, Mode.APPEND]


@pytest.fixture
def source():
    return ChangingSource()


def opened(directory, source, mode=Mode.CURRENT, layout=None):
    sink = sink_of(f"delta://{directory}/lake/{{table}}", mode, pipeline="copy")
    if layout is not None:
        sink.traits.lay_out(layout)
    sink.open(source.schemas)
    return sink


def trade(source, sink, batches=8):
    orders = source.table()
    for number in range(batches):
        orders.insert(number, f"c{number % 3}", number + 0.5)
        if number > 1:
            orders.update(number - 1, total=99.5)
        sink.apply(source.batch())
    return orders


def age(directory, seconds):
    """Let all files of a table be older."""
    for path in directory.rglob("*.parquet"):
        os.utime(path, times=(time.time() - seconds,) * 2)


@pytest.mark.parametrize("mode", MODES)
def test_small_files_are_put_together_and_rows_and_progress_stay(tmp_path, source, mode):
    sink = opened(tmp_path, source, mode)
    orders = trade(source, sink)
    before = sink.progress()
    (done,) = sink.traits.upkeep(source.schemas, UpkeepOptions())
    assert (done.files, done.files_before > 1, done.removed, done.skipped) == (1, True, 0, "")
    assert rows_of(sink, orders.schema) == orders.rows
    orders.update(0, total=7.0)
    sink.apply(source.batch())
    assert rows_of(sink, orders.schema) == orders.rows
    again = opened(tmp_path, source, mode)
    assert again.progress().number == before.number + 1


def test_files_that_nobody_used_for_the_retention_are_removed_and_no_others(tmp_path, source):
    sink = opened(tmp_path, source)
    orders = trade(source, sink)
    table = tmp_path / "lake" / "orders"
    (table / "orphan.parquet").write_bytes(b"left by a task")
    sink.traits.upkeep(source.schemas, UpkeepOptions())
    assert (table / "orphan.parquet").exists()
    age(table, 3 * 3600)
    (done,) = sink.traits.upkeep(source.schemas, UpkeepOptions(retention_s=2 * 3600))
    assert done.removed >= 1
    assert not (table / "orphan.parquet").exists()
    assert rows_of(sink, orders.schema) == orders.rows


def test_rows_can_be_put_in_order_and_a_column_that_is_not_there_is_named(tmp_path, source):
    sink = opened(tmp_path, source)
    orders = trade(source, sink)
    sink.traits.upkeep(source.schemas, UpkeepOptions(z_order=("orders.customer", "other.x")))
    assert rows_of(sink, orders.schema) == orders.rows
    with pytest.raises(SinkRefusedError, match="no column 'nowhere'"):
        sink.traits.upkeep(source.schemas, UpkeepOptions(z_order=("orders.nowhere",)))


def test_a_table_that_others_commit_to_is_tried_again_and_then_skipped(tmp_path, source, monkeypatch):
    sink = opened(tmp_path, source)
    orders = trade(source, sink)
    compact, tries = TableOptimizer.compact, []

    def disturbed(self, **options):
        tries.append(1)
        if len(tries) not in (3, 7):
            raise CommitFailedError("another commit was first")
        return compact(self, **options)

    monkeypatch.setattr(TableOptimizer, "compact", disturbed)
    (done,) = sink.traits.upkeep(source.schemas, UpkeepOptions())
    assert (done.skipped, done.files, len(tries)) == ("", 1, 3)
    (skipped,) = sink.traits.upkeep(source.schemas, UpkeepOptions())
    assert ("others committed" in skipped.skipped, len(tries)) == (True, 6)
    assert rows_of(sink, orders.schema) == orders.rows


@pytest.mark.parametrize("mode", MODES)
def test_a_partitioned_table_follows_its_source(tmp_path, source, mode):
    properties = {"delta.logRetentionDuration": "interval 30 days", "delta.appendOnly": "false"}
    sink = opened(tmp_path, source, mode, TableLayout(("orders.customer",), properties))
    orders = trade(source, sink)
    assert not sink.traits.spread.takes_spread(source.schemas)
    orders.update(3, customer="elsewhere")
    orders.delete(4)
    sink.apply(source.batch())
    assert rows_of(sink, orders.schema) == orders.rows
    orders.alter(add=[("note", pa.string())], retype=[("total", (pa.string(), str))])
    orders.update(5, note="new")
    sink.apply(source.batch())
    assert rows_of(sink, orders.schema) == {key: {"note": None, **row} for key, row in orders.rows.items()}
    table = DeltaTable(tmp_path / "lake" / "orders")
    assert table.metadata().partition_columns == ["customer"]
    assert table.metadata().configuration == properties
    sink.traits.upkeep(source.schemas, UpkeepOptions())
    orders.truncate()
    orders.insert(50, "last", "1")
    sink.apply(source.batch())
    assert rows_of(sink, orders.schema) == orders.rows


def test_a_table_cannot_be_partitioned_by_a_column_that_it_lacks(tmp_path, source):
    sink = opened(tmp_path, source, layout=TableLayout(("orders.nowhere",)))
    with pytest.raises(SinkRefusedError, match="no column 'nowhere' to partition the table by"):
        trade(source, sink, 1)


def test_old_snapshots_of_iceberg_tables_are_removed(tmp_path, source):
    sink = sink_of(f"iceberg://{tmp_path}/lake", Mode.CURRENT, pipeline="copy")
    sink.open(source.schemas)
    orders = trade(source, sink, 4)
    assert sink.traits.upkeep(source.schemas, UpkeepOptions())[0].removed == 0
    (done,) = sink.traits.upkeep(source.schemas, UpkeepOptions(retention_s=0.0))
    assert done.removed >= 3
    assert rows_of(sink, orders.schema) == orders.rows
    orders.delete(1)
    sink.apply(source.batch())
    assert rows_of(sink, orders.schema) == orders.rows
