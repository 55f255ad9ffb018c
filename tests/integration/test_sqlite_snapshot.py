"""Facts about the copy of a table's rows in SQLite."""

import asyncio
import tracemalloc
from contextlib import asynccontextmanager

import apsw
import pytest

from tailrace.clock import SystemClock
from tailrace.model.commit import CommitId
from tailrace.model.errors import SourceUnavailableError, UnknownTableError
from tailrace.model.table import TableName
from tailrace.source.base import Reader
from tailrace.source.sqlite.options import SqliteOptions
from tailrace.source.sqlite.query import SqliteQuerySource
from tailrace.source.sqlite.source import SqliteSource
from tailrace.testing.registry import MemoryRegistry

TABLE = TableName("app", "t")
FILL = "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < {}) INSERT INTO t SELECT n, {} FROM c"


@asynccontextmanager
async def capturing(path):
    """Give the reading side of a captured database, and a connection to it."""
    database = apsw.Connection(str(path))
    database.execute("CREATE TABLE t(id INTEGER PRIMARY KEY, v TEXT)").fetchall()
    source = SqliteSource("app", path, Reader("me"), SqliteOptions(), SystemClock())
    await source.open(MemoryRegistry())
    queries = SqliteQuerySource(path, Reader("me"))
    try:
        yield queries, database
    finally:
        await queries.close()
        await source.close()
        database.close()


async def test_many_rows_take_little_memory_and_no_transaction_stays_open(tmp_path):
    async with capturing(tmp_path / "app.db") as (queries, database):
        database.execute(FILL.format(40_000, "printf('%0500d', n)")).fetchall()
        tracemalloc.start()
        try:
            rows = await queries.snapshot(TABLE, 5.0)
            # In this journal mode a reader would keep the writer out.
            database.execute("DELETE FROM t").fetchall()
            count = largest = 0
            while (some := await rows.rows()) is not None:
                count += len(some.keys)
                largest = max(largest, sum(map(len, some.images)))
            _, peak_bytes = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        rows.close()
        rows.close()
        assert count == 40_000
        assert largest < 1 << 18
        assert peak_bytes < 4 << 20  # of about 20 MB


async def test_rows_contain_what_was_committed_and_nothing_later(tmp_path):
    async with capturing(tmp_path / "app.db") as (queries, database):
        database.execute(FILL.format(2, "'a'")).fetchall()
        rows = await queries.snapshot(TABLE, 5.0)
        database.execute("INSERT INTO t VALUES(3, 'b')").fetchall()
        later = (await queries.newest(5.0)).position
        assert rows.contains(CommitId(rows.barrier.position))
        assert not rows.contains(CommitId(later))
        assert not rows.contains(CommitId("other-1"))
        some = await rows.rows()
        assert (some.keys, some.images) == ([b"[1]", b"[2]"], [b'{"id":1,"v":"a"}', b'{"id":2,"v":"a"}'])
        assert await rows.rows() is None
        rows.close()
        assert await rows.rows() is None


async def test_a_table_that_is_not_there_has_no_rows(tmp_path):
    async with capturing(tmp_path / "app.db") as (queries, _):
        with pytest.raises(UnknownTableError):
            await queries.snapshot(TableName("app", "other"), 5.0)


async def test_a_schema_that_capture_does_not_follow_is_not_copied(tmp_path):
    async with capturing(tmp_path / "app.db") as (queries, database):
        database.execute("ALTER TABLE t ADD COLUMN w").fetchall()
        with pytest.raises(SourceUnavailableError, match="fit"):
            await queries.snapshot(TABLE, 0.02)


async def test_a_copy_that_nobody_waits_for_ends(tmp_path):
    async with capturing(tmp_path / "app.db") as (queries, database):
        database.execute("ALTER TABLE t ADD COLUMN w").fetchall()
        copies = [asyncio.create_task(queries.snapshot(TABLE, 600.0)) for _ in range(4)]
        await asyncio.sleep(0)
        for copy in copies:
            copy.cancel()
        await asyncio.gather(*copies, return_exceptions=True)
        # Closing waits for the threads: it would take ten minutes.
        async with asyncio.timeout(20):
            await queries.close()


async def test_a_locked_database_is_waited_for_as_long_as_the_caller_says(tmp_path):
    async with capturing(tmp_path / "app.db") as (queries, database):
        database.execute("BEGIN EXCLUSIVE; INSERT INTO t VALUES(1, 'a')").fetchall()
        with pytest.raises(SourceUnavailableError, match="locked"):
            await queries.snapshot(TABLE, 0.05)
        copying = asyncio.create_task(queries.snapshot(TABLE, 30.0))
        await asyncio.wait([copying], timeout=0.05)
        assert not copying.done()
        database.execute("COMMIT").fetchall()
        rows = await copying
        assert (await rows.rows()).keys == [b"[1]"]
        rows.close()
