"""How a log is followed: rates that are of now, and queries that start one after the other."""

import threading
from types import SimpleNamespace

import pytest

from serving import wait_until
from tailrace.clock import SystemClock
from tailrace.meta.pipeline import Definition, Figures
from tailrace.model.errors import MetadataError
from tailrace.pipeline.errors import StoppedError
from tailrace.pipeline.session import Turns
from tailrace.pipeline.stream import Follower, RecentRate, in_turn


def test_a_rate_is_that_of_the_last_seconds():
    rate = RecentRate()
    assert rate.at(100.0, 0) == 0.0
    assert rate.at(110.0, 10_000) == 1000.0
    assert rate.at(115.0, 10_000) == pytest.approx(10_000 / 15)
    assert rate.at(125.0, 10_000) == 0.0
    assert rate.at(126.0, 10_050) == pytest.approx(50 / 11)


def test_a_rate_over_a_batch_that_takes_longer_than_the_window_counts_all_of_its_time():
    rate = RecentRate()
    rate.at(0.0, 0)
    assert rate.at(60.0, 600_000) == 10_000.0


class Query:
    """A query of Spark that is under way, or has ended, when it is told so."""

    def __init__(self, started):
        self.lastProgress = None
        self.isActive = True
        started.append(self)

    def awaitTermination(self, seconds):  # noqa: N802 - Spark's name
        threading.Event().wait(min(seconds, 0.01))


@pytest.mark.parametrize("outcome", [{"lastProgress": {"batchId": 0}}, {"isActive": False}])
def test_a_query_starts_when_the_one_before_it_is_under_way_or_has_failed(outcome):
    turns, started, ended = Turns(), [], []
    threads = [
        threading.Thread(target=lambda: ended.append(in_turn(turns, lambda: Query(started), lambda: False)))
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for count in (1, 2, 3):
        wait_until(lambda count=count: len(started) == count, "the next one starts")
        assert len(ended) == count - 1
        for name, value in outcome.items():
            setattr(started[-1], name, value)
        wait_until(lambda count=count: len(ended) == count, "it is under way")
    for thread in threads:
        thread.join(10)


def test_who_waits_for_a_turn_can_be_stopped():
    turns = Turns()
    with turns.held(), pytest.raises(StoppedError):
        in_turn(turns, lambda: pytest.fail("not its turn"), lambda: True)


class AwayStore:
    """Metadata that cannot be read the first time."""

    def __init__(self):
        self.reads = 0
        self.noted = []

    def get(self, name):
        self.reads += 1
        if self.reads == 1:
            raise MetadataError("the database is away")
        return SimpleNamespace(figures=Figures())

    def note(self, lease, figures):
        self.noted.append(figures)


class BriefQuery:
    """A query that ends when something was noted, or after so many looks."""

    lastProgress = None  # noqa: N815 - Spark's name

    def __init__(self, store):
        self.store = store
        self.looks = 0

    @property
    def isActive(self):  # noqa: N802 - Spark's name
        return not self.store.noted and self.looks < 10

    def awaitTermination(self, seconds):  # noqa: N802 - Spark's name
        self.looks += 1

    def exception(self):
        return None


def test_metadata_that_is_away_when_tables_are_to_be_maintained_does_not_end_a_query():
    store = AwayStore()
    definition = Definition(name="p", source="shop", tables=("orders",), sink="delta:///lake", maintain_every_s=60.0)
    keeper = SimpleNamespace(lease=None, wanted=True, check=lambda: None)
    writer = SimpleNamespace(
        maintain=None, outage_s_max=60.0, tend=lambda: None, note_idle=lambda offset, changes_min: None
    )
    follower = Follower(definition, store, keeper, writer, None, SystemClock(), None, Turns())
    query = BriefQuery(store)
    assert follower._watch(query, lambda: False, lambda figures: None) is None
    assert (query.looks, len(store.noted)) == (2, 1)
