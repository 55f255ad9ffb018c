"""Facts about the hybrid clock."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from tailrace.log.hybrid import HybridClock
from tailrace.model.number import hlc_at

steps = st.tuples(st.integers(1, 5), st.integers(-(10**9), 10**9), st.booleans())


@given(st.lists(steps, max_size=60), st.integers(0, 2**53))
def test_timestamps_rise_strictly_whatever_the_clock_does_and_across_restarts(walk, now_us):
    clock = HybridClock()
    given_out: list[int] = []
    for count, step_us, restarted in walk:
        now_us = max(0, now_us + step_us)
        if restarted:
            clock = HybridClock()
            clock.observe(given_out[-1] if given_out else 0)
        first = clock.take(count, now_us)
        assert first >= hlc_at(now_us)
        given_out += range(first, first + count)
    assert all(one < other for one, other in itertools.pairwise(given_out))
    assert clock.last == (given_out[-1] if given_out else 0)


def test_timestamps_are_those_of_the_wall_clock_while_it_goes_on():
    clock = HybridClock()
    assert clock.take(3, 5_000_000) == hlc_at(5_000_000)
    assert clock.take(1, 5_000_999) == hlc_at(5_000_000) + 3
    assert clock.take(1, 5_001_000) == hlc_at(5_001_000)


def test_what_was_observed_is_not_given_out_again():
    clock = HybridClock()
    clock.observe(hlc_at(9_000_000))
    clock.observe(1)
    assert clock.take(1, 5_000_000) == hlc_at(9_000_000) + 1
