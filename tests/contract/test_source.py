"""What every source promises. A new source adds itself to `DATABASES`."""

import asyncio
import contextlib
import json
from contextlib import aclosing

import apsw
import pytest

from tailrace.clock import SystemClock
from tailrace.model.op import Op
from tailrace.source.base import Reader
from tailrace.source.sqlite import SqliteOptions, SqliteSource
from tailrace.testing.registry import MemoryRegistry

DEADLINE_S = 20


class SqliteDatabase:
    """A database with the table `item(id, name)` and a source for it."""

    def __init__(self, directory):
        self._path = directory / "app.db"
        self._writer = apsw.Connection(str(self._path))
        self._writer.set_busy_timeout(10_000)
        self.write("PRAGMA journal_mode = wal", "CREATE TABLE item(id INTEGER PRIMARY KEY, name TEXT)")

    def source(self, name="app", reader="log"):
        return SqliteSource(name, self._path, Reader(reader), SqliteOptions(), SystemClock())

    def write(self, *statements):
        """Run statements, each on its own."""
        for statement in statements:
            self._writer.execute(statement).fetchall()

    def close(self):
        self._writer.close()


DATABASES = {"sqlite": SqliteDatabase}


@pytest.fixture(params=DATABASES)
def database(request, tmp_path):
    made = DATABASES[request.param](tmp_path)
    yield made
    made.close()


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
            assert drafts
            found += drafts
            if sum(map(len, found)) >= changes:
                return found
    raise AssertionError("the source has ended")


def insert(number):
    return f"INSERT INTO item VALUES({number}, 'item {number}')"


def keys_of(drafts):
    return [json.loads(key)[0] for draft in drafts for key in draft.keys]


async def test_commits_come_in_order_with_their_changes_whole(database, registry):
    async with opened(database, registry) as source:
        database.write(insert(1), "BEGIN", insert(2), insert(3), "COMMIT", insert(4))
        drafts = await drafts_of(source, None, 4)
    assert keys_of(drafts) == [1, 2, 3, 4]
    assert all(len(draft) for draft in drafts)
    assert any(set(keys_of([draft])) >= {2, 3} for draft in drafts)


async def test_changes_have_op_key_and_images_in_a_schema_that_was_announced(database, registry):
    async with opened(database, registry) as source:
        database.write(insert(1), "UPDATE item SET name = 'new'", "DELETE FROM item")
        drafts = await drafts_of(source, None, 3)
    rows = [
        row
        for draft in drafts
        for row in zip(draft.ops, draft.schemas, draft.keys, draft.befores, draft.afters, strict=True)
    ]
    assert {registry.schemas[schema].table.name for _, schema, *_ in rows} == {"item"}
    old, new = b'{"id":1,"name":"item 1"}', b'{"id":1,"name":"new"}'
    assert [(op, key, before, after) for op, _, key, before, after in rows] == [
        (Op.INSERT, b"[1]", None, old),
        (Op.UPDATE, b"[1]", old, new),
        (Op.DELETE, b"[1]", new, None),
    ]


async def test_nothing_from_before_the_first_opening_comes(database, registry):
    database.write(insert(1))
    async with opened(database, registry) as source:
        database.write(insert(2))
        assert keys_of(await drafts_of(source, None, 1)) == [2]


async def test_what_is_rolled_back_does_not_come(database, registry):
    async with opened(database, registry) as source:
        database.write("BEGIN", insert(1), "ROLLBACK", insert(2))
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


async def test_a_schema_change_comes_with_its_text_in_order(database, registry):
    async with opened(database, registry) as source:
        database.write(insert(1), "ALTER TABLE item ADD COLUMN price")
        drafts = await drafts_of(source, None, 2)
        database.write("INSERT INTO item VALUES(2, 'two', 2)")
        drafts += await drafts_of(source, drafts[-1].position, 1)
    ops = [Op(op) for draft in drafts for op in draft.ops]
    assert ops == [Op.INSERT, Op.SCHEMA, Op.INSERT]
    ddl = json.loads(drafts[-2].afters[-1])["ddl"]
    assert "price" in ddl
    assert registry.schemas[drafts[-1].schemas[0]].column("price") is not None


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
