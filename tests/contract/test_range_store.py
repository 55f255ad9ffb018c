"""Ranges and pullers in the metadata database: SQLite, MariaDB and PostgreSQL keep them alike."""

import pytest

from tailrace.clock import SystemClock
from tailrace.meta.key_range import Epoch, KeyRange, RangedTable, Registration
from tailrace.meta.range_store import RangeStore
from tailrace.meta.store import MetaStore
from tailrace.model.table import TableName

ORDERS = TableName("shop", "orders")


@pytest.fixture
async def reopened(metadata_url):
    """A function that opens the same database again, as after a restart."""
    opened = []

    async def open_again():
        for store in opened:
            await store.close()
        opened.append(await MetaStore.open(metadata_url, SystemClock()))
        return RangeStore(opened[-1])

    yield open_again
    for store in opened:
        await store.close()


async def test_ranges_come_back_as_they_were_made(reopened):
    store = await reopened()
    table, ranges = await store.make(ORDERS, ("id", "line"), [b"\x23a", b"\x23b"])
    assert table == RangedTable(table.id, ORDERS, ("id", "line"))
    prefix = table.prefix
    bounds = [(prefix, prefix + b"\x23a\0"), (prefix + b"\x23a\0", prefix + b"\x23b\0")]
    assert [(one.start, one.end) for one in ranges[:2]] == bounds
    assert (ranges[2].start, ranges[2].end) == (prefix + b"\x23b\0", (table.id + 1).to_bytes(4, "big"))
    assert {one.epoch for one in ranges} == {Epoch(1, 1)}
    kept = await (await reopened()).load()
    assert (list(kept.tables), list(kept.ranges), list(kept.registrations)) == ([table], list(ranges), [])


async def test_a_split_raises_the_version_and_hands_the_pullers_on(reopened):
    store = await reopened()
    table, (whole,) = await store.make(ORDERS, ("id",), [])
    puller = Registration(whole.id, "me", "one", 5, 9, 7, 2, 1234)
    await store.put(puller)
    last = table.prefix + b"\x23\xff\x00x"
    left, right, inherited = await store.split(whole, last)
    assert left == KeyRange(whole.id, table.id, whole.start, last + b"\0", Epoch(1, 2), born_end=whole.end)
    assert right == KeyRange(right.id, table.id, last + b"\0", whole.end, Epoch(1, 2), whole.id, 2, whole.end)
    assert right.id > left.id
    child = Registration(right.id, "me", "one", 5, 9, 7, 2, 1234)
    assert list(inherited) == [child]
    kept = await (await reopened()).load()
    assert (list(kept.ranges), list(kept.registrations)) == ([left, right], [puller, child])


async def test_pullers_are_told_apart_by_range_owner_and_name(reopened):
    store = await reopened()
    _, (one, two) = await store.make(ORDERS, ("id",), [b"\x22"])
    pullers = [
        Registration(number, owner, name, 1, 1) for number in (one.id, two.id) for owner in "ab" for name in "xy"
    ]
    for puller in pullers:
        await store.put(puller)
    await store.move([Registration(one.id, "a", "y", 8, 50, heard_time_us=3), Registration(99, "a", "y", 1, 1)])
    await store.unregister((two.id, "b", "x"))
    kept = list((await (await reopened()).load()).registrations)
    assert kept[1] == Registration(one.id, "a", "y", 1, 50, heard_time_us=3)
    assert [puller.key for puller in kept] == [puller.key for puller in pullers if puller.key != (two.id, "b", "x")]


async def test_numbers_are_not_used_again(reopened):
    store = await reopened()
    table, ranges = await store.make(ORDERS, ("id",), [b"\x22"])
    await store.put(Registration(ranges[0].id, "me", "one", 1, 1))
    await store.remove(table.id)
    kept = await store.load()
    assert (list(kept.tables), list(kept.ranges), list(kept.registrations)) == ([], [], [])
    again, made = await (await reopened()).make(ORDERS, ("id",), [])
    assert again.id > table.id
    assert made[0].id > max(one.id for one in ranges)
