"""Facts about what replays find by their place: the same events as ever, read and encoded once for all."""

import asyncio
import json
from unittest.mock import AsyncMock, patch

import pytest

from feeding import draft_of, feeding, schema_of
from tailrace.clock import SystemClock
from tailrace.delivery.collect import CollectLimits, collect
from tailrace.delivery.presenter import Presenter
from tailrace.delivery.view import View
from tailrace.interface.skeindb.present import LINES
from tailrace.log.log import Log
from tailrace.log.options import LogOptions
from tailrace.metrics import Metrics
from tailrace.model.errors import BehindHorizonError, UnknownSubscriptionError
from tailrace.model.op import Op
from tailrace.model.start import After, Earliest
from tailrace.model.subscription import Format, Include
from tailrace.testing.files import MemoryFile, MemoryFiles

VIEW = View(LINES, Format.PLAIN_JSON, Include(after=True))
COMMIT = [Op.INSERT, Op.UPDATE, Op.DELETE] * 300
COMMITS = 12
HEAD = COMMITS * len(COMMIT)
STORED = LogOptions(ring_changes_max=1, compact=False, cache_bytes_max=0, frame_changes_max=1)


async def stored(options=STORED):
    """Return a log of some commits, all but the last of which are in its files alone."""
    log = await Log.open(MemoryFiles(), options, SystemClock())
    users = await log.put_schema(schema_of("users"))
    for _ in range(COMMITS):
        await log.append([draft_of([(op, users) for op in COMMIT])])
    return log


class Replaying:
    def __init__(self, bytes_max=64 << 20):
        self.metrics = Metrics()
        self.presenter = Presenter(bytes_max, self.metrics.encoded_changes)

    @property
    def encoded(self):
        return self.metrics.registry.get_sample_value("tailrace_encoded_changes_total")

    async def offsets(self, feed, changes_max=4096, *, ahead=True):
        limits = CollectLimits(changes_max, 1 << 20, 1 << 10, ahead=ahead)
        piece = await collect(feed, self.presenter, VIEW, limits, 0.0)
        return [json.loads(line)["seq"] for line in piece.data.splitlines()]

    async def replay(self, feed, changes_max=4096):
        found = []
        while not feed.caught_up:
            found += await self.offsets(feed, changes_max)
        return found


def wanted(ops):
    return [offset for offset in range(1, HEAD + 1) if COMMIT[(offset - 1) % len(COMMIT)] in ops]


@pytest.mark.parametrize("ops", [tuple(Op), (Op.INSERT, Op.UPDATE), (Op.DELETE,)], ids=["all", "most", "a third"])
@pytest.mark.parametrize("bytes_max", [64 << 20, 300_000, 10], ids=["room for all", "little room", "no room"])
async def test_a_replay_from_any_place_gives_every_match_once_in_order(ops, bytes_max):
    log = await stored()
    async with feeding(log=log) as world:
        subscription = await world.subscribe(ops)
        replaying = Replaying(bytes_max)
        for after, changes_max in ((0, 4096), (1234, 100), (900, 4096)):
            with world.service.feed(subscription.id, After(after)) as feed:
                found = await replaying.replay(feed, changes_max)
                assert found == [offset for offset in wanted(ops) if offset > after]
    await log.close()


async def test_what_a_filter_lets_pass_whole_does_not_grow_with_what_others_want():
    files, options = MemoryFiles(), LogOptions(compact=False)
    log = await Log.open(files, options, SystemClock())
    users = await log.put_schema(schema_of("users"))
    for count in [900] * 8 + [50] * 4:
        await log.append([draft_of([(Op.INSERT, users)] * count)])
    await log.close()
    log = await Log.open(files, options, SystemClock())  # nothing of it is in memory now, its last block neither
    inserted = list(range(1, log.head + 1))
    async with feeding(log=log) as world:
        replaying = Replaying()
        inserts, everything = await world.subscribe([Op.INSERT]), await world.subscribe(list(Op))

        async def replayed(subscription):
            with world.service.feed(subscription.id, Earliest()) as feed:
                return await replaying.replay(feed)

        for _ in range(2):  # the second finds what the first has made
            assert await replayed(inserts) == inserted
        await log.append([draft_of([(Op.DELETE, users)] * 20)])
        for _ in range(2):
            assert await replayed(everything) == [*inserted, *range(log.head - 19, log.head + 1)]
        assert await replayed(inserts) == inserted
    await log.close()


async def test_many_who_replay_the_same_have_it_read_and_encoded_once():
    log = await stored()
    async with feeding(log=log) as world:
        subscription = await world.subscribe([Op.INSERT, Op.UPDATE])
        replaying = Replaying()
        with patch.object(MemoryFile, "read_into", autospec=True, side_effect=MemoryFile.read_into) as read:
            for _ in range(5):
                with world.service.feed(subscription.id, Earliest()) as feed:
                    assert await replaying.replay(feed) == wanted([Op.INSERT, Op.UPDATE])
                while replaying.presenter.feeds_ahead:
                    await asyncio.sleep(0.001)
            assert read.call_count <= 2 * COMMITS
        # What is encoded before it is known that most is wanted is encoded once more.
        assert replaying.encoded < 1.5 * len(wanted([Op.INSERT, Op.UPDATE]))
    await log.close()


async def test_filters_that_all_pass_share_what_was_encoded():
    log = await stored()
    async with feeding(log=log) as world:
        replaying = Replaying()
        for ops in ([Op.INSERT, Op.UPDATE, Op.DELETE], list(Op)):
            subscription = await world.subscribe(ops)
            with world.service.feed(subscription.id, Earliest()) as feed:
                assert len(await replaying.replay(feed)) == HEAD
        assert replaying.encoded < 1.6 * HEAD
    await log.close()


async def test_whoever_waits_for_what_another_has_begun_gets_it_too():
    log = await stored()
    async with feeding(log=log) as world:
        subscription = await world.subscribe()
        replaying = Replaying()
        with world.service.feed(subscription.id, Earliest()) as feed:
            await replaying.offsets(feed, ahead=False)
        feeds = [world.service.feed(subscription.id, After(len(COMMIT))) for _ in range(8)]
        opened = [feed.__enter__() for feed in feeds]
        before = replaying.encoded
        found = await asyncio.gather(*(replaying.offsets(feed, ahead=False) for feed in opened))
        assert len(found[0]) == len(COMMIT)
        assert all(one == found[0] for one in found)
        assert replaying.encoded - before <= 3 * len(COMMIT)
        for feed in feeds:
            feed.__exit__(None, None, None)
    await log.close()


async def test_a_feed_that_was_paused_closed_or_lost_its_place_gets_nothing_of_what_is_ready():
    log = await stored()
    async with feeding(log=log) as world:
        subscription = await world.subscribe()
        replaying = Replaying()
        with world.service.feed(subscription.id, Earliest()) as feed:
            await replaying.offsets(feed)
            await replaying.offsets(feed)
            while replaying.presenter.feeds_ahead:
                await asyncio.sleep(0.001)
            assert replaying.presenter.find(feed, VIEW) is not None
            feed.pause(paused=True)
            assert await replaying.offsets(feed) == []
            feed.pause(paused=False)
            after = feed.after
            assert (await replaying.offsets(feed))[0] == after + 1
            feed.end(UnknownSubscriptionError("sub"))
            with pytest.raises(UnknownSubscriptionError):
                await replaying.offsets(feed)
    await log.close()


async def test_what_retention_has_removed_is_not_sent_though_it_is_ready():
    log = await stored()
    async with feeding(log=log) as world:
        subscription = await world.subscribe()
        replaying = Replaying()
        with world.service.feed(subscription.id, Earliest()) as feed:
            await replaying.replay(feed)
        with world.service.feed(subscription.id, Earliest()) as feed, patch.object(Log, "horizon", HEAD):
            assert not feed.stands_in_store()
        with world.service.feed(subscription.id, After(3)) as feed:
            assert feed.stands_in_store()
    await log.close()


async def test_a_log_that_fails_is_met_by_whoever_asks():
    log = await stored()
    async with feeding(log=log) as world:
        subscription = await world.subscribe()
        replaying = Replaying()
        gone = BehindHorizonError(requested=1, horizon=2)
        with world.service.feed(subscription.id, Earliest()) as feed:
            await replaying.offsets(feed, ahead=False)
            failing = patch.multiple(Log, lend=AsyncMock(side_effect=gone), read=AsyncMock(side_effect=gone))
            with failing, pytest.raises(BehindHorizonError):
                await replaying.offsets(feed)
            assert (await replaying.offsets(feed))[0] == len(COMMIT) + 1
    await log.close()
