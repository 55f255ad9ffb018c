"""Facts about commits in parts: invisible until the last part is on disk, gone after a break before it."""

import asyncio
import random
from contextlib import closing

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from log_samples import SCHEMA, SMALL, PlainLog, contents, draft, hlcs_of, parts_of, rows_in, rows_of
from tailrace.log.frame import frame_header, scan
from tailrace.log.hybrid import HybridClock
from tailrace.log.log import Log
from tailrace.log.reader import LogReader
from tailrace.log.recover import examine
from tailrace.log.segment import PARTS_VERSION, PLAIN_VERSION, segment_index
from tailrace.log.segments import list_segments
from tailrace.log.verify import verify
from tailrace.model.commit import CommitId, Draft
from tailrace.model.errors import LogFullError, LogWriteError
from tailrace.model.number import Index, Offset
from tailrace.testing.clock import FakeClock
from tailrace.testing.files import Crash, MemoryFiles

ROTATING = replace(SMALL, segment_bytes_max=3500)
TINY = replace(SMALL, ring_changes_max=8, cache_bytes_max=1, segment_bytes_max=5000)


COMMITS = [draft(1), draft(2, 9, "x" * 30), draft(3, 2), draft(4, 12, "y" * 90), draft(5), draft(6, 6)]
STEPS = [
    [COMMITS[0]],
    *([part] for part in parts_of(COMMITS[1], 3)),
    [COMMITS[2]],
    *([part] for part in parts_of(COMMITS[3], 4)),
    [COMMITS[4]],
    *([part] for part in parts_of(COMMITS[5], 2)),
]
ROWS = rows_of(COMMITS)


async def opened(files: MemoryFiles, options=SMALL, **more) -> Log:
    log = await Log.open(files, options, FakeClock(), **more)
    await log.put_schema(SCHEMA)
    return log


async def read_all(log) -> list:
    rows, after = [], log.horizon - 1
    while (chunk := await log.read(Offset(after))) is not None:
        assert chunk.last <= log.head
        rows += [row for row in rows_in(chunk) if row[0] > after]
        after = chunk.last
    return rows


@pytest.mark.parametrize("options", [SMALL, ROTATING, TINY], ids=["one segment", "several segments", "no memory"])
async def test_a_commit_in_parts_reads_like_any_other(options):
    files = MemoryFiles()
    log = await opened(files, options)
    for step in STEPS:
        await log.append(step)
        rows = await read_all(log)
        assert rows == ROWS[: log.head]
        assert not rows or rows[-1][4] is not None  # nothing of a commit that is not whole
        assert LogReader(files).head == log.head
        assert verify(files).problems == ()
        assert (await log.commits.first_index(), log.horizon) == (1, 1)
    assert (log.head, log.last_index, log.last_commit) == (31, 6, CommitId("p6", 6))
    await log.close()
    assert contents(files) == ROWS
    verified = verify(files)
    assert (verified.problems, verified.commits, verified.changes, verified.head) == ((), 6, 31, 31)


async def test_nobody_is_woken_before_the_last_part():
    log = await opened(MemoryFiles())
    waiting = asyncio.create_task(log.wait(Offset(0), 30))
    first, second, last = parts_of(draft(1, 9), 3)
    appended = [await log.append([first]), await log.append([second])]
    await asyncio.sleep(0)
    assert not waiting.done()
    assert (log.head, log.last_index, log.position) == (0, 0, None)
    appended.append(await log.append([last]))
    assert await waiting
    assert [(one.first_index, one.first_offset, one.last_offset) for one in appended] == [
        (1, 1, 3),
        (1, 4, 6),
        (1, 7, 9),
    ]
    await log.close()


async def test_all_parts_have_one_timestamp_and_it_is_not_complete_before_the_last():
    files, hybrid = MemoryFiles(), HybridClock()
    log, other = await opened(files, hybrid=hybrid), await opened(MemoryFiles(), hybrid=hybrid)
    await log.append([draft(1)])
    first, second, last = parts_of(draft(2, 6), 3)
    await log.append([first])
    complete = log.hlc_complete
    await other.append([draft(1)])
    await log.append([second])
    assert log.hlc_complete == complete
    await log.append([last])
    stamps = hlcs_of(files)
    assert stamps[1] <= complete < stamps[2] <= log.hlc_complete
    await log.append([first])
    held = log.hlc_complete
    log.abandon()
    assert held < log.hlc_complete
    await other.close()
    await log.close()


@pytest.mark.parametrize("options", [SMALL, ROTATING], ids=["in one segment", "in several segments"])
def test_a_crash_at_any_operation_leaves_whole_commits_and_all_acknowledged_ones(options):
    at = 0
    while True:
        files = MemoryFiles()
        files.crash_at = at
        acknowledged = 0
        try:
            log = PlainLog(files, options)
            for step in STEPS:
                log.append(*step)
                acknowledged += not step[-1].more
            log.writer.close()
        except Crash:
            for seed in range(6):
                after = files.after_crash(seed)
                commits = examine(after).last_index
                assert acknowledged <= commits <= acknowledged + 1
                assert verify(after).problems == ()
                again = PlainLog(after, options)
                assert again.found.last_index == commits
                assert again.found.position == (COMMITS[commits - 1].position if commits else None)
                for one in COMMITS[commits:]:
                    for part in parts_of(one, 2) if len(one) > 4 else [one]:
                        again.append(part)
                assert contents(after) == ROWS
                assert verify(after).problems == ()
            at += 1
        else:
            break
    assert at > 40


def unfinished() -> MemoryFiles:
    """Return a log with one commit, and two of three parts of another, as a kill leaves it."""
    files = MemoryFiles()
    log = PlainLog(files)
    log.append(draft(1))
    for part in parts_of(draft(2, 9), 3)[:2]:
        log.append(part)
    return files


@pytest.mark.parametrize("with_state", [True, False])
def test_every_cut_of_unfinished_parts_leaves_the_commits_before_them(with_state):
    whole = unfinished()
    name = next(name for name in reversed(whole.names()) if segment_index(name) is not None)
    data = whole.bytes_of(name)
    for size in range(int.from_bytes(data[16:20], "little"), len(data)):
        files = whole.copy()
        files.put(name, data[:size])
        if not with_state:
            files.remove("state")
        assert contents(files) == rows_of([draft(1)])
        assert verify(files).problems == ()
        log = PlainLog(files)
        log.append(draft(2, 2))
        assert contents(files) == rows_of([draft(1), draft(2, 2)])


def test_what_is_unfinished_is_told_as_torn_and_cut_by_the_next_open():
    files = unfinished()
    files.remove("state")
    verified = verify(files)
    assert verified.problems == ()
    assert (verified.commits, verified.changes, verified.head) == (1, 1, 1)
    assert verified.torn_bytes > 0
    PlainLog(files).writer.close()
    assert verify(files).torn_bytes == 0


def test_a_last_part_that_is_missing_from_what_was_synced_is_a_problem():
    files = MemoryFiles()
    log = PlainLog(files)
    for part in parts_of(draft(1, 9), 3):
        log.append(part)
    log.writer.close()
    name = next(name for name in files.names() if segment_index(name) is not None)
    data = files.bytes_of(name)
    second = (
        int.from_bytes(data[16:20], "little") + frame_header(data, int.from_bytes(data[16:20], "little"), 0).frame_bytes
    )
    third = second + frame_header(data, second, 0).frame_bytes
    files.put(name, data[:third])
    assert verify(files).problems


@pytest.mark.parametrize("fault", ["write", "sync"])
async def test_a_failure_drops_all_parts_and_the_commit_can_be_appended_anew(fault):
    files = MemoryFiles()
    log = await opened(files)
    await log.append([draft(1)])
    first, second, last = parts_of(draft(2, 9), 3)
    await log.append([first])
    if fault == "write":
        files.fail_writes = 1
    else:
        files.fail_syncs = 1
    with pytest.raises(LogWriteError):
        await log.append([second])
    with pytest.raises(LogWriteError, match="from its first"):
        await log.append([last])
    assert (log.head, log.last_index) == (1, 1)
    for part in (first, second, last):
        await log.append([part])
    await log.append([draft(3)])
    assert await read_all(log) == rows_of([draft(1), draft(2, 9), draft(3)])
    await log.close()
    assert contents(files.after_crash(0)) == rows_of([draft(1), draft(2, 9), draft(3)])
    assert verify(files).problems == ()


async def test_a_full_disk_gives_the_space_of_the_parts_back():
    files = MemoryFiles()
    log = await opened(files)
    await log.append([draft(1)])
    first, second, last = parts_of(draft(2, 9, "x" * 300), 3)
    files.capacity_bytes = files.used_bytes() + 8000
    await log.append([first])
    used = files.used_bytes()
    files.capacity_bytes = used + 100
    with pytest.raises(LogFullError):
        await log.append([second])
    assert files.used_bytes() < used
    files.capacity_bytes = None
    for part in (first, second, last):
        await log.append([part])
    assert await read_all(log) == rows_of([draft(1), draft(2, 9, "x" * 300)])
    await log.close()


@pytest.mark.parametrize("abandon", [True, False], ids=["given up", "overtaken"])
async def test_a_commit_that_is_not_finished_leaves_no_trace(abandon):
    files = MemoryFiles()
    log = await opened(files)
    await log.append([draft(1)])
    first, second, _ = parts_of(draft(2, 9), 3)
    await log.append([first])
    await log.append([second])
    if abandon:
        log.abandon()
    await log.append([draft(3, 2)])
    await log.append([draft(4)])
    assert await read_all(log) == rows_of([draft(1), draft(3, 2), draft(4)])
    await log.append([first])
    await log.close()
    assert contents(files) == rows_of([draft(1), draft(3, 2), draft(4)])
    assert (verify(files).problems, verify(files).torn_bytes) == ((), 0)


@pytest.mark.parametrize("seed", range(40))
def test_faults_at_random_lose_no_acknowledged_commit_and_show_no_half_one(seed):
    chance = random.Random(seed)
    files = MemoryFiles()
    log = PlainLog(files, replace(ROTATING, segment_bytes_max=chance.choice([2000, 3500, 1 << 20])))
    kept: list[Draft] = []
    for number in range(1, 16):
        one = draft(number, chance.randint(1, 9), "z" * chance.randint(0, 120))
        if chance.random() < 0.3:
            files.fail_writes = chance.randint(0, 1)
            files.fail_syncs = chance.randint(0, 2)
        try:
            for part in parts_of(one, chance.randint(1, 4)):
                log.append(part)
                if chance.random() < 0.1 and part.more:
                    raise OSError  # the source has broken off
        except OSError:
            continue
        kept.append(one)
    files.fail_writes = files.fail_syncs = 0
    assert contents(files.after_crash(0)) == rows_of(kept)
    assert verify(files.after_crash(0)).problems == ()


@given(st.lists(st.tuples(st.integers(1, 7), st.integers(1, 4)), min_size=1, max_size=12))
def test_any_mixture_reads_back_as_it_was_appended(shapes):
    files = MemoryFiles()
    log = PlainLog(files, ROTATING)
    commits = [draft(number, changes) for number, (changes, _) in enumerate(shapes, 1)]
    for one, (_, parts) in zip(commits, shapes, strict=True):
        for part in parts_of(one, parts):
            log.append(part)
    assert contents(files) == rows_of(commits)
    assert verify(files).problems == ()


async def test_each_commit_is_found_by_index_and_timestamp_also_over_many_blocks(monkeypatch):
    monkeypatch.setattr("tailrace.log.sparse.BLOCK_BYTES", 600)
    files = MemoryFiles()
    log = await opened(files, replace(TINY, segment_bytes_max=1 << 20))
    for step in STEPS:
        await log.append(step)
    stamps = hlcs_of(files)
    firsts = {index: offset for offset, index, *_ in reversed(ROWS)}
    for index, first in firsts.items():
        assert await log.commits.offset_before(Index(index)) == first - 1
        assert await log.commits.index_after_hlc(stamps[index] - 1) == index
        assert await log.commits.index_after_hlc(stamps[index]) == index + 1
    await log.close()


async def test_only_segments_with_parts_are_of_the_newer_version_and_hold_each_commit_whole():
    files = MemoryFiles()
    log = await opened(files, ROTATING)
    for step in STEPS:
        await log.append(step)
    await log.close()
    segments = list_segments(files)
    assert {segment.version for segment in segments} == {PLAIN_VERSION, PARTS_VERSION}
    for segment in segments:
        with closing(files.open(segment.name)) as file:
            frames = [header for _, header in scan(file.read_at, segment.header_bytes, file.size())]
        assert any(header.continues for header in frames) == (segment.version == PARTS_VERSION)
        assert not frames[-1].continues
        assert segment.first_offset == 1 or ROWS[segment.first_offset - 2][4] is not None


async def test_a_part_is_appended_alone():
    log = await opened(MemoryFiles())
    first, _ = parts_of(draft(1, 4), 2)
    with pytest.raises(ValueError, match="alone"):
        await log.append([first, draft(2)])
    with pytest.raises(LogWriteError, match="from its first"):
        await log.append([parts_of(draft(1, 4), 2)[1]])
    await log.append([draft(2)])
    assert await read_all(log) == rows_of([draft(2)])
    await log.close()


async def test_retention_may_cut_into_a_commit_as_into_any_other():
    files = MemoryFiles()
    log = await opened(files, replace(SMALL, retention_changes=4))
    for part in parts_of(draft(1, 9), 3):
        await log.append([part])
    assert (log.head, log.horizon) == (9, 6)
    assert await log.commits.first_index() == 2
    assert [row[0] for row in await read_all(log)] == [6, 7, 8, 9]
    await log.close()
