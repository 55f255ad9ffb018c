"""What is known of a lake whose tables do not all have the last batch."""

from collections import Counter

import pyarrow.compute as pc
import pytest
from msgspec import structs

from sink_changes import ChangingSource
from sink_places import PLACES
from tailrace.pipeline.sink.base import Batch, Mode, TableMark
from tailrace.pipeline.sink_thread import SinkThread

LAKES = ["delta", "iceberg"]


@pytest.fixture(params=LAKES)
def lake(request, tmp_path, servers):
    return PLACES[request.param](tmp_path, Mode.APPEND, servers)


def test_a_batch_that_only_one_table_of_a_lake_has_is_known(lake):
    source = ChangingSource()
    orders, lines = source.table("orders"), source.table("lines")
    sink = lake.sink()
    sink.open(source.schemas)
    assert sink.traits.newest is not None
    assert sink.newest(source.schemas) is None
    for table in (orders, lines):
        table.insert(1, "Ann", 1.0)
    sink.apply(source.batch())
    assert sink.newest(source.schemas) == sink.applied() == 0
    orders.insert(2, "Bob", 2.0)
    lines.insert(2, "Bob", 2.0)
    batch = source.batch()
    first = batch.tables[0].schema
    given = TableMark(batch.number, batch.offsets["shop"])
    sink._tables.apply(batch.tables[0], given, sink._tables.mark(first))
    opened = lake.sink()
    opened.open(source.schemas)
    assert (opened.newest(source.schemas), opened.applied()) == (1, 0)
    assert opened.ahead(source.schemas) == {first.table.wire: batch.offsets["shop"]}
    opened.apply(batch)
    assert (opened.newest(source.schemas), opened.applied()) == (1, 1)
    assert opened.ahead(source.schemas) == {}
    assert len(lake.contents("orders")) == len(lake.contents("lines")) == 2


@pytest.mark.parametrize("kind", ["sqlite", *LAKES])
def test_the_newest_batch_of_any_sink_is_told(kind, tmp_path, servers):
    place = PLACES[kind](tmp_path, Mode.CURRENT, servers)
    source = ChangingSource()
    source.table().insert(1, "Ann", 1.0)
    sink = SinkThread(place.sink, outage_s_max=0, proceed=lambda: None)
    try:
        sink.open(source.schemas)
        assert sink.newest(source.schemas) is None
        sink.apply(source.batch())
        assert sink.newest(source.schemas) == 0
    finally:
        sink.close()


def _only(batch, *, after=0, through, table=None, ahead=()):
    """Return what a writer would cut of a batch: changes in an interval, without those that a table has."""
    tables = []
    for one in batch.tables:
        name = one.schema.table.wire
        if table in {None, name}:
            low = max(after, dict(ahead).get(name, -1))
            offsets = one.changes["_offset"]
            kept = one.changes.filter(pc.and_(pc.greater(offsets, low), pc.less_equal(offsets, through)))
            tables += [structs.replace(one, changes=kept)] if kept.num_rows else []
    return tables


def _broken(lake):
    """Return a lake of which only the orders have the second batch, through 6, opened again, and that batch."""
    source = ChangingSource()
    orders, lines = source.table("orders"), source.table("lines")
    for table in (orders, lines):
        table.insert(1, "Ann", 1.0)
    sink = SinkThread(lake.sink, outage_s_max=0, proceed=lambda: None)
    sink.open(source.schemas)
    sink.apply(source.batch())
    for table in (lines, orders, orders, lines):
        table.insert(len(table.rows) + 1, "Bob", 2.0)
    batch = source.batch()
    raw = lake.sink()
    raw.open(source.schemas)
    first = batch.tables[0]
    raw._tables.apply(first, TableMark(batch.number, batch.offsets["shop"]), raw._tables.mark(first.schema))
    sink.open(source.schemas)
    assert sink.ahead() == {"orders": 6}
    return source, sink, batch


def _give(sink, batch, through, **facts):
    reached = sink.progress().offsets["shop"]
    tables = _only(batch, after=reached, through=through, ahead=sink.ahead())
    sink.apply(Batch(batch.pipeline, sink.next_number(), {"shop": through}, tables, **facts))


@pytest.mark.parametrize("between", ["smaller", "idle", "copy of another", "copy of the same", "repair"])
def test_tables_that_are_ahead_stay_known_whatever_comes_between(lake, between):
    source, sink, batch = _broken(lake)
    copied = {"copy of another": "lines", "copy of the same": "orders", "repair": "orders"}.get(between)
    try:
        match between:
            case "smaller":
                _give(sink, batch, 4)
            case "idle":
                sink.apply(
                    Batch(batch.pipeline, sink.next_number(), {"shop": 3}, _only(batch, through=3, table="lines"))
                )
            case _:
                table = next(one for one in source.tables if one.name == copied)
                table.read()
                (rows,) = [one for one in source.batch().tables if one.schema.table.wire == copied]
                offsets = {} if between == "repair" else dict(sink.progress().offsets)
                sink.apply(Batch(batch.pipeline, sink.next_number(), offsets, [rows]))
        assert sink.ahead() == {"orders": 6}
        sink.open(source.schemas)
        assert sink.ahead() == {"orders": 6}
        _give(sink, batch, 6)
        assert sink.ahead() == {}
    finally:
        sink.close()
    for name in ("orders", "lines"):
        found = Counter(row["_offset"] for row in lake.contents(name) if row["_change_type"] == "insert")
        expected = {"orders": [1, 4, 5], "lines": [2, 3, 6]}[name]
        assert found == Counter(expected)


def test_marks_of_a_log_that_began_again_do_not_count(lake):
    _, sink, batch = _broken(lake)
    try:
        sink.apply(Batch(batch.pipeline, sink.next_number(), {"shop": 0}, [], anew=True))
        assert sink.ahead() == {}
        sink.apply(Batch(batch.pipeline, sink.next_number(), {}, _only(batch, through=4, table="orders")))
        assert sink.ahead() == {}
        _give(sink, batch, 5)
        sink.open([one.schema for one in batch.tables])
        assert (sink.ahead(), sink.progress().offsets) == ({}, {"shop": 5})
    finally:
        sink.close()
