"""How Iceberg tables are written, file by file."""

import random
from decimal import Decimal

import pyarrow as pa
import pytest

from sink_changes import ChangingSource
from sink_places import IcebergPlace, rows_of
from tailrace.pipeline.sink import iceberg_table
from tailrace.pipeline.sink.base import Mode


@pytest.fixture
def source():
    return ChangingSource()


@pytest.fixture
def place(tmp_path):
    return IcebergPlace(tmp_path, Mode.CURRENT, None)


@pytest.fixture
def files_read(monkeypatch):
    """Which files of tables are read, while rows are written."""
    read, rows = [], iceberg_table._rows

    def told(table, task):
        read.append(task.file.file_path)
        return rows(table, task)

    monkeypatch.setattr(iceberg_table, "_rows", told)
    return read


def in_files_of_three(place, source, orders, count):
    """Put rows into a sink, three to a file."""
    sink = place.sink()
    sink.open(source.schemas)
    for first in range(0, 3 * count, 3):
        for number in range(first, first + 3):
            orders.insert(number, number, "note")
        sink.apply(source.batch())
    assert place.files("orders") == count
    return sink


COLUMNS = (("id", pa.int64()), ("amount", pa.int64()), ("note", pa.string()))


def test_files_are_written_anew_one_after_the_other(place, source, monkeypatch):
    monkeypatch.setattr(iceberg_table, "_WAITING_BYTES", 1)
    orders = source.table("orders", COLUMNS)
    sink = in_files_of_three(place, source, orders, 4)
    for number in (1, 4, 7):
        orders.update(number, note="changed")
    sink.apply(source.batch())
    assert place.files("orders") == 5
    assert rows_of(sink, orders.schema) == orders.rows
    orders.alter(retype={"amount": (pa.decimal128(21, 2), Decimal)})
    orders.insert(100, Decimal("0.25"), "new")
    sink.apply(source.batch())
    assert place.files("orders") == 6
    assert rows_of(sink, orders.schema) == orders.rows


def test_only_files_that_may_hold_a_changed_key_are_read(place, source, files_read):
    orders = source.table("orders", COLUMNS)
    sink = in_files_of_three(place, source, orders, 4)
    assert files_read == []
    orders.update(4, note="changed")
    sink.apply(source.batch())
    assert len(files_read) == 1
    assert rows_of(sink, orders.schema) == orders.rows


def test_only_small_files_are_read_to_be_put_together(place, source, files_read, monkeypatch):
    monkeypatch.setattr(iceberg_table, "FILES_MAX", 2)
    monkeypatch.setattr(iceberg_table, "_SMALL_BYTES", 20_000)
    orders = source.table("orders", COLUMNS)
    sink = place.sink()
    sink.open(source.schemas)
    for number in range(3):
        orders.insert(number, number, random.Random(number).randbytes(20_000).hex())
        sink.apply(source.batch())
    for number in range(10, 14):
        orders.insert(number, number, "short")
        sink.apply(source.batch())
    assert len(files_read) == 3
    assert place.files("orders") == 4
    assert rows_of(sink, orders.schema) == orders.rows
