"""Facts about retries."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.retry import Backoff, Retry, resting

AT_ONCE = Backoff(0.0, 0.0)


class Failing:
    """Fails so often, then succeeds; blocking or not."""

    def __init__(self, times, error=OSError):
        self.left = times
        self.error = error

    def __call__(self):
        if self.left:
            self.left -= 1
            raise self.error(self.left)
        return "done"

    async def later(self):
        return self()


def both(retry, attempt, on=OSError):
    """Return what came of it and the errors that were noticed: first by the blocking loop, then by the other."""
    outcomes = []
    for run in (blocking, waiting):
        noticed = []
        try:
            result = run(retry(), attempt(), on, noticed)
        except Exception as error:
            result = repr(error)
        outcomes.append((result, [str(error) for error in noticed]))
    assert outcomes[0] == outcomes[1], "both loops do the same"
    return outcomes[0]


def blocking(retry, attempt, on, noticed):
    return retry.call(attempt, on=on, rest=lambda _, error: noticed.append(error) is None)


def waiting(retry, attempt, on, noticed):
    return asyncio.run(retry.call_async(attempt.later, on=on, notice=noticed.append))


def test_it_tries_until_an_attempt_succeeds_and_tells_of_each_failure():
    assert both(lambda: Retry(AT_ONCE), lambda: Failing(2)) == ("done", ["1", "0"])


def test_other_errors_pass():
    assert both(lambda: Retry(AT_ONCE), lambda: Failing(2, KeyError)) == ("KeyError(1)", [])


def test_it_gives_up_when_an_outage_has_lasted_for_long_enough():
    def ticking():
        times_s = iter(range(1000))
        return Retry(AT_ONCE, outage_s_max=3, monotonic_s=lambda: float(next(times_s)))

    result, noticed = both(ticking, lambda: Failing(1000))
    assert (result, noticed) == ("OSError(997)", ["999", "998"])


def test_a_longest_outage_of_nothing_gives_up_at_once():
    assert both(lambda: Retry(AT_ONCE, outage_s_max=0), lambda: Failing(1)) == ("OSError(0)", [])


def test_the_time_before_the_first_failure_is_no_outage():
    now_s = [0.0]
    retry = Retry(AT_ONCE, outage_s_max=5, monotonic_s=lambda: now_s[0])
    for _ in range(3):
        now_s[0] += 100
        retry.failed(OSError())
        assert retry.recovered()
    assert not retry.recovered()


def test_pauses_double_up_to_the_longest_and_are_shortened_by_chance():
    backoff = Backoff(first_s=1.0, longest_s=5.0)
    assert [backoff.pause_s(failures, 0.0) for failures in (1, 2, 3, 4, 99)] == [1.0, 2.0, 4.0, 5.0, 5.0]
    assert backoff.pause_s(3, 0.5) == 3.0


def test_pauses_begin_anew_after_a_recovery_and_after_progress():
    progress = [0]
    retry = Retry(Backoff(1.0, 8.0), progress=lambda: progress[0], chance=lambda: 0.0)

    def pauses(count):
        return [retry.failed(OSError()) for _ in range(count)]

    assert pauses(3) == [1, 2, 4]
    progress[0] += 1
    assert pauses(2) == [1, 2]
    retry.recovered()
    assert pauses(1) == [1]
    assert retry.failures == 1


@given(st.integers(1, 60), st.floats(0, 1, exclude_max=True))
def test_every_pause_lies_between_a_half_and_the_whole_of_the_longest(failures, chance):
    backoff = Backoff(0.1, 10.0)
    retry = Retry(backoff, chance=lambda: chance)
    pause_s = [retry.failed(OSError()) for _ in range(failures)][-1]
    assert 0 < pause_s <= min(0.1 * 2.0 ** (failures - 1), 10.0)
    assert pause_s >= min(0.1 * 2.0 ** (failures - 1), 10.0) / 2


def test_where_no_other_attempt_is_wanted_the_error_is_raised():
    with pytest.raises(OSError, match="4"):
        Retry(AT_ONCE).call(Failing(5), on=OSError, rest=lambda *_: False)


def test_a_pause_ends_as_soon_as_it_is_no_longer_wanted():
    slept = []
    assert not resting(lambda: len(slept) < 2, slept.append)(1000.0)
    assert slept == [0.5, 0.5]
    assert resting(lambda: True)(0.0)
    assert not resting(lambda: False)(0.0)


async def test_a_cancelled_wait_ends():
    waiting_ = asyncio.create_task(
        Retry(Backoff(1000, 1000)).call_async(Failing(9).later, on=OSError, notice=lambda _: None)
    )
    await asyncio.sleep(0)
    waiting_.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting_
