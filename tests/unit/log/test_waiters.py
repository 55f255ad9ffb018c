import asyncio

import pytest

from tailrace.log.waiters import Waiters
from tailrace.model.errors import LogClosedError


async def test_everybody_is_woken_at_once():
    waiters = Waiters()
    tasks = [asyncio.create_task(waiters.wait(10)) for _ in range(300)]
    await asyncio.sleep(0)
    waiters.wake()
    assert await asyncio.gather(*tasks) == [True] * 300


async def test_the_timeout_answers_false():
    assert await Waiters().wait(0) is False


async def test_closing_ends_the_wait_with_an_error():
    waiters = Waiters()
    task = asyncio.create_task(waiters.wait(10))
    await asyncio.sleep(0)
    waiters.close()
    with pytest.raises(LogClosedError):
        await task


async def test_a_cancelled_waiter_leaves_nothing_behind():
    waiters = Waiters()
    task = asyncio.create_task(waiters.wait(10))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    waiters.wake()
    assert not waiters._futures
