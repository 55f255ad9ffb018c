"""Facts about the reading side of an SQLite source."""

import asyncio
import threading
from contextlib import asynccontextmanager, suppress

import apsw
import pytest

from tailrace.clock import SystemClock
from tailrace.model.errors import (
    InvalidRequestError,
    QueryTimeoutError,
    ResultTooLargeError,
    SourceUnavailableError,
)
from tailrace.source.base import Reader, RunLimits
from tailrace.source.sqlite.options import SqliteOptions
from tailrace.source.sqlite.query import SqliteQuerySource
from tailrace.source.sqlite.source import SqliteSource
from tailrace.testing.registry import MemoryRegistry

LIMITS = RunLimits(rows_max=10, bytes_max=1000, timeout_s=60)
BRIEF = RunLimits(rows_max=10, bytes_max=1000, timeout_s=0.3)
ENDLESS = "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c) SELECT count(*) FROM c"


class World:
    def __init__(self, path):
        self.path = path
        self.reader = Reader("me")
        self.database = apsw.Connection(str(path))
        self.database.set_busy_timeout(60_000)
        self.write("PRAGMA journal_mode = WAL; CREATE TABLE t(id INTEGER PRIMARY KEY, v TEXT)")
        self.queries = SqliteQuerySource(path, self.reader)

    def write(self, sql):
        self.database.execute(sql).fetchall()

    @asynccontextmanager
    async def capturing(self):
        """Capture; give a list that grows with the positions of commits."""
        source = SqliteSource("app", self.path, self.reader, SqliteOptions(), SystemClock())
        await source.open(MemoryRegistry())
        positions = []

        async def follow():
            async for group in source.commits(None):
                positions.extend(draft.position for draft in group)

        task = asyncio.create_task(follow())
        try:
            yield positions
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            await source.close()


@pytest.fixture
async def world(tmp_path):
    made = World(tmp_path / "app.db")
    yield made
    await made.queries.close()
    made.database.close()


async def test_a_barrier_is_reached_when_the_log_has_what_was_committed(world):
    async with world.capturing() as positions:
        barrier = await world.queries.newest(20)
        assert barrier.position is None
        assert world.queries.reached(barrier, None)
        world.write("INSERT INTO t VALUES(1, 'a')")
        barrier = await world.queries.newest(20)
        assert not world.queries.reached(barrier, None)
        async with asyncio.timeout(20):
            while not positions:
                await asyncio.sleep(0.002)
        assert world.queries.reached(barrier, positions[-1])
        world.write("INSERT OR IGNORE INTO t VALUES(1, 'b')")  # notes a candidate and changes nothing
        assert world.queries.reached(await world.queries.newest(20), positions[-1])
        world.write("INSERT INTO t VALUES(2, 'c')")
        assert not world.queries.reached(await world.queries.newest(20), positions[0])


async def test_a_barrier_waits_until_capture_fits_the_schema(world):
    with pytest.raises(SourceUnavailableError):
        await world.queries.newest(0.02)
    async with world.capturing():
        before = await world.queries.newest(20)
        world.write("CREATE VIEW v AS SELECT 1")
        after = await world.queries.newest(20)
        assert after.catalog != before.catalog
        assert after.position is not None  # the view is a change in the log
        world.write("DROP VIEW v")
        assert (await world.queries.newest(20)).catalog not in (before.catalog, after.catalog)


async def test_the_catalog_is_that_of_the_newest_schema(world):
    assert (await world.queries.consult(lambda catalog: catalog.view("v")))[0] is None
    world.write("CREATE VIEW v AS SELECT 1")
    view, version = await world.queries.consult(lambda catalog: catalog.view("v"))
    assert view.name == "v"
    assert (await world.queries.run("SELECT * FROM v", (), LIMITS)).catalog == version


async def test_columns_are_those_of_the_newest_schema(world):
    queries = SqliteQuerySource(world.path, world.reader, runs_max=1)
    try:
        for columns in ("id, v", "v, id AS number", "id, v, 1 AS one"):
            world.write(f"DROP VIEW IF EXISTS seen; CREATE VIEW seen AS SELECT {columns} FROM t")
            result = await queries.run("SELECT * FROM seen", (), LIMITS)
            assert result.columns == tuple(column.split(" ")[-1] for column in columns.split(", "))
    finally:
        await queries.close()


async def test_a_query_reads_rows_and_the_names_of_columns(world):
    world.write("INSERT INTO t VALUES(1, 'a'), (2, X'00'), (3, NULL)")
    found = await world.queries.run("SELECT id, v AS id FROM t WHERE id <> ?1", (2,), LIMITS)
    assert (found.columns, found.rows) == (("id", "id"), [(1, "a"), (3, None)])
    assert (await world.queries.run("SELECT v FROM t WHERE 0", (), LIMITS)).columns == ("v",)


@pytest.mark.parametrize(
    ("sql", "error"),
    [
        ("SELECT * FROM nowhere", InvalidRequestError),
        ("SELECT", InvalidRequestError),
        ("INSERT INTO t VALUES(9, 9)", InvalidRequestError),
        ("DELETE FROM t RETURNING *", InvalidRequestError),
        ("PRAGMA user_version = 7", InvalidRequestError),
        ("ATTACH 'other.db' AS other", InvalidRequestError),
        ("SELECT * FROM sqlite_schema", InvalidRequestError),
        ("SELECT * FROM pragma_table_info('t')", InvalidRequestError),
        ("SELECT load_extension('x')", InvalidRequestError),
        ("SELECT CAST(X'ff' AS TEXT)", InvalidRequestError),
        ("WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c) SELECT n FROM c", ResultTooLargeError),
        ("SELECT zeroblob(2000)", ResultTooLargeError),
        ("SELECT zeroblob(2000000000)", ResultTooLargeError),
        (ENDLESS, QueryTimeoutError),
    ],
)
async def test_what_is_no_bounded_reading_is_refused(world, sql, error):
    with pytest.raises(error) as raised:
        await world.queries.run(sql, (), BRIEF if error is QueryTimeoutError else LIMITS)
    assert type(raised.value) is error
    assert (await world.queries.run("SELECT count(*) FROM t", (), LIMITS)).rows == [(0,)]


async def test_a_slow_query_keeps_neither_barriers_nor_other_queries_waiting(world):
    async with world.capturing():
        slow = [asyncio.create_task(world.queries.run(ENDLESS, (), LIMITS)) for _ in range(3)]
        await world.queries.newest(20)
        assert (await world.queries.run("SELECT 1", (), LIMITS)).rows == [(1,)]
        assert not any(one.done() for one in slow)
        await world.queries.close()
        assert all(
            isinstance(error, SourceUnavailableError) for error in await asyncio.gather(*slow, return_exceptions=True)
        )


async def test_queries_that_wait_too_long_for_their_turn_are_refused(world):
    runs = [world.queries.run(ENDLESS, (), BRIEF) for _ in range(12)]
    found = await asyncio.gather(*runs, return_exceptions=True)
    assert {type(error) for error in found} == {QueryTimeoutError}
    assert (await world.queries.run("SELECT 1", (), LIMITS)).rows == [(1,)]


async def test_closing_ends_what_runs(world):
    run = asyncio.create_task(world.queries.run(ENDLESS, (), LIMITS))
    await asyncio.sleep(0.05)
    async with asyncio.timeout(20):
        await world.queries.close()
    with pytest.raises(SourceUnavailableError):
        await run


async def test_closing_refuses_what_no_thread_has_come_to(world):
    release = threading.Event()
    busy = asyncio.create_task(world.queries._barriers.call(lambda connection: release.wait()))
    waiting = asyncio.create_task(world.queries.newest(60))
    await asyncio.sleep(0)
    closing = asyncio.create_task(world.queries.close())
    try:
        with pytest.raises(SourceUnavailableError, match="stops"):
            await waiting
    finally:
        release.set()
    await asyncio.gather(busy, closing)
    with pytest.raises(SourceUnavailableError, match="stops"):
        await world.queries.newest(60)


async def test_a_database_that_is_not_there_is_unavailable(tmp_path):
    queries = SqliteQuerySource(tmp_path / "none.db", Reader("me"))
    with pytest.raises(SourceUnavailableError):
        await queries.newest(1)
    with pytest.raises(SourceUnavailableError):
        await queries.run("SELECT 1", (), LIMITS)
    await queries.close()


async def test_a_blob_that_is_no_text_may_stand_in_a_query(world):
    world.write("INSERT INTO t VALUES(1, x'ff00'), (2, 'a')")
    text = "SELECT id FROM t WHERE v = x'ff00' OR id IN (SELECT 3 WHERE x'fe' <> x'fd')"
    footprint, _ = await world.queries.consult(lambda catalog: catalog.footprint(text, 0))
    assert footprint.tables == {"t"}
    assert (await world.queries.run(text, (), LIMITS)).rows == [(1,)]
