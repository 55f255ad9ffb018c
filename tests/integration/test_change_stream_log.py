"""Change streams over the real log: while it grows and joins its chunks, across segments, and behind restarts."""

import asyncio
import itertools

import pytest

from tailrace.clock import SystemClock
from tailrace.delivery.grpc.proto import coordinode_cdc_pb2 as proto
from tailrace.interface.coordinode.cursor import CommitCursor
from tailrace.interface.coordinode.operation import Mapper
from tailrace.interface.coordinode.place import find_place
from tailrace.interface.coordinode.selection import CommitSelection
from tailrace.interface.coordinode.shard import StreamShard, Terms
from tailrace.interface.coordinode.token import ResumeToken
from tailrace.interface.coordinode.window import Placing, Windows
from tailrace.log.files import DiskFiles
from tailrace.log.log import Log
from tailrace.log.options import LogOptions
from tailrace.model.chunk import Chunk
from tailrace.model.commit import Draft
from tailrace.model.number import Position
from tailrace.model.op import Op
from tailrace.model.table import Column, Kind, TableName, TableSchema
from tailrace.testing.call import messages_of

SCHEMA = TableSchema(TableName("app", "t"), 1, (Column("id", Kind.I64),), ("id",))
SIZES = [1, 3, 700, 1, 1, 1200, 2, 5000, 1, 1]


def draft(size):
    made = Draft(Position("p"), 0)
    for number in range(size):
        made.add(Op.INSERT, 1, b"[%d]" % number, after=b'{"id":%d}' % number)
    return made


async def opened(path, **options):
    log = await Log.open(DiskFiles(path), LogOptions(**options), SystemClock())
    await log.put_schema(SCHEMA)
    return log


def cursor_of(log, following, after, event_bytes_max=4_000_000):
    shard = StreamShard(0, "app", log, Terms([(1, 1)]))
    placing = Placing(shard, event_bytes_max, merged=False)
    return CommitCursor(placing, Mapper(0, {}), Windows(1 << 20), CommitSelection(), None, following, after)


async def read_all(cursor):
    events = []
    while (reading := await cursor.advance()) is not None:
        for piece in reading.pieces(1 << 16):
            events += map(proto.ChangeEvent.FromString, messages_of(piece))
    return events


def summary(events):
    return [(event.log_index, len(event.ops)) for event in events]


EXPECTED = list(enumerate(SIZES, start=1))


@pytest.mark.parametrize(
    "options",
    [{}, {"segment_bytes_max": 1}, {"ring_changes_max": 1, "cache_bytes_max": 1, "segment_bytes_max": 100_000}],
    ids=["in the ring", "a segment each", "from segments"],
)
async def test_all_commits_are_read_from_wherever_they_are(tmp_path, options):
    log = await opened(tmp_path, **options)
    for size in SIZES:
        await log.append([draft(size)])
    shard = StreamShard(0, "app", log, Terms([(1, 1)]))
    events = await read_all(cursor_of(log, *await find_place(shard, None)))
    assert summary(events) == EXPECTED
    for number, event in enumerate(events):
        position = ResumeToken(0, event.position.segment_id, event.position.entry_offset)
        assert position.segment in log.segment_indexes
        following, after = await find_place(shard, position)
        assert following == number + 2
        assert summary(await read_all(cursor_of(log, following, after))) == EXPECTED[number + 1 :]
    await log.close()
    reopened = await opened(tmp_path, **options)
    again = await read_all(cursor_of(reopened, *await find_place(StreamShard(0, "app", reopened, shard.terms), None)))
    assert [event.ts for event in again] == [event.ts for event in events]
    await reopened.close()


async def test_a_reader_at_the_head_gets_every_commit_while_small_chunks_are_joined(tmp_path):
    log = await opened(tmp_path)
    cursor = cursor_of(log, 1, 0)
    sizes = [1, 2, 600, 1] * 40
    events = []

    async def write():
        for size in sizes:
            await log.append([draft(size)])

    writing = asyncio.create_task(write())
    async with asyncio.timeout(60):
        while len(events) < len(sizes):
            await log.wait(cursor.after, 1.0)
            events += await read_all(cursor)
    await writing
    assert summary(events) == list(enumerate(sizes, start=1))
    await log.close()


async def test_a_commit_is_read_on_when_its_chunk_was_cut_elsewhere_meanwhile(tmp_path):
    log = await opened(tmp_path, ring_changes_max=1, cache_bytes_max=1)
    await log.append([draft(3)])
    await log.append([draft(9000)])
    await log.append([draft(2)])
    cursor = cursor_of(log, 1, 0, event_bytes_max=10_000)
    events, whole = [], log.read
    for number in itertools.count():
        log.read = cut_elsewhere(whole) if number % 2 else whole
        reading = await cursor.advance()
        if reading is None:
            break
        for piece in reading.pieces(1 << 16):
            events += map(proto.ChangeEvent.FromString, messages_of(piece))
    counts = {}
    for event in events:
        counts[event.log_index] = counts.get(event.log_index, 0) + len(event.ops)
    assert counts == {1: 3, 2: 9000, 3: 2}
    await log.close()


def cut_elsewhere(read):
    """Return a read that gives chunks which begin 100 changes before what is wanted, where they can."""

    async def cut(after):
        chunk = await read(after)
        row = 0 if chunk is None else max(0, after + 1 - chunk.first - 100)
        return chunk and Chunk(chunk.batch.slice(row), chunk.schemas)

    return cut
