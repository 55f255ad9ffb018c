"""Facts about finding commits by index in an open log."""

import pytest
from msgspec.structs import replace

from log_samples import SCHEMA, SMALL, draft
from tailrace.log.hybrid import HybridClock
from tailrace.log.log import Log
from tailrace.model.errors import BehindHorizonError, BeyondHeadError
from tailrace.testing.clock import FakeClock
from tailrace.testing.files import MemoryFiles

SIZES = [1, 3, 2, 5, 1, 4, 2, 2]
"""Changes of each commit."""

FIRSTS = [1, 2, 5, 7, 12, 13, 17, 19]


async def opened(files, options=SMALL, clock=None, **arguments):
    log = await Log.open(files, options, clock or FakeClock(), **arguments)
    await log.put_schema(SCHEMA)
    return log


async def fill(log):
    for number, size in enumerate(SIZES, start=1):
        await log.append([draft(number, size)])


@pytest.mark.parametrize("segment_bytes_max", [1, 1 << 20], ids=["a segment each", "one segment"])
async def test_each_commit_is_found_by_its_index(segment_bytes_max):
    log = await opened(MemoryFiles(), replace(SMALL, segment_bytes_max=segment_bytes_max))
    assert (await log.commits.first_index(), await log.commits.offset_before(1)) == (1, 0)
    await fill(log)
    assert [await log.commits.offset_before(index) + 1 for index in range(1, 9)] == FIRSTS
    assert await log.commits.offset_before(9) == log.head
    assert await log.commits.first_index() == 1
    assert log.segment_indexes == ([*range(1, 9)] if segment_bytes_max == 1 else [1])
    with pytest.raises(BeyondHeadError):
        await log.commits.offset_before(10)
    await log.close()


@pytest.mark.parametrize(
    ("kept", "first"), [(20, 1), (19, 2), (18, 3), (17, 3), (16, 3), (15, 4), (14, 4), (9, 5), (1, 9), (2, 8)]
)
async def test_a_commit_that_retention_has_cut_into_is_gone(kept, first):
    log = await opened(MemoryFiles(), replace(SMALL, retention_changes=kept))
    await fill(log)
    assert await log.commits.first_index() == first
    if first > 1:
        with pytest.raises(BehindHorizonError):
            await log.commits.offset_before(first - 1)
    await log.commits.offset_before(first)
    await log.close()


async def test_a_floor_holds_retention_back_also_across_a_restart_until_it_moves():
    files = MemoryFiles()
    options = replace(SMALL, retention_changes=2, retention_age_s=1.0, segment_bytes_max=1)
    clock = FakeClock()
    log = await opened(files, options, clock, floor=5)
    await fill(log)
    clock.advance(60)
    await log.retain()
    assert (log.horizon, await log.commits.first_index()) == (5, 3)
    await log.close()
    log = await opened(files, options, clock, floor=7)
    assert log.horizon == 7
    log.hold(None)
    await log.retain()
    assert log.horizon == log.head + 1
    await log.close()


async def test_what_follows_a_change_takes_less_the_nearer_the_head_it_is():
    log = await opened(MemoryFiles(), replace(SMALL, segment_bytes_max=1))
    assert await log.commits.size_after(0) == 0
    await fill(log)
    sizes = [await log.commits.size_after(first - 1) for first in [*FIRSTS, 21]]
    assert sizes == sorted(sizes, reverse=True)
    assert len(set(sizes)) == len(sizes)
    assert sizes[-1] == 0
    await log.close()


async def test_commits_of_logs_that_share_a_clock_are_in_one_order_also_when_time_goes_back():
    hybrid, clock = HybridClock(), FakeClock()
    files = MemoryFiles()
    one, two = await opened(MemoryFiles(), clock=clock, hybrid=hybrid), await opened(files, clock=clock, hybrid=hybrid)
    stamps = []
    for number, log in enumerate([one, two, two, one, two], start=1):
        await log.append([draft(number, 2)])
        chunk = await log.read(log.head - 1)
        stamps.append(chunk.batch.column("hlc")[-1].as_py())
        assert log.hlc_complete >= stamps[-1]
        clock.set_us(clock.now_us() - 1_000_000)
    assert stamps == sorted(set(stamps))
    assert one.hlc_complete == two.hlc_complete == stamps[-1]
    await one.close()
    await two.close()
    clock.set_us(0)
    again = HybridClock()
    reopened = await opened(files, clock=clock, hybrid=again)
    assert again.last == stamps[-1]
    await reopened.append([draft(9, 1)])
    assert (await reopened.read(reopened.head - 1)).batch.column("hlc")[-1].as_py() == stamps[-1] + 1
    await reopened.close()


async def test_a_commit_is_found_by_the_timestamp_before_it():
    clock = FakeClock()
    log = await opened(MemoryFiles(), replace(SMALL, segment_bytes_max=600, retention_age_s=None), clock)
    assert await log.commits.index_after_hlc(0) == 1
    await fill(log)
    stamps = []
    for first in FIRSTS:
        chunk = await log.read(first - 1)
        stamps.append(chunk.batch.column("hlc")[first - chunk.first].as_py())
    assert [await log.commits.index_after_hlc(stamp) for stamp in stamps] == [*range(2, 10)]
    assert [await log.commits.index_after_hlc(stamp - 1) for stamp in stamps] == [*range(1, 9)]
    await log.close()


async def test_a_timestamp_whose_successor_may_be_gone_is_none():
    clock = FakeClock()
    log = await opened(MemoryFiles(), replace(SMALL, segment_bytes_max=1, retention_changes=4), clock)
    await fill(log)
    await log.retain()
    chunk = await log.read(log.head - 1)
    newest = chunk.batch.column("hlc")[-1].as_py()
    assert await log.commits.index_after_hlc(0) is None
    assert await log.commits.index_after_hlc(newest) == 9
    assert await log.commits.index_after_hlc(newest - 1) == 8
    assert await log.commits.index_after_hlc(newest - 2) is None
    await log.close()
