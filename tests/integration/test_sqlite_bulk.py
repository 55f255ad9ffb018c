"""Bulk loads of an SQLite database, by any writer and by the command."""

import io

import pytest

from sqlite_capture import ApswWriter, StdlibWriter, captured
from tailrace.cli.group import tailrace as command
from tailrace.model.errors import InvalidRequestError, SourceStateError
from tailrace.source.sqlite import exec_bulk, set_up

T = "CREATE TABLE t(id INTEGER PRIMARY KEY, v)"
MARK = "INSERT INTO _tailrace_change(h, c0) VALUES(0, '{}')"


@pytest.fixture
def path(tmp_path):
    return tmp_path / "app.db"


@pytest.fixture(params=[ApswWriter, StdlibWriter], ids=["our library", "another library"])
def writer(request, path):
    made = request.param(path)
    made.run("PRAGMA journal_mode = wal")
    made.run(T)
    yield made
    made.close()


def loads(capturing):
    return [(draft.migration, [key.decode() for key in draft.keys]) for draft in capturing.drafts]


async def test_a_transaction_says_that_it_moves_data(path, writer):
    async with captured(path) as capturing:
        writer.run("INSERT INTO t VALUES(1, 1)")
        await capturing.changes_of(1)
        writer.run(f"BEGIN; {MARK.format('migration')}; INSERT INTO t VALUES(2, 2), (3, 3); COMMIT")
        await capturing.changes_of(3)
        writer.run("INSERT INTO t VALUES(4, 4)")
        await capturing.changes_of(4)
        assert loads(capturing) == [(False, ["[1]"]), (True, ["[2]", "[3]"]), (False, ["[4]"])]


async def test_marked_transactions_of_a_backlog_are_told_from_others_by_both_marks(path, writer):
    set_up(path)
    async with captured(path) as first:
        pass
    writer.run("INSERT INTO t VALUES(1, 1)")
    writer.run(f"BEGIN; {MARK.format('migration')}; INSERT INTO t VALUES(2, 2); {MARK.format('migration end')}; COMMIT")
    writer.run("INSERT INTO t VALUES(3, 3)")
    async with captured(path, resumes=first) as capturing:
        await capturing.changes_of(3)
        assert loads(capturing) == [(False, ["[1]"]), (True, ["[2]"]), (False, ["[3]"])]


async def test_the_command_runs_a_bulk_load_with_the_tables_that_it_makes(path, writer):
    async with captured(path) as capturing:
        exec_bulk(path, "INSERT INTO t VALUES(1, 1); CREATE TABLE more AS SELECT 5 AS x; INSERT INTO t VALUES(2, 2)")
        changes = await capturing.changes_of(4)
        writer.run("INSERT INTO more VALUES(6)")
        await capturing.changes_of(5)
        assert [change[:2] for change in changes] == [
            ("insert", "t"),
            ("insert", "t"),
            ("schema", "more"),
            ("insert", "more"),
        ]
        assert [draft.migration for draft in capturing.drafts] == [True, False]


@pytest.mark.parametrize(
    "sql",
    ["INSERT INTO t VALUES(1, 1); COMMIT", "INSERT INTO nothing VALUES(1)", "INSERT INTO t VALUES(1, 1), (1, 2)"],
    ids=["ends the transaction", "no such table", "breaks a constraint"],
)
def test_a_bulk_load_that_sqlite_refuses_does_nothing(path, writer, sql):
    set_up(path)
    before = writer.run("SELECT count(*) FROM _tailrace_change")
    with pytest.raises(InvalidRequestError, match="SQLite refuses"):
        exec_bulk(path, sql)
    assert writer.run("SELECT count(*) FROM _tailrace_change") == before
    assert writer.run("SELECT count(*) FROM t") == [(0,)]


def test_a_bulk_load_without_capture_says_so(path, writer):
    with pytest.raises(SourceStateError, match="not set up"):
        exec_bulk(path, "INSERT INTO t VALUES(1, 1)")


def test_the_command_line_takes_a_bulk_load_from_standard_input(path, writer, monkeypatch, capsys):
    set_up(path)
    monkeypatch.setattr("sys.stdin", io.StringIO("INSERT INTO t VALUES(7, 7)"))
    command.main(["capture", "exec", f"sqlite:///{path}", "-", "--bulk"], standalone_mode=False)
    assert capsys.readouterr().out == "done\n"
    assert writer.run("SELECT id FROM t") == [(7,)]
