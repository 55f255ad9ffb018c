"""Facts about what subscriptions read of a log: on the real one, as another process follows it, and on the fake."""

import asyncio
import threading
from itertools import pairwise

import pytest

from feeding import draft_of, schema_of
from tailrace.clock import SystemClock
from tailrace.log.files import DiskFiles
from tailrace.log.followed import FollowedLog
from tailrace.log.log import Log
from tailrace.log.options import LogOptions
from tailrace.model.errors import BehindHorizonError, BeyondHeadError, LogClosedError
from tailrace.model.op import Op
from tailrace.model.table import TableName
from tailrace.model.wanted import AnyKey, Wanted
from tailrace.testing.log import MemoryLog

KEPT = 5


class Followed(FollowedLog):
    """A log that is followed as soon as it is published; what readers have no part in is done by the writer."""

    def __init__(self, writer, files):
        super().__init__(files, LogOptions())
        self._writer = writer
        self._publish()
        writer.listen(self._publish)

    def __getattr__(self, name):
        return getattr(self._writer, name)

    async def put_schema(self, schema):
        number = await self._writer.put_schema(schema)
        self._publish()
        return number

    async def close(self):
        await self._writer.close()
        super().close()

    def _publish(self):
        self.follow(self._writer.state, len(self._writer.schemas()))


@pytest.fixture(params=["the log", "the log followed", "the fake"])
async def log(request, tmp_path):
    if request.param.startswith("the log"):
        log = await Log.open(DiskFiles(tmp_path), LogOptions(retention_changes=KEPT), SystemClock())
        log = Followed(log, DiskFiles(tmp_path)) if request.param.endswith("followed") else log
    else:
        log = MemoryLog()
    await log.put_schema(schema_of("users"))
    yield log
    await log.close()


async def append(log, count):
    await log.append([draft_of([(Op.INSERT, 1)] * count)])
    if isinstance(log, MemoryLog):
        log.forget_before(max(1, log.head - KEPT + 1))


async def test_an_empty_log_has_nothing_to_read(log):
    assert (log.head, log.horizon) == (0, 1)
    assert await log.read(0) is None
    assert await log.wait(0, 0.01) is False


async def test_the_chunk_read_holds_the_change_that_follows(log):
    for _ in range(4):
        await append(log, 1)
    assert (log.head, log.horizon) == (4, 1)
    for after in range(4):
        chunk = await log.read(after)
        assert chunk.first <= after + 1 <= chunk.last
        assert chunk.schemas[1].table == TableName("app", "users")
    assert await log.read(4) is None


async def test_what_is_too_old_or_not_there_yet_is_told(log):
    await append(log, 9)
    assert (log.head, log.horizon) == (9, 5)
    with pytest.raises(BehindHorizonError) as behind:
        await log.read(3)
    assert (behind.value.requested, behind.value.horizon) == (4, 5)
    assert (await log.read(4)).last == 9
    with pytest.raises(BeyondHeadError) as beyond:
        await log.read(10)
    assert (beyond.value.requested, beyond.value.head) == (10, 9)


async def test_a_run_has_the_changes_that_follow_in_order(log):
    for _ in range(4):
        await append(log, 1)
    for after in range(4):
        for through in range(after + 1, 5):
            chunks = await log.read_run(after, through, list)
            assert chunks[0].first <= after + 1 <= chunks[0].last
            assert all(one.last + 1 == other.first for one, other in pairwise(chunks))
            assert chunks[-1].first <= through


async def test_a_run_is_handed_over_in_a_thread_whose_errors_are_told(log):
    await append(log, 1)
    assert await log.read_run(0, 1, lambda _: threading.get_ident()) != threading.get_ident()
    with pytest.raises(ZeroDivisionError):
        await log.read_run(0, 1, lambda _: 1 / 0)


async def test_what_is_lent_has_the_changes_that_follow_up_to_a_place(log):
    for _ in range(4):
        await append(log, 1)
    for after in range(4):
        for through in range(after + 1, 5):
            runs = await log.lend(after, through, 1, lambda chunks: [(one.first, one.last) for one in chunks])
            chunks = [chunk for run in runs for chunk in run]
            assert chunks[0][0] <= after + 1 <= chunks[0][1]
            assert all(one[1] + 1 == other[0] for one, other in pairwise(chunks))
            assert chunks[-1][1] <= through
            assert log.run_behind(after, 1) in (None, chunks[-1][1])
    with pytest.raises(BeyondHeadError):
        await log.lend(3, 5, 1, list)


async def test_a_run_that_is_too_old_or_not_there_yet_is_told(log):
    await append(log, 9)
    with pytest.raises(BehindHorizonError) as behind:
        await log.read_run(3, 9, list)
    assert (behind.value.requested, behind.value.horizon) == (4, 5)
    with pytest.raises(BeyondHeadError) as beyond:
        await log.read_run(8, 10, list)
    assert (beyond.value.requested, beyond.value.head) == (10, 9)


async def test_what_is_passed_over_is_never_wanted_and_what_is_too_old_or_not_there_yet_is_told(log):
    await append(log, 9)
    mine = Wanted({1: AnyKey()}, frozenset({Op.INSERT}), 1)
    assert [await log.skip(after, lambda: mine) for after in (4, 5, 9)] == [4, 5, 9]
    assert 4 <= await log.skip(4, lambda: Wanted({}, frozenset({Op.INSERT}), 1)) <= 9
    with pytest.raises(BehindHorizonError):
        await log.skip(3, lambda: mine)
    with pytest.raises(BeyondHeadError):
        await log.skip(10, lambda: mine)


async def test_a_wait_ends_when_the_head_moves(log):
    waiting = asyncio.create_task(log.wait(0, 30))
    await asyncio.sleep(0)
    await append(log, 1)
    assert await waiting is True
    assert await log.wait(0, 30) is True


async def test_a_wait_ends_when_the_log_is_closed(log):
    waiting = asyncio.create_task(log.wait(0, 30))
    await asyncio.sleep(0)
    await log.close()
    with pytest.raises(LogClosedError):
        await waiting


async def test_the_newest_schema_of_a_table_is_found(log):
    newer = schema_of("users", version=2)
    number = await log.put_schema(newer)
    assert await log.put_schema(newer) == number
    assert log.latest_schema(TableName("app", "users")) == (number, newer)
    assert log.latest_schema(TableName("app", "nobody")) is None
    assert log.schemas()[number] == newer


async def test_a_position_moves_with_commits_and_with_progress_and_wakes_who_waits(log):
    assert log.position is None
    waiting = asyncio.create_task(log.wait_position(None, 30))
    await asyncio.sleep(0)
    await append(log, 2)
    assert await waiting
    known = log.position
    waiting = asyncio.create_task(log.wait_position(known, 30))
    await asyncio.sleep(0)
    await log.progress("later", durable=True)
    assert await waiting
    assert (log.position, log.head, log.last_index) == ("later", 2, 1)
    assert not await log.wait_position("later", 0.01)
    assert await log.wait_position(known, 0.01)


async def test_who_listens_is_called_when_the_head_has_moved_and_at_the_end(log):
    heads = []
    end = log.listen(lambda: heads.append(log.head))
    await append(log, 2)
    await append(log, 1)
    assert heads == [2, 3]
    ended = []
    log.listen(lambda: ended.append(True))
    end()
    await log.close()
    assert (heads, ended) == ([2, 3], [True])


async def test_the_newest_changes_are_in_memory(log):
    assert log.recent(0) is None
    await append(log, 2)
    await append(log, 1)
    assert log.recent(2).last == 3
    assert log.recent(0).first == 1
    assert log.recent(3) is None
    await log.close()
    assert log.recent(2) is None
