"""Waking by writes to the files of a database."""

import sys
import threading

import pytest

from tailrace.source.sqlite.watch import FileWatch

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="inotify is Linux's")

SOON_S, LONG_S = 0.0, 30.0


@pytest.fixture
def database(tmp_path):
    (tmp_path / "copy").write_bytes(b"another one")
    path = tmp_path / "app" / "app.db"
    path.parent.mkdir()
    path.write_bytes(b"database")
    wal(path).write_bytes(b"log")
    return path


@pytest.fixture
def watch(database):
    made = FileWatch(database)
    yield made
    made.close()


def wal(database):
    return database.with_name(f"{database.name}-wal")


def append(path):
    with path.open("ab") as file:
        file.write(b"more")


TOUCHES = {
    "the log is written": lambda database: append(wal(database)),
    "the log is made anew": lambda database: (wal(database).unlink(), append(wal(database))),
    "the database is replaced": lambda database: (database.parent.parent / "copy").rename(database),
    "the database is removed": lambda database: database.unlink(),
}


@pytest.mark.parametrize("touch", TOUCHES.values(), ids=TOUCHES)
@pytest.mark.parametrize("wal_alone", [True, False])
def test_it_is_woken_when(database, watch, touch, wal_alone):
    watch.arm(wal_alone=wal_alone)
    assert not watch.wait(SOON_S)
    touch(database)
    assert watch.wait(LONG_S)


def test_a_write_to_the_database_itself_wakes_only_where_there_is_no_log(database, watch):
    watch.arm(wal_alone=True)
    append(database)
    assert not watch.wait(SOON_S)
    watch.arm(wal_alone=False)
    append(database)
    assert watch.wait(LONG_S)


def test_what_was_written_before_it_was_armed_does_not_wake(database, watch):
    watch.arm(wal_alone=True)
    append(wal(database))
    watch.arm(wal_alone=True)
    assert not watch.wait(SOON_S)


def test_a_writer_raises_one_event_until_it_is_armed_again(database, watch):
    watch.arm(wal_alone=True)
    for _ in range(3):
        append(wal(database))
    assert watch.wait(LONG_S)
    append(wal(database))
    assert not watch.wait(SOON_S)
    watch.arm(wal_alone=True)
    append(wal(database))
    assert watch.wait(LONG_S)


def test_each_of_many_writes_wakes_after_it_was_armed_again(database, watch):
    for _ in range(100):
        watch.arm(wal_alone=True)
        append(wal(database))
        assert watch.wait(LONG_S)


def test_a_lasting_watch_wakes_again_without_being_armed(database, watch):
    watch.arm(wal_alone=True, lasting=True)
    assert watch.lasts
    assert not watch.wait(SOON_S)
    for _ in range(3):
        append(wal(database))
        assert watch.wait(LONG_S)
        assert not watch.wait(SOON_S), "what was written before is taken note of once"
    assert watch.lasts


def test_a_lasting_watch_becomes_one_shot_and_lasting_again(database, watch):
    watch.arm(wal_alone=True, lasting=True)
    watch.arm(wal_alone=True)
    assert not watch.lasts
    append(wal(database))
    assert watch.wait(LONG_S)
    append(wal(database))
    assert not watch.wait(SOON_S)
    watch.arm(wal_alone=True, lasting=True)
    for _ in range(2):
        append(wal(database))
        assert watch.wait(LONG_S)
    assert watch.lasts


def test_a_lasting_watch_ends_with_its_file(database, watch):
    watch.arm(wal_alone=True, lasting=True)
    wal(database).unlink()
    append(wal(database))
    assert watch.wait(LONG_S)
    assert not watch.lasts
    watch.arm(wal_alone=True, lasting=True)
    append(wal(database))
    assert watch.wait(LONG_S)
    assert watch.lasts


def test_a_log_that_appears_wakes_and_is_watched_from_then_on(tmp_path):
    database = tmp_path / "app.db"
    database.write_bytes(b"database")
    watch = FileWatch(database)
    watch.arm(wal_alone=True)
    append(wal(database))
    assert watch.wait(LONG_S)
    watch.arm(wal_alone=True)
    append(wal(database))
    assert watch.wait(LONG_S)
    watch.close()


def test_a_log_that_was_made_anew_is_watched_in_place_of_the_old_one(database, watch):
    watch.arm(wal_alone=True)
    wal(database).unlink()
    append(wal(database))
    assert watch.wait(LONG_S)
    watch.arm(wal_alone=True)
    watch.wait(SOON_S)  # what the kernel says at last about the old one
    watch.arm(wal_alone=True)
    append(wal(database))
    assert watch.wait(LONG_S)


def test_other_files_in_the_directory_do_not_count(database, watch, monkeypatch):
    pauses = []
    monkeypatch.setattr("tailrace.source.sqlite.watch.time.sleep", pauses.append)
    watch.arm(wal_alone=True)
    database.with_name("unrelated").write_bytes(b"x")
    assert not watch.wait(LONG_S), "it ends early, and says that nothing was written"
    assert pauses == [0.001], "but not at once: many files may come and go"
    watch.arm(wal_alone=True)
    append(wal(database))
    assert watch.wait(LONG_S)


def test_another_thread_wakes_it(watch):
    watch.arm(wal_alone=True)
    thread = threading.Thread(target=watch.wake)
    thread.start()
    assert watch.wait(LONG_S)
    thread.join()
