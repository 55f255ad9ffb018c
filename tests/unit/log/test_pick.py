"""Picking: what a reader may want is there, and where it is few changes, nothing else."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from log_samples import SCHEMA
from tailrace.clock import SystemClock
from tailrace.log.files import DiskFiles
from tailrace.log.log import Log
from tailrace.log.options import LogOptions
from tailrace.log.pick import Pick
from tailrace.model.chunk import PickedChunk
from tailrace.model.commit import Draft
from tailrace.model.errors import CorruptSegmentError
from tailrace.model.number import Offset, Position, SchemaId
from tailrace.model.op import Op
from tailrace.model.table import TableName, TableSchema
from tailrace.model.wanted import AnyKey, KeyWithin, OneOfKeys, Wanted
from tailrace.testing.files import MemoryFiles
from wanting import block_of, changes, passes, wanteds

OPS = frozenset(map(int, Op))
RARE = Wanted({SchemaId(2): AnyKey()}, OPS, 2)
ALL = Wanted({SchemaId(1): AnyKey(), SchemaId(2): AnyKey()}, OPS, 2)
OPTIONS = LogOptions(segment_bytes_max=100_000, ring_changes_max=1, compact=False, frame_changes_max=500)


@given(st.lists(changes, min_size=1, max_size=30), wanteds)
def test_all_that_is_wanted_is_picked_and_little_else(rows, wanted):
    picked = Pick(wanted).rows(block_of(rows, 1).batch).to_pylist()
    wanted_rows = [row for row, change in enumerate(rows) if passes(wanted, change)]
    assert picked == sorted(picked)
    assert set(picked) >= set(wanted_rows)
    if not any(isinstance(key, KeyWithin) for key in wanted.schemas.values()):
        assert picked == wanted_rows


async def log_of(files, count: int, is_rare) -> Log:
    """Return a log in which some changes are of another table, all but the newest sealed."""
    log = await Log.open(files, OPTIONS, SystemClock())
    for name in ("a", "b"):
        await log.put_schema(TableSchema(TableName("app", name), 1, SCHEMA.columns, SCHEMA.key))
    drafts = []
    for number in range(1, count + 1):
        made = Draft(Position(str(number)), number)
        made.add(Op.INSERT, SchemaId(2 if is_rare(number) else 1), b"[%d]" % number, after=b'{"n":%d}' % number)
        drafts.append(made)
    for first in range(0, count, 500):
        await log.append(drafts[first : first + 500])
    return log


async def picked_of(log: Log, wanted: Wanted) -> tuple[list[int], int]:
    """Return the offsets of all changes that come for one who wants some, and how many others came with them."""
    found: list[int] = []
    others = 0
    after = Offset(0)
    while (chunk := await log.read(after, lambda: wanted)) is not None:
        assert chunk.first <= after + 1 <= chunk.last
        schemas = chunk.batch.column("schema").to_pylist()
        for row, (offset, schema) in enumerate(zip(chunk.batch.column("offset").to_pylist(), schemas, strict=True)):
            assert chunk.offset_of(row) == offset
            if schema in wanted.schemas:
                found.append(offset)
            else:
                others += 1
        after = chunk.last
    return found, others


@pytest.mark.usefixtures("finder")
@pytest.mark.parametrize("surveyed", [False, True])
async def test_few_changes_come_alone_and_many_with_all_others(tmp_path, surveyed):
    log = await log_of(DiskFiles(tmp_path), 20_000, lambda number: number % 100 == 0 or 9000 < number <= 10_000)
    if surveyed:
        await log.compact()
    expected = [n for n in range(1, 20_001) if n % 100 == 0 or 9000 < n <= 10_000]
    found, others = await picked_of(log, RARE)
    assert found == expected
    assert others < 4000
    assert await picked_of(log, ALL) == (list(range(1, 20_001)), 0)
    await log.close()


@pytest.mark.usefixtures("finder")
async def test_readers_that_want_the_same_share_what_was_picked():
    log = await log_of(MemoryFiles(), 5000, lambda number: number % 100 == 0)
    chunks = await asyncio.gather(*(log.read(Offset(0), lambda: RARE) for _ in range(20)))
    assert len({id(chunk) for chunk in chunks}) == 1
    assert isinstance(chunks[0], PickedChunk)
    other = await log.read(Offset(0), lambda: Wanted({SchemaId(2): OneOfKeys(frozenset({b"[100]"}))}, OPS, 2))
    assert other is not None
    assert len(other) == 1
    assert other.picked != chunks[0].picked
    await log.close()


@pytest.mark.usefixtures("finder")
async def test_a_reader_that_takes_a_part_at_a_time_has_blocks_read_once():
    log = await log_of(MemoryFiles(), 5000, lambda number: number % 100 == 0)
    whole = await log.read(Offset(0), lambda: RARE)
    assert whole is not None
    for after in (100, 101, 777, whole.last - 1):
        assert await log.read(Offset(after), lambda: RARE) is whole
    await log.close()


@pytest.mark.usefixtures("finder")
async def test_a_picked_chunk_is_cut_with_what_was_left_out():
    log = await log_of(MemoryFiles(), 1000, lambda number: number % 100 == 0)
    chunk = await log.read(Offset(0), lambda: RARE)
    assert chunk is not None
    assert (chunk.first, chunk.offsets(range(3)), chunk.row_after(Offset(250))) == (1, [100, 200, 300], 2)
    parts = [chunk.part(0, 2), chunk.part(2, 1), chunk.part(3, 100)]
    assert [(part.first, part.last) for part in parts] == [(1, 299), (201, 399), (301, chunk.last)]
    assert [part.offsets(range(len(part))) for part in parts[:2]] == [[100, 200], [300]]
    assert {part.picked for part in parts} == {chunk.picked}
    none = chunk.part(len(chunk), 5)
    assert (len(none), none.last) == (0, chunk.last)
    await log.close()


@pytest.mark.usefixtures("finder")
async def test_where_nothing_is_found_the_reader_gets_on():
    log = await log_of(MemoryFiles(), 3000, lambda _: False)
    chunk = await log.read(Offset(10), lambda: RARE)
    assert chunk is not None
    assert len(chunk) == 0
    assert chunk.last > 1000
    await log.close()


@pytest.mark.usefixtures("finder")
async def test_damage_is_found_also_where_nothing_is_wanted_behind_what_lies_before_it():
    files = MemoryFiles()
    log = await log_of(files, 10_000, lambda number: number % 100 == 0)
    damaged = (await log.segments())[2]
    data = files.bytes_of(damaged.name)
    place = len(data) // 2
    files.put(damaged.name, data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
    chunk = await log.read(Offset(0), lambda: RARE)
    assert chunk is not None
    assert damaged.first_offset <= chunk.last + 1 <= damaged.last_offset
    assert list(chunk.offsets(range(len(chunk)))) == list(range(100, chunk.last + 1, 100))
    with pytest.raises(CorruptSegmentError):
        await log.read(chunk.last, lambda: RARE)
    await log.close()


@pytest.mark.usefixtures("finder")
@pytest.mark.parametrize("wanted", [None, RARE], ids=["all", "picked"])
async def test_what_was_read_stays_when_other_blocks_are_read(tmp_path, wanted):
    log = await log_of(DiskFiles(tmp_path), 20_000, lambda number: number % 100 == 0)
    chunks, after = [], Offset(0)
    while (chunk := await log.read(after, lambda: wanted)) is not None:
        chunks.append(chunk)
        after = chunk.last
    await log.compact()
    numbers = [number for chunk in chunks for number in chunk.batch.column("offset").to_pylist()]
    assert set(numbers) >= set(range(1, 20_001) if wanted is None else range(100, 20_001, 100))
    images = [image for chunk in chunks for image in chunk.batch.column("after").to_pylist()]
    assert images == [b'{"n":%d}' % number for number in numbers]
    await log.close()


@pytest.mark.usefixtures("finder")
@pytest.mark.parametrize("place", [0.05, 0.5, 0.999])
@pytest.mark.parametrize("compacted", [False, True])
async def test_no_change_is_picked_from_a_frame_with_a_flipped_bit(place, compacted):
    files = MemoryFiles()
    log = await log_of(files, 10_000, lambda number: number % 100 == 0)
    if compacted:
        await log.compact()
    damaged = (await log.segments())[1]
    data = bytearray(files.bytes_of(damaged.name))
    at = 3000 + int(place * (len(data) - 3000))  # behind the header, which is read when the log is opened
    data[at] ^= 4
    files.put(damaged.name, bytes(data))
    found, after = [], Offset(0)
    while after + 1 < damaged.first_offset and (chunk := await log.read(after, lambda: RARE)) is not None:
        found += chunk.batch.column("after").to_pylist()
        after = chunk.last
    assert damaged.first_offset <= after + 1 <= damaged.last_offset
    with pytest.raises(CorruptSegmentError):
        await log.read(after, lambda: RARE)
    assert found == [b'{"n":%d}' % number for number in range(100, after + 1, 100)]
    await log.close()
