"""How a log is followed: rates that are of now, and queries that start one after the other."""

import threading

import pytest

from serving import wait_until
from tailrace.pipeline.errors import StoppedError
from tailrace.pipeline.session import Turns
from tailrace.pipeline.stream import RecentRate, in_turn


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
