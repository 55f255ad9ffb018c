"""Transactions are kept apart as SQLite allows, and changes arrive quickly."""

import asyncio
import sys
import time
from pathlib import Path

import pytest

from sqlite_capture import Captured, StdlibWriter, captured
from tailrace.source.sqlite import SqliteOptions

T = "CREATE TABLE t(id INTEGER PRIMARY KEY, v); CREATE TABLE uncaptured_noise(x)"


@pytest.fixture
def path(tmp_path):
    return tmp_path / "app.db"


@pytest.fixture
def writer(path):
    made = StdlibWriter(path)
    made.run("PRAGMA journal_mode = wal")
    made.run("PRAGMA synchronous = off")
    made.run(T)
    yield made
    made.close()


def keys_of(capturing):
    return [[change[2][0] for change in capturing.decoded(draft)] for draft in capturing.drafts]


async def test_transactions_written_in_a_burst_stay_apart(path, writer):
    async with captured(path) as capturing:
        script = "".join(
            f"BEGIN; INSERT INTO t VALUES({number}, 0); INSERT INTO t VALUES({number + 1}, 0); COMMIT;"
            for number in range(0, 400, 2)
        )
        writer.run(script)
        await capturing.changes_of(400)
        assert keys_of(capturing) == [[number, number + 1] for number in range(0, 400, 2)]


async def test_transactions_stay_apart_through_splits_of_the_tree_and_removal_of_changes(path, writer):
    async with captured(path, options=SqliteOptions(trim_interval_s=0.001)) as capturing:
        for first in range(0, 600, 20):
            writer.run("".join(f"INSERT INTO t VALUES({n}, printf('%0500d', {n}));" for n in range(first, first + 20)))
            await capturing.until(lambda n=first + 20: capturing.count >= n)
        assert keys_of(capturing) == [[number] for number in range(600)]


async def test_transactions_stay_apart_when_the_log_is_started_anew(path, writer):
    writer.run("PRAGMA wal_autocheckpoint = 20")
    async with captured(path) as capturing:
        for number in range(300):
            writer.run(f"INSERT INTO t VALUES({number}, zeroblob(3000))")
            await capturing.until(lambda n=number: capturing.count > n)
        assert keys_of(capturing) == [[number] for number in range(300)]


async def test_a_transaction_larger_than_the_cache_stays_whole(path, writer):
    writer.run("PRAGMA cache_size = 5")
    async with captured(path) as capturing:
        script = "".join(f"INSERT INTO t VALUES({number}, zeroblob(4000));" for number in range(100))
        writer.run(f"BEGIN; {script} ROLLBACK")
        writer.run(f"BEGIN; {script} COMMIT")
        writer.run("INSERT INTO t VALUES(1000, 0)")
        await capturing.changes_of(101)
        assert keys_of(capturing) == [list(range(100)), [1000]]


async def test_after_a_checkpoint_that_cuts_the_log_short_transactions_are_apart_again(path, writer):
    async with captured(path) as capturing:
        for number in range(30):
            writer.run(f"INSERT INTO t VALUES({number}, 0)")
            await capturing.until(lambda n=number: capturing.count > n)
            if number % 10 == 5:
                writer.run("PRAGMA wal_checkpoint(TRUNCATE)")
        assert keys_of(capturing) == [[number] for number in range(30)]


async def test_in_a_rollback_journal_a_transaction_is_never_split(path):
    writer = StdlibWriter(path)
    writer.run(T)
    async with captured(path) as capturing:
        for first in range(0, 100, 10):
            writer.run(
                "BEGIN;" + "".join(f"INSERT INTO t VALUES({n}, 0);" for n in range(first, first + 10)) + "COMMIT"
            )
        await capturing.changes_of(100)
        assert all(len(keys) % 10 == 0 for keys in keys_of(capturing))
    writer.close()


async def test_a_transaction_is_never_split_whatever_the_reader_does(path, writer):
    options = SqliteOptions(read_changes_max=7, group_changes_max=5, trim_interval_s=0.001)
    async with captured(path, options=options) as capturing:
        script = "".join(
            f"BEGIN; INSERT INTO t VALUES({n}, 0), ({n + 1}, 0); INSERT INTO t VALUES({n + 2}, 0); COMMIT;"
            for n in range(0, 900, 3)
        )
        await asyncio.to_thread(writer.run, script)
        await capturing.changes_of(900)
        assert all(len(keys) % 3 == 0 and keys[0] % 3 == 0 for keys in keys_of(capturing))


async def test_a_change_arrives_within_a_fraction_of_the_polling_interval(path, writer):
    options = SqliteOptions(poll_interval_s=30, settle_s=0.05)
    async with captured(path, options=options) as capturing:
        await asyncio.sleep(0.2)
        begin = time.monotonic()
        writer.run("INSERT INTO t VALUES(1, 0)")
        await capturing.changes_of(1)
        assert time.monotonic() - begin < 20


async def test_a_commit_soon_after_another_one_wakes_the_reader(path, writer, monkeypatch):
    monkeypatch.setattr("tailrace.source.sqlite.pace._LISTEN_S", (30.0,))
    async with captured(path, options=SqliteOptions(poll_interval_s=30, settle_s=30)) as capturing:
        for number in range(50):
            writer.run(f"INSERT INTO t VALUES({number}, 0)")
            await asyncio.wait_for(capturing.changes_of(number + 1), 20)


async def test_without_a_hint_from_the_system_polling_finds_the_change(path, writer, monkeypatch):
    monkeypatch.setattr("tailrace.source.sqlite.watch.sys.platform", "other")
    async with captured(path, options=SqliteOptions(poll_interval_s=0.02, settle_s=0.0)) as capturing:
        writer.run("INSERT INTO t VALUES(1, 0)")
        await capturing.changes_of(1)


BUSY_WRITER = """
import random, sqlite3, sys, time
database = sqlite3.connect(sys.argv[1], timeout=30, isolation_level=None)
database.execute("PRAGMA synchronous = off")
database.execute(f"PRAGMA wal_autocheckpoint = {sys.argv[2]}")
database.execute("PRAGMA cache_size = 10")
chance = random.Random(int(sys.argv[3]))
number = 0
for transaction in range(int(sys.argv[4])):
    kept = chance.random() < 0.8
    database.execute("BEGIN IMMEDIATE")
    rows = chance.choice([1, 1, 2, 3, 40])
    for row in range(rows):
        size = chance.choice([10, 10, 500, 9000])
        database.execute("INSERT INTO t VALUES(NULL, ?)", (f"{transaction} {rows} " + "x" * size,))
    database.execute("COMMIT" if kept else "ROLLBACK")
"""


def transactions_of(capturing):
    """Return the numbers of the transactions in each commit; each must be there with all its rows."""
    found = []
    for draft in capturing.drafts:
        marks = [tuple(change[4]["v"].split()[:2]) for change in capturing.decoded(draft)]
        for transaction, rows in set(marks):
            assert marks.count((transaction, rows)) == int(rows)
        found.append([int(transaction) for transaction, _ in dict.fromkeys(marks)])
    return found


async def run_busily(path, writer, capturing, checkpoint, transactions):
    """Write as quickly as possible in another process, and wait for what it wrote."""
    command = [sys.executable, "-c", BUSY_WRITER, str(path), str(checkpoint), "7", str(transactions)]
    process = await asyncio.create_subprocess_exec(*command)
    assert await process.wait() == 0
    ((newest,),) = writer.run("SELECT max(id) FROM _tailrace_change")
    await capturing.until(lambda: capturing.after and f"-{newest}." in capturing.after)


@pytest.mark.parametrize("checkpoint", [1, 50, 1000])
async def test_transactions_of_a_busy_writer_with_rollbacks_and_checkpoints_stay_apart(path, writer, checkpoint):
    async with captured(path, options=SqliteOptions(trim_interval_s=0.01)) as capturing:
        await run_busily(path, writer, capturing, checkpoint, 400)
        assert [len(transactions) for transactions in transactions_of(capturing)] == [1] * len(capturing.drafts)


async def test_transactions_stay_apart_through_many_new_logs(path, writer):
    options = SqliteOptions(hold_bytes=1 << 18, hold_bytes_lock=1 << 19)
    async with captured(path, options=options) as capturing:
        await run_busily(path, writer, capturing, 10, 2000)
        assert [len(transactions) for transactions in transactions_of(capturing)] == [1] * len(capturing.drafts)


async def test_transactions_stay_apart_where_the_log_grows_faster_than_it_is_copied(path, writer, caplog):
    options = SqliteOptions(hold_bytes=1 << 14, hold_bytes_lock=1 << 15, hold_bytes_max=1 << 16)
    async with captured(path, options=options) as capturing:
        await run_busily(path, writer, capturing, 10, 1000)
        assert [len(transactions) for transactions in transactions_of(capturing)] == [1] * len(capturing.drafts)
    assert "too large to hold" not in caplog.text


async def test_the_first_transactions_after_a_start_stay_apart(path, writer):
    writer.run("PRAGMA wal_checkpoint(TRUNCATE)")
    async with captured(path) as capturing:
        writer.run("".join(f"INSERT INTO t VALUES({number}, 0);" for number in range(50)))
        await capturing.changes_of(50)
        assert keys_of(capturing) == [[number] for number in range(50)]


CHECKPOINTER = """
import sqlite3, sys, time
database = sqlite3.connect(sys.argv[1], timeout=30, isolation_level=None)
left = int(sys.argv[3])
deadline = time.monotonic() + 60
while time.monotonic() < deadline:
    busy, _, _ = database.execute(f"PRAGMA wal_checkpoint({sys.argv[2]})").fetchone()
    left -= not busy  # it is busy, too, while somebody else copies the log
    if not left:
        sys.exit(0)
sys.exit(1)
"""


@pytest.mark.parametrize("mode", ["FULL", "RESTART", "TRUNCATE"])
async def test_checkpoints_of_another_process_get_through_and_transactions_stay_apart(path, writer, mode):
    async with captured(path) as capturing:
        command = [sys.executable, "-c", CHECKPOINTER, str(path), mode, "20"]
        process = await asyncio.create_subprocess_exec(*command)
        await run_busily(path, writer, capturing, 1000, 200)
        assert await process.wait() == 0
        assert [len(transactions) for transactions in transactions_of(capturing)] == [1] * len(capturing.drafts)


async def test_transactions_stay_apart_when_vacuum_moves_the_change_table(path, writer):
    async with captured(path) as capturing:
        writer.run("CREATE INDEX w ON t(v); CREATE TABLE gone AS SELECT zeroblob(100000) AS x; DROP TABLE gone")
        for first in range(0, 90, 30):
            script = "".join(f"INSERT INTO t VALUES({n}, 'x{n}');" for n in range(first, first + 30))
            await asyncio.to_thread(writer.run, f"{script} VACUUM; UPDATE t SET v = 'y' WHERE id = {first}")
            await capturing.changes_of((first // 30 + 1) * 31)
        assert keys_of(capturing) == [[n] for first in range(0, 90, 30) for n in [*range(first, first + 30), first]]


async def test_transactions_stay_apart_beside_schema_changes(path, writer):
    async with captured(path) as capturing:
        for first in range(0, 90, 30):
            script = "".join(f"INSERT INTO t VALUES({n}, 'x');" for n in range(first, first + 30))
            await asyncio.to_thread(writer.run, f"{script} CREATE INDEX i{first} ON t(v); CREATE TABLE t{first}(x)")
        await capturing.until(lambda: ["t", [89]] in [list(change[1:3]) for change in capturing.changes()])
        rows = [[c[2][0] for c in capturing.decoded(draft) if c[1] == "t"] for draft in capturing.drafts]
        assert [keys for keys in rows if keys] == [[number] for number in range(90)]


async def test_the_log_is_started_anew_while_nobody_takes_what_was_captured(path, writer):
    capturing = Captured(path, options=SqliteOptions(hold_bytes=1 << 18, hold_bytes_lock=1 << 19))
    await capturing.source.open(capturing.registry)
    commits = capturing.source.commits(None)
    writer.run("INSERT INTO t VALUES(1, 0)")
    await anext(commits)
    headers = set()
    deadline = time.monotonic() + 60
    while len(headers) < 4:
        assert time.monotonic() < deadline
        rows = "INSERT INTO t VALUES(NULL, zeroblob(3000));" * 20
        await asyncio.to_thread(writer.run, f"BEGIN; {rows} COMMIT")
        headers.add(Path(f"{path}-wal").read_bytes()[:32])
    await commits.aclose()
    await capturing.source.close()


async def test_a_log_that_somebody_else_keeps_from_being_copied_is_let_go(path, writer, caplog):
    """What is held has a limit, and after it all changes still come, transactions perhaps merged."""
    options = SqliteOptions(hold_bytes=1 << 17, hold_bytes_lock=1 << 18, hold_bytes_max=1 << 20)
    async with captured(path, options=options) as capturing:
        reader = StdlibWriter(path)
        reader.run("BEGIN; SELECT count(*) FROM t")
        for number in range(600):
            writer.run(f"INSERT INTO t VALUES({number}, zeroblob(3000))")
        await capturing.until(lambda: "the write-ahead log is too large to hold" in caplog.messages)
        reader.close()
        await capturing.changes_of(600)
        writer.run("PRAGMA wal_checkpoint(TRUNCATE)")
        for number in range(1000, 1020):
            writer.run(f"INSERT INTO t VALUES({number}, 0)")
            await capturing.until(lambda n=number: keys_of(capturing)[-1][-1] == n)
        assert keys_of(capturing)[-20:] == [[number] for number in range(1000, 1020)]
