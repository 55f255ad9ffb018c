"""Facts about trying again."""

import pytest

from tailrace.retry import Backoff, retry


async def test_it_tries_until_an_attempt_succeeds_and_tells_of_each_failure():
    left, noticed = [1, 2], []

    async def attempt():
        if left:
            raise OSError(left.pop())
        return "done"

    result = await retry(attempt, on=OSError, notice=noticed.append, backoff=Backoff(0.0, 0.0))
    assert result == "done"
    assert [error.args for error in noticed] == [(2,), (1,)]


async def test_other_errors_pass():
    async def attempt():
        raise KeyError

    with pytest.raises(KeyError):
        await retry(attempt, on=OSError, notice=print, backoff=Backoff(0.0, 0.0))


def test_pauses_double_up_to_the_longest_and_are_shortened_by_chance():
    backoff = Backoff(first_s=1.0, longest_s=5.0)
    assert [backoff.pause_s(failures, 0.0) for failures in (1, 2, 3, 4, 99)] == [1.0, 2.0, 4.0, 5.0, 5.0]
    assert backoff.pause_s(3, 0.5) == 3.0
