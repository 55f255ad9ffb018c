"""Facts about what was handed out."""

import asyncio

from tailrace.subscription.query.given import Given


def test_what_was_handed_out_since_a_number_is_known():
    given = Given()
    begin = given.number
    assert given.since(begin) == frozenset()
    given.note("a")
    middle = given.number
    given.note("b")
    given.note("b")
    assert given.since(begin) == {"a", "b"}
    assert given.since(middle) == {"b"}
    assert given.since(given.number) == frozenset()


def test_what_is_not_known_any_more_is_not_made_up():
    given = Given()
    begin = given.number
    for number in range(300):
        given.note(str(number))
    assert given.since(begin) is None
    assert given.since(given.number - 3) == {"297", "298", "299"}


def test_one_that_begins_anew_knows_nothing_of_an_earlier_one():
    former = Given()
    former.note("a")
    assert Given().since(former.number) is None


async def test_runs_under_way_are_waited_for_and_later_ones_are_not():
    given, steps = Given(), asyncio.Event()

    async def run():
        with given.running():
            await steps.wait()
            given.note("old")

    running = asyncio.create_task(run())
    await asyncio.sleep(0)
    settled = asyncio.create_task(given.settle())
    await asyncio.sleep(0)
    assert not settled.done()
    with given.running():
        steps.set()
        await settled
    await running
    await given.settle()
