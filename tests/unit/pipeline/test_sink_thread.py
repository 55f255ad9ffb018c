"""Facts about a sink in a thread of its own."""

import time

import pytest

from tailrace.model.errors import SinkUnavailableError
from tailrace.pipeline.sink.base import Batch
from tailrace.pipeline.sink_thread import SinkThread


class AwaySink:
    """A sink that is away for so many tries."""

    def __init__(self, tries):
        self.left = tries

    def apply(self, batch):
        if self.left:
            self.left -= 1
            raise SinkUnavailableError("it is away")

    def close(self):
        pass


BATCH = Batch("p", 0, {}, [])


def sink_thread(sink, **options):
    return SinkThread(lambda: sink, proceed=lambda: None, **{"outage_s_max": 600.0, **options})


def test_a_sink_that_is_away_is_tried_again_until_it_is_back():
    sink = AwaySink(3)
    thread = sink_thread(sink)
    thread.apply(BATCH)
    thread.close()
    assert sink.left == 0


def test_it_is_told_why_a_sink_is_tried_again_and_when_it_is_back():
    told = []
    thread = sink_thread(AwaySink(2), away=told.append)
    for _ in range(2):
        thread.apply(BATCH)
    thread.close()
    assert told == ["it is away", "it is away", ""]


def test_who_stops_or_pauses_a_pipeline_does_not_wait_for_a_sink_that_is_away():
    sink = AwaySink(1_000_000)
    thread = sink_thread(sink, wanted=lambda: sink.left > 1_000_000 - 3)
    begin_s = time.monotonic()
    with pytest.raises(SinkUnavailableError):
        thread.apply(BATCH)
    thread.close()
    assert 1_000_000 - sink.left == 3
    assert time.monotonic() - begin_s < 60
