"""Facts about SQL statements of clients in an SQLite database."""

import asyncio
from contextlib import aclosing

import apsw
import pytest

from tailrace.clock import SystemClock
from tailrace.model.errors import (
    InvalidRequestError,
    QueryTimeoutError,
    ResultTooLargeError,
    SourceUnavailableError,
)
from tailrace.model.op import Op
from tailrace.source.base import Reader, RunLimits
from tailrace.source.sqlite.connection import create_database
from tailrace.source.sqlite.options import SqliteOptions
from tailrace.source.sqlite.source import SqliteSource
from tailrace.source.sqlite.statement import SqliteStatementRunner
from tailrace.testing.registry import MemoryRegistry

DEADLINE_S = 20
READER = Reader("log")
LIMITS = RunLimits(rows_max=10, bytes_max=1000, timeout_s=60)
ENDLESS = "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c) SELECT count(*) FROM c"


@pytest.fixture
def path(tmp_path):
    return tmp_path / "app.db"


@pytest.fixture
async def runner(path):
    create_database(path)
    made = SqliteStatementRunner(path, READER)
    await made.execute("CREATE TABLE item(id INTEGER PRIMARY KEY, name TEXT, price REAL)", [], LIMITS)
    yield made
    await made.close()


async def ops_of(path, wanted):
    source = SqliteSource("app", path, READER, SqliteOptions(), SystemClock())
    await source.open(MemoryRegistry())
    ops = []
    try:
        async with asyncio.timeout(DEADLINE_S), aclosing(source.commits(None)) as commits:
            async for drafts in commits:
                ops += [Op(op) for draft in drafts for op in draft.ops]
                if len(ops) >= wanted:
                    return ops
    finally:
        await source.close()


async def test_a_statement_gives_columns_rows_and_how_many_rows_it_changed(runner):
    result = await runner.execute("INSERT INTO item VALUES(?, ?, ?), (2, 'b', 1.5)", [1, "a", None], LIMITS)
    assert (result.columns, result.rows, result.changes) == ((), [], 2)
    result = await runner.execute("UPDATE item SET price = 3 WHERE id = 1 RETURNING id, price", [], LIMITS)
    assert (result.columns, result.rows, result.changes) == (("id", "price"), [(1, 3.0)], 1)
    result = await runner.execute("SELECT id AS number FROM item WHERE id > 5;", [], LIMITS)
    assert (result.columns, result.rows, result.changes) == (("number",), [], 0)


async def test_everything_that_is_written_is_captured_also_to_a_table_just_made(runner, path):
    await runner.execute("CREATE TABLE fresh(id INTEGER PRIMARY KEY)", [], LIMITS)
    await runner.execute("INSERT INTO fresh VALUES(1)", [], LIMITS)
    await runner.execute("DELETE FROM fresh", [], LIMITS)
    assert await ops_of(path, 3) == [Op.SCHEMA, Op.INSERT, Op.DELETE]


async def test_a_column_that_our_triggers_name_can_be_dropped(runner):
    await runner.execute("INSERT INTO item VALUES(1, 'a', 2)", [], LIMITS)
    await runner.execute("ALTER TABLE item DROP COLUMN name", [], LIMITS)
    assert (await runner.execute("SELECT * FROM item", [], LIMITS)).columns == ("id", "price")


async def test_a_dropped_table_takes_its_triggers_along(runner):
    await runner.execute("DROP TABLE item", [], LIMITS)
    with pytest.raises(InvalidRequestError, match="no such table"):
        await runner.execute("SELECT * FROM item", [], LIMITS)


@pytest.mark.parametrize(
    "sql",
    [
        "",
        "-- nothing",
        "nonsense",
        "SELECT 1; SELECT 2",
        "INSERT INTO item VALUES(9, 'x', 1); DROP TABLE item",
        "SELECT 1; ATTACH 'other.db' AS other",
        "SELECT ?",
        "SELECT * FROM nowhere",
        "BEGIN",
        "COMMIT",
        "SAVEPOINT here",
        "ATTACH 'other.db' AS other",
        "VACUUM INTO 'copy.db'",
        "PRAGMA journal_mode = delete",
        "PRAGMA writable_schema = on",
        "PRAGMA recursive_triggers = on",
        "CREATE TEMP TABLE mine(a)",
        "CREATE VIRTUAL TABLE mine USING fts5(a)",
        "DELETE FROM sqlite_master",
        "SELECT load_extension('x')",
        "SELECT * FROM _tailrace_change",
        "DELETE FROM _tailrace_change",
        "INSERT INTO _TAILRACE_CHANGE(h) VALUES(1)",
        "DROP TABLE _tailrace_reader",
        "ALTER TABLE _tailrace_table RENAME TO mine",
        "CREATE TRIGGER _tailrace_x AFTER INSERT ON item BEGIN DELETE FROM _tailrace_change; END",
        "CREATE VIEW peek AS SELECT 1; SELECT * FROM _tailrace_change",
    ],
)
async def test_what_clients_may_not_run_is_refused_and_leaves_nothing(runner, path, sql):
    await runner.execute("INSERT INTO item VALUES(1, 'a', 2)", [], LIMITS)
    before = dump(path)
    with pytest.raises(InvalidRequestError) as refused:
        await runner.execute(sql, [], LIMITS)
    assert str(path.parent) not in str(refused.value)
    assert dump(path) == before
    assert sorted(file.name for file in path.parent.iterdir() if not file.name.startswith("app.db")) == []


async def test_limits_hold_and_undo_what_was_written(runner):
    many = (
        "INSERT INTO item(id) WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c LIMIT 11) SELECT n FROM c"
    )
    with pytest.raises(ResultTooLargeError, match="10 rows"):
        await runner.execute(f"{many} RETURNING id", [], LIMITS)
    assert (await runner.execute("SELECT count(*) FROM item", [], LIMITS)).rows == [(0,)]
    with pytest.raises(ResultTooLargeError, match="1000 bytes"):
        await runner.execute("SELECT hex(zeroblob(600))", [], LIMITS)
    with pytest.raises(ResultTooLargeError):
        await runner.execute("SELECT zeroblob(100000000)", [], LIMITS)


async def test_a_statement_that_takes_too_long_ends_and_the_next_one_runs(runner):
    with pytest.raises(QueryTimeoutError):
        await runner.execute(ENDLESS, [], RunLimits(10, 1000, 0.1))
    assert (await runner.execute("SELECT 1", [], LIMITS)).rows == [(1,)]


async def test_closing_ends_what_runs(runner):
    running = asyncio.create_task(runner.execute(ENDLESS, [], LIMITS))
    await asyncio.sleep(0)
    async with asyncio.timeout(20):
        await runner.close()
    with pytest.raises(SourceUnavailableError, match="stops"):
        await running


async def test_a_locked_database_is_unavailable_for_a_while(runner, path):
    other = apsw.Connection(str(path))
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(SourceUnavailableError):
        await runner.execute("INSERT INTO item VALUES(1, 'a', 2)", [], RunLimits(10, 1000, 0.1))
    other.execute("ROLLBACK")
    assert (await runner.execute("INSERT INTO item VALUES(1, 'a', 2)", [], LIMITS)).changes == 1


def dump(path):
    database = apsw.Connection(str(path))
    return [
        database.execute("SELECT type, name, sql FROM sqlite_schema ORDER BY name").fetchall(),
        database.execute("SELECT * FROM item").fetchall(),
        database.execute("SELECT count(*) FROM _tailrace_change").fetchall(),
    ]
