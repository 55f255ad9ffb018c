"""Facts about a worker that runs several pipelines with one Spark."""

import threading

import pytest

from pipelines import PipelinePlace
from serving import wait_until
from tailrace.clock import SystemClock
from tailrace.pipeline.job import Job
from tailrace.pipeline.session import SparkChoice, SparkSessions
from tailrace.pipeline.watcher import Watcher
from tailrace.pipeline.worker import Worker, WorkerOptions
from tailrace.retry import Backoff

pytest.importorskip("pyspark")

pytestmark = pytest.mark.timeout(300)

WAIT_S = 90.0


@pytest.fixture
def place(tmp_path, spark):
    made = PipelinePlace(tmp_path, spark)
    yield made
    made.close()


@pytest.fixture
def working(place):
    """Start workers; all are stopped in the end."""
    threads = []

    def start(owner, **options):
        choice = SparkChoice(session=place.spark)
        sessions = SparkSessions(choice, place.directory)

        def runner():
            return Job(place.store, place.directory / "work", None, choice, SystemClock(), None, sessions)

        options = WorkerOptions(look_s=0.1, backoff=Backoff(first_s=0.2, longest_s=0.2), **options)
        worker = Worker(place.store, runner, sessions, owner, lambda name: Watcher(), options)
        stop = threading.Event()
        thread = threading.Thread(target=worker.run, args=(stop.is_set,))
        thread.start()
        threads.append((thread, stop))
        return stop

    yield start
    for thread, stop in threads:
        stop.set()
        thread.join(WAIT_S)
        assert not thread.is_alive()


def test_pipelines_come_and_go_beside_each_other_with_one_spark(place, working):
    place.shop.insert(1, 2, 3)
    place.create("plain")
    place.create("twice", transform="SELECT *, qty * 2 AS twice FROM changes")
    place.create("thrice", transform="SELECT *, qty * 3 AS thrice FROM changes")
    place.create("bad", transform="SELECT id FROM changes")
    stop = working("one")

    def rows(name, query):
        return place.copied(name) and place.rows(query, name)

    wait_until(lambda: rows("plain", "SELECT count(*) FROM orders") == [(3,)], "copied", WAIT_S)
    place.create("late")
    place.shop.commit("UPDATE orders SET qty = 50 WHERE id = 2")
    for name, column, value in (
        ("plain", "qty", 50),
        ("twice", "twice", 100),
        ("thrice", "thrice", 150),
        ("late", "qty", 50),
    ):
        query = f"SELECT {column} FROM orders WHERE id = 2"
        wait_until(
            lambda name=name, query=query, value=value: rows(name, query) == [(value,)], f"{name} follows", WAIT_S
        )
    wait_until(lambda: "_change_type" in place.store.get("bad").figures.problem, "the bad one is told", WAIT_S)
    assert {one.definition.name for one in place.store.all() if one.owner == "one"} >= {
        "plain",
        "twice",
        "thrice",
        "late",
    }
    assert place.verify("plain").equal
    place.store.cancel("twice")
    place.store.pause("thrice", paused=True)
    wait_until(lambda: "twice" not in {one.definition.name for one in place.store.all()}, "removed", WAIT_S)
    wait_until(lambda: not place.store.get("thrice").leased, "given up", WAIT_S)
    wait_until(lambda: not (place.directory / "work" / "twice").exists(), "its checkpoints are gone", WAIT_S)
    place.shop.commit("UPDATE orders SET qty = 60 WHERE id = 2")
    wait_until(lambda: rows("plain", "SELECT qty FROM orders WHERE id = 2") == [(60,)], "still follows", WAIT_S)
    assert place.rows("SELECT thrice FROM orders WHERE id = 2", "thrice") == [(150,)]
    stop.set()
    wait_until(lambda: not any(one.leased for one in place.store.all()), "all given up", WAIT_S)
    working("two")
    place.shop.commit("UPDATE orders SET qty = 70 WHERE id = 2")
    wait_until(lambda: rows("late", "SELECT qty FROM orders WHERE id = 2") == [(70,)], "another goes on", WAIT_S)
    assert place.store.get("late").owner == "two"


def test_queries_that_start_at_once_put_their_environment_into_sources_of_their_own(spark, tmp_path):
    sessions = SparkSessions(SparkChoice(session=spark), tmp_path)

    def environment(session):
        source = session._jsparkSession.sessionState().dataSourceManager().lookupDataSource("tailrace")
        return session._jvm.java.lang.System.identityHashCode(source.dataSourceCls().envVars())

    made = [environment(one) for one in (spark, sessions.separate(Watcher()), sessions.separate(Watcher()))]
    assert len(set(made)) == 3
