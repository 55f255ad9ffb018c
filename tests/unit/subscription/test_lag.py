"""Facts about how long changes take on their way."""

from feeding import TIME_US, chunk_of, draft_of, schema_of
from tailrace.model.op import Op
from tailrace.subscription.lag import Lags


class Clock:
    """Stands at a number of seconds after the commit."""

    seconds = 0

    def now_us(self):
        return TIME_US + self.seconds * 1_000_000

    def monotonic_s(self):
        return float(self.seconds)


def chunk(first):
    return chunk_of([schema_of("users")], draft_of([(Op.INSERT, 1)] * 4), first=first)


def test_the_way_of_the_newest_change_is_measured_in_three_parts():
    clock = Clock()
    lags = Lags(clock)
    clock.seconds = 2
    lags.captured(chunk(1), 4)
    lags.grown(4)
    clock.seconds = 5
    lags.grown(8)
    clock.seconds = 7
    lags.delivered(chunk(1), 4)
    assert (lags.capture_s, lags.delivery_s, lags.end_to_end_s) == (2.0, 5.0, 7.0)
    lags.delivered(chunk(5), 6)
    assert (lags.delivery_s, lags.end_to_end_s) == (2.0, 7.0)


def test_a_replay_does_not_count():
    clock = Clock()
    lags = Lags(clock)
    lags.grown(8)
    lags.delivered(chunk(5), 8)
    clock.seconds = 3600
    lags.delivered(chunk(1), 3)
    lags.delivered(chunk(5), 8)
    assert (lags.delivery_s, lags.end_to_end_s) == (0.0, 0.0)


def test_when_it_came_is_unknown_of_what_was_there_before():
    clock = Clock()
    lags = Lags(clock)
    for head in range(10, 3000):
        lags.grown(head)
    clock.seconds = 9
    lags.delivered(chunk(1), 4)
    assert (lags.delivery_s, lags.end_to_end_s) == (0.0, 9.0)


def test_a_clock_that_was_set_back_gives_no_negative_lag():
    clock = Clock()
    clock.seconds = -5
    lags = Lags(clock)
    lags.captured(chunk(1), 1)
    assert lags.capture_s == 0.0
