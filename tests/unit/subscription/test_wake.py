"""Facts about waking feeds."""

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from feeding import feeding, schema_of
from tailrace.model.errors import PredicateError
from tailrace.model.op import Op
from tailrace.model.start import After, Latest
from tailrace.model.subscription import FilterOptions, SourceTarget
from tailrace.model.table import Column, Kind
from web import until


def i64(number):
    return {"t": "i64", "v": number}


def watches(world):
    return world.service._wakes["app"]


async def settled(world):
    """Wait until all changes were evaluated, and those woken have run."""
    await until(lambda: watches(world).scanned == world.log.head, "all is evaluated")
    for _ in range(5):
        await asyncio.sleep(0)


async def watched(feed):
    """Wait until changes are evaluated for a feed, which has none yet."""
    while feed._watch.since is None:
        assert await feed.next(0.001) is None


async def test_only_those_wake_whom_a_change_concerns():
    async with feeding() as world:
        made = [await world.subscribe(filters={"key": (i64(key),)}) for key in range(50)]
        feeds = [world.service.feed(subscription.id, Latest()) for subscription in made]
        opened = [feed.__enter__() for feed in feeds]
        waiting = [asyncio.create_task(feed.next(30)) for feed in opened]
        await asyncio.sleep(0.01)
        await world.write((Op.INSERT, 7, None, "Ada"), (Op.INSERT, 99, None, "Ada"), (Op.INSERT, 9, None, "Ada"))
        await settled(world)
        assert [place for place, task in enumerate(waiting) if task.done()] == [7, 9]
        assert (opened[7].after, opened[9].after) == (0, 2)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        for feed in feeds:
            feed.__exit__(None, None, None)


async def test_a_feed_that_was_not_woken_knows_how_far_others_looked_and_does_not_read():
    async with feeding() as world:
        subscription = await world.subscribe(filters={"key": (i64(1),)})
        with world.service.feed(subscription.id, Latest()) as feed:
            await watched(feed)
            for key in range(10, 20):
                await world.write((Op.INSERT, key, None, "Ada"))
            await settled(world)
            world.log.forget_before(11)
            assert await feed.next(0) is None
            assert (feed.after, feed.caught_up) == (10, True)


async def test_waking_goes_on_behind_what_retention_took_away():
    async with feeding() as world:
        subscription = await world.subscribe()
        with world.service.feed(subscription.id, Latest()) as feed:
            waiting = asyncio.create_task(feed.next(30))
            await asyncio.sleep(0)
            await world.append(Op.INSERT)
            await world.append(Op.INSERT)
            world.log.forget_before(3)
            with pytest.raises(Exception, match="no longer in the log"):
                await waiting
        with world.service.feed(subscription.id, Latest()) as feed:
            waiting = asyncio.create_task(feed.next(30))
            await asyncio.sleep(0)
            await world.append(Op.INSERT)
            assert (await waiting).chunk.last == 3


async def test_a_filter_that_fails_wakes_its_own_feed_alone():
    async with feeding() as world:
        broken = await world.subscribe(filters={"cel": "10 / row.id > 1"})
        other = await world.subscribe(filters={"key": (i64(5),)})
        with world.service.feed(broken.id, Latest()) as one, world.service.feed(other.id, Latest()) as two:
            tasks = [asyncio.create_task(feed.next(30)) for feed in (one, two)]
            await asyncio.sleep(0)
            await world.write((Op.INSERT, 0, None, "Ada"))
            with pytest.raises(PredicateError):
                await tasks[0]
            assert not tasks[1].done()
            await world.write((Op.INSERT, 5, None, "Ada"))
            assert (await tasks[1]).rows() == range(1)


async def test_nothing_is_kept_of_a_feed_that_is_gone():
    async with feeding() as world:
        for filters in ({}, {"key": (i64(1),)}):
            subscription = await world.subscribe(filters=filters)
            with world.service.feed(subscription.id, Latest()) as feed:
                await watched(feed)
                assert len(watches(world)._index) == 1
        wake = watches(world)
        assert (len(wake._index), wake._compiled, wake._versions) == (0, {}, {})


FILTERS = [
    {},
    {"key": (i64(1),)},
    {"key": (i64(2),)},
    {"bounds": {"lower_bound": i64(1), "upper_bound": i64(2)}},
    {"columns": ("name",)},
    {"where": "name = 'a'"},
    {"where": "id = 3 AND name <> 'b'"},
    {"cel": "row.name == 'b'"},
]


def wants(filters, op, key, before, after):
    """Say it in plain words."""
    names = {before, after} - {None}
    return {
        "key": lambda: filters["key"] == (i64(key),),
        "bounds": lambda: 1 <= key <= 2,
        "columns": lambda: before != after,
        "where": lambda: "a" in names if "'a'" in filters["where"] else key == 3 and bool(names - {"b"}),
        "cel": lambda: (after or before) == "b",
    }.get(next(iter(filters), ""), lambda: True)()


NAMES = st.sampled_from("abc")
WRITES = st.lists(
    st.one_of(
        st.tuples(st.just(Op.INSERT), st.integers(0, 4), st.none(), NAMES),
        st.tuples(st.just(Op.UPDATE), st.integers(0, 4), NAMES, NAMES),
        st.tuples(st.just(Op.DELETE), st.integers(0, 4), NAMES, st.none()),
    ),
    min_size=1,
    max_size=5,
)
NEWER = schema_of("users", version=2, columns=(Column("id", Kind.I64), Column("name", Kind.STR), Column("extra")))


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(WRITES, st.integers(0, 3), st.booleans()), min_size=1, max_size=12), st.data())
async def test_all_feeds_get_what_going_through_the_log_gives(commits, data):
    starts = [data.draw(st.integers(0, len(commits) - 1), label="start") for _ in FILTERS]
    breaks = [data.draw(st.integers(1, 4), label="batches of a session") for _ in FILTERS]
    total = sum(len(rows) for rows, _, _ in commits)

    async def follow(world, subscription, after, batches, found):
        while after < total:
            with world.service.feed(subscription.id, After(after)) as feed:
                for _ in range(batches):
                    batch = await feed.next(0.002)
                    if batch is not None:
                        passing = [batch.chunk.offset_of(row) for row in batch.rows()]
                        found += [offset for offset in passing if offset > feed.after]
                        feed.advance(batch.chunk.last)
                    after = feed.after

    async with feeding() as world:
        newer = await world.log.put_schema(NEWER)
        made = [await world.subscribe(filters=filters) for filters in FILTERS]
        found = [[] for _ in FILTERS]
        begins, tasks = [0] * len(FILTERS), []
        for number, (rows, turns, newest) in enumerate(commits):
            for place, start in enumerate(starts):
                if start == number:
                    begins[place] = world.log.head
                    following = follow(world, made[place], world.log.head, breaks[place], found[place])
                    tasks.append(asyncio.create_task(following))
            await world.write(*rows, schema=newer if newest else None)
            for _ in range(turns):
                await asyncio.sleep(0.001)
        async with asyncio.timeout(30):
            await asyncio.gather(*tasks)
    flat = [row for rows, _, _ in commits for row in rows]
    for place, filters in enumerate(FILTERS):
        wanted = [offset for offset, row in enumerate(flat, start=1) if offset > begins[place] and wants(filters, *row)]
        assert found[place] == wanted, filters


async def test_a_change_of_the_table_that_a_filter_cannot_follow_wakes_its_feed():
    async with feeding() as world:
        subscription = await world.subscribe(filters={"where": "name = 'Ada'"})
        renamed = schema_of("users", version=2, columns=(Column("id", Kind.I64), Column("title", Kind.STR)))
        with world.service.feed(subscription.id, Latest()) as feed:
            waiting = asyncio.create_task(feed.next(10))
            await asyncio.sleep(0)
            await world.write((Op.INSERT, 1, None, "Bea"))
            await settled(world)
            assert not waiting.done()
            draft = world.draft(await world.log.put_schema(renamed), [b"[1]"])
            draft.afters = [b'{"id":1,"title":"Ada"}']
            await world.log.append([draft])
            batch = await waiting
            with pytest.raises(PredicateError, match="no longer fits"):
                batch.rows()


async def test_feeds_of_a_whole_source_wake_for_tables_there_and_to_come():
    async with feeding() as world:
        everything = world.service.feed_of_source(SourceTarget("app"), FilterOptions((Op.INSERT,)))
        by_name = world.service.feed_of_source(SourceTarget("app", ("orders",)), FilterOptions((Op.INSERT,)))
        narrow = world.service.feed_of_source(SourceTarget("app"), FilterOptions((Op.INSERT,), where="name = 'Ada'"))
        with everything as one, by_name as two, narrow as three:
            waiting = [asyncio.create_task(feed.next(30)) for feed in (one, two, three)]
            await asyncio.sleep(0.01)
            await world.append(Op.DELETE)
            await settled(world)
            assert [task.done() for task in waiting] == [False, False, False]
            orders = await world.log.put_schema(schema_of("orders"))
            await world.write((Op.INSERT, 7, None, "Ada"), schema=orders)
            async with asyncio.timeout(20):
                batches = await asyncio.gather(*waiting)
            assert [list(batch.rows()) for batch in batches] == [[0], [0], [0]]
        assert watches(world)._index._groups == {}
