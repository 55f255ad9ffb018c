"""Changes of a range out of a log."""

import json

import pytest

from tailrace.access.principal import Principal
from tailrace.interface.jimdb.log_page import TableDropped, TableTruncated, read_changes
from tailrace.interface.jimdb.options import PullOptions
from tailrace.meta.key_range import KeyRange
from tailrace.meta.ordered_key import encode_ordered, table_prefix
from tailrace.model.commit import Draft
from tailrace.model.errors import BehindHorizonError, BeyondHeadError
from tailrace.model.op import Op
from tailrace.model.table import Column, Kind, TableName, TableSchema
from tailrace.subscription.restrict import Restrictions
from tailrace.testing.log import MemoryLog

ORDERS, OTHER = TableName("s", "orders"), TableName("s", "other")
COLUMNS = (Column("id", Kind.I64), Column("n", Kind.I64))
WHOLE = KeyRange(1, 5, table_prefix(5), table_prefix(6))
LOW = KeyRange(1, 5, table_prefix(5), encode_ordered(5, [10]) + b"\0")
HIGH = KeyRange(2, 5, LOW.end, WHOLE.end)
OPTIONS = PullOptions()


class World:
    """A log with two tables."""

    def __init__(self):
        self.log = MemoryLog()
        self.schemas = {}

    async def ready(self):
        for table in (ORDERS, OTHER):
            self.schemas[table] = await self.log.put_schema(TableSchema(table, 1, COLUMNS, ("id",)))
        return self

    async def commit(self, *changes, table=ORDERS):
        draft = Draft(f"p{self.log.head}", 1)
        for op, key, n in changes:
            draft.ops.append(op)
            draft.schemas.append(self.schemas[table])
            draft.keys.append(b"[%d]" % key if key is not None else b"[]")
            draft.befores.append(None)
            draft.afters.append(n if isinstance(n, bytes | None) else b'{"id":%d,"n":%d}' % (key, n))
        await self.log.append([draft])

    async def read(self, after, within=WHOLE, options=OPTIONS, restriction=None):
        found = await read_changes(self.log, ORDERS, within, after, restriction, options)
        if isinstance(found, TableDropped | TableTruncated):
            return found
        return [shown(one) for one in found.changes], found.through


def shown(change):
    (number,) = [n for n in range(100) if encode_ordered(5, [n]) == change.key]
    return number, None if change.value is None else json.loads(change.value)["n"]


@pytest.fixture
async def world():
    return await World().ready()


async def test_a_truncation_ends_the_answer_before_it_and_then_asks_for_a_new_snapshot(world):
    await world.commit((Op.INSERT, 1, 10))
    await world.commit((Op.TRUNCATE, None, None))
    await world.commit((Op.INSERT, 2, 12))
    await world.commit((Op.TRUNCATE, None, None), table=OTHER)
    assert await world.read(0) == ([(1, 10)], 1)
    assert await world.read(1) == TableTruncated(2)
    assert await world.read(1, HIGH) == TableTruncated(2)
    assert await world.read(2) == ([(2, 12)], 4)


async def test_changes_of_the_range_alone_are_given_and_the_index_moves_over_all(world):
    await world.commit((Op.INSERT, 1, 10), (Op.INSERT, 20, 11))
    await world.commit((Op.INSERT, 1, 12), table=OTHER)
    await world.commit((Op.UPDATE, 1, 13))
    await world.commit((Op.DELETE, 20, None))
    assert await world.read(0) == ([(1, 10), (20, 11), (1, 13), (20, None)], 5)
    assert await world.read(0, LOW) == ([(1, 10), (1, 13)], 5)
    assert await world.read(0, HIGH) == ([(20, 11), (20, None)], 5)
    assert await world.read(4, LOW) == ([], 5)
    assert await world.read(5) == ([], 5)


async def test_an_answer_ends_where_a_commit_ends(world):
    await world.commit((Op.INSERT, 1, 1), (Op.INSERT, 2, 2))
    await world.commit((Op.INSERT, 3, 3), (Op.INSERT, 4, 4), (Op.INSERT, 5, 5))
    few = PullOptions(rows_max=4)
    assert await world.read(0, options=few) == ([(1, 1), (2, 2)], 2)
    assert await world.read(2, options=few) == ([(3, 3), (4, 4), (5, 5)], 5)


@pytest.mark.parametrize("options", [PullOptions(rows_max=2), PullOptions(bytes_max=40)])
async def test_a_commit_that_is_too_large_for_an_answer_is_cut(world, options):
    await world.commit(*((Op.INSERT, number, number) for number in range(1, 8)))
    place, found = 0, []
    while place < 7:
        changes, place = await world.read(place, options=options)
        assert 1 <= len(changes) <= 2
        found += changes
    assert found == [(number, number) for number in range(1, 8)]


async def test_one_change_is_given_however_large(world):
    await world.commit((Op.INSERT, 1, 1))
    assert await world.read(0, options=PullOptions(bytes_max=1)) == ([(1, 1)], 1)


async def test_an_answer_looks_through_a_bounded_part_of_the_log(world):
    for number in range(10):
        await world.commit((Op.INSERT, number, 1), table=OTHER)
    assert await world.read(0, options=PullOptions(scan_changes_max=4)) == ([], 4)


async def test_what_retention_removed_and_what_is_not_there_yet_are_told(world):
    await world.commit((Op.INSERT, 1, 1), (Op.INSERT, 2, 2))
    world.log.forget_before(2)
    with pytest.raises(BehindHorizonError):
        await world.read(0)
    with pytest.raises(BeyondHeadError):
        await world.read(9)


async def test_changes_before_a_drop_are_given_and_then_the_drop_is_told(world):
    await world.commit((Op.INSERT, 1, 1), (Op.SCHEMA, None, b'{"ddl":"ALTER TABLE orders ADD COLUMN x"}'))
    await world.commit((Op.SCHEMA, None, b'{"ddl":"DROP TABLE \\"orders\\""}'))
    await world.commit((Op.INSERT, 1, 2))
    assert await world.read(0) == ([(1, 1)], 2)
    assert await world.read(1) == ([], 2)
    assert await world.read(2) == TableDropped()
    assert await world.read(3) == ([(1, 2)], 4)


async def test_rows_that_may_not_be_seen_are_deleted_or_not_there(world):
    await world.commit((Op.INSERT, 1, 1), (Op.INSERT, 2, 50))
    restriction = Restrictions().get(Principal("me", rows={"s.orders": "n < 10"}), "s")
    assert await world.read(0, restriction=restriction) == ([(1, 1)], 2)
