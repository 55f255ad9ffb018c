"""Facts about positions without changes: what the log knows at once, and what survives."""

import asyncio

import pytest

from log_samples import SCHEMA, SMALL, draft
from tailrace.log.log import Log
from tailrace.log.progress import PROGRESS_NAME
from tailrace.log.recover import examine
from tailrace.log.reset import reset
from tailrace.model.errors import LogClosedError, LogFullError
from tailrace.testing.clock import FakeClock
from tailrace.testing.files import Crash, MemoryFiles


async def opened(files):
    log = await Log.open(files, SMALL, FakeClock())
    await log.put_schema(SCHEMA)
    return log


@pytest.mark.parametrize("commits", [0, 1, 3])
async def test_durable_progress_survives_a_crash(commits):
    files = MemoryFiles()
    log = await opened(files)
    for number in range(1, commits + 1):
        await log.append([draft(number, 2)])
    head = log.head
    await log.progress("later", durable=True)
    assert (log.position, log.head, log.last_index) == ("later", head, commits)
    again = await opened(files.after_crash(0))
    assert (again.position, again.head, again.last_index) == ("later", head, commits)
    await again.close()
    await log.close()


async def test_progress_that_is_not_durable_is_known_at_once_and_written_when_the_log_is_closed():
    files = MemoryFiles()
    log = await opened(files)
    await log.append([draft(1)])
    operations = files.operations
    await log.progress("later", durable=False)
    assert (log.position, files.operations) == ("later", operations)
    assert examine(files.after_crash(1)).position == draft(1).position
    await log.close()
    assert examine(files.after_crash(0)).position == "later"


async def test_a_commit_after_it_counts_more():
    files = MemoryFiles()
    log = await opened(files)
    await log.append([draft(1)])
    await log.progress("later", durable=True)
    await log.append([draft(2)])
    assert log.position == draft(2).position
    assert examine(files.after_crash(0)).position == draft(2).position
    await log.close()


async def test_it_belongs_to_one_commit_also_where_another_gets_the_same_number():
    files = MemoryFiles()
    log = await opened(files)
    await log.append([draft(1)])
    await log.progress("later", durable=True)
    await log.close()
    kept = files.bytes_of(PROGRESS_NAME)
    other = MemoryFiles()
    log = await opened(other)
    await log.append([draft(2)])
    await log.close()
    other.put(PROGRESS_NAME, kept)
    assert examine(other).position == draft(2).position


@pytest.mark.parametrize(
    "damage", [lambda data: data[:-5], lambda data: b"", lambda data: data.replace(b"later", b"latex")]
)
async def test_a_damaged_file_is_as_none(damage):
    files = MemoryFiles()
    log = await opened(files)
    await log.append([draft(1)])
    await log.progress("later", durable=True)
    await log.close()
    files.put(PROGRESS_NAME, damage(files.bytes_of(PROGRESS_NAME)))
    assert examine(files).position == draft(1).position


@pytest.mark.parametrize("seed", range(8))
async def test_a_crash_at_any_operation_leaves_the_old_or_the_new(seed):
    crash_at = 0
    while True:
        files = MemoryFiles()
        log = await opened(files)
        await log.append([draft(1)])
        await log.progress("first", durable=True)
        files.crash_at = files.operations + crash_at
        try:
            await log.progress("second", durable=True)
        except Crash:
            found = examine(files.after_crash(seed))
            assert found.position in ("first", "second")
            crash_at += 1
            continue
        files.crash_at = None
        assert examine(files.after_crash(seed)).position == "second"
        assert crash_at > 2
        await log.close()
        return


async def test_a_full_disk_refuses_and_the_old_one_counts():
    files = MemoryFiles()
    log = await opened(files)
    await log.append([draft(1)])
    files.capacity_bytes = files.used_bytes()
    with pytest.raises(LogFullError):
        await log.progress("later", durable=True)
    assert examine(files.after_crash(0)).position == draft(1).position
    files.capacity_bytes = None
    await log.progress("later", durable=True)
    assert examine(files.after_crash(0)).position == "later"
    await log.close()


async def test_who_waits_for_a_position_is_woken_by_commits_and_by_progress():
    log = await opened(MemoryFiles())
    for move in (lambda: log.append([draft(1)]), lambda: log.progress("later", durable=False)):
        waiting = asyncio.create_task(log.wait_position(log.position, 30))
        await asyncio.sleep(0)
        await move()
        assert await waiting
    assert await log.wait_position("another", 0)
    assert not await log.wait_position("later", 0.01)
    waiting = asyncio.create_task(log.wait_position("later", 30))
    await asyncio.sleep(0)
    await log.close()
    with pytest.raises(LogClosedError):
        await waiting
    with pytest.raises(LogClosedError):
        await log.progress("too late", durable=True)


async def test_a_new_log_does_not_go_on_where_the_old_one_was():
    files = MemoryFiles()
    log = await opened(files)
    await log.append([draft(1)])
    await log.progress("later", durable=True)
    await log.close()
    reset(files, FakeClock(), files.remove)
    assert PROGRESS_NAME not in files.names()
    assert examine(files).position is None
