"""Ranges and their pullers: numbers, epochs, and what of the log is kept for whom."""

import asyncio

import pytest

from tailrace.clock import SystemClock
from tailrace.interface.jimdb.errors import (
    NotRegisteredError,
    OutOfBoundError,
    PullerBusyError,
    RegistrationsFullError,
    StaleEpochError,
    UnknownRangeError,
)
from tailrace.interface.jimdb.options import RangeOptions
from tailrace.interface.jimdb.ranges import Ranges, range_floor
from tailrace.interface.jimdb.shard import RangeShard
from tailrace.meta.key_range import Epoch
from tailrace.meta.ordered_key import encode_ordered
from tailrace.meta.range_store import RangeStore
from tailrace.meta.store import MetaStore
from tailrace.metrics import Metrics
from tailrace.model.commit import Draft
from tailrace.model.errors import InvalidRequestError
from tailrace.model.op import Op
from tailrace.model.table import Column, TableName, TableSchema
from tailrace.testing.clock import FakeClock
from tailrace.testing.log import MemoryLog

ORDERS = TableName("s", "orders")


class World:
    """Ranges over a log in memory; `restart` begins anew with what is kept."""

    def __init__(self, store):
        self.log, self.clock, self.store = MemoryLog(), FakeClock(), RangeStore(store)
        self.metrics = Metrics()

    async def restart(self, **options):
        shards = {"s": RangeShard(0, "s", None, self.log)}
        self.kept = await self.store.load()
        self.ranges = Ranges(shards, self.store, self.kept, RangeOptions(**options), self.clock, self.metrics)
        return self.ranges

    async def grow(self, count=1):
        number = await self.log.put_schema(TableSchema(ORDERS, 1, (Column("id"),), ("id",)))
        draft = Draft("p", 1)
        for _ in range(count):
            draft.ops.append(Op.INSERT)
            draft.schemas.append(number)
            draft.keys.append(b"[1]")
            draft.befores.append(None)
            draft.afters.append(b"{}")
        await self.log.append([draft])

    async def whole(self):
        await self.ranges.make(ORDERS, ("id",), [])
        _, (one,) = self.ranges.ranges_of(ORDERS)
        return one


@pytest.fixture
async def world(tmp_path):
    store = await MetaStore.open(f"sqlite:///{tmp_path}/meta.db", SystemClock())
    made = World(store)
    await made.restart()
    yield made
    await store.close()


async def test_ranges_are_made_once_and_survive_a_restart(world):
    one = await world.whole()
    await world.ranges.make(ORDERS, ("id",), [b"\x22"])
    assert (await world.restart()).ranges_of(ORDERS)[1] == [one]
    assert world.ranges.get(one.id) == one
    with pytest.raises(UnknownRangeError):
        world.ranges.get(one.id + 1)


async def test_a_split_makes_the_old_epoch_stale_and_tells_what_became_of_the_range(world):
    one = await world.whole()
    puller = await world.ranges.register(one, "me", "a")
    left, right = await world.ranges.split(one.id, one.epoch, encode_ordered(one.table_id, [10]))
    for ranges in (world.ranges, await world.restart()):
        assert ranges.ranges_of(ORDERS)[1] == [left, right]
        with pytest.raises(StaleEpochError) as stale:
            ranges.check(ranges.get(one.id), one.epoch)
        assert (stale.value.left, stale.value.right) == (left, right)
        ranges.check(left, Epoch(1, 2))
        assert ranges.puller(right, "me", "a").init_version == puller.init_version
    again = encode_ordered(one.table_id, [20])
    with pytest.raises(StaleEpochError):
        await world.ranges.split(one.id, one.epoch, again)
    with pytest.raises(OutOfBoundError):
        await world.ranges.split(one.id, left.epoch, again)
    with pytest.raises(OutOfBoundError):
        await world.ranges.split(one.id, left.epoch, encode_ordered(one.table_id, [10]))


def stale_of(ranges, found):
    try:
        ranges.check(ranges.get(found.id), found.epoch)
    except StaleEpochError as error:
        return error
    return None


async def test_a_split_whose_caller_gives_up_is_done_all_the_same(world):
    one = await world.whole()
    splitting = asyncio.create_task(world.ranges.split(one.id, one.epoch, encode_ordered(one.table_id, [5])))
    while not world.ranges._change.locked():
        await asyncio.sleep(0)
    splitting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await splitting
    _, ranges = world.ranges.ranges_of(ORDERS)
    assert len(ranges) == 2
    assert list((await world.store.load()).ranges) == ranges


async def test_whoever_missed_several_splits_is_led_through_them_one_by_one(world):
    one = await world.whole()
    known = {}
    for last in (50, 20, 30, 70, 25):
        ranges = world.ranges.ranges_of(ORDERS)[1]
        key = encode_ordered(one.table_id, [last])
        within = next(found for found in ranges if found.contains(key))
        await world.ranges.split(within.id, within.epoch, key)
    await world.restart()
    looked_at = [one]
    while looked_at:
        found = looked_at.pop()
        stale = stale_of(world.ranges, found)
        if stale is None:
            known[found.id] = found
            continue
        assert (stale.left.start, stale.left.end, stale.right.end) == (found.start, stale.right.start, found.end)
        looked_at += [stale.left, stale.right]
    final = {one.id: one for one in world.ranges.ranges_of(ORDERS)[1]}
    assert {number: (one.start, one.end, one.epoch) for number, one in known.items()} == {
        number: (one.start, one.end, one.epoch) for number, one in final.items()
    }
    for strange in (Epoch(0, 0), Epoch(1, 99), Epoch(2, 1)):
        with pytest.raises(StaleEpochError) as told:
            world.ranges.check(final[one.id], strange)
        assert (told.value.left, told.value.right) == (final[one.id], None)


async def test_a_puller_begins_at_the_head_and_the_same_one_again_where_it_began(world):
    one = await world.whole()
    await world.grow(3)
    assert (await world.ranges.register(one, "me", "a")).init_version == 3
    await world.grow(2)
    assert (await world.ranges.register(one, "me", "a")).init_version == 3
    assert (await world.ranges.register(one, "you", "a")).init_version == 5
    await world.restart()
    assert (await world.ranges.register(one, "me", "a")).init_version == 3


async def test_a_puller_begins_anew_when_the_log_no_longer_has_what_follows_its_beginning(world):
    one = await world.whole()
    puller = await world.ranges.register(one, "me", "a")
    await world.grow(9)
    world.ranges.heard(puller, 6)
    await world.ranges.look()
    world.log.forget_before(10)
    assert world.log.horizon == 7
    assert (await world.ranges.register(one, "me", "a")).init_version == 9


async def test_retention_keeps_what_a_puller_has_not_got_also_across_a_restart(world):
    one = await world.whole()
    puller = await world.ranges.register(one, "me", "a")
    await world.ranges.register(one, "me", "b")
    await world.grow(9)
    world.log.forget_before(9)
    assert world.log.horizon == 1
    world.ranges.heard(puller, 5)
    await world.ranges.look()
    assert world.log.floor == 1
    await world.ranges.unregister(one, "me", "b")
    assert world.log.floor == 6
    world.log.hold(None, holder="pullers")
    await world.restart()
    assert world.log.floor == 6
    assert range_floor(world.kept, "s", 0) == 6
    assert range_floor(world.kept, "other", 0) is None
    assert range_floor(world.kept, "s", world.clock.now_us() + 1) is None


@pytest.mark.parametrize("bound", [{"retained_bytes_max": 500}, {"silent_s_max": 60.0}], ids=str)
async def test_a_puller_that_passes_a_bound_holds_nothing_until_it_is_heard_again(world, bound):
    await world.restart(**bound)
    one = await world.whole()
    puller = await world.ranges.register(one, "me", "a")
    await world.grow(6)
    world.clock.advance(61)
    await world.ranges.look()
    assert world.log.floor is None
    world.ranges.heard(puller, 4)
    assert world.log.floor == 5
    await world.ranges.look()
    assert world.log.floor == 5


async def test_a_puller_that_holds_nothing_makes_room_for_another(world):
    await world.restart(registrations_max=2, silent_s_max=60.0)
    one = await world.whole()
    for name in "ab":
        await world.ranges.register(one, "me", name)
    with pytest.raises(RegistrationsFullError):
        await world.ranges.register(one, "me", "c")
    await world.ranges.register(one, "me", "a")
    world.clock.advance(61)
    world.ranges.heard(world.ranges.puller(one, "me", "a"))
    await world.ranges.look()
    await world.ranges.register(one, "me", "c")
    with pytest.raises(NotRegisteredError):
        world.ranges.puller(one, "me", "b")
    world.ranges.puller(one, "me", "a")


async def test_pullers_and_what_is_kept_for_them_are_measured(world):
    one = await world.whole()
    await world.ranges.register(one, "me", "a")
    await world.grow(7)
    await world.ranges.look()
    assert world.metrics.pullers.labels("s")._value.get() == 1
    assert world.metrics.puller_retained_bytes.labels("s")._value.get() == 700


async def test_the_log_is_measured_for_the_furthest_behind_alone(world, monkeypatch):
    await world.restart(retained_bytes_max=500)
    one = await world.whole()
    pullers = [await world.ranges.register(one, "me", str(number)) for number in range(20)]
    await world.grow(7)
    for number, puller in enumerate(pullers[2:]):
        world.ranges.heard(puller, min(2 + number, 7))
    measured, size_after = [], world.log.commits.size_after

    async def counted(offset):
        measured.append(offset)
        return await size_after(offset)

    monkeypatch.setattr(world.log.commits, "size_after", counted)
    await world.ranges.look()
    assert measured == [0, 0, 2]
    assert world.log.floor == 3
    assert world.metrics.pullers.labels("s")._value.get() == 20
    assert world.metrics.puller_retained_bytes.labels("s")._value.get() == 500
    await world.ranges.look()
    assert measured == [0, 0, 2, 2]


async def test_a_range_has_one_puller_of_a_name_at_a_time(world):
    one = await world.whole()
    puller, other = [await world.ranges.register(one, "me", name) for name in "ab"]
    with world.ranges.pulling(puller), world.ranges.pulling(other), pytest.raises(PullerBusyError):
        world.ranges.pulling(puller).__enter__()
    with world.ranges.pulling(puller):
        pass


async def test_ranges_that_are_retired_are_gone_with_their_pullers_and_the_next_have_other_numbers(world):
    one = await world.whole()
    puller = await world.ranges.register(one, "me", "a")
    await world.ranges.retire(world.ranges.table_of(one))
    await world.grow(1)
    world.ranges.heard(puller, 1)
    assert (world.ranges.ranges_of(ORDERS), world.log.floor) == (None, None)
    with pytest.raises(UnknownRangeError):
        world.ranges.get(one.id)
    again = await world.whole()
    assert again.id > one.id
    assert again.table_id > one.table_id


@pytest.mark.parametrize("name", ["", "x" * 256, "a\0", "a\n", " a", "a "])
async def test_a_subscriber_has_a_name(world, name):
    with pytest.raises(InvalidRequestError):
        await world.ranges.register(await world.whole(), "me", name)


async def test_ranges_of_a_source_that_is_no_longer_configured_are_unknown(world):
    one = await world.whole()
    ranges = Ranges({}, world.store, await world.store.load(), RangeOptions(), world.clock, world.metrics)
    with pytest.raises(UnknownRangeError):
        ranges.get(one.id)
    await ranges.look()
