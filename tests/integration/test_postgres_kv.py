"""Keys and values in PostgreSQL: captured like any table, beside what else the database has."""

import pytest

import postgres_servers
from databases import PASSWORD
from postgres_capture import Database
from tailrace.clock import SystemClock
from tailrace.metrics import Metrics
from tailrace.model.errors import KeyValueError, SourceUnavailableError
from tailrace.source.key_value import Entry
from tailrace.source.kind import SourceTools
from tailrace.source.reader import Reader
from tailrace.sources import resolve
from tailrace.testing.clock import FakeClock
from tailrace.testing.registry import MemoryRegistry


@pytest.fixture(params=postgres_servers.VERSIONS)
def database(request):
    made = Database(postgres_servers.shared(request.param))
    yield made
    made.close()


def opened(url, clock=None):
    return resolve(url, {}).open("app", Reader("log"), SourceTools(clock or SystemClock(), Metrics()))


async def test_writes_are_captured_from_the_first_row_on_and_expiry_is_a_delete(database):
    clock = FakeClock()
    source = opened(database.url, clock)
    registry = MemoryRegistry()
    await source.capture.open(registry)
    try:
        await source.values.put([Entry(b"b", b"\x00"), Entry(b"a", b"1", ttl_s=5)])
        await source.values.put([Entry(b"b", b"2")])
        clock.advance(6)
        assert await source.values.sweep() is None
        seen = []
        commits = source.capture.commits(None)
        async for group in commits:
            if isinstance(group, list):
                seen += [pair for one in group for pair in zip(one.ops, one.keys, strict=True)]
            if len(seen) >= 5:
                break
        await commits.aclose()
        assert [(op, key) for op, key in seen if key != b"[]"] == [
            (1, b'["YQ=="]'),
            (1, b'["Yg=="]'),
            (2, b'["Yg=="]'),
            (3, b'["YQ=="]'),
        ]
    finally:
        await source.values.close()
        await source.capture.close()


async def test_a_table_kv_of_others_is_left_alone(database):
    database.run("CREATE TABLE kv (id int PRIMARY KEY)", "CREATE PUBLICATION tailrace FOR ALL TABLES")
    values = opened(database.url).values
    for call in (lambda: values.put([Entry(b"k", b"v")]), lambda: values.get([b"k"], 10), lambda: values.delete(b"k")):
        with pytest.raises(KeyValueError, match="table kv of its own"):
            await call()
    await values.close()
    with pytest.raises(SourceUnavailableError):
        await values.get([b"k"], 10)


async def test_a_publication_without_the_table_is_refused_and_nothing_is_made(database):
    database.run("CREATE TABLE item (id int PRIMARY KEY)", "CREATE PUBLICATION tailrace FOR TABLE item")
    values = opened(database.url).values
    with pytest.raises(KeyValueError, match=r"ADD TABLE public\.kv"):
        await values.put([Entry(b"k", b"v")])
    assert database.rows("SELECT to_regclass('public.kv')") == [(None,)]
    await values.close()


async def test_a_role_without_rights_is_refused_with_what_it_needs(database):
    role = f"keeper_{database.name}"
    database.run(
        "REVOKE CREATE ON SCHEMA public FROM PUBLIC",
        "CREATE PUBLICATION tailrace FOR ALL TABLES",
        f"CREATE ROLE {role} LOGIN PASSWORD '{PASSWORD}'",
    )
    try:
        values = opened(database.server.sql_url(database.name, role)).values
        with pytest.raises(KeyValueError, match="GRANT CREATE"):
            await values.put([Entry(b"k", b"v")])
        database.run(f"GRANT CREATE ON SCHEMA public TO {role}")
        await values.put([Entry(b"k", b"v")])
        assert await values.get([b"k"], 10) == [b"v"]
        database.run(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '{role}'")
        assert await values.get([b"k"], 10) == [b"v"]
        await values.close()
    finally:
        database.run(f"DROP OWNED BY {role} CASCADE", f"DROP ROLE {role}")
