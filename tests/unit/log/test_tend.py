"""Compaction as a log does it by itself: readers notice nothing, retention goes on, and it ends when the log does."""

import asyncio

import pytest
from msgspec.structs import replace

from log_samples import SCHEMA, SMALL, contents, draft, rows_of
from tailrace.clock import SystemClock
from tailrace.log.log import Log
from tailrace.log.options import LogOptions
from tailrace.log.segment import segment_index, statistics_name
from tailrace.log.segments import list_segments
from tailrace.log.verify import verify
from tailrace.model.errors import BehindHorizonError
from tailrace.model.number import Index, Offset, SchemaId
from tailrace.model.wanted import AnyKey, Wanted
from tailrace.testing.files import MemoryFiles

OPTIONS = replace(SMALL, segment_bytes_max=40_000, frame_changes_max=1, ring_changes_max=1, cache_bytes_max=0)
BY_HAND = replace(OPTIONS, compact=False)
DRAFTS = [draft(number) for number in range(1, 121)]


async def opened(files: MemoryFiles, options: LogOptions = BY_HAND) -> Log:
    log = await Log.open(files, options, SystemClock())
    await log.put_schema(SCHEMA)
    return log


async def written(files: MemoryFiles, options: LogOptions = BY_HAND) -> Log:
    log = await opened(files, options)
    await asyncio.gather(*(log.append([one]) for one in DRAFTS))
    return log


async def keys_of(log: Log) -> list[bytes]:
    keys: list[bytes] = []
    while (chunk := await log.read(Offset(len(keys)))) is not None:
        keys += chunk.batch.column("key").to_pylist()[len(keys) + 1 - chunk.first :]
    return keys


def compacted(files: MemoryFiles) -> list[bool]:
    return [segment.compacted for segment in list_segments(files)]


async def test_sealed_segments_are_compacted_and_the_newest_is_not():
    files = MemoryFiles()
    log = await written(files)
    assert not any(compacted(files))
    used = files.used_bytes()
    await log.compact()
    assert compacted(files) == [True] * (len(log.segment_indexes) - 1) + [False]
    assert len(log.segment_indexes) > 2
    assert files.used_bytes() < used / 2
    assert await keys_of(log) == [one.keys[0] for one in DRAFTS]
    for index in (1, 50, 120):
        assert await log.commits.offset_before(index) == index - 1
    await log.append([draft(121)])
    await log.close()
    assert contents(files) == rows_of([*DRAFTS, draft(121)])
    assert verify(files).problems == ()


async def test_it_goes_by_itself_and_again_after_a_restart():
    files = MemoryFiles()
    log = await written(files)
    await log.close()
    log = await opened(files, replace(OPTIONS, compact_interval_s=0.001))
    async with asyncio.timeout(30):
        while not all(compacted(files)[:-1]) or statistics_name(Index(1)) not in files.names():
            assert len(await keys_of(log)) == 120
            await asyncio.sleep(0.001)
    await log.close()
    log = await opened(files)
    operations = files.operations
    await log.compact()
    assert files.operations == operations
    await log.close()


async def test_a_log_that_is_closed_gives_up_what_was_begun():
    files = MemoryFiles()
    log = await written(files, replace(OPTIONS, compact_interval_s=0.0))
    await log.close()
    assert not [name for name in files.names() if name.endswith(".tmp")]
    assert contents(files) == rows_of(DRAFTS)


async def test_a_reader_whose_place_was_in_the_old_blocks_reads_on():
    files = MemoryFiles()
    log = await written(files, replace(BY_HAND, cache_bytes_max=1 << 20))
    before = [await log.read(Offset(after)) for after in range(0, 100, 7)]
    await log.compact()
    assert await keys_of(log) == [one.keys[0] for one in DRAFTS]
    assert [chunk.first for chunk in before if chunk] == sorted(chunk.first for chunk in before if chunk)
    runs = await log.read_run(Offset(3), Offset(110), list)
    assert runs[0].first <= 4
    await log.close()


async def test_retention_removes_compacted_segments_with_all_that_belongs_to_them():
    files = MemoryFiles()
    log = await written(files)
    await log.compact()
    await log.close()
    log = await opened(files, replace(BY_HAND, retention_changes=10))
    await log.retain()
    kept = {segment_index(name) for name in files.names()} - {None}
    assert statistics_name(1) not in files.names()
    assert {name for name in files.names() if name.startswith("oplog-")} >= {
        statistics_name(i) for i in sorted(kept)[:-1]
    }
    with pytest.raises(BehindHorizonError):
        await log.skip(Offset(3), lambda: None)
    await log.close()


async def test_a_full_disk_leaves_the_log_as_it_is_and_later_it_goes_on():
    files = MemoryFiles()
    log = await written(files)
    files.capacity_bytes = files.used_bytes()
    with pytest.raises(OSError, match="space"):
        await log.compact()
    assert await keys_of(log) == [one.keys[0] for one in DRAFTS]
    files.capacity_bytes = None
    await log.compact()
    assert all(compacted(files)[:-1])
    await log.close()


async def test_a_damaged_segment_is_left_alone_and_the_others_are_compacted():
    files = MemoryFiles()
    log = await written(files)
    name = next(name for name in files.names() if segment_index(name) == 1)
    data = bytearray(files.bytes_of(name))
    data[len(data) // 2] ^= 1
    files.put(name, bytes(data))
    await log.compact()
    assert compacted(files)[:-1] == [False] + [True] * (len(log.segment_indexes) - 2)
    await log.close()


async def test_what_nobody_wants_is_passed_over_up_to_the_newest_segment():
    files = MemoryFiles()
    log = await written(files)
    other = Wanted({SchemaId(9): AnyKey()}, frozenset({1}), 9)
    assert await log.skip(Offset(0), lambda: other) == 0
    await log.compact()
    assert await log.skip(Offset(0), lambda: other) == log.segment_indexes[-1] - 1
    assert await log.skip(Offset(0), lambda: None) == 0
    mine = Wanted({SchemaId(1): AnyKey()}, frozenset({1}), 9)
    assert await log.skip(Offset(0), lambda: mine) == 0
    await log.close()
