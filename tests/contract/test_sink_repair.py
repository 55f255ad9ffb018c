"""What is known of a lake whose tables do not all have the last batch."""

import pytest

from sink_changes import ChangingSource
from sink_places import PLACES
from tailrace.pipeline.sink.base import Mode
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
    sink._tables.apply(batch.tables[0], batch.number)
    opened = lake.sink()
    opened.open(source.schemas)
    assert (opened.newest(source.schemas), opened.applied()) == (1, 0)
    opened.apply(batch)
    assert (opened.newest(source.schemas), opened.applied()) == (1, 1)
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
