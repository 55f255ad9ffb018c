"""Facts about the metadata database, on every kind of database that it runs on."""

import asyncio

import msgspec
import pytest
from sqlalchemy import create_engine, insert, inspect, text

from tailrace.clock import SystemClock
from tailrace.meta.store import MetaStore
from tailrace.meta.table import METADATA, migration
from tailrace.model.errors import ConfigError, MetadataError
from tailrace.model.op import Op
from tailrace.model.subscription import (
    Deliver,
    FilterOptions,
    Format,
    Include,
    PreparedQuery,
    QueryTarget,
    SubscriptionDraft,
    TableTarget,
)
from tailrace.model.table import TableName

DRAFT = SubscriptionDraft(
    source="app",
    target=TableTarget((TableName("app", "users"), TableName("app", 'ü"', "other"))),
    filter=FilterOptions((Op.INSERT, Op.DELETE)),
    include=Include(before=True, after=False),
    format=Format.PLAIN_JSON,
    cursor=7,
)
OLD_ROW = """
    INSERT INTO tailrace_subscription VALUES
    (4, 'app', '{"type":"table","tables":[{"source":"app","name":"t"}]}', '{"ops":[1]}',
     FALSE, TRUE, 'plain_json', 7, 0)
"""


@pytest.fixture
async def store(metadata_url):
    store = await MetaStore.open(metadata_url, SystemClock())
    yield store
    await store.close()


async def reopened(store, metadata_url):
    await store.close()
    return await MetaStore.open(metadata_url, SystemClock())


async def test_a_subscription_is_kept_to_the_letter(store, metadata_url):
    added = await store.add(DRAFT)
    again = await reopened(store, metadata_url)
    assert await again.subscriptions() == [added]
    await again.close()
    assert (added.source, added.target, added.filter) == (DRAFT.source, DRAFT.target, DRAFT.filter)
    assert (added.include, added.format, added.cursor) == (DRAFT.include, DRAFT.format, DRAFT.cursor)


async def test_numbers_are_never_given_twice(store, metadata_url):
    first, second = await store.add(DRAFT), await store.add(DRAFT)
    await store.remove(second.id)
    again = await reopened(store, metadata_url)
    third = await again.add(DRAFT)
    assert (first.id, second.id, third.id) == (1, 2, 3)
    assert [entry.id for entry in await again.subscriptions()] == [1, 3]
    await again.close()


async def test_a_cursor_moves_forward_only(store):
    added = await store.add(DRAFT)
    for offset in (9, 8, 12, 1):
        await store.advance(added.id, offset)
    (found,) = await store.subscriptions()
    assert found.cursor == 12


async def test_many_cursors_advanced_at_once_are_all_kept(store, metadata_url):
    added = [await store.add(DRAFT) for _ in range(20)]
    await asyncio.gather(*(store.advance(entry.id, 100 + n) for n in range(50) for entry in added))
    again = await reopened(store, metadata_url)
    assert {entry.cursor for entry in await again.subscriptions()} == {149}
    await again.close()


async def test_a_caller_that_gives_up_takes_nothing_from_the_others(store):
    added = await store.add(DRAFT)
    impatient = asyncio.create_task(store.advance(added.id, 50))
    patient = asyncio.create_task(store.advance(added.id, 40))
    await asyncio.sleep(0)
    impatient.cancel()
    await patient
    (found,) = await store.subscriptions()
    assert found.cursor in {40, 50}


async def test_many_subscriptions_made_at_once_are_all_kept_and_one_that_fails_takes_nothing_from_the_others(
    store, metadata_url
):
    bad = msgspec.structs.replace(DRAFT, cursor=2**70)
    drafts = [DRAFT] * 300 + [bad] + [DRAFT] * 300
    made = await asyncio.gather(*map(store.add, drafts), return_exceptions=True)
    good = [one for one in made if not isinstance(one, Exception)]
    assert len(good) == 600
    assert [place for place, one in enumerate(made) if isinstance(one, Exception)] == [300]
    assert [one.id for one in good] == sorted({one.id for one in good})
    again = await MetaStore.open(metadata_url, SystemClock())
    assert list(await again.subscriptions()) == good
    await again.close()


async def test_advancing_or_removing_an_unknown_number_does_nothing(store):
    await store.advance(99, 5)
    await store.remove(99)
    assert await store.subscriptions() == []


async def test_a_reset_moves_a_cursor_anywhere_and_keeps_the_order_of_calls(store):
    added = await store.add(DRAFT)
    moves = [
        store.advance(added.id, 20),
        store.reset(added.id, 3),
        store.advance(added.id, 5),
        store.advance(added.id, 4),
    ]
    await asyncio.gather(*moves)
    (found,) = await store.subscriptions()
    assert found.cursor == 5


async def test_a_pause_is_kept(store, metadata_url):
    added = await store.add(DRAFT)
    await store.pause(added.id, paused=True)
    again = await reopened(store, metadata_url)
    assert await again.subscriptions() == [msgspec.structs.replace(added, paused=True)]
    await again.close()


async def test_a_chosen_number_is_kept_and_passed(store):
    first = await store.add(DRAFT)
    (put,) = await store.put_all({first.id + 9: DRAFT})
    changed = msgspec.structs.replace(DRAFT, cursor=99, paused=True, auto_ack=True)
    (again,) = await store.put_all({first.id: changed})
    assert (again.cursor, again.paused, again.auto_ack) == (99, True, True)
    assert (await store.add(DRAFT)).id == put.id + 1
    assert await store.subscriptions() == [again, put, (await store.subscriptions())[-1]]


async def test_a_database_of_the_first_version_is_brought_up_to_date(metadata_url):
    engine = create_engine(metadata_url)
    with engine.begin() as connection:
        METADATA.create_all(connection)
        for column in ("paused", "auto_ack", "snapshot", "snapshot_offset", "transient", "owner"):
            connection.execute(text(f"ALTER TABLE tailrace_subscription DROP COLUMN {column}"))
        connection.execute(insert(migration).values(version=1, applied_time_us=0))
        connection.execute(text(OLD_ROW))
    engine.dispose()
    store = await MetaStore.open(metadata_url, SystemClock())
    (found,) = await store.subscriptions()
    assert (found.id, found.cursor, found.paused, found.auto_ack) == (4, 7, False, False)
    assert (found.snapshot, found.snapshot_offset) == (False, None)
    await store.close()


async def test_a_database_of_a_newer_version_is_refused(store, metadata_url):
    await store.close()
    engine = create_engine(metadata_url)
    with engine.begin() as connection:
        connection.execute(insert(migration).values(version=1000, applied_time_us=0))
    engine.dispose()
    with pytest.raises(MetadataError, match="upgrade"):
        await MetaStore.open(metadata_url, SystemClock())
    again = create_engine(metadata_url)
    with again.begin() as connection:
        connection.execute(migration.delete().where(migration.c.version == 1000))
    again.dispose()
    await (await MetaStore.open(metadata_url, SystemClock())).close()


async def test_the_steps_lead_to_the_tables_that_the_code_uses(store, metadata_url):
    engine = create_engine(metadata_url)
    found = inspect(engine)
    for table in METADATA.tables.values():
        columns = {column["name"] for column in found.get_columns(table.name)}
        assert columns == set(table.columns.keys())
    engine.dispose()


@pytest.mark.parametrize("bad", ["", "no url", "nonsense://x"])
async def test_a_url_that_is_none_is_a_configuration_error(bad):
    with pytest.raises(ConfigError):
        await MetaStore.open(bad, SystemClock())


async def test_a_database_that_cannot_be_opened_says_so(tmp_path):
    with pytest.raises(MetadataError):
        await MetaStore.open(f"sqlite:///{tmp_path}/no/such/directory/meta.db", SystemClock())


async def test_prepared_queries_are_kept_and_replaced(store, metadata_url):
    first = PreparedQuery("q_b", "app", "SELECT 1", "select 1", "", 1)
    second = PreparedQuery("q_a", "app", "SELECT 'ü'", '{"body":{}}', "named", 2)
    for prepared in (second, first):
        await store.put_query(prepared)
    store = await reopened(store, metadata_url)
    assert list(await store.queries()) == [first, second]
    renamed = msgspec.structs.replace(first, name="one")
    await store.put_query(renamed)
    assert list(await store.queries()) == [renamed, second]
    await store.close()


async def test_query_targets_come_back_as_they_were(store):
    target = QueryTarget("q_a", ({"t": "i64", "v": 1},), Deliver.RESULT, (TableName("app", "users"),))
    added = await store.add(msgspec.structs.replace(DRAFT, target=target))
    assert added.target == target
    assert list(await store.subscriptions()) == [added]
