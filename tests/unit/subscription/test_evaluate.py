"""Facts about evaluating slow filters."""

import asyncio

import pytest

from feeding import feeding
from tailrace.model.errors import PredicateError
from tailrace.model.op import Op
from tailrace.model.start import After, Earliest

SLOW = "[" + ",".join("0" * 400) + "].map(x, x).size() > 0 && row.id >= 0"


async def passing(feed):
    """Take what a feed gives until it has no more; return the offsets that pass."""
    found = []
    while (batch := await feed.next(0.0)) is not None:
        found += [offset for row in batch.rows() if (offset := batch.chunk.offset_of(row)) > batch.after]
        feed.advance(batch.chunk.last)
    return found


def people(count):
    return [(Op.INSERT, number, None, "Ada") for number in range(1, count + 1)]


async def test_a_slow_filter_lets_others_go_on():
    async with feeding() as world:
        slow = await world.subscribe(filters={"cel": SLOW})
        quick = await world.subscribe(filters={"where": "id > 0"})
        await world.write(*people(60))
        with world.service.feed(slow.id, Earliest()) as one, world.service.feed(quick.id, Earliest()) as other:
            waiting = asyncio.create_task(passing(one))
            await asyncio.sleep(0)
            assert await passing(other) == list(range(1, 61))
            assert not waiting.done()
            assert await waiting == list(range(1, 61))


async def test_all_slow_filters_have_their_turn():
    async with feeding() as world:
        made = [await world.subscribe(filters={"cel": f"{SLOW} && row.id != {number}"}) for number in (3, 5)]
        await world.write(*people(40))
        feeds = [world.service.feed(one.id, Earliest()) for one in made]
        with feeds[0] as one, feeds[1] as other:
            found = await asyncio.gather(passing(one), passing(other))
        assert found == [[number for number in range(1, 41) if number != gone] for gone in (3, 5)]


async def test_what_comes_before_a_failure_is_given_first_and_one_may_go_on_behind_it():
    async with feeding() as world:
        subscription = await world.subscribe(filters={"cel": "10 / (row.id - 30) < 100"})
        await world.write(*people(40))
        with world.service.feed(subscription.id, Earliest()) as feed:
            with pytest.raises(PredicateError, match="division by zero"):
                await passing(feed)
            assert feed.after == 29
        with world.service.feed(subscription.id, After(30)) as feed:
            assert await passing(feed) == list(range(31, 41))


async def test_what_was_evaluated_is_not_evaluated_again_for_equal_filters_at_the_same_place():
    async with feeding() as world:
        made = [await world.subscribe(filters={"cel": "row.id > 3"}) for _ in range(2)]
        await world.write(*people(10))
        with world.service.feed(made[0].id, Earliest()) as one, world.service.feed(made[1].id, After(4)) as other:
            first, second = await one.next(0.0), await other.next(0.0)
            assert first.rows() is second.rows()
            assert (first.after, second.after) == (0, 4)
