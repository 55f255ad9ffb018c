"""Facts about what a feed knows of the changes that it waits for."""

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from tailrace.model.op import Op
from tailrace.model.subscription import FilterOptions, TableTarget
from tailrace.model.table import TableName
from tailrace.subscription.filter import Filter
from tailrace.subscription.watch import FeedWatch


def watch_since(offset):
    watch = FeedWatch(Filter(TableTarget((TableName("app", "users"),)), FilterOptions((Op.INSERT,))))
    watch.since = offset
    return watch


def test_a_feed_for_which_nobody_looks_must_look_itself():
    for since, after in ((None, 5), (6, 5)):
        watch = watch_since(since)
        assert not watch.is_clear(after)
        assert watch.skip(after, 100) == after


def test_without_a_match_a_feed_may_move_as_far_as_was_looked():
    watch = watch_since(3)
    assert watch.is_clear(5)
    assert watch.skip(5, 9) == 9
    assert watch.skip(5, 4) == 5


def test_a_feed_moves_to_its_first_match_and_reads_to_its_last():
    watch = watch_since(3)
    watch.tell(8, 12)
    watch.tell(20, 20)
    assert [watch.skip(after, 30) for after in (5, 7, 8, 15, 19, 20)] == [7, 7, 8, 15, 19, 30]


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 4)), max_size=30))
def test_no_match_is_ever_skipped(steps):
    watch, after, scanned, matches = watch_since(0), 0, 0, set()
    for tells, count in steps:
        if tells:
            scanned += count
            matches.add(scanned)
            watch.tell(scanned, scanned)
        else:
            moved = watch.skip(after, scanned)
            assert not matches & set(range(after + 1, moved + 1))
            after = min(scanned, moved + count) if not watch.is_clear(moved) else moved
            matches -= set(range(after + 1))


async def test_a_sleep_ends_by_a_word_or_in_time():
    watch = watch_since(0)
    await watch.sleep(0.001)
    sleeping = asyncio.create_task(watch.sleep(30))
    await asyncio.sleep(0)
    watch.tell(1, 1)
    await asyncio.wait_for(sleeping, 10)
    watch.wake()
    await asyncio.wait_for(watch.sleep(30), 10)


async def test_an_alarm_serves_the_sleeps_that_follow_and_a_sooner_one_takes_its_place():
    watch, loop = watch_since(0), asyncio.get_running_loop()
    for timeout_s in (30.0, 60.0):
        sleeping = asyncio.create_task(watch.sleep(timeout_s))
        await asyncio.sleep(0)
        watch.wake()
        await asyncio.wait_for(sleeping, 10)
    begin_s = loop.time()
    await asyncio.wait_for(watch.sleep(0.001), 10)
    assert loop.time() - begin_s < 10
    watch.release()
