"""Facts about feeds."""

import asyncio
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from feeding import draft_of, feeding, schema_of
from tailrace.clock import SystemClock
from tailrace.log.log import Log
from tailrace.log.options import LogOptions
from tailrace.model.commit import Draft
from tailrace.model.errors import BehindHorizonError, LogClosedError, UnknownSubscriptionError
from tailrace.model.number import Offset
from tailrace.model.op import Op, wanted_ops
from tailrace.model.start import After, Earliest, Latest
from tailrace.model.wanted import Wanted
from tailrace.testing.files import MemoryFile, MemoryFiles


async def offsets(feed, timeout_s=0.0):
    """Take the next batch whole; return the offsets that pass."""
    batch = await feed.next(timeout_s)
    if batch is None:
        return None
    found = [batch.chunk.offset_of(row) for row in batch.rows()]
    feed.advance(batch.chunk.last)
    return [offset for offset in found if offset > batch.after]


async def test_replay_becomes_following_without_a_gap_or_a_repeat():
    async with feeding() as world:
        subscription = await world.subscribe()
        await world.append(*[Op.INSERT] * 5)
        with world.service.feed(subscription.id, After(2)) as feed:
            assert await offsets(feed) == [3, 4, 5]
            assert await offsets(feed) is None
            waiting = asyncio.create_task(offsets(feed, timeout_s=30))
            await asyncio.sleep(0)
            await world.append(Op.UPDATE)
            assert await waiting == [6]


async def test_a_wait_without_news_ends_in_time():
    async with feeding() as world:
        subscription = await world.subscribe()
        with world.service.feed(subscription.id, Latest()) as feed:
            assert await feed.next(0.01) is None


async def test_a_long_chunk_comes_in_windows_cut_at_the_same_places_for_all():
    async with feeding() as world:
        subscription = await world.subscribe()
        await world.log.append([draft_of([(Op.INSERT, world.schema_id)] * 5_000)])
        with world.service.feed(subscription.id, Earliest()) as feed:
            assert [await offsets(feed) for _ in range(4)] == [
                list(range(1, 2049)),
                list(range(2049, 4097)),
                list(range(4097, 5001)),
                None,
            ]
        with world.service.feed(subscription.id, After(3000)) as feed:
            batch = await feed.next(0)
            assert (batch.chunk.first, batch.chunk.last, batch.after) == (2049, 4096, 3000)


async def test_a_feed_behind_the_horizon_says_so():
    async with feeding() as world:
        subscription = await world.subscribe()
        await world.append(*[Op.INSERT] * 9)
        world.log.forget_before(5)
        with world.service.feed(subscription.id, After(3)) as feed:
            with pytest.raises(BehindHorizonError) as caught:
                await feed.next(0)
            assert caught.value.horizon == 5
        with world.service.feed(subscription.id, After(4)) as feed:
            assert await offsets(feed) == [5, 6, 7, 8, 9]


async def test_closing_the_subscription_ends_a_feed_that_waits():
    async with feeding() as world:
        subscription = await world.subscribe()
        with world.service.feed(subscription.id, Latest()) as feed:
            waiting = asyncio.create_task(feed.next(30))
            await asyncio.sleep(0)
            await world.service.subscription(subscription.id).close()
            with pytest.raises(UnknownSubscriptionError):
                await waiting


@pytest.mark.parametrize("how", ["the service stops", "the log is closed"])
async def test_the_end_of_service_ends_a_feed_that_waits(how):
    async with feeding() as world:
        subscription = await world.subscribe()
        with world.service.feed(subscription.id, Latest()) as feed:
            waiting = asyncio.create_task(feed.next(30))
            await asyncio.sleep(0)
            if how == "the service stops":
                world.service.stop()
            else:
                await world.log.close()
            with pytest.raises(LogClosedError):
                await waiting


@settings(deadline=None, max_examples=50)
@given(
    st.lists(st.lists(st.sampled_from(list(Op)), min_size=1, max_size=40), min_size=1, max_size=6),
    st.sets(st.sampled_from(list(Op))),
    st.data(),
)
async def test_any_feed_gives_every_match_once_and_in_order(commits, ops, data):
    async with feeding() as world:
        subscription = await world.subscribe(ops)
        flat = [op for commit in commits for op in commit]
        start = data.draw(st.integers(0, len(flat)))
        before = data.draw(st.integers(0, len(commits)))
        for commit in commits[:before]:
            await world.append(*commit)
        start = min(start, world.log.head)
        found = []
        with world.service.feed(subscription.id, After(start)) as feed:
            while (batch := await offsets(feed)) is not None:
                found += batch
            for commit in commits[before:]:
                await world.append(*commit)
                found += await offsets(feed, timeout_s=30)
        assert found == [offset for offset, op in enumerate(flat, start=1) if offset > start and op in wanted_ops(ops)]


async def test_a_pause_holds_changes_back_until_the_subscription_is_resumed():
    async with feeding() as world:
        subscription = await world.subscribe()
        with world.service.feed(subscription.id, Latest()) as feed:
            waiting = asyncio.create_task(feed.next(30))
            await asyncio.sleep(0)
            await world.service.subscription(subscription.id).pause()
            assert (await waiting, feed.paused) == (None, True)
            await world.append(Op.INSERT, Op.INSERT)
            assert await feed.next(0.01) is None
            waiting = asyncio.create_task(feed.next(30))
            await asyncio.sleep(0)
            await world.service.subscription(subscription.id).resume()
            assert (await waiting).chunk.last == 2
            assert await offsets(feed, timeout_s=30) == [1, 2]


async def test_a_feed_of_a_paused_subscription_begins_paused_and_loses_its_place():
    async with feeding() as world:
        subscription = await world.subscribe()
        await world.append(*[Op.INSERT] * 3)
        await world.service.subscription(subscription.id).pause()
        with world.service.feed(subscription.id, After(0)) as feed:
            assert await feed.next(0) is None
            world.log.forget_before(3)
            with pytest.raises(BehindHorizonError):
                await feed.next(0)


async def test_a_feed_is_ready_when_something_is_for_it_and_not_before():
    async with feeding() as world:
        subscription = await world.subscribe(filters={"key": ({"t": "i64", "v": 7},)})
        with world.service.feed(subscription.id, Latest()) as feed:
            await feed.ready(0.0)
            ready = asyncio.create_task(feed.ready(30))
            while feed._watch.since is None:
                await asyncio.sleep(0)
            await world.write((Op.INSERT, 8, None, "Ada"))
            for _ in range(5):
                await asyncio.sleep(0)
            assert not ready.done()
            await world.write((Op.INSERT, 7, None, "Ada"))
            async with asyncio.timeout(30):
                await ready
            batch = await feed.next(0)
            assert (batch.chunk.first, feed.after) == (2, 1)


async def test_a_feed_is_ready_when_it_is_paused_or_ends():
    async with feeding() as world:
        subscription = await world.subscribe()
        with world.service.feed(subscription.id, Latest()) as feed:
            ready = asyncio.create_task(feed.ready(30))
            await asyncio.sleep(0)
            await world.service.subscription(subscription.id).pause()
            async with asyncio.timeout(30):
                await ready
            assert await feed.next(0) is None
            ready = asyncio.create_task(feed.ready(30))
            await asyncio.sleep(0)
            feed.end(LogClosedError("closed"))
            async with asyncio.timeout(30):
                await ready
            with pytest.raises(LogClosedError):
                await feed.next(0)


CONDITIONS = {
    "a rare table": ("rare", {}, range(300, 310)),
    "a table and a rare key": ("users", {"key": ({"t": "i64", "v": 700},)}, [700]),
    "a table and bounds of its key": ("users", {"bounds": {"lower_bound": {"t": "i64", "v": 790}}}, range(790, 801)),
    "a table of which there is nothing": ("nothing", {}, []),
    "a table that is everywhere": ("users", {}, [*range(1, 300), *range(310, 801)]),
}
STORED = LogOptions(segment_bytes_max=60_000, frame_changes_max=1, ring_changes_max=1, compact=False, cache_bytes_max=0)


async def everything(log, table, filters):
    """Return all offsets that a feed has for its subscriber, and how many blocks were read for it."""
    async with feeding(log=log) as world:
        subscription = await world.subscribe(table=table, filters=filters)
        found = []
        with patch.object(MemoryFile, "read_into", autospec=True, side_effect=MemoryFile.read_into) as read:
            with world.service.feed(subscription.id, Earliest()) as feed:
                while (got := await offsets(feed)) is not None:
                    found += got
                assert feed.after == log.head
            return found, read.call_count


@pytest.mark.parametrize("case", CONDITIONS)
async def test_what_statistics_let_a_feed_pass_over_is_not_for_it(case):
    table, filters, expected = CONDITIONS[case]
    log = await Log.open(MemoryFiles(), STORED, SystemClock())
    users, rare, _ = [await log.put_schema(schema_of(name)) for name in ("users", "rare", "nothing")]
    drafts = [Draft("p", number) for number in range(1, 801)]
    for number, one in enumerate(drafts, 1):
        one.add(Op.INSERT, rare if 300 <= number < 310 else users, b"[%d]" % number, after=b"{}")
    await asyncio.gather(*(log.append([one]) for one in drafts))
    before, blocks_before = await everything(log, table, filters)
    await log.compact()
    assert await log.skip(Offset(0), lambda: Wanted({}, frozenset(), 9)) == log.segment_indexes[-1] - 1
    after, blocks_after = await everything(log, table, filters)
    assert before == after == list(expected)
    assert blocks_after < 5 < blocks_before or len(expected) > 100
    await log.close()
