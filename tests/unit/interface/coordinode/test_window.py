"""What is kept of encoded commits for other streams."""

import pytest

from held import held_memory
from tailrace.interface.coordinode.operation import Mapper
from tailrace.interface.coordinode.selection import CommitSelection
from tailrace.interface.coordinode.shard import StreamShard, Terms
from tailrace.interface.coordinode.window import Placing, Windows
from tailrace.log.hybrid import HybridClock
from tailrace.model.commit import Draft
from tailrace.model.op import Op
from tailrace.model.table import Column, Kind, TableName, TableSchema
from tailrace.testing.log import MemoryLog

USERS = TableSchema(TableName("app", "users"), 1, (Column("id", Kind.I64), Column("note", Kind.STR)), ("id",))


async def filled(commits, changes, note):
    log = MemoryLog(HybridClock())
    await log.put_schema(USERS)
    for number in range(commits):
        draft = Draft("p", number)
        for key in range(changes):
            draft.add(Op.INSERT, 1, b"[%d]" % key, after=b'{"id":%d,"note":"%s"}' % (key, note))
        await log.append([draft])
    return log


async def chunks_of(log):
    after, chunks = 0, []
    while (chunk := await log.read(after)) is not None:
        chunks.append(chunk)
        after = chunk.last
    return chunks


async def test_streams_share_what_was_encoded():
    log = await filled(3, 2, b"n")
    shard, mapper, windows = StreamShard(0, "app", log, Terms([(1, 1)])), Mapper(0, {}), Windows(1 << 20)
    placing = Placing(shard, 4_000_000, merged=False)
    (chunk, *_) = await chunks_of(log)
    first = windows.get(chunk, 0, mapper, CommitSelection(), placing, None)
    again = windows.get(chunk, 0, mapper, CommitSelection(), placing, None)
    other = windows.get(chunk, 0, mapper, CommitSelection(frozenset({"follows"})), placing, None)
    assert again[0] is first[0] is other[0]
    assert again[1] is first[1]
    assert other[1].data == b""


@pytest.mark.parametrize(("changes", "note"), [(1, b"n"), (40, b"n" * 200)], ids=["small", "large"])
async def test_what_is_counted_is_what_is_held(changes, note):
    log = await filled(60, changes, note)
    shard, mapper, windows = StreamShard(0, "app", log, Terms([(1, 1)])), Mapper(0, {}), Windows(100_000)
    placing, selection = Placing(shard, 4_000_000, merged=False), CommitSelection()
    around = held_memory(windows, shard, mapper, placing, selection)
    most = 0
    for chunk in await chunks_of(log):
        windows.get(chunk, 0, mapper, selection, placing, None)
        most = max(most, windows.size_bytes)
        assert held_memory(windows, shard, mapper, placing, selection) - around <= windows.size_bytes <= 100_000
    assert most > 50_000
