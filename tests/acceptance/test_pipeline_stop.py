"""A pipeline that is asked to end, as a terminal and a service manager ask: quietly, with 0, and nothing is left."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from killing import START_S, Place, Worker
from serving import run, wait_until

pytest.importorskip("pyspark")

pytestmark = pytest.mark.timeout(700)

END_S = 90.0
_BATCH = re.compile(r"pipeline p: orders.*, batch \d+")
NOISE = ("Traceback", "Exception", "Error", "WARN", "log4j", "FATAL")


class Asked(Worker):
    """`pipeline run` or `work` in the foreground of a terminal of its own: a process group."""

    def __init__(self, place: Place, verb: str, *more: str) -> None:
        command = [sys.executable, "-m", "tailrace", "pipeline", verb, *(["p"] if verb == "run" else [])]
        command += ["--master", "local[2]", "--page-rows", "60", "--ranges", "4"]
        command += ["--data-dir", str(place.directory / "work"), *more]
        self.output = place.directory / f"asked-{len(list(place.directory.glob('asked-*')))}"
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True)

    def says(self, words: str) -> None:
        wait_until(lambda: words in self.output.read_text() or not self.alive, words, START_S)
        assert self.alive, self.output.read_text()

    def ends_quietly(self) -> None:
        """Wait for the end: 0, no more than is meant for people, and none of its processes is left."""
        family = self.family()
        assert self.process.wait(END_S) == 0, self.output.read_text()[-4000:]
        text = self.output.read_text()
        assert not [word for word in NOISE if word in text], text[-4000:]
        assert len(text.splitlines()) < 12, text[-4000:]
        wait_until(lambda: not any(map(_runs, family)), "all that it started has ended", START_S)


class SparkPages:
    """What Spark itself shows of a worker."""

    def __init__(self, worker: Asked) -> None:
        (self.url,) = re.findall(r"Spark UI: (http://\S+)", worker.output.read_text())
        self.host = httpx.URL(self.url).host

    def jobs(self) -> list[str]:
        (application,) = httpx.get(f"{self.url}/api/v1/applications", timeout=20).json()
        answer = httpx.get(f"{self.url}/api/v1/applications/{application['id']}/jobs", timeout=20)
        return [job.get("description", "") for job in answer.json()]


@pytest.fixture
def place(tmp_path):
    made = Place(tmp_path, f"sqlite:///{tmp_path}/copy.db", "current", rows=600)
    yield made
    made.close()


@pytest.fixture
def asked(place):
    """Start a worker, which is killed in the end if it still runs."""
    started = []

    def start(verb, *more):
        started.append(Asked(place, verb, *more))
        return started[-1]

    yield start
    for one in started:
        one.kill()


def test_interrupts_while_it_copies_starts_and_follows_end_a_run_with_0(place, asked):
    copying = asked("run")
    copying.says("copying")
    os.killpg(copying.process.pid, signal.SIGINT)
    copying.ends_quietly()
    assert 0 < place.copied() < 1200
    starting = asked("run")
    starting.says("starting Spark")
    wait_until(starting.family, "Java", START_S)
    os.killpg(starting.process.pid, signal.SIGINT)
    starting.ends_quietly()
    assert not place.store.get("p").leased
    with place.writer(1):
        following = asked("run")
        place.goes_on(following, "followed")
        os.killpg(following.process.pid, signal.SIGINT)
        following.ends_quietly()
    assert "Spark" in (place.directory / "work" / "pipeline" / "spark.log").read_text()
    assert not place.store.get("p").leased
    assert place.store.get("p").figures.problem == ""


def test_a_service_manager_that_ends_all_processes_at_once_ends_a_worker_with_0(place, asked):
    with place.writer(2):
        working = asked("work", "--spark-ui", "0")
        place.goes_on(working, "followed")
        shown = SparkPages(working)
        wait_until(lambda: any(map(_BATCH.fullmatch, shown.jobs())), "jobs are named after table and batch", START_S)
        assert shown.host == "127.0.0.1"
        figures = place.store.get("p").figures
        assert figures.batches > 0
        assert figures.batch_changes > 0
        assert figures.batch_s > 0
        working.signal(signal.SIGTERM)
        working.ends_quietly()
    assert not place.store.get("p").leased


@pytest.mark.long
@pytest.mark.skipif(not os.environ.get("LONG_TESTS"), reason="many starts of Spark")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("verb", ["run", "work"])
def test_signals_to_the_group_and_to_all_while_there_is_nothing_to_do(place, asked, verb, number):
    for ask in (lambda one: os.killpg(one.process.pid, number), lambda one: one.signal(number)):
        idle = asked(verb)
        idle.says("following")
        ask(idle)
        idle.ends_quietly()
        with place.writer(3):
            busy = asked(verb)
            place.goes_on(busy, "followed")
            ask(busy)
            busy.ends_quietly()


@pytest.mark.long
@pytest.mark.skipif(not os.environ.get("LONG_TESTS"), reason="many starts of Spark")
def test_a_pipeline_that_is_removed_while_it_follows_is_let_go_quietly(place, asked):
    with place.writer(4):
        working = asked("work")
        place.goes_on(working, "followed")
        removed = run("pipeline", "rm", "p", "--data-dir", place.directory / "work", timeout=START_S)
        assert removed.returncode == 0, removed.stderr
        working.process.send_signal(signal.SIGTERM)
        working.ends_quietly()


def _runs(pid: int) -> bool:
    """Tell whether a process runs: one that has ended may still be listed for whoever started it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
