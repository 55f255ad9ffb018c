"""Several workers for one pipeline: one works, the others wait; one that is dead or held up is taken over."""

import contextlib
import os
import signal
import sqlite3

import pytest
from deltalake import DeltaTable

from killing import START_S, TABLES, Place
from serving import wait_until

pytest.importorskip("pyspark")


@pytest.fixture
def place(tmp_path):
    made = Place(tmp_path, f"delta://{tmp_path}/lake/{{table}}", "append", rows=1500)
    yield made
    made.close()


def told(worker, event):
    return [line for line in worker.lines() if line["event"] == event]


def ended(worker):
    wait_until(lambda: not worker.alive, "the worker ends", START_S)
    return worker.process.returncode


def is_stopped(worker, place):
    """Stop a worker, unless it is just writing to the metadata: an SQLite file would stay locked for all."""
    worker.signal(signal.SIGSTOP)
    os.waitid(os.P_PID, worker.process.pid, os.WSTOPPED)  # a signal takes time to reach all threads
    with contextlib.closing(sqlite3.connect(place.metadata, timeout=0.2, isolation_level=None)) as database:
        try:
            database.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            worker.signal(signal.SIGCONT)
            return False
        database.execute("ROLLBACK")
    return True


@pytest.mark.timeout(400)
def test_a_worker_that_is_held_up_past_its_lease_changes_nothing_more_and_a_dead_one_is_taken_over(place):
    small = ("--page-rows", "3")
    with place.worker(*small) as held:
        wait_until(lambda: told(held, "copied"), "rows copied", START_S)
        with place.worker(*small) as next_:
            wait_until(lambda: told(next_, "waiting"), "the other one waits", START_S)
            assert not told(next_, "copied")
            wait_until(lambda: is_stopped(held, place), "the first one is stopped", START_S)
            wait_until(lambda: told(next_, "copied"), "the stopped one is taken over", START_S)
            with place.worker("--once") as last:
                wait_until(lambda: told(last, "waiting"), "one more waits", START_S)
                held.signal(signal.SIGCONT)
                assert ended(held) == 1
                assert "this worker no longer has pipeline 'p'" in held.output.read_text()
                next_.kill()
                assert ended(last) == 0
    assert place.pipeline("verify")["equal"]
    for table in TABLES:
        rows = DeltaTable(place.directory / "lake" / table).to_pyarrow_table()
        assert rows.num_rows == 1500
