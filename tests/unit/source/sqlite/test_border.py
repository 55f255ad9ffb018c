"""Following the write-ahead log of a real database through the moments in which SQLite starts it anew."""

import apsw
import pytest

from tailrace.source.sqlite import border, hold
from tailrace.source.sqlite.border import BorderFinder
from tailrace.testing.clock import FakeClock


@pytest.fixture
def database(tmp_path):
    connection = apsw.Connection(str(tmp_path / "app.db"))
    connection.pragma("journal_mode", "wal")
    connection.execute("CREATE TABLE c(id INTEGER PRIMARY KEY, v)")
    yield connection
    connection.close()


def insert(database, number):
    database.execute("INSERT INTO c VALUES(?, 0)", (number,))


@pytest.fixture
def finder(tmp_path, database):
    """Follows a log of which all was copied, held so that it can be started anew once; calls `hooks` at each look."""
    path = tmp_path / "app.db"
    holder, look = (apsw.Connection(str(path)) for _ in range(2))
    look.execute("SELECT 1 FROM sqlite_schema").fetchall()  # it knows the log from here on

    def visible():
        frames = look.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_NOOP)[0]
        if made.hooks:
            made.hooks.pop(0)()
        return frames

    root = database.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'c'").get
    made = BorderFinder(path, visible, lambda _: root)
    made.hooks = []
    insert(database, 1)
    database.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
    holder.execute("BEGIN; SELECT 1 FROM sqlite_schema").fetchall()
    made.begin((root,), 1, int(database.pragma("schema_version")))
    made.hold()
    yield made
    made.close()
    holder.close()
    look.close()


def test_a_log_that_goes_on_is_followed_and_its_place_is_the_same_object_until_then(finder, database):
    assert finder.borders(1) == []
    place = finder.place
    finder.follow()
    assert finder.place is place
    for number in (2, 3):
        insert(database, number)
    finder.follow()
    assert finder.place.newest == 3
    assert finder.place.schema_version == int(database.pragma("schema_version"))
    assert finder.take(2) == [2]
    assert finder.take(3) == [3]


def test_the_place_tells_that_the_schema_has_changed(finder, database):
    before = finder.place.schema_version
    database.execute("CREATE TABLE other(id)")
    finder.follow()
    assert finder.place.schema_version == before + 1 == int(database.pragma("schema_version"))


@pytest.mark.parametrize("looks", [1, 2])
def test_a_log_that_is_started_anew_during_a_look_is_followed_all_the_same(finder, database, looks):
    finder.hooks = [lambda: None] * (looks - 1) + [lambda: insert(database, 2)]
    header = finder.place.header
    for _ in range(looks):
        finder.follow()
    assert finder.place.header != header, "the log was not started anew"
    insert(database, 3)
    assert finder.borders(3) == [2, 3]


def test_a_log_that_is_started_anew_after_the_look_is_followed_by_the_next_look(finder, database, monkeypatch):
    runs, header = border.runs, finder.place.header

    def write_then_run(*arguments):
        insert(database, 2)  # everything was looked at, but for the header once more
        return runs(*arguments)

    monkeypatch.setattr(finder, "_follow_on", lambda _place, _found: None)
    monkeypatch.setattr(border, "runs", write_then_run)
    assert finder.borders(2) == []
    assert not finder.lost
    monkeypatch.undo()
    insert(database, 3)
    assert finder.borders(3) == [2, 3]
    assert finder.place.header != header, "the log was not started anew"


def test_a_log_that_was_removed_is_lost(finder, database, tmp_path):
    (tmp_path / "app.db-wal").unlink()
    insert(database, 2)
    finder.follow()
    assert finder.lost


class BusyConnection:
    """Is in the middle of making a commit visible at the first looks."""

    def __init__(self, busy):
        self.busy = busy

    def wal_checkpoint(self, mode):
        assert mode == apsw.SQLITE_CHECKPOINT_NOOP
        if self.busy > 0:
            self.busy -= 1
            raise apsw.BusyError
        return 7, 5


def test_a_look_at_a_log_that_is_just_being_written_is_tried_again():
    assert hold._glance(BusyConnection(3), FakeClock()) == (7, 5)
