"""The quick look after a write against the full one: what it takes from the write-ahead log, and what it leaves."""

import pytest

from tailrace.clock import SystemClock
from tailrace.model.errors import SourceUnavailableError
from tailrace.source.base import Reader
from tailrace.source.sqlite import SqliteOptions
from tailrace.source.sqlite.reader import ChangeReader
from tests.sqlite_capture import StdlibWriter

LIMIT = 64


@pytest.fixture
def writer(tmp_path):
    made = StdlibWriter(tmp_path / "app.db")
    made.run("PRAGMA journal_mode = wal; CREATE TABLE t(id INTEGER PRIMARY KEY, v)")
    yield made
    made.kill()


@pytest.fixture
def reader(tmp_path, writer):
    made = ChangeReader(tmp_path / "app.db", Reader("log"), SqliteOptions(), SystemClock())
    made.open()
    made.start(None)
    made.look()
    yield made
    made.close()


def number(seen):
    return seen.borders[-1].number


def insert(writer, *keys):
    writer.run("BEGIN; " + "; ".join(f"INSERT INTO t VALUES({key}, 'x')" for key in keys) + "; COMMIT")


def newest(reader):
    return reader.history.number


def test_it_brings_the_rows_and_the_borders_of_what_was_committed(reader, writer):
    after = newest(reader)
    insert(writer, 1)
    insert(writer, 2, 3)
    seen = reader.look_after_write(after, LIMIT)
    assert [border.number for border in seen.borders] == [after + 1, after + 3]
    assert seen.rows == reader.read(after, after + 3, LIMIT)
    assert reader.look_after_write(after + 3, LIMIT) is None
    assert reader.look() is None, "and so does the full look know that all was seen"


def test_it_brings_no_more_rows_than_asked_for(reader, writer):
    after = newest(reader)
    insert(writer, 1, 2, 3)
    seen = reader.look_after_write(after, 2)
    assert number(seen) == after + 3
    assert [row[0] for row in seen.rows] == [after + 1, after + 2]


def test_rows_that_were_committed_after_it_followed_the_log_come_with_the_next_look(reader, writer, monkeypatch):
    after = newest(reader)
    follow = reader._hold.follow

    def follow_then_write():
        place = follow()
        insert(writer, 2)
        return place

    insert(writer, 1)
    with monkeypatch.context() as patched:
        patched.setattr(reader._hold, "follow", follow_then_write)
        seen = reader.look_after_write(after, LIMIT)
    assert number(seen) == after + 1
    assert [row[0] for row in seen.rows] == [after + 1]
    assert number(reader.look()) == after + 2


def test_a_schema_that_changed_after_it_followed_the_log_is_noticed_by_the_next_full_look(reader, writer, monkeypatch):
    after, fits = newest(reader), reader.fits
    follow = reader._hold.follow

    def follow_then_write():
        place = follow()
        writer.run("CREATE TABLE other(id INTEGER PRIMARY KEY)")
        return place

    insert(writer, 1)
    with monkeypatch.context() as patched:
        patched.setattr(reader._hold, "follow", follow_then_write)
        assert number(reader.look_after_write(after, LIMIT)) == after + 1
    assert reader.look() is not None
    assert reader.fits == fits + 1


def test_a_write_of_something_else_is_seen_without_rows(reader, writer):
    writer.run("CREATE TABLE _tailrace_unrelated(id)")  # not captured, but another schema
    after = number(reader.look_after_write(newest(reader), LIMIT))
    writer.run("INSERT INTO _tailrace_unrelated VALUES(1)")
    seen = reader.look_after_write(after, LIMIT)
    assert (number(seen), seen.rows) == (after, [])
    assert reader.look_after_write(after, LIMIT) is None


def test_a_change_of_the_schema_is_left_to_the_full_look(reader, writer):
    fits = reader.fits
    writer.run("CREATE TABLE other(id INTEGER PRIMARY KEY)")
    seen = reader.look_after_write(newest(reader), LIMIT)
    assert seen.rows == []
    assert reader.fits == fits + 1


def test_text_that_is_none_is_left_to_the_full_look(reader, writer):
    after = newest(reader)
    writer.run("INSERT INTO t VALUES(1, CAST(x'ff' AS TEXT))")
    seen = reader.look_after_write(after, LIMIT)
    assert (number(seen), seen.rows) == (after + 1, [])
    assert len(reader.read(after, after + 1, LIMIT)) == 1


def test_a_reader_of_another_history_is_compared_as_in_a_full_look(reader, writer, monkeypatch):
    after = newest(reader)
    recognised = []
    monkeypatch.setattr(reader, "_recognise", recognised.append)
    writer.run("UPDATE _tailrace_reader SET mark = '0123456789abcdef'")
    insert(writer, 1)
    assert number(reader.look_after_write(after, LIMIT)) == after + 1
    assert recognised


def test_a_file_in_the_place_of_the_other_is_noticed(tmp_path, reader, writer):
    insert(writer, 1)
    (tmp_path / "app.db").rename(tmp_path / "old.db")
    (tmp_path / "app.db").write_bytes(b"")
    with pytest.raises(SourceUnavailableError):
        reader.look_after_write(newest(reader), LIMIT)
