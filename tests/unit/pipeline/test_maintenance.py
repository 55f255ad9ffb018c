"""When tables are maintained by the schedule of a pipeline."""

import pytest

from tailrace.meta.pipeline import Definition
from tailrace.model.errors import SinkUnavailableError
from tailrace.pipeline.errors import PipelineError
from tailrace.pipeline.maintenance import Maintenance, maintain
from tailrace.pipeline.sink.upkeep import TableUpkeep, UpkeepOptions
from tailrace.pipeline.store import PipelineStore
from tailrace.testing.clock import FakeClock

LAKE = Definition(name="p", source="s", tables=("t",), sink="delta:///lake/{table}", maintain_every_s=3600)


@pytest.fixture
def store():
    made = PipelineStore.open("sqlite://", FakeClock())
    made.create(LAKE)
    yield made
    made.close()


class Lake:
    """Counts how often it is maintained."""

    def __init__(self, error=None):
        self.done = 0
        self.error = error

    def __call__(self, options):
        assert options == UpkeepOptions()
        self.done += 1
        if self.error is not None:
            raise self.error
        return [TableUpkeep("t", 5, 1)]


def schedule(store, lake, clock, definition=LAKE):
    return Maintenance(definition, store, store.acquire("p", "me", 60), lake, clock)


def test_tables_are_maintained_once_in_each_interval_also_by_another_worker(store):
    lake, clock = Lake(), FakeClock()
    one = schedule(store, lake, clock)
    one.tend()
    clock.advance(3599)
    one.tend()
    assert lake.done == 0
    clock.advance(2)
    one.tend()
    one.tend()
    assert lake.done == 1
    other = schedule(store, lake, clock)
    clock.advance(3000)
    other.tend()
    assert lake.done == 1
    clock.advance(601)
    other.tend()
    assert lake.done == 2


def test_a_lake_that_is_away_waits_for_the_next_time_and_the_pipeline_goes_on(store):
    lake, clock = Lake(SinkUnavailableError("away")), FakeClock()
    one = schedule(store, lake, clock)
    one.tend()
    for _ in range(3):
        clock.advance(3601)
        one.tend()
        one.tend()
    assert lake.done == 3


def test_nothing_is_maintained_without_a_schedule(store):
    lake, clock = Lake(), FakeClock()
    one = schedule(store, lake, clock, Definition(name="p", source="s", tables=("t",), sink="delta:///lake"))
    one.tend()
    clock.advance(1e6)
    one.tend()
    assert lake.done == 0


def test_a_sink_that_is_no_lake_needs_no_maintenance(tmp_path):
    definition = Definition(name="p", source="s", tables=("t",), sink=f"sqlite:///{tmp_path}/x.db")
    with pytest.raises(PipelineError, match="needs no maintenance"):
        maintain(definition, [], UpkeepOptions())
