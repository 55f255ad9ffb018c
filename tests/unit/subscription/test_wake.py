"""Facts about waking feeds."""

import asyncio

from feeding import draft_of
from tailrace.model.op import Op
from tailrace.subscription.wake import Wake
from tailrace.testing.log import MemoryLog


async def test_one_growth_wakes_every_sleeper():
    log = MemoryLog()
    wake = Wake(log)
    async with asyncio.TaskGroup() as group:
        runner = group.create_task(wake.run())
        sleepers = [group.create_task(wake.wait(0, asyncio.Event(), 30)) for _ in range(100)]
        await asyncio.sleep(0)
        await log.append([draft_of([(Op.INSERT, 1)])])
        await asyncio.gather(*sleepers)
        runner.cancel()


async def test_a_sleeper_that_is_behind_does_not_sleep():
    log = MemoryLog()
    await log.append([draft_of([(Op.INSERT, 1)])])
    await wake_at_once(Wake(log), after=0)


async def test_nobody_sleeps_once_the_log_is_closed():
    log = MemoryLog()
    wake = Wake(log)
    await log.close()
    await wake.run()
    assert wake.closed
    await wake_at_once(wake, after=0)


async def wake_at_once(wake, after):
    async with asyncio.timeout(5):
        await wake.wait(after, asyncio.Event(), 30)
