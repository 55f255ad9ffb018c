"""What every source promises. A new source adds itself to `DATABASES` of `source_databases`."""

import asyncio
import contextlib
import json
from contextlib import aclosing

import pytest

from source_databases import (
    DATABASES,
    ELSEWHERE,
    ITEM,
    KEYLESS,
    NOTED,
    AddColumn,
    Delete,
    Insert,
    Truncate,
    Update,
)
from tailrace.model.commit import Progress
from tailrace.model.image import NO_KEY
from tailrace.model.op import Op
from tailrace.testing.registry import MemoryRegistry

DEADLINE_S = 20


@pytest.fixture(params=DATABASES)
def database(request, tmp_path):
    made = DATABASES[request.param](tmp_path)
    made.create(ITEM)
    yield made
    made.close()


def require(database, ability):
    """Skip where a database does not promise something."""
    if not getattr(database.abilities, ability):
        pytest.skip(f"this kind of source has no {ability}")


@pytest.fixture
def registry():
    return MemoryRegistry()


@contextlib.asynccontextmanager
async def opened(database, registry, **options):
    source = database.source(**options)
    await source.open(registry)
    try:
        yield source
    finally:
        await source.close()


async def drafts_of(source, after, changes):
    """Return the commits after a position until there are so many changes."""
    found = []
    async with asyncio.timeout(DEADLINE_S), aclosing(source.commits(after)) as commits:
        async for drafts in commits:
            if isinstance(drafts, Progress):
                continue
            assert drafts
            found += drafts
            if sum(map(len, found)) >= changes:
                return found
    raise AssertionError("the source has ended")


def insert(number, schema=""):
    return Insert("item", {"id": number, "name": f"item {number}"}, schema)


def transact(database, *writes, commit=True):
    with database.transaction(commit=commit):
        for write in writes:
            database.run(write)


def changes_of(drafts):
    """Return op, schema, key, before and after of each change."""
    return [
        (Op(op), *rest)
        for draft in drafts
        for op, *rest in zip(draft.ops, draft.schemas, draft.keys, draft.befores, draft.afters, strict=True)
    ]


def keys_of(drafts):
    return [json.loads(key)[0] for draft in drafts for key in draft.keys]


async def test_commits_come_in_order_with_their_changes_whole(database, registry):
    async with opened(database, registry) as source:
        database.write(insert(1))
        transact(database, insert(2), insert(3))
        database.write(insert(4))
        drafts = await drafts_of(source, None, 4)
    assert keys_of(drafts) == [1, 2, 3, 4]
    assert all(len(draft) for draft in drafts)
    assert any(set(keys_of([draft])) >= {2, 3} for draft in drafts)


async def test_changes_have_op_key_and_images_in_a_schema_that_was_announced(database, registry):
    async with opened(database, registry) as source:
        database.write(insert(1), Update("item", {"id": 1}, {"name": "new"}), Delete("item", {"id": 1}))
        rows = changes_of(await drafts_of(source, None, 3))
    assert {registry.schemas[schema].table.name for _, schema, *_ in rows} == {"item"}
    old, new = b'{"id":1,"name":"item 1"}', b'{"id":1,"name":"new"}'
    assert [(op, key, after) for op, _, key, _, after in rows] == [
        (Op.INSERT, b"[1]", old),
        (Op.UPDATE, b"[1]", new),
        (Op.DELETE, b"[1]", None),
    ]
    befores = [before for _, _, _, before, _ in rows]
    if database.abilities.whole_before:
        assert befores == [None, old, new]
    else:  # what there is of it is true
        assert all(json.loads(before).items() <= {"id": 1, "name": "item 1"}.items() for before in befores if before)


async def test_nothing_from_before_the_first_opening_comes(database, registry):
    database.write(insert(1))
    async with opened(database, registry) as source:
        database.write(insert(2))
        assert keys_of(await drafts_of(source, None, 1)) == [2]


async def test_what_is_rolled_back_does_not_come(database, registry):
    async with opened(database, registry) as source:
        transact(database, insert(1), commit=False)
        database.write(insert(2))
        assert keys_of(await drafts_of(source, None, 1)) == [2]


async def test_resuming_after_a_position_gives_what_follows_it(database, registry):
    async with opened(database, registry) as source:
        database.write(insert(1))
        (first,) = await drafts_of(source, None, 1)
        database.write(insert(2), insert(3))
        assert keys_of(await drafts_of(source, first.position, 2)) == [2, 3]


async def test_commits_made_while_the_source_is_closed_wait_for_it(database, registry):
    async with opened(database, registry) as source:
        database.write(insert(1))
        (first,) = await drafts_of(source, None, 1)
        await source.confirm(first.position)
    database.write(insert(2))
    async with opened(database, registry) as source:
        assert keys_of(await drafts_of(source, first.position, 1)) == [2]


async def test_before_anything_is_in_the_log_a_reopened_source_begins_where_it_was_first_opened(database, registry):
    async with opened(database, registry):
        pass
    database.write(insert(1))
    async with opened(database, registry) as source:
        assert keys_of(await drafts_of(source, None, 1)) == [1]


async def test_confirmed_positions_can_be_resumed_after(database, registry):
    async with opened(database, registry) as source:
        database.write(insert(1), insert(2))
        drafts = await drafts_of(source, None, 2)
        await source.confirm(drafts[-1].position)
    async with opened(database, registry) as source:
        database.write(insert(3))
        assert keys_of(await drafts_of(source, drafts[-1].position, 1)) == [3]


async def test_confirming_does_not_disturb_a_stream_that_waits(database, registry):
    async with opened(database, registry) as source:
        database.write(insert(1))
        found = []
        async with asyncio.timeout(DEADLINE_S), aclosing(source.commits(None)) as commits:
            async for drafts in commits:
                if isinstance(drafts, Progress):
                    continue
                found += drafts
                await source.confirm(drafts[-1].position)
                if len(found) == 1:
                    database.write(insert(2))
                else:
                    break
        assert keys_of(found) == [1, 2]


async def test_a_stream_that_waits_can_be_cancelled_at_once(database, registry):
    async with opened(database, registry) as source:
        waiting = asyncio.create_task(drafts_of(source, None, 1))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(asyncio.shield(waiting), DEADLINE_S)
        database.write(insert(1))
        assert keys_of(await drafts_of(source, None, 1)) == [1]


async def test_the_captured_tables_are_known_once_it_is_open(database, registry):
    async with opened(database, registry) as source:
        (schema,) = source.tables()
        assert (schema.table.source, schema.table.name, schema.key) == ("app", "item", ("id",))
        assert registry.latest_schema(schema.table) is not None


async def test_a_schema_change_between_changes_comes_in_its_place(database, registry):
    async with opened(database, registry) as source:
        database.write(insert(1), AddColumn("item", "price"))
        drafts = await drafts_of(source, None, 2) if database.abilities.schema_alone else []
        database.write(Insert("item", {"id": 2, "name": "two", "price": 2}))
        drafts += await drafts_of(source, drafts[-1].position if drafts else None, 3 - sum(map(len, drafts)))
    rows = changes_of(drafts)
    assert [op for op, *_ in rows] == [Op.INSERT, Op.SCHEMA, Op.INSERT]
    before, changed, after = [registry.schemas[schema] for _, schema, *_ in rows]
    assert before.column("price") is None
    assert changed == after
    assert after.column("price") is not None
    assert after.version > before.version
    if database.abilities.schema_text:
        assert "price" in json.loads(rows[1][-1])["ddl"]


async def test_a_table_without_a_key_has_a_hidden_number_that_tells_equal_rows_apart(database, registry):
    require(database, "hidden_number")
    database.create(KEYLESS)
    async with opened(database, registry) as source:
        same = Insert("note", {"text": "same"})
        database.write(same, same, Delete("note", {"text": "same"}))
        rows = changes_of(await drafts_of(source, None, 4))
    assert all(registry.schemas[schema].key == () for _, schema, *_ in rows)
    assert [op for op, *_ in rows] == [Op.INSERT, Op.INSERT, Op.DELETE, Op.DELETE]
    keys = [json.loads(key) for _, _, key, *_ in rows]
    assert keys[0] != keys[1]
    assert sorted(keys[:2]) == sorted(keys[2:])


async def test_a_table_outside_the_default_schema_is_not_the_one_of_the_same_name_inside(database, registry):
    require(database, "schemas")
    database.create(ELSEWHERE)
    async with opened(database, registry) as source:
        database.write(insert(1), insert(1, "other"))
        rows = changes_of(await drafts_of(source, None, 2))
        assert {schema.table.wire for schema in source.tables()} == {"item", "other.item"}
    assert [registry.schemas[schema].table.wire for _, schema, *_ in rows] == ["item", "other.item"]


async def test_a_truncation_comes_in_its_place_without_rows(database, registry):
    require(database, "truncate")
    async with opened(database, registry) as source:
        database.write(insert(1), insert(2), Truncate("item"), insert(1))
        rows = changes_of(await drafts_of(source, None, 4))
    assert [op for op, *_ in rows] == [Op.INSERT, Op.INSERT, Op.TRUNCATE, Op.INSERT]
    assert rows[2][2:] == (NO_KEY, None, None)
    assert registry.schemas[rows[2][1]].table.name == "item"


async def test_a_cell_that_is_not_sent_is_left_out_and_never_null(database, registry):
    database.create(NOTED)
    async with opened(database, registry) as source:
        database.write(
            Insert("noted", {"id": 1, "name": "a", "note": "long"}),
            Update("noted", {"id": 1}, {"name": "b"}),
            Update("noted", {"id": 1}, {"note": "other"}),
        )
        rows = changes_of(await drafts_of(source, None, 3))
    kept = {} if database.abilities.unchanged else {"note": "long"}
    assert [json.loads(after) for *_, after in rows] == [
        {"id": 1, "name": "a", "note": "long"},
        {"id": 1, "name": "b", **kept},
        {"id": 1, "name": "b", "note": "other"},
    ]


async def test_a_large_transaction_is_whole_and_in_order(database, registry):
    count = 5000
    async with opened(database, registry) as source:
        transact(database, *(insert(number) for number in range(count)))
        database.write(insert(count))
        drafts = await drafts_of(source, None, count + 1)
    assert keys_of(drafts) == list(range(count + 1))
    commits = []
    for draft in drafts:
        commits += [] if draft.part else [[]]
        commits[-1].append(draft)
    assert sum(map(len, commits[0])) >= count
    for parts in commits:
        assert [(part.part, part.more) for part in parts] == [(n, n + 1 < len(parts)) for n in range(len(parts))]
        assert all(map(len, parts))
        assert len({(part.commit_time_us, part.txid, part.migration) for part in parts}) == 1


async def test_a_stream_that_broke_off_in_a_large_transaction_begins_it_again(database, registry):
    count = 5000
    async with opened(database, registry) as source:
        database.write(insert(0))
        (before,) = await drafts_of(source, None, 1)
        transact(database, *(insert(number) for number in range(1, count + 1)))
        await drafts_of(source, before.position, 1)
        drafts = await drafts_of(source, before.position, count)
        assert keys_of(drafts) == list(range(1, count + 1))
        await source.confirm(drafts[-1].position)
        database.write(insert(count + 1))
        assert keys_of(await drafts_of(source, drafts[-1].position, 1)) == [count + 1]


async def test_every_commit_has_a_position_of_its_own_that_can_be_resumed_after(database, registry):
    async with opened(database, registry) as source:
        database.write(*(insert(number) for number in range(5)))
        drafts = await drafts_of(source, None, 5)
        assert len({draft.position for draft in drafts}) == len(drafts)
        for number, draft in enumerate(drafts[:-1], start=1):
            rest = await drafts_of(source, draft.position, 5 - sum(map(len, drafts[:number])))
            assert keys_of(rest) == keys_of(drafts[number:])


async def test_a_position_without_changes_is_told_and_can_be_resumed_after(database, registry):
    require(database, "progress")
    async with opened(database, registry) as source:
        database.write(insert(1))
        database.move_on()
        drafts = []
        async with asyncio.timeout(DEADLINE_S), aclosing(source.commits(None)) as commits:
            async for one in commits:
                if not isinstance(one, Progress):
                    drafts += one
                elif drafts:
                    break
        assert keys_of(drafts) == [1]
        assert one.position != drafts[-1].position
        await source.confirm(one.position)
        database.write(insert(2))
        assert keys_of(await drafts_of(source, one.position, 1)) == [2]


async def test_each_reader_goes_its_own_way(database, registry):
    async with opened(database, registry, reader="one") as one, opened(database, registry, reader="two") as two:
        database.write(insert(1), insert(2))
        drafts = await drafts_of(one, None, 2)
        await one.confirm(drafts[-1].position)
        assert keys_of(await drafts_of(two, None, 2)) == [1, 2]


async def test_opening_again_is_safe(database, registry):
    async with opened(database, registry) as source:
        await source.open(registry)
        database.write(insert(1))
        assert keys_of(await drafts_of(source, None, 1)) == [1]


async def test_closing_twice_is_safe(database, registry):
    source = database.source()
    await source.open(registry)
    await source.close()
    await source.close()
