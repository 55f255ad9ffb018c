"""Facts about rate limits."""

import pytest

from tailrace.access.limit import RateLimits
from tailrace.model.errors import RateLimitError
from tailrace.testing.clock import FakeClock


def taken(limits, who, count):
    done = 0
    for _ in range(count):
        try:
            limits.take(who)
        except RateLimitError:
            break
        done += 1
    return done


def test_a_principal_may_call_in_bursts_and_then_at_the_rate():
    clock = FakeClock()
    limits = RateLimits(10, 5, clock)
    assert taken(limits, "a", 100) == 5
    clock.advance(0.2)
    assert taken(limits, "a", 100) == 2
    clock.advance(3600)
    assert taken(limits, "a", 100) == 5


def test_a_principal_costs_no_other_its_calls():
    limits = RateLimits(10, 5, FakeClock())
    assert taken(limits, "a", 100) == 5
    assert taken(limits, "b", 100) == 5


def test_a_refusal_tells_after_how_long_the_next_call_passes():
    clock = FakeClock()
    limits = RateLimits(8, 1, clock)
    limits.take("a")
    with pytest.raises(RateLimitError) as caught:
        limits.take("a")
    assert str(caught.value) == "Rate limit exceeded. Retry after 125ms."
    clock.advance(caught.value.retry_after_ms / 1000 - 0.002)
    assert taken(limits, "a", 1) == 0
    clock.advance(0.002)
    assert taken(limits, "a", 1) == 1


def test_the_number_of_principals_is_bounded():
    limits = RateLimits(1, 1, FakeClock())
    for number in range(10_001):
        limits.take(str(number))
    limits.take("0")  # forgotten: it has a full bucket again
    assert taken(limits, "10000", 1) == 0
