"""Setting capture up and removing it, stopping and resuming, several readers, and removal of what is confirmed."""

import asyncio
import contextlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from sqlite_capture import ApswWriter, Captured, StdlibWriter, captured
from tailrace.clock import SystemClock
from tailrace.model.errors import NotFoundError, SourceStateError, SourceUnavailableError
from tailrace.model.number import Position
from tailrace.source.base import Reader
from tailrace.source.sqlite import SqliteOptions, SqliteSource, remove, remove_reader, set_up, status
from tailrace.source.sqlite.change_table import parse_position
from tailrace.source.sqlite.connection import create_database, require_capturable
from tailrace.testing.registry import MemoryRegistry

T = "CREATE TABLE t(id INTEGER PRIMARY KEY, u TEXT UNIQUE, v); CREATE TABLE free(x); CREATE INDEX tv ON t(v)"
QUICK = SqliteOptions(trim_interval_s=0.01)
NOBODY = 65534


@pytest.fixture
def path(tmp_path):
    return tmp_path / "app.db"


@pytest.fixture
def writer(path):
    made = ApswWriter(path)
    made.run("PRAGMA journal_mode = wal")
    made.run("PRAGMA synchronous = off")
    made.run(T)
    yield made
    made.close()


def schema_of(writer):
    return writer.run("SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY type, name")


def insert_many(count, value):
    numbers = f"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {count})"
    return f"{numbers} INSERT INTO t SELECT i, i, {value} FROM n"


def ids_of(changes):
    return [change[2][0] for change in changes]


def test_removal_leaves_the_schema_as_it_was_to_the_letter(path, writer):
    writer.run(
        "CREATE TABLE counted(id INTEGER PRIMARY KEY AUTOINCREMENT); INSERT INTO counted DEFAULT VALUES; ANALYZE"
    )
    before = schema_of(writer), writer.run("SELECT * FROM sqlite_sequence"), writer.run("SELECT * FROM sqlite_stat1")
    set_up(path)
    writer.run("INSERT INTO t VALUES(1, 'a', 1); ANALYZE; DELETE FROM t")
    assert schema_of(writer) != before[0]
    assert remove(path)
    writer.run("ANALYZE")
    assert (schema_of(writer), writer.run("SELECT * FROM sqlite_sequence")) == before[:2]
    assert "_tailrace" not in str(writer.run("SELECT * FROM sqlite_stat1"))
    assert not remove(path)
    assert writer.run("PRAGMA integrity_check") == [("ok",)]


def test_setting_up_twice_changes_nothing(path, writer):
    set_up(path)
    before = schema_of(writer), status(path)
    set_up(path)
    assert (schema_of(writer), status(path)) == before


def test_setup_and_removal_survive_vacuum(path, writer):
    set_up(path)
    writer.run("INSERT INTO t VALUES(1, 'a', 1); VACUUM; INSERT INTO t VALUES(2, 'b', 2)")
    assert len(writer.run("SELECT * FROM _tailrace_change WHERE h & 7 = 1")) == 2
    assert remove(path)
    assert "_tailrace" not in str(schema_of(writer))


def test_capture_of_a_database_that_does_not_exist_is_refused(path):
    with pytest.raises(SourceStateError, match="does not exist"):
        set_up(path)
    create_database(path)
    set_up(path)
    assert status(path).tables == ()


def test_a_file_that_is_no_database_is_refused(path):
    path.write_bytes(b"no database " * 100)
    with pytest.raises(SourceStateError):
        set_up(path)


def test_a_locked_database_is_unavailable_now(path, writer):
    writer.run("BEGIN EXCLUSIVE")
    with pytest.raises(SourceUnavailableError):
        set_up(path, SqliteOptions(busy_timeout_ms=10))
    writer.run("ROLLBACK")


def test_status_without_capture_is_empty(path, writer):
    assert status(path).capture is None


async def test_changes_made_while_we_are_stopped_come_on_restart_once(path, writer):
    async with captured(path) as first:
        writer.run("INSERT INTO t VALUES(1, 'a', 1)")
        await first.changes_of(1)
    writer.run("INSERT INTO t VALUES(2, 'b', 2)")
    writer.run("INSERT INTO t VALUES(3, 'c', 3)")
    assert status(path).waiting == 2
    async with captured(path, resumes=first) as second:
        assert ids_of(await second.changes_of(2)) == [2, 3]
        writer.run("INSERT INTO t VALUES(4, 'd', 4)")
        assert ids_of(await second.changes_of(3)) == [2, 3, 4]


async def test_resuming_after_an_older_position_repeats_what_was_not_confirmed(path, writer):
    source = SqliteSource("app", path, Reader("log"), SqliteOptions(), SystemClock())
    await source.open(MemoryRegistry())
    for number in range(3):
        writer.run(f"INSERT INTO t VALUES({number}, {number}, 0)")
    first = await changes_after(source, None, 3)
    again = await changes_after(source, None, 3)
    assert [key for _, key in again] == [key for _, key in first] == [b"[0]", b"[1]", b"[2]"]
    rest = await changes_after(source, first[0][0], 2)
    assert [key for _, key in rest] == [b"[1]", b"[2]"]
    await source.close()


async def changes_after(source, position, count):
    """Return the position of its commit and the key of each of so many changes."""
    found = []
    async with contextlib.aclosing(source.commits(position)) as commits:
        async for drafts in commits:
            found += [(draft.position, key) for draft in drafts for key in draft.keys]
            if len(found) >= count:
                break
    return found


@pytest.mark.parametrize(
    ("position", "reason"),
    [
        ("{capture}-1", "no longer in the database"),
        ("{capture}-9999", "restored from an older copy"),
        ("beef-3", "set up again"),
    ],
)
async def test_a_position_that_is_lost_says_why_and_what_to_do(path, writer, position, reason):
    async with captured(path, options=QUICK) as capturing:
        writer.run("INSERT INTO t VALUES(1, 'a', 1), (2, 'b', 2)")
        writer.run("INSERT INTO t VALUES(3, 'c', 3)")
        await capturing.changes_of(3)
        await trimmed(path, writer, 1)
    lost = Position(position.format(capture=status(path).capture))
    again = Captured(path, resumes=capturing, after=lost)
    await again.start()
    with pytest.raises(SourceStateError, match=reason) as caught:
        await again.changes_of(1)
    assert "begin a new log" in str(caught.value)
    await again.source.close()


async def trimmed(path, writer, rows):
    """Wait until so many rows are left in the change table."""
    for _ in range(2000):
        if len(writer.run("SELECT id FROM _tailrace_change")) <= rows:
            return
        await asyncio.sleep(0.005)
    raise AssertionError("nothing was removed")


async def test_confirmed_changes_are_removed_and_numbers_go_on(path, writer):
    async with captured(path, options=QUICK) as capturing:
        for number in range(5):
            writer.run(f"INSERT INTO t VALUES({number}, {number}, 0)")
        await capturing.changes_of(5)
        await trimmed(path, writer, 1)
        ((newest,),) = writer.run("SELECT id FROM _tailrace_change")
        writer.run("INSERT INTO t VALUES(9, 9, 9)")
        await capturing.changes_of(6)
        assert parse_position(capturing.after, status(path).capture) == newest + 1


async def test_removal_is_done_in_bounded_pieces(path, writer):
    options = SqliteOptions(trim_interval_s=0.01, trim_changes_max=10)
    async with captured(path, options=options) as capturing:
        writer.run(insert_many(95, "i"))
        await capturing.changes_of(95)
        await trimmed(path, writer, 1)


async def test_a_locked_database_delays_removal_and_nothing_else(path, writer):
    async with captured(path, options=SqliteOptions(trim_interval_s=0.01, trim_busy_timeout_ms=1)) as capturing:
        writer.run("INSERT INTO t VALUES(1, 'a', 1)")
        await capturing.changes_of(1)
        locker = ApswWriter(path)
        locker.run("BEGIN IMMEDIATE; INSERT INTO t VALUES(2, 'b', 2)")
        locker.run("COMMIT; BEGIN IMMEDIATE")
        await capturing.changes_of(2)
        await asyncio.sleep(0.05)
        locker.run("COMMIT")
        await trimmed(path, writer, 1)
        locker.close()


async def test_the_slower_of_two_readers_keeps_the_changes(path, writer):
    async with captured(path, reader="fast", options=QUICK) as fast:
        async with captured(path, reader="slow", options=QUICK) as slow:
            pass
        writer.run("INSERT INTO t VALUES(1, 'a', 1), (2, 'b', 2)")
        await fast.changes_of(2)
        async with captured(path, reader="third", options=QUICK):
            found = {reader.name: reader for reader in status(path).readers}
            assert found["slow"].waiting == 2
            assert not found["slow"].ephemeral
        async with captured(path, reader="slow", resumes=slow, options=QUICK) as again:
            assert ids_of(await again.changes_of(2)) == [1, 2]


async def test_an_abandoned_reader_is_seen_and_can_be_removed(path, writer):
    async with captured(path, reader="abandoned"):
        pass
    async with captured(path, reader="log", options=QUICK) as capturing:
        writer.run("INSERT INTO t VALUES(1, 'a', 1)")
        await capturing.changes_of(1)
        assert status(path).waiting == 1
        remove_reader(path, "abandoned")
        writer.run("INSERT INTO t VALUES(2, 'b', 2)")
        await trimmed(path, writer, 1)
    with pytest.raises(NotFoundError, match="abandoned"):
        remove_reader(path, "abandoned")


async def test_an_ephemeral_reader_takes_capture_with_it_when_it_set_it_up(path, writer):
    before = schema_of(writer)
    source = SqliteSource("app", path, Reader("tail-1", ephemeral=True), SqliteOptions(), SystemClock())
    await source.open(MemoryRegistry())
    assert [reader.name for reader in status(path).readers] == ["tail-1"]
    await source.close()
    assert schema_of(writer) == before


async def test_an_ephemeral_reader_leaves_capture_to_others(path, writer):
    async with captured(path, reader="log") as capturing:
        source = SqliteSource("app", path, Reader("tail-1", ephemeral=True), SqliteOptions(), SystemClock())
        await source.open(MemoryRegistry())
        await source.close()
        writer.run("INSERT INTO t VALUES(1, 'a', 1)")
        await capturing.changes_of(1)
        assert [reader.name for reader in status(path).readers] == ["log"]


async def test_a_reader_that_joins_the_ephemeral_one_keeps_capture(path, writer):
    tail = SqliteSource("app", path, Reader("tail-1", ephemeral=True), SqliteOptions(), SystemClock())
    await tail.open(MemoryRegistry())
    async with captured(path, reader="log"):
        pass
    await tail.close()
    assert [reader.name for reader in status(path).readers] == ["log"]


EPHEMERAL = """
import asyncio, os, sys
from pathlib import Path
from tailrace.clock import SystemClock
from tailrace.source.base import Reader
from tailrace.source.sqlite import SqliteOptions, SqliteSource
from tailrace.testing.registry import MemoryRegistry
async def main():
    source = SqliteSource("app", Path(sys.argv[1]), Reader("tail", ephemeral=True), SqliteOptions(), SystemClock())
    await source.open(MemoryRegistry())
    os._exit(1)
asyncio.run(main())
"""


KILLED = EPHEMERAL.replace('"tail", ephemeral=True', '"log"')


async def test_an_ephemeral_reader_whose_process_is_gone_does_not_count(path, writer):
    set_up(path)
    subprocess.run([sys.executable, "-c", EPHEMERAL, str(path)], check=False)
    (dead,) = status(path).readers
    assert (dead.ephemeral, dead.alive) == (True, False)
    async with captured(path, options=QUICK) as capturing:
        assert [reader.name for reader in status(path).readers] == ["log"]
        writer.run("INSERT INTO t VALUES(1, 'a', 1)")
        await capturing.changes_of(1)
        await trimmed(path, writer, 1)


async def test_capture_removed_under_a_running_source_is_an_error_with_advice(path, writer):
    capturing = Captured(path)
    await capturing.start()
    remove(path, force=True)
    with pytest.raises(SourceStateError, match="begin a new log"):
        await capturing.changes_of(1)
    await capturing.source.close()


async def test_capture_is_not_removed_while_somebody_reads(path, writer):
    async with captured(path):
        assert [reader.reading for reader in status(path).readers] == [True]
        writer.run("UPDATE _tailrace_reader SET seen = seen - 1")  # an idle one is not seen
        with pytest.raises(SourceStateError, match="stop the server"):
            remove(path)
        with pytest.raises(SourceStateError, match="stop the server"):
            remove_reader(path, "log")
    assert [reader.reading for reader in status(path).readers] == [False]
    assert remove(path)


def test_a_reader_whose_process_is_not_found_counts_as_reading_for_a_minute(path, writer):
    set_up(path)
    subprocess.run([sys.executable, "-c", KILLED, str(path)], check=False)
    with pytest.raises(SourceStateError, match="within the last minute"):
        remove(path)
    writer.run("UPDATE _tailrace_reader SET seen = seen - 61 / 86400.0")
    assert [(reader.alive, reader.reading) for reader in status(path).readers] == [(True, False)]
    assert remove(path)


async def test_changes_removed_behind_our_back_are_noticed(path, writer):
    capturing = Captured(path)
    await capturing.start()
    writer.run("INSERT INTO t VALUES(1, 'a', 1), (2, 'b', 2)")
    await capturing.changes_of(2)
    writer.run("BEGIN IMMEDIATE; INSERT INTO t VALUES(3, 'c', 3); INSERT INTO t VALUES(4, 'd', 4)")
    writer.run("DELETE FROM _tailrace_change WHERE id = (SELECT max(id) - 1 FROM _tailrace_change); COMMIT")
    with pytest.raises(SourceStateError, match="begin a new log"):
        await capturing.changes_of(4)
    await capturing.source.close()


async def test_a_source_that_was_closed_can_be_opened_again(path, writer):
    capturing = Captured(path)
    for number in range(2):
        await capturing.start()
        writer.run(f"INSERT INTO t VALUES({number}, {number}, 0)")
        await capturing.changes_of(number + 1)
        await capturing.stop()
    assert ids_of(capturing.changes()) == [0, 1]


async def test_opening_twice_is_safe(path, writer):
    capturing = Captured(path)
    await capturing.source.open(capturing.registry)
    await capturing.start()
    writer.run("INSERT INTO t VALUES(1, 'a', 1)")
    await capturing.changes_of(1)
    await capturing.stop()


async def test_a_closed_source_says_so(path):
    source = SqliteSource("app", path, Reader("log"), SqliteOptions(), SystemClock())
    with pytest.raises(SourceStateError, match="closed"):
        source.tables()
    await source.close()


async def test_a_transaction_beyond_the_bound_comes_in_parts_of_one_commit(path, writer):
    options = SqliteOptions(commit_changes_max=10)
    async with captured(path, options=options) as first:
        writer.run(insert_many(35, "i"))
        await first.changes_of(35)
        assert [(len(draft), draft.part, draft.more) for draft in first.drafts] == [
            (10, 0, True),
            (10, 1, True),
            (10, 2, True),
            (5, 3, False),
        ]
    async with captured(path, resumes=first) as second:
        writer.run("INSERT INTO t VALUES(99, 99, 99)")
        assert ids_of(await second.changes_of(1)) == [99]


async def test_a_transaction_that_was_read_in_part_is_read_again_from_its_first_change(path, writer):
    options = SqliteOptions(commit_changes_max=10)
    killed = Captured(path, options=options)
    await killed.source.open(killed.registry)
    async with contextlib.aclosing(killed.source.commits(None)) as commits:
        writer.run("INSERT INTO t VALUES(1000, 1000, 1000)")
        (before,) = await anext(commits)
        writer.run(insert_many(35, "i"))
        assert (await anext(commits))[0].more
    async with contextlib.aclosing(killed.source.commits(before.position)) as commits:
        found = []
        async for drafts in commits:
            found += drafts
            if not drafts[-1].more:
                break
    await killed.source.close()
    assert [(len(draft), draft.more) for draft in found] == [(10, True), (10, True), (10, True), (5, False)]
    assert [key for draft in found for key in draft.keys] == [b"[%d]" % number for number in range(1, 36)]


async def test_a_process_that_is_killed_early_gets_ahead_in_a_backlog_that_must_be_cut(path, writer):
    options = SqliteOptions(commit_changes_max=100, commit_changes_first=5)
    async with captured(path, options=options) as first:
        pass
    writer.run(insert_many(250, "i"))
    before, found = first, []
    for _ in range(3):
        killed = Captured(path, resumes=before, options=options)
        await killed.source.open(killed.registry)
        async with contextlib.aclosing(killed.source.commits(killed.after)) as commits:
            drafts = await anext(commits)  # and no more: nothing of it is confirmed
        await killed.source.close()
        assert len(drafts[0]) == 5
        assert sum(map(len, drafts)) < 60
        for draft in drafts:
            found += ids_of(killed.decoded(draft))
            killed.replica.apply(draft, killed.registry.schemas)
        killed.after = drafts[-1].position
        before = killed
    async with captured(path, resumes=before, options=options) as last:
        assert found + ids_of(await last.changes_of(250 - len(found))) == list(range(1, 251))


async def test_large_rows_are_fetched_a_few_at_a_time(path, writer):
    options = SqliteOptions(read_bytes=100_000, commit_bytes_max=1_000_000)
    async with captured(path, options=options) as capturing:
        writer.run(insert_many(30, "zeroblob(100000)"))
        await capturing.changes_of(30)
        assert len(capturing.drafts) > 1


async def test_commit_times_are_those_of_the_commit_also_when_it_was_made_while_we_were_stopped(path, writer):
    async with captured(path) as first:
        begin_us = SystemClock().now_us()
        writer.run("INSERT INTO t VALUES(1, 'a', 1)")
        await first.changes_of(1)
        assert begin_us <= first.drafts[0].commit_time_us <= SystemClock().now_us()
    writer.run("INSERT INTO t VALUES(2, 'b', 2)")
    for file in (path, path.with_name("app.db-wal")):
        os.utime(file, (1_700_000_000, 1_700_000_000))
    async with captured(path, resumes=first) as second:
        await second.changes_of(1)
        assert second.drafts[0].commit_time_us == 1_700_000_000_000_000
        begin_us = SystemClock().now_us()
        writer.run("INSERT INTO t VALUES(3, 'c', 3)")
        await second.changes_of(2)
        assert second.drafts[1].commit_time_us >= begin_us


async def test_a_database_behind_a_symbolic_link_is_followed(path, tmp_path):
    writer = StdlibWriter(path)
    writer.run("PRAGMA journal_mode = wal")
    writer.run(T)
    link = tmp_path / "link.db"
    link.symlink_to(path)
    async with captured(link) as capturing:
        for number in range(3):
            writer.run(f"INSERT INTO t VALUES({number}, {number}, 0)")
        await capturing.changes_of(3)
        assert len(capturing.drafts) == 3
    writer.close()


def test_a_format_of_another_version_is_refused(path, writer):
    set_up(path)
    writer.run("UPDATE _tailrace_capture SET format = 99")
    with pytest.raises(SourceStateError, match="format 99"):
        set_up(path)


@contextlib.contextmanager
def as_somebody_else():
    """Be a user without rights for the length of a block; the superuser may write everything."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def shared(writer, path):
    """A copy of the database where every user finds it, in a directory that only its owner may write to."""
    with tempfile.TemporaryDirectory() as directory:
        made = Path(directory) / "app.db"
        writer.run(f"VACUUM INTO '{made}'")
        Path(directory).chmod(0o755)
        yield made
        Path(directory).chmod(0o755)


@pytest.mark.parametrize(
    ("file", "directory"), [(0o444, 0o777), (0o666, 0o555)], ids=["read-only file", "read-only directory"]
)
@pytest.mark.parametrize("look", [require_capturable, set_up])
def test_a_database_that_we_may_not_write_is_refused_with_advice(shared, file, directory, look):
    shared.chmod(file)
    shared.parent.chmod(directory)
    with as_somebody_else(), pytest.raises((SourceStateError, SourceUnavailableError)) as caught:
        look(shared)
    if look is require_capturable:
        assert "let this process write to the file and to its directory" in str(caught.value)


def test_a_locked_database_can_be_captured_later(path, writer):
    writer.run("PRAGMA journal_mode = delete; BEGIN EXCLUSIVE")
    require_capturable(path)
    writer.run("COMMIT")
