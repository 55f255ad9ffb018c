"""The log as its users see it: append, read, wait, retain, close."""

import asyncio
import random

import pytest
from msgspec.structs import replace

from log_samples import SCHEMA, SMALL, draft, rows_in, rows_of
from tailrace.log.log import Log
from tailrace.log.segment import segment_index
from tailrace.log.verify import verify
from tailrace.log.waiters import Waiters
from tailrace.model.chunk import Chunk
from tailrace.model.commit import Draft
from tailrace.model.errors import (
    AppendTooLargeError,
    BehindHorizonError,
    BeyondHeadError,
    CorruptSegmentError,
    LogClosedError,
    LogFullError,
    LogWriteError,
)
from tailrace.model.number import Offset, Position, SchemaId
from tailrace.model.op import Op
from tailrace.model.table import Column, TableName, TableSchema
from tailrace.testing.clock import FakeClock
from tailrace.testing.files import MemoryFiles

TINY = replace(SMALL, ring_changes_max=8, cache_bytes_max=1, segment_bytes_max=5000)


async def opened(files: MemoryFiles, options=SMALL, clock: FakeClock | None = None) -> Log:
    log = await Log.open(files, options, clock or FakeClock())
    await log.put_schema(SCHEMA)
    return log


async def read_from(log: Log, after: int) -> list:
    rows = []
    while (chunk := await log.read(Offset(after))) is not None:
        assert chunk.first <= after + 1 <= chunk.last
        rows += [row for row in rows_in(chunk) if row[0] > after]
        after = chunk.last
    return rows


def segment_names(files: MemoryFiles) -> list[str]:
    return [name for name in files.names() if segment_index(name) is not None]


async def test_an_empty_log_says_so():
    log = await opened(MemoryFiles())
    assert (log.head, log.horizon, log.last_index, log.position) == (0, 1, 0, None)
    assert await log.read(Offset(0)) is None
    assert await log.segments() == []
    await log.close()


async def test_appends_are_numbered_densely_in_the_order_of_the_calls():
    log = await opened(MemoryFiles())
    drafts = [draft(number, 1 + number % 3) for number in range(1, 31)]
    groups = [drafts[begin : begin + 2] for begin in range(0, 30, 2)]
    appended = await asyncio.gather(*(log.append(group) for group in groups))
    next_offset = next_index = 1
    for one, group in zip(appended, groups, strict=True):
        assert (one.first_offset, one.first_index) == (next_offset, next_index)
        next_offset, next_index = one.last_offset + 1, one.last_index + 1
        assert one.last_offset - one.first_offset + 1 == sum(map(len, group))
        assert one.last_index - one.first_index + 1 == 2
    assert (log.head, log.last_index, log.position) == (next_offset - 1, 30, "p30")
    assert await read_from(log, 0) == rows_of(drafts)
    await log.close()


@pytest.mark.parametrize("options", [SMALL, TINY], ids=["from the ring", "from segments"])
async def test_reading_after_any_offset_gives_everything_behind_it(options):
    files = MemoryFiles()
    log = await opened(files, options)
    drafts = [draft(number, 1 + number % 5) for number in range(1, 41)]
    for one in drafts:
        await log.append([one])
    rows = rows_of(drafts)
    for after in range(len(rows) + 1):
        assert await read_from(log, after) == rows[after:]
    await log.close()
    log = await opened(files, options)
    for after in range(0, len(rows) + 1, 7):
        assert await read_from(log, after) == rows[after:]
    await log.close()


async def test_appends_that_come_together_share_one_frame():
    files = MemoryFiles()
    log = await opened(files)
    await asyncio.gather(*(log.append([draft(number)]) for number in range(1, 65)))
    assert verify(files).frames <= 2
    await log.close()


async def test_a_frame_is_bounded_in_changes_and_one_large_append_is_one_frame():
    files = MemoryFiles()
    log = await opened(files, replace(SMALL, frame_changes_max=10))
    await asyncio.gather(*(log.append([draft(number, 4)]) for number in range(1, 11)))
    assert verify(files).frames >= 5
    before = verify(files).frames
    await log.append([draft(11, 50), draft(12, 50)])
    assert verify(files).frames == before + 1
    await log.close()


async def test_readers_share_the_same_chunks():
    files = MemoryFiles()
    log = await opened(files)
    await log.append([draft(number) for number in range(1, 100)])
    await log.close()
    log = await opened(files)
    chunks = await asyncio.gather(*(log.read(Offset(50)) for _ in range(20)))
    assert len(set(map(id, chunks))) == 1
    assert await log.read(Offset(3)) is chunks[0]
    await log.close()


async def test_offsets_outside_the_window_are_refused_with_both_numbers():
    log = await opened(MemoryFiles(), replace(SMALL, retention_changes=5))
    await log.append([draft(1, 12)])
    assert log.horizon == 8
    with pytest.raises(BehindHorizonError) as behind:
        await log.read(Offset(6))
    assert (behind.value.requested, behind.value.horizon) == (7, 8)
    assert [row[0] for row in await read_from(log, 7)] == [8, 9, 10, 11, 12]
    with pytest.raises(BeyondHeadError) as beyond:
        await log.read(Offset(13))
    assert (beyond.value.requested, beyond.value.head) == (13, 12)
    await log.close()


async def test_waiting_ends_when_the_head_moves_beyond_and_not_before():
    log = await opened(MemoryFiles())
    assert await log.wait(Offset(0), 0.0) is False
    waiting = [asyncio.create_task(log.wait(Offset(0), 30)) for _ in range(200)]
    further = asyncio.create_task(log.wait(Offset(3), 30))
    await asyncio.sleep(0)
    await log.append([draft(1, 2)])
    assert await asyncio.gather(*waiting) == [True] * 200
    assert not further.done()
    await log.append([draft(2, 2)])
    assert await further is True
    assert await log.wait(Offset(1), 0.0) is True
    await log.close()


async def test_a_closed_log_answers_everybody_with_the_same_error():
    log = await opened(MemoryFiles())
    await log.append([draft(1)])
    waiting = asyncio.create_task(log.wait(Offset(1), 30))
    await asyncio.sleep(0)
    await log.close()
    await log.close()
    for call in (waiting, log.read(Offset(0)), log.append([draft(2)]), log.wait(Offset(1), 1), log.put_schema(SCHEMA)):
        with pytest.raises(LogClosedError):
            await call


async def test_closing_finishes_the_appends_that_were_taken():
    files = MemoryFiles()
    log = await opened(files)
    appends = [asyncio.create_task(log.append([draft(number)])) for number in range(1, 20)]
    await asyncio.sleep(0)
    await log.close()
    assert [one.last_index for one in await asyncio.gather(*appends)] == list(range(1, 20))
    log = await opened(files)
    assert log.position == "p19"
    await log.close()


async def test_schemas_are_numbered_once_and_found_again():
    files = MemoryFiles()
    log = await opened(files)
    later = TableSchema(SCHEMA.table, 2, (*SCHEMA.columns, Column("more")), SCHEMA.key)
    assert await asyncio.gather(*(log.put_schema(later) for _ in range(5))) == [2] * 5
    assert log.latest_schema(SCHEMA.table) == (2, later)
    assert log.schema(SchemaId(1)) == SCHEMA
    await log.close()
    log = await Log.open(files, SMALL, FakeClock())
    assert dict(log.schemas()) == {1: SCHEMA, 2: later}
    assert log.latest_schema(TableName("app", "other")) is None
    await log.close()


async def test_a_draft_with_a_schema_that_was_not_put_is_refused_before_anything_is_written():
    log = await opened(MemoryFiles())
    wrong = Draft(Position("p"), 0)
    wrong.add(Op.INSERT, SchemaId(2), b"[1]")
    with pytest.raises(ValueError, match="schema"):
        await log.append([wrong])
    await log.append([draft(1)])
    assert log.head == 1
    await log.close()


async def test_an_append_that_no_frame_can_hold_is_refused(monkeypatch):
    monkeypatch.setattr("tailrace.log.group.APPEND_BYTES_MAX", 1000)
    log = await opened(MemoryFiles())
    with pytest.raises(AppendTooLargeError):
        await log.append([draft(1, 100)])
    await log.append([draft(2)])
    assert log.position == "p2"
    await log.close()


async def test_a_full_disk_is_told_to_everybody_who_waits_and_it_goes_on_by_itself():
    files = MemoryFiles()
    log = await opened(files)
    await log.append([draft(1)])
    files.capacity_bytes = files.used_bytes()
    results = await asyncio.gather(*(log.append([draft(2, 200)]) for _ in range(10)), return_exceptions=True)
    assert {type(result) for result in results} == {LogFullError}
    assert (log.head, log.position) == (1, "p1")
    files.capacity_bytes = None
    await log.append([draft(3)])
    assert await read_from(log, 0) == rows_of([draft(1), draft(3)])
    assert verify(files).problems == ()
    await log.close()


@pytest.mark.parametrize("fault", ["fail_writes", "fail_syncs"])
async def test_what_waited_behind_a_failed_append_fails_too_so_that_there_is_no_hole(fault):
    files = MemoryFiles()
    log = await opened(files, replace(SMALL, frame_changes_max=10, pending_changes_max=60))
    await log.append([draft(1)])
    setattr(files, fault, 1)
    results = await asyncio.gather(*(log.append([draft(number, 9)]) for number in range(2, 40)), return_exceptions=True)
    assert all(isinstance(result, LogWriteError) for result in results)
    assert log.head == 1
    again = await asyncio.gather(*(log.append([draft(number, 9)]) for number in range(2, 40)))
    assert again[0].first_offset == 2
    assert await read_from(log, 0) == rows_of([draft(1), *(draft(number, 9) for number in range(2, 40))])
    assert (await log.append([draft(40)])).first_index == 40
    await log.close()


async def test_nothing_is_shown_before_it_is_synced():
    files = MemoryFiles()
    log = await opened(files)
    await log.append([draft(1)])
    files.lock.acquire()
    try:
        appending = asyncio.create_task(log.append([draft(2)]))
        for _ in range(20):
            await asyncio.sleep(0)
        assert log.head == 1
        assert await log.wait(Offset(1), 0.01) is False
        assert await log.read(Offset(1)) is None
    finally:
        files.lock.release()
    await appending
    assert log.head == 2
    await log.close()


async def test_appends_wait_while_too_much_is_pending():
    files = MemoryFiles()
    log = await opened(files, replace(SMALL, pending_changes_max=10))
    files.lock.acquire()
    try:
        appends = [asyncio.create_task(log.append([draft(number, 5)])) for number in range(1, 11)]
        for _ in range(20):
            await asyncio.sleep(0)
        assert log._group._pending_changes == 10
    finally:
        files.lock.release()
    assert [one.first_index for one in await asyncio.gather(*appends)] == list(range(1, 11))
    await log.close()


async def test_damage_in_the_ring_s_past_is_told_to_the_reader_only():
    files = MemoryFiles()
    log = await opened(files, TINY)
    for number in range(1, 41):
        await log.append([draft(number, 3)])
    name = segment_names(files)[0]
    data = bytearray(files.bytes_of(name))
    data[-9] ^= 1
    files.put(name, bytes(data))
    with pytest.raises(CorruptSegmentError) as caught:
        await read_from(log, 0)
    assert caught.value.segment == name
    await log.append([draft(41)])
    assert (await log.read(Offset(log.head - 1))) is not None
    await log.close()


async def test_the_horizon_is_exact_to_the_change_and_whole_segments_go():
    files = MemoryFiles()
    log = await opened(files, replace(TINY, retention_changes=20))
    chance = random.Random(1)
    total = 0
    for number in range(1, 120):
        total += (one := draft(number, chance.randrange(1, 6))) and len(one)
        await log.append([one])
        assert (log.head, log.horizon) == (total, max(1, total - 19))
        assert len(await read_from(log, log.horizon - 1)) == min(20, total)
    await log.retain()
    summaries = await log.segments()
    assert summaries[0].last_offset >= log.horizon
    assert len(summaries) <= 4
    assert len(files.names()) <= 2 * 4 + 2
    await log.close()
    log = await opened(files, replace(TINY, retention_changes=30))
    assert log.horizon == total - 19, "it never moves back"
    await log.close()


async def test_retention_by_bytes_keeps_the_newest_frames_that_fit():
    files = MemoryFiles()
    log = await opened(files, replace(TINY, retention_bytes=8000))
    for number in range(1, 41):
        await log.append([draft(number, 3)])
        await log.retain()
        kept = [row[1] for row in await read_from(log, log.horizon - 1)]
        assert not kept or kept.count(kept[0]) == 3, "cut at a frame"
        size = sum(summary.size_bytes for summary in await log.segments())
        assert size <= 8000 + 5000 + 2000
    assert 5 <= (log.head - log.horizon + 1) / 3 <= 9
    await log.close()


async def test_retention_by_age_forgets_everything_but_the_position():
    files, clock = MemoryFiles(), FakeClock()
    log = await opened(files, replace(TINY, retention_age_s=100.0), clock)
    for number in range(1, 31):
        await log.append([draft(number, 2)])
        clock.advance(10)
    await log.retain()
    assert (log.head, log.horizon) == (60, 41)
    clock.advance(1000)
    await log.retain()
    assert (log.head, log.horizon, log.position) == (60, 61, "p30")
    assert await log.read(Offset(60)) is None
    assert len(segment_names(files)) == 1
    await log.close()
    log = await opened(files, replace(TINY, retention_age_s=100.0), clock)
    assert (log.head, log.horizon, log.position) == (60, 61, "p30")
    await log.append([draft(31)])
    assert await read_from(log, 60) == rows_of([*(draft(number, 2) for number in range(1, 31)), draft(31)])[60:]
    await log.close()


async def test_a_clock_that_is_set_back_does_not_confuse_retention():
    files, clock = MemoryFiles(), FakeClock()
    log = await opened(files, replace(TINY, retention_age_s=100.0), clock)
    await log.append([draft(1)])
    clock.set_us(clock.now_us() - 3600 * 1_000_000)
    await log.append([draft(2)])
    await log.retain()
    assert log.horizon == 1
    summaries = await log.segments()
    assert all(summary.first_time_us <= summary.last_time_us for summary in summaries)
    await log.close()


async def test_retention_runs_by_itself():
    files = MemoryFiles()
    log = await opened(files, replace(TINY, retention_changes=5, retention_interval_s=0.01))
    for number in range(1, 60):
        await log.append([draft(number, 3)])
    async with asyncio.timeout(30):
        while len(segment_names(files)) > 2:
            await asyncio.sleep(0.005)
    await log.close()


async def test_readers_never_see_a_gap_or_a_repeat_while_others_append():
    files = MemoryFiles()
    log = await opened(files, replace(TINY, retention_changes=None))
    total = 400

    async def follow(pace: int) -> list:
        after, rows = 0, []
        while after < total:
            await log.wait(Offset(after), 10)
            chunk: Chunk | None = await log.read(Offset(after))
            if chunk is None:
                continue
            assert chunk.last <= log.head
            rows += [row for row in rows_in(chunk) if row[0] > after]
            after = chunk.last
            for _ in range(pace):
                await asyncio.sleep(0)
        return rows

    readers = [asyncio.create_task(follow(pace)) for pace in (0, 1, 5, 50)]
    drafts = [draft(number, 4) for number in range(1, 101)]
    for begin in range(0, 100, 5):
        await asyncio.gather(*(log.append([one]) for one in drafts[begin : begin + 5]))
    for rows in await asyncio.gather(*readers):
        assert rows == rows_of(drafts)
    await log.close()


async def test_a_log_that_cannot_be_opened_says_why():
    files = MemoryFiles()
    log = await opened(files)
    await log.append([draft(1)])
    await log.close()
    files.fail_syncs = 1
    with pytest.raises(LogWriteError):
        await Log.open(files, SMALL, FakeClock())


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


async def test_a_thread_appends_by_itself_and_everybody_sees_it_in_order():
    log = await opened(MemoryFiles())
    for number in range(1, 21):
        await asyncio.to_thread(log.append_now, [draft(number, 1 + number % 3)])
    async with asyncio.timeout(30):
        while log.last_index < 20:
            await log.wait(log.head, 1)
    offsets = [row[0] for row in await read_from(log, 0)]
    assert offsets == list(range(1, log.head + 1))
    assert log.position == draft(20, 1).position
    await log.close()


async def test_appends_of_a_thread_and_of_tasks_are_numbered_densely_together():
    files = MemoryFiles()
    log = await opened(files)
    by_thread = [draft(number, 2) for number in range(1, 41)]
    by_task = [draft(number, 3) for number in range(41, 81)]

    def append_all() -> None:
        for one in by_thread:
            log.append_now([one])

    await asyncio.gather(asyncio.to_thread(append_all), *(log.append([one]) for one in by_task))
    assert (log.head, log.last_index) == (40 * 2 + 40 * 3, 80)
    await log.close()
    checked = verify(files)
    assert (checked.problems, checked.commits, checked.changes) == ((), 80, 200)


async def test_a_thread_is_told_that_the_disk_is_full_and_appends_when_there_is_room():
    files = MemoryFiles()
    log = await opened(files)
    await log.append([draft(1, 1)])
    files.capacity_bytes = files.used_bytes()
    with pytest.raises(LogFullError):
        await asyncio.to_thread(log.append_now, [draft(2, 500)])
    assert log.head == 1
    files.capacity_bytes = None
    await asyncio.to_thread(log.append_now, [draft(2, 500)])
    assert await log.wait(Offset(500), 30)
    await log.close()
    with pytest.raises(LogClosedError):
        log.append_now([draft(3, 1)])


async def test_a_sync_that_fails_in_a_thread_leaves_the_log_whole():
    files = MemoryFiles()
    log = await opened(files)
    files.fail_syncs = 1
    with pytest.raises(LogWriteError):
        await asyncio.to_thread(log.append_now, [draft(1, 1)])
    await asyncio.to_thread(log.append_now, [draft(1, 1)])
    assert await log.wait(Offset(0), 30)
    await log.close()
    assert verify(files).commits == 1
