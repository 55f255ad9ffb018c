"""A database that was restored from a copy is told from the one that the log knows; the same history goes on."""

import random
import shutil
from pathlib import Path

import apsw
import pytest

from sqlite_capture import ApswWriter, Captured, agrees, captured
from tailrace.clock import SystemClock
from tailrace.model.errors import SourceStateError, SourceUnavailableError
from tailrace.model.number import Position
from tailrace.model.table import TableName
from tailrace.source.base import Reader
from tailrace.source.key_value import Entry
from tailrace.source.sqlite import SqliteOptions, remove_reader, status
from tailrace.source.sqlite.kv_store import SqliteKeyValueStore
from tailrace.source.sqlite.place import DatabaseFile
from tailrace.source.sqlite.query import SqliteQuerySource

QUICK = SqliteOptions(trim_interval_s=0.01)
LAZY = SqliteOptions(trim_interval_s=3600.0)

ANOTHER_HISTORY = "not those that the log has.*tailrace log reset.*docs/how-to/restore.md"


@pytest.fixture
def path(tmp_path):
    return tmp_path / "app.db"


@pytest.fixture(params=["wal", "delete"], autouse=True)
def database(path, request):
    run(path, f"PRAGMA journal_mode = {request.param}; CREATE TABLE t(id INTEGER PRIMARY KEY, v)")
    return request.param


def run(path, sql):
    writer = ApswWriter(path)
    try:
        return writer.run(sql)
    finally:
        writer.close()


def insert(path, *numbers):
    for number in numbers:
        run(path, f"INSERT INTO t VALUES({number}, 'v{number}')")


def copy(path, name="copy.db"):
    """Return a copy of the database as it is now."""
    made = path.with_name(name)
    made.unlink(missing_ok=True)
    run(path, f"VACUUM INTO '{made}'")
    return made


def put_back(made, path):
    """Put a copy in the place of a database that nobody has open."""
    for suffix in ("-wal", "-shm", "-journal"):
        Path(f"{path}{suffix}").unlink(missing_ok=True)
    shutil.copy(made, path)


async def refused(capturing, match):
    """Start a capture and see that it is refused."""
    await capturing.start()
    with pytest.raises(SourceStateError, match=match):
        await capturing.until(lambda: False)
    await capturing.source.close()


@pytest.mark.parametrize("options", [QUICK, LAZY], ids=["confirmed", "unconfirmed"])
@pytest.mark.parametrize("more", [1, 2, 5])
async def test_an_older_copy_written_past_the_log_is_refused(path, options, more):
    async with captured(path, options=options) as capturing:
        insert(path, 1, 2)
        await capturing.changes_of(2)
        made = copy(path)
        insert(path, 3, 4)
        await capturing.changes_of(4)
    put_back(made, path)
    insert(path, *range(11, 11 + 1 + more))
    await refused(Captured(path, resumes=capturing), ANOTHER_HISTORY)


async def test_an_older_copy_in_which_the_last_change_is_the_same_is_refused(path):
    async with captured(path, options=LAZY) as capturing:
        insert(path, 1)
        await capturing.changes_of(1)
        made = copy(path)
        insert(path, 2, 3)
        await capturing.changes_of(3)
    put_back(made, path)
    insert(path, 12, 3, 4)
    await refused(Captured(path, resumes=capturing), ANOTHER_HISTORY)


async def test_a_copy_from_before_the_log_began_is_refused(path):
    async with captured(path, reader="first"):
        pass
    made = copy(path)
    async with captured(path) as capturing:
        insert(path, 1, 2)
        await capturing.changes_of(2)
    put_back(made, path)
    insert(path, 11, 12, 13)
    await refused(Captured(path, resumes=capturing), ANOTHER_HISTORY)


async def test_a_reader_that_was_forgotten_does_not_go_on(path):
    async with captured(path) as capturing:
        insert(path, 1)
        await capturing.changes_of(1)
    remove_reader(path, "log")
    await refused(Captured(path, resumes=capturing), ANOTHER_HISTORY)


@pytest.mark.parametrize("more", [0, 1, 5])
async def test_a_restore_through_the_backup_interface_is_refused_while_running(path, more):
    capturing = Captured(path, options=LAZY)
    await capturing.start()
    insert(path, 1)
    await capturing.changes_of(1)
    made = copy(path)
    insert(path, 2, 3)
    await capturing.changes_of(3)
    restore(made, path)
    insert(path, *range(11, 11 + more))
    with pytest.raises(SourceStateError, match=ANOTHER_HISTORY):
        await capturing.until(lambda: False)
    await capturing.source.close()
    await refused(Captured(path, resumes=capturing), "older copy")


def restore(made, path):
    """Do what `.restore` of SQLite's shell does."""
    source, target = apsw.Connection(str(made)), apsw.Connection(str(path))
    target.set_busy_timeout(60_000)
    with target.backup("main", source, "main") as backup:
        while not backup.done:
            backup.step(-1)
    source.close()
    target.close()


async def test_the_same_changes_made_again_are_the_same_history(path):
    async with captured(path) as capturing:
        insert(path, 1)
        await capturing.changes_of(1)
        made = copy(path)
        insert(path, 2, 3)
        await capturing.changes_of(3)
    put_back(made, path)
    insert(path, 2, 3, 4)
    async with captured(path, resumes=capturing) as again:
        await again.changes_of(1)
        assert [key for _, _, key, *_ in again.changes()] == [[4]]


async def test_a_log_that_is_an_older_copy_too_goes_on(path):
    async with captured(path, reader="slow"):
        pass  # keeps all changes in the database
    async with captured(path, options=LAZY) as capturing:
        insert(path, 1)
        await capturing.changes_of(1)
        early = capturing.after
        insert(path, 2, 3)
        await capturing.changes_of(3)
    run(path, "INSERT INTO t VALUES(4, 4)")
    again = Captured(path, after=early)
    again.replica.tables["t"] = {}
    await again.start()
    await again.changes_of(3)
    assert [key for _, _, key, *_ in again.changes()] == [[2], [3], [4]]
    await again.stop()


async def test_a_database_of_an_earlier_version_goes_on_and_is_then_told_from_its_copies(path):
    async with captured(path, options=QUICK) as capturing:
        insert(path, 1)
        await capturing.changes_of(1)
    run(path, "ALTER TABLE _tailrace_reader DROP COLUMN mark; UPDATE _tailrace_capture SET schema_version = 0")
    before = copy(path, "before.db")
    capturing.after = Position(capturing.after.partition(".")[0])
    insert(path, 2)
    async with captured(path, resumes=capturing, options=LAZY) as upgraded:
        await upgraded.until(lambda: "v2" in str(upgraded.changes()))
        made = copy(path)
        insert(path, 3)
        await upgraded.until(lambda: "v3" in str(upgraded.changes()))
    for older in (before, made):
        put_back(older, path)
        insert(path, 11, 12, 13, 14)
        await refused(Captured(path, resumes=upgraded), ANOTHER_HISTORY)


@pytest.mark.parametrize("seed", range(3))
async def test_stops_kills_and_copies_of_the_same_history_are_never_refused(path, database, seed):
    chance = random.Random(seed)
    resumes, number, columns = None, 0, 1
    for _ in range(12):
        options = chance.choice([QUICK, LAZY])
        async with captured(path, resumes=resumes, options=options) as capturing:
            for _ in range(chance.randrange(4)):
                number += 1
                run(path, f"INSERT INTO t(id, v) VALUES({number}, {number})")
                if chance.random() < 0.2:
                    columns += 1
                    run(path, f"ALTER TABLE t ADD COLUMN c{columns}")
                if chance.random() < 0.2:
                    run(path, "VACUUM")
            replica = apsw.Connection(str(path))
            replica.set_busy_timeout(60_000)
            await capturing.until(lambda: agrees(capturing, replica))  # noqa: B023 (awaited here)
            replica.close()
            made = copy(path)
        if chance.random() < 0.5:
            put_back(made, path)  # as it was before it was confirmed: what a kill or a power failure leaves
            run(path, f"PRAGMA journal_mode = {database}")
        if chance.random() < 0.5:
            number += 1
            run(path, f"UPDATE t SET v = -v; INSERT INTO t(id, v) VALUES({number}, 0)")
        resumes = capturing
    assert status(path).readers[0].name == "log"


async def replaced(capturing, match="was replaced by another file"):
    """Wait until a running capture says that its file is gone, and stop it."""
    with pytest.raises(SourceUnavailableError, match=match):
        await capturing.until(lambda: False)


@pytest.mark.parametrize("quietly", [True, False], ids=["nothing written since", "written since"])
async def test_a_copy_of_the_same_history_put_in_place_under_a_running_capture_goes_on(path, quietly):
    capturing = Captured(path)
    await capturing.start()
    insert(path, 1, 2)
    await capturing.changes_of(2)
    made = copy(path)
    if not quietly:
        insert(made, 3)
    made.replace(path)
    await replaced(capturing)
    await capturing.start()
    insert(path, 4)
    await capturing.changes_of(3 if quietly else 4)
    assert [key for _, _, key, *_ in capturing.changes()] == ([[1], [2], [4]] if quietly else [[1], [2], [3], [4]])
    assert run(path, "PRAGMA integrity_check") == [("ok",)]
    await capturing.stop()


@pytest.mark.parametrize("more", [0, 1, 5])
async def test_an_older_copy_put_in_place_under_a_running_capture_is_refused(path, more):
    capturing = Captured(path)
    await capturing.start()
    insert(path, 1)
    await capturing.changes_of(1)
    made = copy(path)
    insert(path, 2, 3)
    await capturing.changes_of(3)
    insert(made, *range(11, 11 + more))
    made.replace(path)
    await replaced(capturing)
    await refused(capturing, "older copy")
    assert run(path, "PRAGMA integrity_check") == [("ok",)]


async def test_a_file_that_was_deleted_is_waited_for_and_a_new_one_refused(path):
    capturing = Captured(path)
    await capturing.start()
    insert(path, 1)
    await capturing.changes_of(1)
    path.unlink()
    await replaced(capturing, "moved or deleted")
    with pytest.raises(SourceUnavailableError, match="restore it"):
        await capturing.source.open(capturing.registry)
    run(path, "CREATE TABLE t(id INTEGER PRIMARY KEY, v)")
    insert(path, 1, 2, 3)
    await refused(capturing, "another database.*tailrace log reset")


def test_a_write_ahead_log_that_belongs_to_the_old_file_is_refused_when_it_may_hold_changes_of_both(path, database):
    old = apsw.Connection(str(path))
    place = DatabaseFile(path, None)
    place.before_open()
    place.after_open()
    old.execute("INSERT INTO t VALUES(1, 1)")
    place.look(old, unwritten=False)
    made = copy(path)
    made.replace(path)
    with pytest.raises(SourceUnavailableError):
        place.look(old, unwritten=False)
    again = DatabaseFile(path, place.stale)
    if database == "wal":
        with pytest.raises(SourceStateError, match=r"remove app\.db-wal and app\.db-shm"):
            again.before_open()
        with pytest.raises(SourceUnavailableError):
            place.look(old, unwritten=True)  # all of it belongs to the old file
    again.before_open()
    old.close()


async def test_whoever_else_has_the_old_file_open_gets_the_new_one(path):
    async with captured(path) as capturing:
        insert(path, 1)
        await capturing.changes_of(1)
        made = copy(path)
    insert(made, 2)
    other = SqliteKeyValueStore(made, Reader("log"), SystemClock())
    await other.put([Entry(b"k", b"v")])
    await other.close()
    queries = SqliteQuerySource(path, Reader("log"))
    values = SqliteKeyValueStore(path, Reader("log"), SystemClock())
    assert await queries.count(TableName("app", "t")) == 1
    assert await values.get([b"k"], 100) == [None]
    made.replace(path)
    assert await queries.count(TableName("app", "t")) == 2
    assert await values.get([b"k"], 100) == [b"v"]
    await queries.close()
    await values.close()
