"""What is begun is finished, also when whoever waits for it has gone away."""

import asyncio

import pytest

from tailrace.subscription.uninterrupted import uninterrupted


class Work:
    def __init__(self):
        self.may_go_on = asyncio.Event()
        self.begun = asyncio.Event()
        self.done = False

    @uninterrupted
    async def run(self, result, error=None):
        self.begun.set()
        await self.may_go_on.wait()
        self.done = True
        if error is not None:
            raise error
        return result


async def test_a_result_or_an_error_is_the_callers():
    work = Work()
    work.may_go_on.set()
    assert await work.run(5) == 5
    with pytest.raises(KeyError):
        await work.run(5, error=KeyError())


@pytest.mark.parametrize("error", [None, KeyError()])
async def test_a_caller_that_is_cancelled_gives_up_when_the_work_is_done(error):
    work = Work()
    calling = asyncio.create_task(work.run(5, error=error))
    await work.begun.wait()
    calling.cancel()
    await asyncio.sleep(0)
    assert not calling.done()
    work.may_go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await calling
    assert work.done
