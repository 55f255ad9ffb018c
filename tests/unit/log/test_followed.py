"""Facts about a log that another process writes: segments come and go, and nothing is seen before it is published."""

import pytest

from feeding import draft_of, schema_of
from tailrace.clock import SystemClock
from tailrace.log.files import DiskFiles
from tailrace.log.followed import FollowedLog
from tailrace.log.log import Log
from tailrace.log.options import LogOptions
from tailrace.model.errors import BehindHorizonError, BeyondHeadError
from tailrace.model.op import Op

SMALL = {"segment_bytes_max": 1, "compact": False}
"""Each append is a segment of its own."""


async def opened(tmp_path, **options):
    log = await Log.open(DiskFiles(tmp_path), LogOptions(**options), SystemClock())
    await log.put_schema(schema_of("users"))
    return log


def follower(tmp_path):
    return FollowedLog(DiskFiles(tmp_path), LogOptions())


def publish(log, followed):
    followed.follow(log.state, len(log.schemas()))


async def append(log, count=1):
    await log.append([draft_of([(Op.INSERT, 1)] * count)])


async def offsets(log):
    found, after = [], log.horizon - 1
    while (chunk := await log.read(after)) is not None:
        found += [offset for offset in range(chunk.first, chunk.last + 1) if offset > after]
        after = chunk.last
    return found


@pytest.mark.parametrize("options", [{}, SMALL], ids=["one segment", "many segments"])
async def test_only_what_is_published_is_read(tmp_path, options):
    log, followed = await opened(tmp_path, **options), follower(tmp_path)
    publish(log, followed)
    for published in (0, 1, 3, 4, 9):
        while log.head < published:
            await append(log)
        publish(log, followed)
        await append(log)  # which is on disk, and not for anybody yet
        assert await offsets(followed) == list(range(1, published + 1))
        assert followed.recent(published) is None
        with pytest.raises(BeyondHeadError):
            await followed.read(published + 1)
    await log.close()


async def test_segments_that_are_compacted_or_left_out_are_read_all_the_same(tmp_path):
    log, followed = await opened(tmp_path, segment_bytes_max=2000), follower(tmp_path)
    for _ in range(10):
        await append(log)
    publish(log, followed)
    for _ in range(60):
        await append(log)
    await log.compact()
    assert (await followed.read(0)).last <= followed.head == 10
    assert await offsets(followed) == list(range(1, 11))
    publish(log, followed)
    assert await offsets(followed) == list(range(1, 71))
    await log.close()


async def test_a_reader_whose_segment_is_gone_is_behind_the_horizon(tmp_path):
    log, followed = await opened(tmp_path, **SMALL, retention_changes=3), follower(tmp_path)
    for _ in range(3):
        await append(log)
    publish(log, followed)
    for _ in range(20):
        await append(log)
    await log.retain()
    with pytest.raises(BehindHorizonError):  # though it was not notified yet
        await followed.read(0)
    publish(log, followed)
    assert (followed.head, followed.horizon) == (log.head, log.horizon)
    assert await offsets(followed) == [21, 22, 23]
    await log.close()


async def test_new_versions_of_a_schema_come_with_the_changes(tmp_path):
    log, followed = await opened(tmp_path), follower(tmp_path)
    publish(log, followed)
    newer = await log.put_schema(schema_of("users", version=2))
    await log.append([draft_of([(Op.INSERT, newer)])])
    publish(log, followed)
    chunk = await followed.read(0)
    assert chunk.schemas[newer].version == 2
    await log.close()


async def test_much_at_once_is_read_from_the_file(tmp_path):
    log, followed = await opened(tmp_path), follower(tmp_path)
    publish(log, followed)
    for _ in range(8):
        await append(log, 3000)
    publish(log, followed)
    assert await offsets(followed) == list(range(1, 24001))
    await append(log)
    publish(log, followed)
    assert followed.recent(24000).first == 24001
    await log.close()
