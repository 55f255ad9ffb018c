"""A pipeline as users have it: processes, Spark, and a worker that is killed in the middle."""

import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys

import httpx
import pytest

from serving import Server, run, wait_until
from tailrace.clock import SystemClock
from tailrace.demo import TABLES, Shop
from tailrace.meta.pipeline import Stage
from tailrace.pipeline.store import PipelineStore

pytest.importorskip("pyspark")

START_S = 150.0
"""Spark takes long to start on a busy machine."""


@pytest.fixture
def place(tmp_path):
    """A shop, a server on it, and a pipeline of all its tables."""
    shop = Shop(tmp_path / "shop.db", 7)
    shop.stock_up()
    for _ in range(200):
        shop.trade()
    server = Server(tmp_path / "data", "--source", f"shop=sqlite:///{tmp_path / 'shop.db'}").wait_ready()
    wait_until(lambda: server.subscribe("order_lines", "shop"), "the tables known")
    tables = [part for table in TABLES for part in ("--table", table)]
    made = run(
        *("pipeline", "create", "copy", "--source", "shop", *tables, "--server", server.url),
        *("--sink", f"sqlite:///{tmp_path / 'copy.db'}", "--data-dir", tmp_path / "work"),
    )
    assert made.returncode == 0, made.stderr
    yield Place(tmp_path, shop, server)
    server.stop()
    shop.close()


class Place:
    """Where it all is."""

    def __init__(self, directory, shop, server):
        self.directory = directory
        self.shop = shop
        self.server = server
        self.store = PipelineStore.open(f"sqlite:///{directory / 'work' / 'metadata.db'}", SystemClock())

    def pipeline(self, verb, *options, timeout=START_S):
        return run("pipeline", verb, "copy", *options, "--data-dir", self.directory / "work", timeout=timeout)

    @contextlib.contextmanager
    def worker(self, *options):
        """A worker that follows, killed when the block ends."""
        command = [sys.executable, "-m", "tailrace", "pipeline", "run", "copy", *options, "--page-rows", "10"]
        command += ["--ranges", "1", "--data-dir", str(self.directory / "work")]
        with (self.directory / "worker.err").open("ab") as errors:
            process = subprocess.Popen(command, stdout=errors, stderr=errors)
            try:
                yield process
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process.pid, signal.SIGKILL)
                process.wait()

    @contextlib.contextmanager
    def working(self, name, *options):
        """A worker of all pipelines, killed when the block ends if it still runs."""
        command = [sys.executable, "-m", "tailrace", "pipeline", "work", "--name", name, "--json", *options]
        command += ["--master", "local[2]", "--data-dir", str(self.directory / "work")]
        with (
            (self.directory / f"{name}.out").open("wb") as output,
            (self.directory / "worker.err").open("ab") as errors,
        ):
            process = subprocess.Popen(command, stdout=output, stderr=errors)
            try:
                yield process
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process.pid, signal.SIGKILL)
                process.wait()

    def free(self):
        """Let the lease of the dead worker end, so that the test need not wait for it."""
        with self.store.database.engine.begin() as connection:
            connection.exec_driver_sql("UPDATE tailrace_pipeline SET lease_end_us = 0")

    def copied(self):
        return sum(one.rows_copied for one in self.store.progress("copy"))

    def offset(self, name="copy"):
        """Return how far a pipeline follows; 0 until it has copied its tables."""
        ranges = self.store.progress(name)
        done = all(one.stage is Stage.INCREMENTAL_LOG for one in ranges)
        return min((one.last_log_index for one in ranges), default=0) if done else 0


@pytest.mark.timeout(700)
def test_a_worker_that_is_killed_while_it_copies_and_while_it_follows_loses_and_repeats_nothing(place):
    with place.worker() as process:
        wait_until(lambda: place.copied() > 0 or process.poll() is not None, "rows copied", START_S)
    place.free()
    for _ in range(100):
        place.shop.trade()
    with place.worker() as process:
        wait_until(lambda: place.offset() > 0 or process.poll() is not None, "changes applied", START_S)
        first = place.offset()
        for _ in range(50):
            place.shop.trade()
    assert first > 0
    place.free()
    for _ in range(50):
        place.shop.trade()
    ended = place.pipeline("run", "--once", "--json")
    assert ended.returncode == 0, ended.stderr
    last = json.loads(ended.stdout.splitlines()[-1])
    assert (last["event"], last["stage"], last["lag"]) == ("ended", "incremental_log", 0)
    verdict = place.pipeline("verify", "--json")
    assert verdict.returncode == 0, verdict.stderr
    assert json.loads(verdict.stdout)["equal"]
    copy = sqlite3.connect(place.directory / "copy.db")
    for table in TABLES:
        rows = place.shop.rows(table)
        names = ", ".join(rows[0])
        assert sorted(copy.execute(f"SELECT {names} FROM {table}")) == sorted(tuple(row.values()) for row in rows)
    copy.close()


@pytest.mark.timeout(900)
def test_a_worker_runs_what_is_made_later_ends_when_asked_and_another_takes_over_from_a_dead_one(place):
    for _ in range(20):
        place.shop.trade()
    with place.working("one", "--most", "5") as first:
        wait_until(lambda: place.offset() > 0 or first.poll() is not None, "changes applied", 2 * START_S)
        made = run(
            *("pipeline", "create", "second", "--source", "shop", "--table", "orders", "--server", place.server.url),
            *("--sink", f"delta://{place.directory / 'lake'}/{{table}}", "--data-dir", place.directory / "work"),
        )
        assert made.returncode == 0, made.stderr
        wait_until(lambda: place.offset("second") > 0 or first.poll() is not None, "the second follows", 2 * START_S)
        assert {one.owner for one in place.store.all()} == {"one"}
        assert place.pipeline("verify").returncode == 0
    place.free()  # the first is dead
    for _ in range(20):
        place.shop.trade()
    with place.working("two") as second:
        wait_until(lambda: {one.owner for one in place.store.all()} == {"two"}, "taken over", 2 * START_S)
        head = httpx.get(f"{place.server.url}/api/v1/bulk/shop", timeout=20).json()["head"]
        wait_until(lambda: place.offset() >= head and place.offset("second") >= head, "caught up", 2 * START_S)
        removed = run("pipeline", "rm", "second", "--data-dir", place.directory / "work")
        assert removed.returncode == 0, removed.stderr
        wait_until(
            lambda: [one.definition.name for one in place.store.all()] == ["copy"], "the second removed", 2 * START_S
        )
        second.send_signal(signal.SIGTERM)
        assert second.wait(START_S) == 0
    assert not place.store.get("copy").leased
    told = [json.loads(line) for line in (place.directory / "two.out").read_text().splitlines()]
    assert told[0] == {"event": "working", "worker": "two", "most": 16}
    assert told[-1] == {"event": "ended", "worker": "two"}
    assert "followed" in {one["event"] for one in told if one.get("pipeline") == "copy"}
    verdict = place.pipeline("verify", "--json")
    assert json.loads(verdict.stdout)["equal"]
