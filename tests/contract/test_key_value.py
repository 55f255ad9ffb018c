"""What every store of keys and values promises. A new store adds itself to `STORES`."""

import asyncio

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import postgres_servers
from tailrace.model.errors import ResultTooLargeError
from tailrace.source.base import Reader
from tailrace.source.key_value import Entry, PageLimits
from tailrace.source.postgres.kv_store import PostgresKeyValueStore
from tailrace.source.postgres.options import PostgresSettings
from tailrace.source.sqlite.connection import create_database
from tailrace.source.sqlite.kv_store import SqliteKeyValueStore
from tailrace.testing.clock import FakeClock
from tailrace.testing.key_value import MemoryKeyValueStore


def sqlite_store(directory, clock):
    create_database(directory / "app.db")
    return SqliteKeyValueStore(directory / "app.db", Reader("log"), clock)


def postgres_store(version):
    def make(_directory, clock):
        server = postgres_servers.shared(version)
        name = server.new_database()
        _made.append((server, name))
        server.execute("CREATE PUBLICATION tailrace FOR ALL TABLES", name)
        return PostgresKeyValueStore(server.sql_url(name), PostgresSettings(), clock, captured=True)

    return make


_made = []
"""Databases that tests have made: server and name."""

STORES = {
    "memory": lambda _directory, clock: MemoryKeyValueStore(clock),
    "sqlite": sqlite_store,
    **{f"postgresql{version}": postgres_store(version) for version in postgres_servers.VERSIONS},
}
MANY = PageLimits(entries_max=1000, bytes_max=1 << 20)


@pytest.fixture(autouse=True)
def databases():
    """Remove the databases that a test has made."""
    yield
    while _made:
        server, name = _made.pop()
        server.drop_database(name)


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture(params=STORES)
async def store(request, tmp_path, clock):
    made = STORES[request.param](tmp_path, clock)
    yield made
    await made.close()


async def value_of(store, key):
    (value,) = await store.get([key], 1 << 20)
    return value


async def keys_of(store, prefix=b"", after=None, limits=MANY):
    return [entry.key for entry in await store.scan(prefix, after, limits)]


async def test_an_empty_store_has_nothing(store):
    assert await value_of(store, b"k") is None
    assert await keys_of(store) == []
    assert not await store.delete(b"k")


async def test_what_was_put_is_there(store):
    await store.put([Entry(b"k", b"\x00\xff")])
    assert await value_of(store, b"k") == b"\x00\xff"
    await store.put([Entry(b"k", b"")])
    assert await value_of(store, b"k") == b""


async def test_delete_tells_whether_the_key_was_there(store):
    await store.put([Entry(b"k", b"v")])
    assert await store.delete(b"k")
    assert not await store.delete(b"k")
    assert await value_of(store, b"k") is None


async def test_values_come_in_the_order_of_their_keys_asked_for(store):
    await store.put([Entry(b"a", b"1"), Entry(b"b", b"2")])
    assert await store.get([b"b", b"none", b"a", b"b"], 100) == [b"2", None, b"1", b"2"]


async def test_too_many_bytes_at_once_are_refused(store):
    await store.put([Entry(b"a", b"x" * 60), Entry(b"b", b"y" * 60)])
    with pytest.raises(ResultTooLargeError, match="100"):
        await store.get([b"a", b"b"], 100)


async def test_an_entry_is_gone_the_moment_its_time_is_over(store, clock):
    await store.put([Entry(b"k", b"v", ttl_s=2), Entry(b"stays", b"v")])
    clock.advance(1.999)
    assert await value_of(store, b"k") == b"v"
    clock.advance(0.001)
    assert await value_of(store, b"k") is None
    assert await keys_of(store) == [b"stays"]
    assert not await store.delete(b"k")


async def test_a_put_gives_an_entry_a_new_time(store, clock):
    await store.put([Entry(b"k", b"1", ttl_s=2)])
    await store.put([Entry(b"k", b"2")])
    clock.advance(3)
    assert await value_of(store, b"k") == b"2"
    await store.put([Entry(b"k", b"3", ttl_s=1)])
    clock.advance(1)
    await store.put([Entry(b"k", b"4")])
    assert await value_of(store, b"k") == b"4"


async def test_pages_of_a_scan_follow_each_other(store):
    await store.put([Entry(b"p%d" % number, b"v") for number in range(5)] + [Entry(b"q", b"v")])
    two = PageLimits(entries_max=2, bytes_max=1000)
    assert await keys_of(store, b"p", None, two) == [b"p0", b"p1"]
    assert await keys_of(store, b"p", b"p1", two) == [b"p2", b"p3"]
    assert await keys_of(store, b"p", b"p3", two) == [b"p4"]
    assert await keys_of(store, b"p", b"p4", two) == []


async def test_a_page_holds_one_entry_however_large(store):
    await store.put([Entry(b"a", b"x" * 1000), Entry(b"b", b"y")])
    assert await keys_of(store, b"", None, PageLimits(entries_max=10, bytes_max=100)) == [b"a"]


async def test_many_writers_at_one_time_all_get_through(store):
    await asyncio.gather(*(store.put([Entry(b"%03d" % number, b"v")]) for number in range(300)))
    assert await keys_of(store) == [b"%03d" % number for number in range(300)]


_KEYS = st.binary(min_size=1, max_size=3)
_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), _KEYS, st.binary(max_size=3), st.integers(0, 3)),
        st.tuples(st.just("delete"), _KEYS),
        st.tuples(st.just("pass"), st.integers(1, 3)),
    ),
    max_size=20,
)


@pytest.mark.parametrize("kind", STORES)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=_STEPS, prefix=st.binary(max_size=2))
async def test_a_store_is_an_ordered_dictionary_that_forgets(kind, tmp_path_factory, steps, prefix):
    clock = FakeClock()
    store = STORES[kind](tmp_path_factory.mktemp("store"), clock)
    model = {}
    try:
        for step in steps:
            now_us = clock.now_us()
            match step:
                case ("put", key, value, ttl_s):
                    await store.put([Entry(key, value, ttl_s)])
                    model[key] = (value, now_us + ttl_s * 1_000_000 if ttl_s else None)
                case ("delete", key):
                    found = model.pop(key, None)
                    existed = found is not None and (found[1] is None or found[1] > now_us)
                    assert await store.delete(key) == existed
                case ("pass", seconds):
                    clock.advance(seconds)
        live = {key: value for key, (value, end) in model.items() if end is None or end > clock.now_us()}
        expected = [(key, live[key]) for key in sorted(live) if key.startswith(prefix)]
        assert [(entry.key, entry.value) for entry in await store.scan(prefix, None, MANY)] == expected
    finally:
        await store.close()
