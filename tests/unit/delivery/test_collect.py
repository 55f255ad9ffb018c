"""Facts about collecting events into one write."""

import asyncio
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from feeding import draft_of, feeding
from tailrace.delivery.collect import CollectLimits, collect
from tailrace.delivery.presenter import Presenter
from tailrace.delivery.view import View
from tailrace.interface.skeindb.present import LINES
from tailrace.metrics import Metrics
from tailrace.model.errors import BehindHorizonError, LogClosedError, PredicateError
from tailrace.model.op import Op, wanted_ops
from tailrace.model.start import After, Earliest, Latest
from tailrace.model.subscription import Format, Include

VIEW = View(LINES, Format.PLAIN_JSON, Include())


class Collector:
    def __init__(self, feed):
        self.feed = feed
        self.presenter = Presenter(1 << 20, Metrics().encoded_changes)

    async def __call__(self, changes_max=100, bytes_max=1 << 20, timeout_s=0.0, **more):
        limits = CollectLimits(changes_max=changes_max, bytes_max=bytes_max, **more)
        piece = await collect(self.feed, self.presenter, VIEW, limits, timeout_s)
        assert piece.through == self.feed.after
        return [json.loads(line)["seq"] for line in piece.data.splitlines()], piece.through


async def test_small_chunks_go_out_together():
    async with feeding() as world:
        subscription = await world.subscribe()
        for _ in range(5):
            await world.append(Op.INSERT)
        with world.service.feed(subscription.id, Earliest()) as feed:
            assert await Collector(feed)(changes_max=3) == ([1, 2, 3], 3)
            assert await Collector(feed)(changes_max=3) == ([4, 5], 5)
            assert await Collector(feed)(changes_max=3) == ([], 5)


async def test_a_write_keeps_the_byte_limit_over_several_chunks():
    async with feeding() as world:
        subscription = await world.subscribe()
        for _ in range(5):
            await world.append(Op.INSERT)
        with world.service.feed(subscription.id, Earliest()) as feed:
            size = len((await collect_one(feed)).data)
        with world.service.feed(subscription.id, Earliest()) as feed:
            assert await Collector(feed)(bytes_max=2 * size) == ([1, 2], 2)
            assert await Collector(feed)(bytes_max=1) == ([3], 3)


async def test_with_enough_bytes_nothing_is_taken_from_the_next_chunk():
    async with feeding() as world:
        subscription = await world.subscribe()
        for _ in range(3):
            await world.append(*[Op.INSERT] * 3)
        with world.service.feed(subscription.id, Earliest()) as feed:
            assert await Collector(feed)(bytes_enough=1) == ([1, 2, 3], 3)
            assert await Collector(feed)(bytes_enough=1 << 20) == ([4, 5, 6, 7, 8, 9], 9)


async def collect_one(feed):
    presenter = Presenter(1 << 20, Metrics().encoded_changes)
    return await collect(feed, presenter, VIEW, CollectLimits(changes_max=1, bytes_max=1), 0)


async def test_a_narrow_filter_stops_at_the_scan_limit_and_says_how_far_it_came():
    async with feeding() as world:
        subscription = await world.subscribe([Op.DELETE])
        for _ in range(10):
            await world.append(*[Op.INSERT] * 10)
        await world.append(Op.DELETE)
        with world.service.feed(subscription.id, Earliest()) as feed:
            assert await Collector(feed)(scan_changes_max=50) == ([], 50)
            assert await Collector(feed)(scan_changes_max=500) == ([101], 101)


async def test_it_waits_through_foreign_changes_for_a_match():
    async with feeding() as world:
        subscription = await world.subscribe([Op.DELETE])
        with world.service.feed(subscription.id, Latest()) as feed:
            collecting = asyncio.create_task(Collector(feed)(timeout_s=30))
            for op in (Op.INSERT, Op.INSERT, Op.DELETE):
                await asyncio.sleep(0.001)
                await world.append(op)
            assert await collecting == ([3], 3)


async def test_what_is_in_hand_goes_out_before_an_error_is_met():
    async with feeding() as world:
        subscription = await world.subscribe()
        await world.append(*[Op.INSERT] * 4)
        with world.service.feed(subscription.id, Earliest()) as feed:
            collector = Collector(feed)
            read = world.log.read

            async def read_then_forget(after, wanted=None):
                chunk = await read(after)
                if world.log.head == 4:
                    await world.append(*[Op.INSERT] * 4)
                    world.log.forget_before(7)
                return chunk

            world.log.read = read_then_forget
            world.log.recent = lambda _after: None
            assert await collector() == ([1, 2, 3, 4], 4)
            with pytest.raises(BehindHorizonError):
                await collector()


FAILS_AT_MINUS = "abs(CAST(name AS INTEGER)) >= 0"
LEAST = "-9223372036854775808"


async def test_matches_before_a_change_on_which_the_predicate_fails_are_delivered_first():
    async with feeding() as world:
        subscription = await world.subscribe(filters={"where": FAILS_AT_MINUS})
        await world.write(*[(Op.INSERT, key, None, name) for key, name in enumerate(["1", "2", LEAST, "3"])])
        with world.service.feed(subscription.id, Earliest()) as feed:
            collector = Collector(feed)
            assert await collector(changes_max=1) == ([1], 1)
            assert await collector() == ([2], 2)
            for _ in range(2):
                with pytest.raises(PredicateError, match="overflow"):
                    await collector()
        with world.service.feed(subscription.id, After(3)) as feed:
            assert await Collector(feed)() == ([4], 4)


@settings(deadline=None, max_examples=25)
@given(st.lists(st.sampled_from(["1", "2", LEAST]), min_size=1, max_size=40), st.integers(0, 39))
async def test_a_failing_predicate_delivers_everything_up_to_the_failure(names, after):
    async with feeding() as world:
        subscription = await world.subscribe(filters={"where": FAILS_AT_MINUS})
        await world.write(*[(Op.INSERT, key, None, name) for key, name in enumerate(names)])
        after = min(after, len(names))
        found = []
        with world.service.feed(subscription.id, After(after)) as feed:
            try:
                while not feed.caught_up:
                    found += (await Collector(feed)(changes_max=7))[0]
                failed = None
            except PredicateError:
                failed = feed.after + 1
        expected = next((offset for offset, name in enumerate(names, 1) if offset > after and name == LEAST), None)
        assert failed == expected
        assert found == list(range(after + 1, expected or len(names) + 1))


async def test_the_end_of_service_is_told():
    async with feeding() as world:
        subscription = await world.subscribe()
        with world.service.feed(subscription.id, Latest()) as feed:
            collecting = asyncio.create_task(Collector(feed)(timeout_s=30))
            await asyncio.sleep(0)
            world.service.stop()
            with pytest.raises(LogClosedError):
                await collecting


@settings(deadline=None, max_examples=40)
@given(
    st.lists(st.lists(st.sampled_from(list(Op)), min_size=1, max_size=30), min_size=1, max_size=8),
    st.sets(st.sampled_from(list(Op))),
    st.integers(1, 20),
    st.integers(1, 900),
    st.integers(1, 40),
)
async def test_collecting_again_and_again_gives_every_match_once_in_order(
    commits, ops, changes_max, bytes_max, scan_changes_max
):
    async with feeding() as world:
        subscription = await world.subscribe(ops)
        for commit in commits:
            await world.log.append([draft_of([(op, world.schema_id) for op in commit])])
        found = []
        with world.service.feed(subscription.id, Earliest()) as feed:
            collector = Collector(feed)
            while not feed.caught_up:
                found += (await collector(changes_max, bytes_max, scan_changes_max=scan_changes_max))[0]
        flat = [op for commit in commits for op in commit]
        assert found == [offset for offset, op in enumerate(flat, start=1) if op in wanted_ops(ops)]


CHUNK = [Op.INSERT] * 600


async def ahead_of(presenter):
    """Wait until nothing is prepared any more."""
    while presenter.feeds_ahead:
        await asyncio.sleep(0.001)


async def test_what_follows_is_prepared_meanwhile_but_no_more_than_three_batches():
    async with feeding() as world:
        subscription = await world.subscribe()
        for _ in range(6):
            await world.append(*CHUNK)
        metrics = Metrics()
        with world.service.feed(subscription.id, Earliest()) as feed:
            collector = Collector(feed)
            collector.presenter = Presenter(1 << 22, metrics.encoded_changes)

            def made():
                return metrics.registry.get_sample_value("tailrace_encoded_changes_total")

            assert (await collector(changes_max=600))[1] == 600
            assert made() == 600
            await ahead_of(collector.presenter)
            assert made() == 600
            for chunks in (2, 3):
                assert (await collector(changes_max=600, ahead=True))[1] == 600 * chunks
                await ahead_of(collector.presenter)
                assert made() == 600 * (chunks + 3)
            for chunks in (4, 5, 6):
                assert (await collector(changes_max=600, ahead=True))[1] == 600 * chunks
            await ahead_of(collector.presenter)
            assert made() == 600 * 6


async def test_what_is_not_ready_is_not_waited_for_with_changes_in_hand():
    async with feeding() as world:
        subscription = await world.subscribe()
        await world.append(Op.INSERT)
        await world.append(*CHUNK)
        with world.service.feed(subscription.id, Earliest()) as feed:
            collector = Collector(feed)
            assert await collector(changes_max=1000) == ([1], 1)
            assert (await collector(changes_max=1000))[1] == 601


async def test_an_error_ahead_is_met_when_its_turn_comes():
    async with feeding() as world:
        subscription = await world.subscribe()
        for _ in range(3):
            await world.append(*CHUNK)
        with world.service.feed(subscription.id, Earliest()) as feed:
            collector = Collector(feed)
            read = world.log.read

            async def read_or_fail(after, wanted=None):
                if after >= 600:
                    raise BehindHorizonError(requested=after + 1, horizon=10_000)
                return await read(after)

            world.log.read = read_or_fail
            world.log.recent = lambda _after: None
            assert (await collector(changes_max=1000, ahead=True))[1] == 600
            await ahead_of(collector.presenter)
            with pytest.raises(BehindHorizonError):
                await collector(changes_max=1000, ahead=True)


async def test_few_feeds_are_prepared_for_at_a_time():
    async with feeding() as world:
        subscriptions = [await world.subscribe() for _ in range(4)]
        await world.append(*CHUNK)
        await world.append(*CHUNK)
        presenter = Presenter(1 << 22, Metrics().encoded_changes)
        for subscription in subscriptions:
            with world.service.feed(subscription.id, Earliest()) as feed:
                presenter.look_ahead(feed, VIEW, feed.after)
        assert presenter.feeds_ahead == 2
        await ahead_of(presenter)
