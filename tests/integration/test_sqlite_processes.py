"""Facts about the processes that run SQL of clients: whatever a query does, it ends, and nobody else notices."""

import asyncio
import os
import random
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import apsw
import pytest

from serving import wait_until
from tailrace.metrics import Metrics
from tailrace.model.errors import InvalidRequestError, QueryTimeoutError, ResultTooLargeError, SourceUnavailableError
from tailrace.source.base import Reader, RunLimits
from tailrace.source.sqlite import process_pool, query, set_up
from tailrace.source.sqlite.process_message import ProcessFailure, ProcessLimits, QueryAnswer, QueryRequest
from tailrace.source.sqlite.process_pool import ProcessPool
from tailrace.source.sqlite.query import SqliteQuerySource
from tailrace.source.sqlite.statement import SqliteStatementRunner

READER = Reader("log")
LIMITS = RunLimits(rows_max=100, bytes_max=100_000, timeout_s=60)
BRIEF = RunLimits(rows_max=100, bytes_max=100_000, timeout_s=0.5)

HOURS = "instr(replace(hex(zeroblob(4000000)), '0', 'a'), replace(hex(zeroblob(2000000)), '0', 'a') || 'b')"
"""One instruction of SQLite that takes hours: no look at a clock comes in between."""

MANY = "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c LIMIT 8000)"


@pytest.fixture(params=["wal", "delete"])
def path(request, tmp_path):
    path = tmp_path / "app.db"
    database = apsw.Connection(str(path))
    database.pragma("journal_mode", request.param)
    database.execute("CREATE TABLE item(id INTEGER PRIMARY KEY, name); INSERT INTO item VALUES(1, 'a')")
    database.close()
    set_up(path)
    return path


@pytest.fixture
async def queries(path):
    made = SqliteQuerySource(path, READER, metrics=Metrics())
    yield made
    await made.close()


@pytest.fixture
async def runner(path):
    made = SqliteStatementRunner(path, READER)
    yield made
    await made.close()


def is_gone(pid):
    """Return whether a process has ended, be it that nobody has asked for its exit code."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


async def busy_pid(pool):
    """Return the number of a process that has a request."""
    async with asyncio.timeout(60):
        while not pool._busy:
            await asyncio.sleep(0.002)
    return next(iter(pool._busy)).pid


@pytest.mark.parametrize("path", ["wal"], indirect=True)
async def test_queries_that_no_clock_ends_are_answered_and_their_places_come_back(queries):
    found = await asyncio.gather(*(queries.run(f"SELECT {HOURS}", (), BRIEF) for _ in range(4)), return_exceptions=True)
    assert {type(error) for error in found} == {QueryTimeoutError}
    assert (await queries.run("SELECT name FROM item", (), LIMITS)).rows == [("a",)]
    assert queries._processes._metrics.query_processes.killed._value.get() == 4
    async with asyncio.timeout(60):
        while queries._processes._leaving:
            await asyncio.sleep(0.002)
    assert queries._processes._metrics.query_processes.started._value.get() == 1


@pytest.mark.parametrize("path", ["wal"], indirect=True)
async def test_a_query_that_a_clock_ends_leaves_its_process_alone(queries, monkeypatch):
    monkeypatch.setattr(process_pool, "_GRACE_S", 30.0)
    with pytest.raises(QueryTimeoutError):
        await queries.run(f"{MANY.replace('LIMIT 8000', '')} SELECT max(n) FROM c", (), BRIEF)
    assert queries._processes._metrics.query_processes.killed._value.get() == 0


async def test_a_statement_that_no_clock_ends_is_undone(runner, path):
    writes = f"INSERT INTO item {MANY} SELECT n + 1, CASE WHEN n < 8000 THEN randomblob(1000) ELSE {HOURS} END FROM c"
    before = path.stat().st_size
    with pytest.raises(QueryTimeoutError):
        await runner.execute(writes, [], RunLimits(10, 1000, 1.0))
    assert (await runner.execute("SELECT count(*) FROM item", [], LIMITS)).rows == [(1,)]
    assert (await runner.execute("INSERT INTO item VALUES(2, 'b')", [], LIMITS)).changes == 1
    database = apsw.Connection(str(path))
    assert database.execute("SELECT id FROM item").fetchall() == [(1,), (2,)]
    assert database.pragma("integrity_check") == "ok"
    assert path.stat().st_size <= before + 100_000


async def test_a_reader_waits_for_nobody_after_a_writer_was_killed(runner, queries, path):
    with pytest.raises(QueryTimeoutError):
        await runner.execute(f"UPDATE item SET name = {HOURS}", [], RunLimits(10, 1000, 0.5))
    assert (await queries.run("SELECT name FROM item", (), LIMITS)).rows == [("a",)]


@pytest.mark.parametrize("path", ["wal"], indirect=True)
async def test_closing_ends_what_no_interrupt_ends(queries, runner):
    running = [
        asyncio.create_task(queries.run(f"SELECT {HOURS}", (), LIMITS)),
        asyncio.create_task(runner.execute(f"UPDATE item SET name = {HOURS}", [], LIMITS)),
    ]
    pids = [await busy_pid(queries._processes), await busy_pid(runner._processes)]
    async with asyncio.timeout(30):
        await queries.close()
        await runner.close()
    for task in running:
        with pytest.raises(SourceUnavailableError, match="stops"):
            await task
    assert all(is_gone(pid) for pid in pids)
    with pytest.raises(SourceUnavailableError, match="stops"):
        await queries.run("SELECT 1", (), LIMITS)


@pytest.mark.parametrize("path", ["wal"], indirect=True)
async def test_a_query_for_which_nobody_waits_any_more_ends(queries):
    running = asyncio.create_task(queries.run(f"SELECT {HOURS}", (), LIMITS))
    pid = await busy_pid(queries._processes)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    async with asyncio.timeout(60):
        while not is_gone(pid):
            await asyncio.sleep(0.002)
    assert (await queries.run("SELECT 1", (), LIMITS)).rows == [(1,)]


@pytest.mark.parametrize("path", ["wal"], indirect=True)
async def test_a_process_that_dies_fails_its_query_alone(queries):
    running = asyncio.create_task(queries.run(f"SELECT {HOURS}", (), LIMITS))
    os.kill(await busy_pid(queries._processes), signal.SIGKILL)
    with pytest.raises(SourceUnavailableError, match="try again"):
        await running
    await queries.run("SELECT 1", (), LIMITS)
    idle = queries._processes._idle[0][0]
    os.kill(idle.pid, signal.SIGKILL)
    async with asyncio.timeout(60):
        while idle.alive:  # /proc shows it as ended while one of its threads still ends
            await asyncio.sleep(0.002)
    assert (await queries.run("SELECT 1", (), LIMITS)).rows == [(1,)]


@pytest.mark.parametrize("path", ["wal"], indirect=True)
async def test_signals_of_a_terminal_do_not_end_a_process(queries):
    await queries.run("SELECT 1", (), LIMITS)
    pid = queries._processes._idle[0][0].pid
    os.kill(pid, signal.SIGINT)
    os.kill(pid, signal.SIGTERM)
    assert (await queries.run("SELECT 1", (), LIMITS)).rows == [(1,)]
    assert queries._processes._idle[0][0].pid == pid


@pytest.mark.parametrize("path", ["wal"], indirect=True)
async def test_a_query_that_takes_for_ever_to_compile_is_refused_when_it_is_prepared(queries, path, monkeypatch):
    monkeypatch.setattr(query, "_LOOK_TIMEOUT_S", 0.5)
    database = apsw.Connection(str(path))
    database.execute("CREATE VIEW v0 AS SELECT id FROM item")
    for number in range(1, 30):
        database.execute(f"CREATE VIEW v{number} AS SELECT x.id FROM v{number - 1} AS x, v{number - 1} AS y")
    # On a fast machine SQLite counts too many references before the time is over.
    with pytest.raises((QueryTimeoutError, InvalidRequestError), match=r"to prepare|too many references"):
        await queries.consult(lambda catalog: catalog.footprint("SELECT * FROM v29", 0))
    footprint, _ = await queries.consult(lambda catalog: catalog.footprint("SELECT * FROM v1", 0))
    assert footprint.tables == {"item"}


@pytest.mark.parametrize("path", ["wal"], indirect=True)
async def test_what_a_query_touches_is_that_of_the_newest_schema(queries, path):
    database = apsw.Connection(str(path))
    database.execute("CREATE TABLE other(id)")
    for table in ("item", "other", "item"):
        database.execute(f"DROP VIEW IF EXISTS seen; CREATE VIEW seen AS SELECT id FROM {table}")
        footprint, _ = await queries.consult(lambda catalog: catalog.footprint("SELECT * FROM seen", 0))
        assert footprint.tables == {table}


@pytest.mark.parametrize("path", ["wal"], indirect=True)
async def test_memory_and_temporary_files_have_limits(path):
    large = f"SELECT {', '.join('zeroblob(15000000)' for _ in range(40))}"
    many = MANY.replace("8000", "40000")
    sorts = f"{many} SELECT count(*) FROM (SELECT n FROM c ORDER BY hex(randomblob(99)) LIMIT 100000)"
    limits = ProcessLimits(memory_bytes=400 << 20, temporary_bytes=1 << 20)
    pool = ProcessPool(path, limits=limits)
    try:
        async with pool.lease() as process:
            for sql in (large, sorts):
                answer = await process.ask(QueryRequest(sql, (), LIMITS, 60.0), 60.0, 1 << 20, "late")
                assert isinstance(answer, ProcessFailure), sql
                assert type(answer.error()) is ResultTooLargeError
            answer = await process.ask(QueryRequest("SELECT 1", (), LIMITS, 60.0), 60.0, 1 << 20, "late")
            assert isinstance(answer, QueryAnswer)
    finally:
        await pool.close()


@pytest.mark.parametrize("path", ["wal"], indirect=True)
async def test_an_answer_that_is_too_long_is_not_read(path):
    pool = ProcessPool(path)
    try:
        async with pool.lease() as process:
            with pytest.raises(SourceUnavailableError):
                await process.ask(QueryRequest("SELECT hex(zeroblob(9999))", (), LIMITS, 60.0), 60.0, 1000, "late")
            assert not process.clean
    finally:
        await pool.close()


@pytest.mark.parametrize("path", ["wal"], indirect=True)
async def test_a_process_knows_no_secrets(queries, monkeypatch):
    monkeypatch.setenv("TAILRACE_AUTH_TOKEN", "hush")
    await queries.run("SELECT 1", (), LIMITS)
    pid = queries._processes._idle[0][0].pid
    assert b"hush" not in Path(f"/proc/{pid}/environ").read_bytes()


@pytest.mark.parametrize("path", ["wal"], indirect=True)
async def test_processes_that_nobody_needs_end_but_one(queries, monkeypatch):
    monkeypatch.setattr(process_pool, "_IDLE_S", 0.01)
    await asyncio.gather(*(queries.run("SELECT 1", (), LIMITS) for _ in range(4)))
    async with asyncio.timeout(60):
        while len(queries._processes._idle) > 1 or queries._processes._leaving:
            await asyncio.sleep(0.002)
    assert (await queries.run("SELECT 1", (), LIMITS)).rows == [(1,)]


@pytest.mark.parametrize("path", ["wal"], indirect=True)
async def test_a_file_that_takes_the_place_of_the_database_is_read(queries, path):
    await queries.run("SELECT 1", (), LIMITS)
    other = path.with_name("other.db")
    with apsw.Connection(str(other)) as database:
        database.execute("CREATE TABLE item(id INTEGER PRIMARY KEY, name); INSERT INTO item VALUES(9, 'new')")
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    other.replace(path)
    assert (await queries.run("SELECT * FROM item", (), LIMITS)).rows == [(9, "new")]


@pytest.mark.parametrize("path", ["wal"], indirect=True)
async def test_a_commit_that_was_agreed_to_is_finished(runner, path):
    writing = asyncio.create_task(runner.execute("INSERT INTO item VALUES(2, 'b')", [], LIMITS))
    async with asyncio.timeout(60):
        while not any(process._committing for process in runner._processes._busy):
            await asyncio.sleep(0)
    writing.cancel()
    await runner.close()
    with suppress(asyncio.CancelledError):
        await writing
    assert apsw.Connection(str(path)).execute("SELECT count(*) FROM item").get == 2


SERVER = """
import asyncio, sys
from pathlib import Path
from tailrace.source.base import RunLimits
from tailrace.source.base import Reader
from tailrace.source.sqlite.query import SqliteQuerySource
from tailrace.source.sqlite.statement import SqliteStatementRunner

async def main():
    path, limits = Path(sys.argv[1]), RunLimits(10, 1000, 600)
    sources = SqliteQuerySource(path, Reader("log")), SqliteStatementRunner(path, Reader("log"))
    running = [sources[0].run(sys.argv[2], (), limits), sources[1].execute(sys.argv[3], [], limits)]
    running = [asyncio.create_task(one) for one in running]
    while not all(one._processes._busy for one in sources):
        await asyncio.sleep(0.002)
    print(*(process.pid for one in sources for process in one._processes._busy), flush=True)
    await asyncio.gather(*running)

asyncio.run(main())
"""


@pytest.mark.parametrize("path", ["wal"], indirect=True)
def test_processes_end_with_a_server_that_is_killed(path):
    command = [sys.executable, "-c", SERVER, path, f"SELECT {HOURS}", f"UPDATE item SET name = {HOURS}"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE)
    try:
        pids = [int(pid) for pid in server.stdout.readline().split()]
        assert len(pids) == 2
        assert not any(is_gone(pid) for pid in pids)
    finally:
        server.kill()
        server.wait()
        server.stdout.close()
    wait_until(lambda: all(is_gone(pid) for pid in pids), "the processes end")
    apsw.Connection(str(path)).execute("INSERT INTO item VALUES(5, 'free')")


@pytest.mark.parametrize("path", ["wal"], indirect=True)
async def test_a_process_that_cannot_be_started_is_an_error_of_its_own(queries, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(SourceUnavailableError, match="can be started now"):
        await queries.run("SELECT 1", (), LIMITS)
    monkeypatch.undo()
    assert (await queries.run("SELECT 1", (), LIMITS)).rows == [(1,)]


async def test_the_answer_to_a_statement_is_true_whenever_its_process_is_killed(runner, path, monkeypatch):
    monkeypatch.setattr(process_pool, "_GRACE_S", 0.0)
    chance = random.Random(12)
    expected = {1}
    for number in range(2, 22):
        await runner.execute("SELECT 1", [], LIMITS)  # a process is there
        limits = RunLimits(10, 1000, chance.uniform(0.0, 0.01))
        with suppress(QueryTimeoutError, SourceUnavailableError):  # the latter where a killed one is rolled back
            await runner.execute("INSERT INTO item VALUES(?, randomblob(50000))", [number], limits)
            expected.add(number)
    database = apsw.Connection(str(path))
    database.set_busy_timeout(30_000)
    assert {row for (row,) in database.execute("SELECT id FROM item")} == expected
    assert database.pragma("integrity_check") == "ok"
