"""Facts about keys and values in an SQLite database that is captured."""

import asyncio
import base64
import json
from contextlib import aclosing, asynccontextmanager

import apsw
import pytest

from tailrace.clock import SystemClock
from tailrace.model.errors import KeyValueError, SourceUnavailableError
from tailrace.model.op import Op
from tailrace.source.base import Reader
from tailrace.source.key_value import Entry, PageLimits
from tailrace.source.sqlite.kv_store import SqliteKeyValueStore
from tailrace.source.sqlite.options import SqliteOptions
from tailrace.source.sqlite.source import SqliteSource
from tailrace.testing.clock import FakeClock
from tailrace.testing.registry import MemoryRegistry

DEADLINE_S = 20
READER = Reader("log")


@pytest.fixture
def path(tmp_path):
    made = tmp_path / "app.db"
    apsw.Connection(str(made)).execute("PRAGMA journal_mode = wal; CREATE TABLE item(id INTEGER PRIMARY KEY)")
    return made


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
async def store(path, clock):
    made = SqliteKeyValueStore(path, READER, clock)
    yield made
    await made.close()


@asynccontextmanager
async def opened(path):
    source = SqliteSource("app", path, READER, SqliteOptions(), SystemClock())
    await source.open(MemoryRegistry())
    try:
        yield source
    finally:
        await source.close()


async def changes_of(source, wanted):
    """Return so many changes of rows in order: op, key, value before and after."""
    found = []
    async with asyncio.timeout(DEADLINE_S), aclosing(source.commits(None)) as commits:
        async for drafts in commits:
            for draft in drafts:
                for op, key, before, after in zip(draft.ops, draft.keys, draft.befores, draft.afters, strict=True):
                    if op != Op.SCHEMA:
                        found.append((op, _bytes(key), _value(before), _value(after)))
            if len(found) >= wanted:
                return found
    raise AssertionError("the source has ended")


def _bytes(key):
    return base64.b64decode(json.loads(key)[0])


def _value(image):
    return None if image is None else base64.b64decode(json.loads(image)["value"])


async def test_puts_before_capture_ever_ran_are_captured(path, store):
    await store.put([Entry(b"k", b"1")])
    await store.put([Entry(b"k", b"2")])
    assert await store.delete(b"k")
    async with opened(path) as source:
        assert await changes_of(source, 3) == [
            (Op.INSERT, b"k", None, b"1"),
            (Op.UPDATE, b"k", b"1", b"2"),
            (Op.DELETE, b"k", b"2", None),
        ]


async def test_the_first_put_and_those_at_once_after_it_are_captured_while_capture_runs(path, store):
    async with opened(path) as source:
        reading = asyncio.create_task(changes_of(source, 50))
        for number in range(50):
            await store.put([Entry(b"k", b"%d" % number)])
        changes = await reading
    assert [after for _, _, _, after in changes] == [b"%d" % number for number in range(50)]


async def test_a_table_that_somebody_dropped_is_made_again_and_captured(path, store):
    await store.put([Entry(b"k", b"1")])
    apsw.Connection(str(path)).execute("DROP TABLE kv")
    assert await store.get([b"k"], 100) == [None]
    assert not await store.delete(b"k")
    await store.put([Entry(b"k", b"2")])
    async with opened(path) as source:
        changes = await changes_of(source, 2)
    assert changes[-1] == (Op.INSERT, b"k", None, b"2")


async def test_expiry_is_a_delete_with_the_value_that_went(path, store, clock):
    await store.put([Entry(b"a", b"1", ttl_s=1), Entry(b"b", b"2", ttl_s=5)])
    clock.advance(1)
    assert await store.sweep() == clock.now_us() + 4_000_000
    async with opened(path) as source:
        assert (await changes_of(source, 3))[2] == (Op.DELETE, b"a", b"1", None)


async def test_a_put_over_an_expired_entry_is_a_delete_and_an_insert(path, store, clock):
    await store.put([Entry(b"a", b"1", ttl_s=1)])
    clock.advance(1)
    await store.put([Entry(b"a", b"2")])
    async with opened(path) as source:
        ops = [op for op, *_ in await changes_of(source, 3)]
    assert ops == [Op.INSERT, Op.DELETE, Op.INSERT]


async def test_more_expired_entries_than_one_transaction_removes_all_go(path, store, clock):
    await store.put([Entry(b"%04d" % number, b"v", ttl_s=1) for number in range(700)])
    clock.advance(2)
    assert await store.sweep() is None
    assert apsw.Connection(str(path)).execute("SELECT count(*) FROM kv").get == 0


async def test_the_sweeper_wakes_for_an_entry_that_is_put_while_it_sleeps(path):
    store = SqliteKeyValueStore(path, READER, SystemClock())
    database = apsw.Connection(str(path))
    database.set_busy_timeout(60_000)
    sweeping = asyncio.create_task(store.run())
    try:
        await store.put([Entry(b"late", b"v", ttl_s=1000)])
        await store.put([Entry(b"soon", b"v", ttl_s=1)])
        async with asyncio.timeout(DEADLINE_S):
            while database.execute("SELECT count(*) FROM kv").get != 1:
                await asyncio.sleep(0.02)
    finally:
        sweeping.cancel()
        await asyncio.gather(sweeping, return_exceptions=True)
        await store.close()


async def test_a_sweeper_that_starts_anew_removes_what_expired_meanwhile(path, store, clock):
    await store.put([Entry(b"k", b"v", ttl_s=1)])
    clock.advance(10)
    again = SqliteKeyValueStore(path, READER, clock)
    sweeping = asyncio.create_task(again.run())
    try:
        async with asyncio.timeout(DEADLINE_S):
            while apsw.Connection(str(path)).execute("SELECT count(*) FROM kv").get:
                await asyncio.sleep(0.02)
    finally:
        sweeping.cancel()
        await asyncio.gather(sweeping, return_exceptions=True)
        await again.close()


@pytest.mark.parametrize(
    "ddl",
    [
        "CREATE TABLE kv(id INTEGER PRIMARY KEY, value TEXT)",
        "CREATE VIEW kv AS SELECT 1 AS key, 2 AS value, 3 AS expires_time_us",
        "CREATE TABLE KV(key BLOB, value BLOB, expires_time_us INTEGER)",
    ],
)
async def test_a_table_kv_of_the_users_own_is_left_alone(path, store, ddl):
    apsw.Connection(str(path)).execute(ddl)
    for attempt in (
        store.put([Entry(b"k", b"v")]),
        store.get([b"k"], 100),
        store.delete(b"k"),
        store.scan(b"", None, PageLimits(10, 100)),
    ):
        with pytest.raises(KeyValueError, match="rename it"):
            await attempt


async def test_a_write_that_the_database_refuses_fails_alone(path, store):
    await store.put([Entry(b"k", b"v")])
    apsw.Connection(str(path)).execute(
        "CREATE TRIGGER no BEFORE INSERT ON kv WHEN new.key = x'02' BEGIN SELECT raise(ABORT, 'not two'); END"
    )
    outcomes = await asyncio.gather(
        *(store.put([Entry(bytes([number]), b"v")]) for number in range(1, 5)), return_exceptions=True
    )
    assert [isinstance(outcome, KeyValueError) for outcome in outcomes] == [False, True, False, False]
    assert len(await store.scan(b"", None, PageLimits(10, 100))) == 4


async def test_a_batch_is_kept_whole_or_not_at_all(path, store):
    await store.put([Entry(b"k", b"v")])
    apsw.Connection(str(path)).execute(
        "CREATE TRIGGER no BEFORE INSERT ON kv WHEN new.key = x'02' BEGIN SELECT raise(ABORT, 'not two'); END"
    )
    with pytest.raises(KeyValueError, match="not two"):
        await store.put([Entry(b"\x01", b"v"), Entry(b"\x02", b"v")])
    assert await store.get([b"\x01"], 100) == [None]


async def test_an_entry_that_others_wrote_as_text_is_given_as_bytes(path, store):
    await store.put([Entry(b"k", b"v")])
    apsw.Connection(str(path)).execute("UPDATE kv SET value = 'text'")
    assert await store.get([b"k"], 100) == [b"text"]


async def test_a_database_that_is_not_there_is_unavailable_and_its_path_stays_unsaid(tmp_path, clock):
    store = SqliteKeyValueStore(tmp_path / "none.db", READER, clock)
    try:
        with pytest.raises(SourceUnavailableError) as refused:
            await store.put([Entry(b"k", b"v")])
        assert str(tmp_path) not in str(refused.value)
    finally:
        await store.close()


async def test_writes_after_the_end_are_refused(path, clock):
    store = SqliteKeyValueStore(path, READER, clock)
    waiting = asyncio.gather(*(store.put([Entry(b"%d" % number, b"v")]) for number in range(10)))
    await asyncio.sleep(0)
    await store.close()
    await waiting
    with pytest.raises(SourceUnavailableError, match="stops"):
        await store.put([Entry(b"k", b"v")])
