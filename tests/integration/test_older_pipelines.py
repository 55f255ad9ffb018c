"""Facts about taking an older version's file of pipelines over: nothing is lost wherever a process is killed."""

import contextlib
import signal
import sqlite3
import subprocess
import sys

import pytest

from older import Older
from tailrace.clock import SystemClock
from tailrace.datadir import DataDirectory
from tailrace.meta import older_pipelines
from tailrace.meta.database import Database
from tailrace.meta.dead_letter_store import DeadLetterStore
from tailrace.meta.pipeline import Definition
from tailrace.meta.sink_store import SinkStore
from tailrace.model.errors import MetadataError
from tailrace.pipeline.store import PipelineStore

OPENER = """
import os, signal, sys
from pathlib import Path
from tailrace.clock import SystemClock
from tailrace.datadir import DataDirectory
from tailrace.meta import older_pipelines
from tailrace.meta.database import Database

name, left = sys.argv[2], int(sys.argv[3])
real = getattr(older_pipelines, name or "_copy")

def kill():
    os.kill(os.getpid(), signal.SIGKILL)

def call(*arguments):
    global left
    left -= 1
    if left == 0:
        kill()
    made = real(*arguments)
    if left == -1:
        kill()
    return made

if name:
    setattr(older_pipelines, name, call)
url, older = DataDirectory(Path(sys.argv[1])).metadata_at("")
Database.open(url, SystemClock(), older).close()
"""
"""Opens the database, and is killed as it calls a function the n-th time; 0 for after the first call."""


@pytest.fixture
def data(tmp_path):
    return DataDirectory(Older(tmp_path).data)


def opened(data):
    url, older = data.metadata_at("")
    return Database.open(url, SystemClock(), older)


def contents(data):
    """Return what is known of pipelines, sinks and dead letters."""
    database = opened(data)
    pipelines, letters = PipelineStore(database), DeadLetterStore(database)
    found = {
        "pipelines": {one.definition.name: pipelines.progress(one.definition.name) for one in pipelines.all()},
        "sinks": [one.name for one in SinkStore(database).all()],
        "letters": [(one.id, one.sink, one.message_id, one.change.op) for one in letters.parked()],
    }
    database.close()
    return found


def make_older(file, name):
    """Make a file of one pipeline as an older version did: without versions of its tables."""
    store = PipelineStore.open(f"sqlite:///{file}", SystemClock())
    store.create(Definition(name=name, source="shop", tables=("orders",), sink="console:"))
    store.close()
    with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as database:
        database.execute("DROP TABLE tailrace_migration")


def check(data):
    found = contents(data)
    assert {name: len(ranges) for name, ranges in found["pipelines"].items()} == {"copy": 2, "told": 1}
    assert found["sinks"] == ["hook"]
    assert [(number, sink) for number, sink, *_ in found["letters"]] == [(1, "hook"), (2, "hook"), (3, "pipeline/told")]
    assert not data.older_pipelines.exists()
    assert [path.name for path in data.pipelines.glob("pipelines.db*")] == ["pipelines.db.taken-over"]
    with contextlib.closing(sqlite3.connect(data.metadata)) as database:
        assert database.execute("SELECT * FROM tailrace_taken_over").fetchall() == []
    assert contents(data) == found, "once more changes nothing"


def test_all_of_it_is_there_afterwards(data):
    check(data)


def opening(data, name="", calls=0):
    """Start a process that opens the database; see `OPENER`."""
    return subprocess.Popen([sys.executable, "-c", OPENER, str(data.path), name, str(calls)])


POINTS = [
    *(("_rows", number) for number in range(1, 6)),
    ("_renumber", 1),
    ("_finish", 1),
    ("_set_aside", 1),
    ("_set_aside", 0),
    ("_copy", 0),
]
"""Functions, and before which of their calls the process is killed; 0 for after the first."""


@pytest.mark.parametrize(("name", "calls"), POINTS, ids=[f"{name}-{calls}" for name, calls in POINTS])
def test_a_kill_loses_nothing_and_doubles_nothing(data, name, calls):
    assert opening(data, name, calls).wait(60) == -signal.SIGKILL
    check(data)


def test_several_processes_take_it_over_once(data):
    processes = [opening(data) for _ in range(4)]
    assert [process.wait(60) for process in processes] == [0] * 4
    check(data)


def test_a_process_of_the_older_version_is_not_cut_off(data, monkeypatch):
    monkeypatch.setattr(older_pipelines, "_BUSY_S", 0.1)
    with contextlib.closing(sqlite3.connect(data.older_pipelines)) as worker:
        worker.execute("SELECT * FROM tailrace_pipeline").fetchall()
        with pytest.raises(MetadataError, match="stop the workers and servers of the older version"):
            opened(data)
        worker.execute("UPDATE tailrace_pipeline SET owner = 'late'")
        worker.commit()
    check(data)
    database = opened(data)
    assert {one.owner for one in PipelineStore(database).all()} == {"late"}
    database.close()


def test_a_file_that_an_older_version_made_anew_is_taken_over_too(data):
    before = contents(data)
    make_older(data.older_pipelines, "new")
    assert set(contents(data)["pipelines"]) == {*before["pipelines"], "new"}
    assert len(list(data.pipelines.glob("pipelines.db.taken-over*"))) == 2


def test_a_pipeline_that_both_have_is_named_as_the_problem_and_nothing_changes(data):
    contents(data)
    make_older(data.older_pipelines, "copy")
    with pytest.raises(MetadataError, match="that the metadata database has, too"):
        opened(data)
    assert data.older_pipelines.exists()


def test_a_damaged_file_is_named(data):
    data.older_pipelines.write_bytes(b"no database" * 500)
    with pytest.raises(MetadataError, match=r"pipelines\.db cannot be taken over .* no SQLite database"):
        opened(data)


def test_a_whole_metadata_database_that_a_url_names_stays_where_it_is(data):
    contents(data)
    named = PipelineStore.open(f"sqlite:///{data.older_pipelines}", SystemClock())
    named.create(Definition(name="mine", source="shop", tables=("orders",), sink="console:"))
    assert set(contents(data)["pipelines"]) == {"copy", "told"}
    assert [one.definition.name for one in named.all()] == ["mine"]
    named.close()
    assert data.older_pipelines.exists()
