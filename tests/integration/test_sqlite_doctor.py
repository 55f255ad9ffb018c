"""What `tailrace capture doctor` finds in SQLite databases."""

import json
from pathlib import Path

import apsw
import pytest
from click.testing import CliRunner

from tailrace.cli.capture import capture
from tailrace.source.administration import Severity
from tailrace.source.sqlite import doctor, set_up
from tailrace.source.sqlite.doctor import examine, file_system_of
from tailrace.source.sqlite.options import SqliteOptions

QUICK = SqliteOptions(busy_timeout_ms=50)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "app.db"


@pytest.fixture
def database(path):
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA journal_mode = wal; CREATE TABLE item(id INTEGER PRIMARY KEY)").fetchall()
    yield connection
    connection.close()


def findings(path, options=QUICK):
    return {finding.check: finding for finding in examine(path, options)}


def severities(path):
    return {check: finding.severity for check, finding in findings(path).items()}


def test_nothing_is_wrong_with_a_local_database_in_wal_mode(database, path, monkeypatch):
    monkeypatch.setattr(doctor, "_FREE_BYTES_LOW", 0)
    assert set(severities(path).values()) == {Severity.OK}
    assert "not set up" in findings(path)["capture"].message


def test_looking_changes_nothing(database, path):
    schema = database.execute("SELECT * FROM sqlite_schema").fetchall()
    before = database.pragma("data_version")
    examine(path, QUICK)
    assert database.execute("SELECT * FROM sqlite_schema").fetchall() == schema
    assert database.pragma("data_version") == before


def test_a_database_that_is_not_there_is_the_only_finding(path):
    (finding,) = examine(path, QUICK)
    assert (finding.check, finding.severity) == ("access", Severity.PROBLEM)
    assert "does not exist" in finding.message


def test_a_file_that_is_no_database_is_a_problem(path):
    path.write_bytes(b"no database " * 100)
    assert severities(path)["access"] is Severity.PROBLEM


def test_another_journal_mode_is_a_risk(database, path):
    database.pragma("journal_mode", "delete")
    finding = findings(path)["journal mode"]
    assert finding.severity is Severity.WARNING
    assert "PRAGMA journal_mode = wal" in finding.remedy


def test_a_writer_that_does_not_commit_is_a_risk(database, path):
    database.execute("BEGIN IMMEDIATE")
    assert findings(path)["lock"].severity is Severity.WARNING
    assert "busy_timeout" in findings(path)["lock"].remedy


def test_a_writer_that_locks_readers_out_is_a_problem(database, path):
    database.pragma("journal_mode", "delete")
    database.execute("BEGIN EXCLUSIVE")
    assert findings(path)["lock"].severity is Severity.PROBLEM


def test_tables_without_a_key_are_named(database, path):
    database.execute("CREATE TABLE note(text)").fetchall()
    finding = findings(path)["keys"]
    assert finding.severity is Severity.WARNING
    assert finding.message.endswith(": note")


@pytest.mark.parametrize(("free", "severity"), [("_FREE_BYTES_LOW", "warning"), ("_FREE_BYTES_LEAST", "problem")])
def test_a_disk_that_is_nearly_full_is_told(database, path, monkeypatch, free, severity):
    monkeypatch.setattr(doctor, "_FREE_BYTES_LOW", 1 << 62)
    monkeypatch.setattr(doctor, free, 1 << 62)
    assert findings(path)["disk"].severity == severity


def test_a_reader_that_nobody_reads_for_keeps_changes(database, path):
    set_up(path)
    database.execute("INSERT INTO _tailrace_reader(name, confirmed, seen) VALUES('old', 0, 1)").fetchall()
    finding = findings(path)["reader"]
    assert finding.severity is Severity.WARNING
    assert finding.remedy.endswith("tailrace capture remove URL --reader old")


def test_capture_of_another_format_is_a_problem(database, path):
    set_up(path)
    database.execute("UPDATE _tailrace_capture SET format = 99").fetchall()
    assert findings(path)["capture"].severity is Severity.PROBLEM


MOUNTS = """\
/dev/sda1 / ext4 rw 0 0
server:/data /srv nfs4 rw 0 0
tmpfs /srv/my\\040disk tmpfs rw 0 0
overlay /over ext4 rw 0 0
overlay /over overlay rw 0 0
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/home/app.db", "ext4"),
        ("/srv/app.db", "nfs4"),
        ("/srv/my disk/app.db", "tmpfs"),
        ("/srvx/app.db", "ext4"),
        ("/over/app.db", "overlay"),
    ],
)
def test_the_file_system_is_that_of_the_deepest_mount(path, kind):
    assert file_system_of(Path(path), MOUNTS) == kind


def test_a_network_file_system_is_a_problem(database, path, monkeypatch, tmp_path):
    mounts = tmp_path / "mounts"
    mounts.write_text("server:/data / nfs4 rw 0 0\n")
    monkeypatch.setattr(doctor, "_MOUNTS", mounts)
    assert findings(path)["file system"].severity is Severity.PROBLEM


def test_the_command_exits_with_1_on_a_problem_and_prints_what_to_do(database, path):
    def run(*arguments):
        return CliRunner().invoke(capture, ["doctor", *arguments], catch_exceptions=False)

    found = run(f"sqlite:///{path}", "--option", "busy_timeout=0.05s")
    assert found.exit_code == 0
    assert "ok       journal mode: wal" in found.output
    missing = run(f"sqlite:///{path}x", "--json")
    assert missing.exit_code == 1
    (finding,) = json.loads(missing.output)["findings"]
    assert (finding["check"], finding["severity"]) == ("access", "problem")
    assert finding["remedy"]
