"""Facts about reading a log in bulk, beyond what it keeps in memory."""

import asyncio
from contextlib import asynccontextmanager

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from feeding import draft_of, schema_of
from log_samples import SMALL
from tailrace.log.log import Log
from tailrace.log.segment import segment_index
from tailrace.model.errors import BehindHorizonError, BeyondHeadError, CorruptSegmentError
from tailrace.model.number import Offset
from tailrace.model.op import Op
from tailrace.subscription.bulk import BULK_SCHEMA, bulk_runs
from tailrace.testing.clock import FakeClock
from tailrace.testing.files import MemoryFiles

OPTIONS = replace(SMALL, ring_changes_max=8, cache_bytes_max=1, segment_bytes_max=5000)
TABLES = ("users", "orders", "secrets")


@asynccontextmanager
async def filled(files, commits):
    """Give a log whose commits have a change for each number of a schema, most of them on disk alone."""
    log = await Log.open(files, OPTIONS, FakeClock())
    for name in TABLES:
        await log.put_schema(schema_of(name))
    for numbers in commits:
        await log.append([draft_of([(Op.INSERT, number) for number in numbers])])
    try:
        yield log
    finally:
        await log.close()


async def read(log, after, through, schemas=None):
    """Return the changes of an interval, and up to where each run goes."""
    runs = [run async for run in bulk_runs(log, Offset(after), Offset(through), schemas, list)]
    batches = [batch for _, made in runs for batch in made]
    return pa.Table.from_batches(batches, BULK_SCHEMA), [place for place, _ in runs]


@given(
    commits=st.lists(st.lists(st.integers(1, len(TABLES)), min_size=1, max_size=6), min_size=1, max_size=60),
    cuts=st.tuples(st.integers(0, 400), st.integers(0, 400)),
    schemas=st.none() | st.frozensets(st.integers(1, len(TABLES))),
)
async def test_a_reader_gets_every_wanted_change_of_an_interval_and_no_other(commits, cuts, schemas):
    numbers = [number for commit in commits for number in commit]
    after, through = sorted(min(cut, len(numbers)) for cut in cuts)
    async with filled(MemoryFiles(), commits) as log:
        got, places = await read(log, after, through, schemas)
    wanted = [
        (offset, number)
        for offset, number in enumerate(numbers, start=1)
        if after < offset <= through and (schemas is None or number in schemas)
    ]
    assert list(zip(got["offset"].to_pylist(), got["schema"].to_pylist(), strict=True)) == wanted
    assert places == sorted(set(places))
    assert places[-1:] == [through] * (after < through)


async def test_a_table_that_comes_while_a_reader_reads_is_not_in_what_it_gets():
    async with filled(MemoryFiles(), [[1] * 5] * 40) as log:
        runs = bulk_runs(log, Offset(0), log.head, frozenset({1, 2, 3}), list)
        seen = [await anext(runs)]
        hidden = await log.put_schema(schema_of("hidden"))
        await log.append([draft_of([(Op.INSERT, hidden)] * 3)])
        seen += [run async for run in runs]
    schemas = [number for _, made in seen for batch in made for number in batch["schema"].to_pylist()]
    assert schemas == [1] * 200


async def test_a_reader_that_retention_overtakes_is_told_so():
    files = MemoryFiles()
    async with filled(files, [[1] * 5] * 40) as log:
        for name in [name for name in files.names() if segment_index(name) is not None][:2]:
            files.remove(name)
        with pytest.raises(BehindHorizonError) as behind:
            await read(log, 0, 200)
        with pytest.raises(BeyondHeadError):
            await read(log, 0, 201)
    assert behind.value.requested == 1


@pytest.mark.parametrize("read_ahead", [False, True], ids=["while more is read", "when more was read"])
async def test_a_reader_that_leaves_early_leaves_nothing_behind(read_ahead):
    async with filled(MemoryFiles(), [[1] * 5] * 40) as log:
        tasks = asyncio.all_tasks()
        runs = bulk_runs(log, Offset(0), log.head, None, list)
        await anext(runs)
        while read_ahead and asyncio.all_tasks() != tasks:
            await asyncio.sleep(0)
        await runs.aclose()
        await asyncio.sleep(0)
        assert asyncio.all_tasks() == tasks


async def test_damage_is_told_to_the_reader():
    files = MemoryFiles()
    async with filled(files, [[1] * 5] * 40) as log:
        name = next(name for name in files.names() if segment_index(name) is not None)
        data = bytearray(files.bytes_of(name))
        data[-9] ^= 1
        files.put(name, bytes(data))
        with pytest.raises(CorruptSegmentError) as damaged:
            await read(log, 0, 200)
    assert damaged.value.segment == name


async def test_a_large_commit_is_read_once_and_comes_in_pieces():
    async with filled(MemoryFiles(), [[1], [1, 2] * 10_000, *[[1]] * 9]) as log:
        loads = []
        load = log._segments.load
        log._segments.load = lambda offset: loads.append(offset) or load(offset)
        got, places = await read(log, 0, 20_005)
    assert got["offset"].to_pylist() == list(range(1, 20_006))
    assert len(places) > 4
    assert len(loads) <= 2


async def test_what_is_read_in_bulk_takes_no_memory_from_others():
    async with filled(MemoryFiles(), [[1] * 5] * 40) as log:
        before = log._reads._cache.size_bytes
        assert (await read(log, 0, 200))[0].num_rows == 200
        assert log._reads._cache.size_bytes == before
