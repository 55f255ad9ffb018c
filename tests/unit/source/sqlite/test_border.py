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


def test_a_log_that_is_started_anew_after_the_look_is_followed_by_the_next_look(tmp_path, database, monkeypatch):
    path = tmp_path / "app.db"
    holder, look = (apsw.Connection(str(path)) for _ in range(2))
    look.execute("SELECT 1 FROM sqlite_schema").fetchall()  # it knows the log from here on
    finder = BorderFinder(path, lambda: look.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_NOOP)[0], lambda _: None)
    insert(database, 1)
    database.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
    holder.execute("BEGIN; SELECT 1 FROM sqlite_schema").fetchall()  # all was copied: the log can be started anew once
    root = database.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'c'").get
    finder.begin((root,), 1, int(database.pragma("schema_version")))
    finder.hold()
    assert finder.borders(1) == []
    parse = border.parse_header
    parsed = []

    def parse_then_write(data):
        parsed.append(parse(data))
        if len(parsed) == 2:  # the log was looked at: now a writer starts it anew
            insert(database, 2)
        return parsed[-1]

    monkeypatch.setattr(border, "parse_header", parse_then_write)
    assert finder.borders(2) == []
    assert parsed[2] != parsed[1], "the log was not started anew"
    assert not finder.lost
    insert(database, 3)
    assert finder.borders(3) == [2, 3]
    finder.close()


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
