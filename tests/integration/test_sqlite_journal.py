"""Without WAL, where readers lock writers out: capture keeps out of the way, and says so."""

import os

import pytest
from click.testing import CliRunner

from sqlite_capture import StdlibWriter, captured
from tailrace.cli.capture import capture
from tailrace.source.sqlite import SqliteOptions
from tailrace.source.sqlite.journal import RollbackJournal
from tailrace.testing.clock import FakeClock

MAGIC = bytes.fromhex("d9d505f920a163d7")
LONG_AGO_S = 100


@pytest.fixture
def path(tmp_path):
    return tmp_path / "app.db"


@pytest.fixture
def writer(path):
    made = StdlibWriter(path)
    made.run("CREATE TABLE t(id INTEGER PRIMARY KEY, v)")
    yield made
    made.close()


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def journal(path, clock):
    """Return the journal of a database that was written long ago."""
    path.write_bytes(b"")
    touch(path, clock, age_s=LONG_AGO_S)
    return RollbackJournal(path, clock)


def touch(path, clock, age_s):
    time_ns = clock.now_us() * 1000 - round(age_s * 1e9)
    os.utime(path, ns=(time_ns, time_ns))


def test_a_file_that_was_not_written_is_looked_at_once_and_then_once_a_second(journal, clock):
    looks = []
    for _ in range(40):
        looks.append(journal.may_look())
        clock.advance(0.1)
    assert looks[0]
    assert looks.count(True) == 4


def test_a_write_is_looked_at(path, journal, clock):
    assert journal.may_look()
    clock.advance(0.1)
    touch(path, clock, age_s=0.05)
    assert journal.may_look()
    assert not journal.may_look()


def test_a_write_that_is_just_over_does_not_hide_one_of_the_same_moment(path, journal, clock):
    touch(path, clock, age_s=0.001)
    assert journal.may_look()
    clock.advance(0.003)
    assert journal.may_look()


@pytest.mark.parametrize(
    ("content", "writing"), [(MAGIC + bytes(20), True), (b"", False), (bytes(28), False)], ids=["hot", "cut", "zeroed"]
)
def test_nobody_looks_while_the_journal_shows_a_transaction_unless_that_lasts(path, journal, clock, content, writing):
    assert journal.may_look()
    path.with_name("app.db-journal").write_bytes(content)
    clock.advance(0.1)
    touch(path, clock, age_s=0.05)
    assert journal.writing() == writing
    assert journal.may_look() != writing
    clock.advance(0.2)
    touch(path, clock, age_s=0.05)
    assert journal.may_look()


def test_changes_are_removed_when_nobody_has_written_for_a_while(path, journal, clock):
    assert journal.rests(1.0)
    touch(path, clock, age_s=0.5)
    assert not journal.rests(1.0)
    path.with_name("app.db-journal").write_bytes(MAGIC)
    assert not journal.rests(0.0)


def test_with_a_write_ahead_log_nothing_has_to_wait(path, journal):
    path.with_name("app.db-wal").write_bytes(b"")
    path.with_name("app.db-journal").write_bytes(MAGIC)
    assert [journal.may_look() for _ in range(3)] == [True] * 3
    assert journal.rests(1000.0)


@pytest.mark.parametrize("mode", ["delete", "truncate", "persist", "memory"])
async def test_all_changes_arrive_in_every_journal_mode(path, writer, mode, caplog):
    writer.run(f"PRAGMA journal_mode = {mode}")
    async with captured(path) as capturing:
        assert "not in WAL mode" in caplog.text
        for number in range(40):
            writer.run(f"INSERT INTO t VALUES({number}, 0)")
        changes = await capturing.changes_of(40)
        assert [change[2] for change in changes] == [[number] for number in range(40)]


async def test_without_wal_changes_stay_while_writers_are_about_and_go_when_they_rest(path, writer):
    options = SqliteOptions(trim_interval_s=0.001, trim_rest_s=1000)
    async with captured(path, options=options) as first:
        for number in range(20):
            writer.run(f"INSERT INTO t VALUES({number}, 0)")
            await first.changes_of(number + 1)
        ((count,),) = writer.run("SELECT count(*) FROM _tailrace_change")
        assert count > 20
    options = SqliteOptions(trim_interval_s=0.001, trim_rest_s=0.001)
    async with captured(path, resumes=first, options=options) as second:
        writer.run("INSERT INTO t VALUES(100, 0)")
        await second.changes_of(1)
        await second.until(lambda: writer.run("SELECT count(*) FROM _tailrace_change") == [(1,)])


async def test_wal_mode_gives_no_warning(path, writer, caplog):
    writer.run("PRAGMA journal_mode = wal")
    async with captured(path):
        assert "WAL" not in caplog.text
    answer = CliRunner().invoke(capture, ["setup", f"sqlite:///{path}"])
    assert "journal mode" not in answer.output
    assert "busy timeout" in answer.output


def test_setup_says_what_applications_must_know(path, writer):
    answer = CliRunner().invoke(capture, ["setup", f"sqlite:///{path}"])
    assert answer.exit_code == 0
    assert f"tailrace capture exec sqlite:///{path} 'ALTER TABLE …'" in answer.output
    assert "busy timeout" in answer.output
    assert "PRAGMA journal_mode = wal" in answer.output
    assert "journal mode: delete" in CliRunner().invoke(capture, ["status", f"sqlite:///{path}"]).output
