"""Facts about workers, with runs that do nothing by themselves."""

import threading

import pytest
from msgspec import structs

from serving import wait_until
from tailrace.clock import SystemClock
from tailrace.meta.pipeline import Definition, Figures, Pipeline, SinkState
from tailrace.model.errors import SinkRefusedError
from tailrace.pipeline.errors import PipelineError, PipelineFailedError
from tailrace.pipeline.session import SparkChoice, SparkSessions
from tailrace.pipeline.store import PipelineStore
from tailrace.pipeline.watcher import Watcher
from tailrace.pipeline.worker import Worker, WorkerOptions, chosen
from tailrace.retry import Backoff


def definition(name, **members):
    return Definition(name=name, source="shop", tables=("orders",), sink="console:", **members)


def pipeline(name, **members):
    given = {"paused": False, "cancelled": False, "owner": "", "leased": False, "generation": 0, **members}
    return Pipeline(
        definition(name), **given, sink_state=SinkState.EMPTY, subscription=None, copying=None, figures=Figures()
    )


FOUND = [
    pipeline("free"),
    pipeline("paused", paused=True),
    pipeline("removed", paused=True, cancelled=True),
    pipeline("had", owner="me", leased=True),
    pipeline("ended", owner="other", leased=False),
    pipeline("other", owner="other", leased=True),
]


@pytest.mark.parametrize(
    ("busy", "room", "had", "expected"),
    [
        ((), 9, "", ["free", "removed", "ended"]),
        ((), 9, "me", ["had", "free", "removed", "ended"]),
        (("free",), 9, "", ["removed", "ended"]),
        ((), 2, "me", ["had", "free"]),
        ((), 0, "me", []),
        ((), -1, "me", []),
    ],
)
def test_a_worker_begins_with_what_it_had_and_what_nobody_has(busy, room, had, expected):
    assert [one.definition.name for one in chosen(FOUND, busy, room, had)] == expected


class Told(Watcher):
    def __init__(self):
        self.problems = []

    def failed(self, problem, again_s):
        self.problems.append(problem)


class Shift:
    """A worker in a thread, and runs that end when they are told to, or fail."""

    def __init__(self, tmp_path, spark=None, **options):
        self.store = PipelineStore.open(f"sqlite:///{tmp_path / 'pipelines.db'}", SystemClock())
        self.runs, self.removed, self.problems = [], [], {}
        self.told = Told()
        self.going = set()
        sessions = SparkSessions(SparkChoice(session=spark), tmp_path)
        options = WorkerOptions(**{"look_s": 0.01, "backoff": Backoff(first_s=0.02, longest_s=0.02), **options})
        self.worker = Worker(self.store, lambda: self, sessions, "me", lambda name: self.told, options)
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self._run)
        self.error = None

    def run(self, name, *, once, wait, watcher, stopped, owner):
        assert (once, wait, owner) == (False, False, "me")
        self.runs.append(name)
        self.going.add(name)
        try:
            if name in self.problems:
                raise self.problems[name]
            wait_until(lambda: stopped() or self.store.get(name).cancelled or self.store.get(name).paused, "its end")
        finally:
            self.going.discard(name)

    def remove(self, name, watcher, stopped):
        self.removed.append(name)
        self.store.remove(self.store.acquire(name, "remover", 10))

    def start(self):
        self.thread.start()
        return self

    def end(self):
        self.stop.set()
        self.thread.join(20)
        assert not self.thread.is_alive()
        self.store.close()

    def _run(self):
        try:
            self.worker.run(self.stop.is_set)
        except PipelineError as error:
            self.error = error


@pytest.fixture
def shift(tmp_path):
    made = []

    def start(**options):
        made.append(Shift(tmp_path, **options))
        return made[-1]

    yield start
    for one in made:
        one.end()


def test_what_is_made_later_is_run_too_and_all_end_with_the_worker(shift):
    one = shift()
    one.store.create(definition("first"))
    one.start()
    wait_until(lambda: one.going == {"first"}, "the first run")
    one.store.create(definition("second"))
    wait_until(lambda: one.going == {"first", "second"}, "both run")
    one.stop.set()
    wait_until(lambda: not one.going, "all ended")


def test_no_more_run_at_one_time_than_there_is_room_for(shift):
    one = shift(most=2)
    for name in "abcd":
        one.store.create(definition(name))
    one.start()
    wait_until(lambda: len(one.going) == 2, "two run")
    assert one.going == {"a", "b"}
    one.store.pause("a", paused=True)
    wait_until(lambda: one.going == {"b", "c"}, "another has the place")
    assert (sorted(one.runs[:2]), one.runs[2:]) == (["a", "b"], ["c"])


def test_what_fails_is_tried_again_and_the_others_do_not_notice(shift):
    one = shift()
    one.problems["bad"] = SinkRefusedError("no such door", table="orders", key="[1]")
    for name in ("bad", "good"):
        one.store.create(definition(name))
    one.start()
    wait_until(lambda: one.runs.count("bad") >= 3 and "good" in one.going, "tried again")
    assert one.runs.count("good") == 1
    assert one.told.problems[0] == "the row with key [1] of table orders: no such door"
    del one.problems["bad"]
    wait_until(lambda: one.going == {"bad", "good"}, "both run")


def test_what_goes_wrong_in_an_unforeseen_way_is_told_without_its_words(shift):
    one = shift()
    one.problems["bad"] = ZeroDivisionError("s3cret")
    one.store.create(definition("bad"))
    one.start()
    wait_until(lambda: one.runs.count("bad") >= 2, "tried again")
    assert one.told.problems[0] == "it failed: ZeroDivisionError"


def test_what_has_failed_for_good_is_left_alone_until_somebody_mends_it(shift):
    one = shift()
    one.problems["bad"] = PipelineFailedError("bad", "changes are gone")
    one.store.create(definition("bad"))
    one.start()
    wait_until(lambda: one.told.problems, "told")
    one.store.create(definition("later"))
    wait_until(lambda: one.going == {"later"}, "others run")
    assert one.runs.count("bad") == 1
    del one.problems["bad"]
    lease = one.store.acquire("bad", "somebody", 10)
    one.store.reset(lease)
    one.store.release(lease)
    wait_until(lambda: "bad" in one.going, "it runs again")


def test_what_rests_is_tried_at_once_when_it_is_altered(shift):
    one = shift(backoff=Backoff(first_s=1000, longest_s=1000))
    one.problems["bad"] = SinkRefusedError("wrong password")
    one.store.create(definition("bad"))
    one.start()
    wait_until(lambda: one.told.problems, "told")
    del one.problems["bad"]
    one.store.alter(structs.replace(definition("bad"), server="http://elsewhere:1"))
    wait_until(lambda: "bad" in one.going, "it runs again")


def test_what_is_cancelled_is_removed_also_while_it_is_paused(shift):
    one = shift()
    for name in ("runs", "rests"):
        one.store.create(definition(name))
    one.store.pause("rests", paused=True)
    one.start()
    wait_until(lambda: one.going == {"runs"}, "one runs")
    one.store.cancel("runs")
    one.store.cancel("rests")
    wait_until(lambda: not one.store.all(), "both removed")
    assert sorted(one.removed) == ["rests", "runs"]


def test_a_worker_that_comes_again_under_its_name_takes_what_it_had_at_once(shift):
    one = shift()
    for name in ("mine", "theirs"):
        one.store.create(definition(name))
    one.store.acquire("mine", "me", 1000)
    one.store.acquire("theirs", "other", 1000)
    one.start()
    wait_until(lambda: one.going == {"mine"}, "it runs")
    assert one.runs == ["mine"]


def test_a_worker_ends_when_spark_has(shift):
    one = shift(spark="what answers nothing")
    one.problems["bad"] = PipelineError("Spark failed")
    one.store.create(definition("bad"))
    one.start()
    wait_until(lambda: one.error is not None, "the worker's end")
    assert "start the worker again" in str(one.error)
