"""Facts about keeping a lease."""

import threading
import time
from types import SimpleNamespace

import pytest

from serving import wait_until
from tailrace.clock import SystemClock
from tailrace.model.errors import MetadataError
from tailrace.pipeline import keeper as keeper_module
from tailrace.pipeline.definition import Definition
from tailrace.pipeline.errors import LeaseError
from tailrace.pipeline.keeper import LeaseKeeper, taken
from tailrace.pipeline.store import PipelineStore
from tailrace.pipeline.watcher import Watcher

LEASE_S = 3.0
"""Long enough for a keeper that has to wait for the disk or the processor."""


@pytest.fixture
def store(tmp_path):
    opened = PipelineStore.open(f"sqlite:///{tmp_path / 'pipelines.db'}", SystemClock())
    opened.create(Definition(name="p", source="shop", tables=("orders",), sink="delta:///lake"))
    yield opened
    opened.close()


def test_a_lease_is_kept_beyond_its_end_and_given_up_at_last(store):
    with LeaseKeeper(store, store.acquire("p", "one", LEASE_S), LEASE_S) as keeper:
        end_us = SystemClock().now_us() + LEASE_S * 1_000_000
        wait_until(lambda: SystemClock().now_us() > end_us, "the first lease at its end")
        keeper.check()
        with pytest.raises(LeaseError):
            store.acquire("p", "two", LEASE_S)
    store.acquire("p", "two", LEASE_S)


def test_a_worker_notices_that_it_was_taken_over(store):
    with LeaseKeeper(store, store.acquire("p", "one", 0.5), 0.5) as keeper:
        with store.database.engine.begin() as connection:
            connection.exec_driver_sql("UPDATE tailrace_pipeline SET lease_end_us = 0, owner = ''")
        store.acquire("p", "two", 60)

        def lost():
            try:
                keeper.check()
            except LeaseError:
                return True
            return False

        wait_until(lost, "the loss noticed")
    assert store.get("p").owner == "two"


def test_a_worker_notices_that_it_is_not_wanted(store):
    with LeaseKeeper(store, store.acquire("p", "one", LEASE_S), LEASE_S) as keeper:
        assert keeper.wanted
        store.pause("p", paused=True)
        wait_until(lambda: not keeper.wanted, "the pause noticed")
        store.pause("p", paused=False)
        wait_until(lambda: keeper.wanted, "the end of the pause noticed")
        store.cancel("p")
        wait_until(lambda: not keeper.wanted, "the removal noticed")


def test_of_two_workers_one_works_and_the_other_takes_over(store):
    told, worked = [], []

    class Telling(Watcher):
        def waiting(self, owner):
            told.append(owner)

    def second():
        with taken(store, "p", wait=True, watcher=Telling(), stopped=lambda: False) as keeper:
            worked.append(keeper.lease.owner)

    thread = threading.Thread(target=second)
    with taken(store, "p", wait=False, watcher=Watcher(), stopped=lambda: False) as first:
        thread.start()
        wait_until(lambda: told, "the second worker waiting")
        assert told == [first.lease.owner]
        assert worked == []
    thread.join(20)
    assert len(worked) == 1


class Slow(PipelineStore):
    """Pipelines whose database has given a lease long before its answer comes."""

    passed_s = 0.0

    def acquire(self, name, owner, lease_s):
        lease = super().acquire(name, owner, lease_s)
        self.passed_s += lease_s + 1
        return lease


def test_a_lease_counts_from_when_it_was_asked_for_however_long_the_answer_takes(store, monkeypatch):
    slow = Slow(store.database)
    clock = SimpleNamespace(monotonic=lambda: slow.passed_s, sleep=time.sleep, time_ns=time.time_ns)
    monkeypatch.setattr(keeper_module, "time", clock)
    with taken(slow, "p", wait=False, watcher=Watcher(), stopped=lambda: False) as keeper, pytest.raises(LeaseError):
        keeper.check()


class Silent(PipelineStore):
    """Pipelines whose database answers like this when somebody wants one, and then as it is."""

    script: list[Exception]

    def acquire(self, name, owner, lease_s):
        if self.script:
            raise self.script.pop(0)
        return super().acquire(name, owner, lease_s)


def silent(store, *script):
    made = Silent(store.database)
    made.script = list(script)
    return made


def test_a_worker_that_waits_puts_up_with_a_metadata_database_that_does_not_answer_for_a_while(store):
    locked = silent(store, LeaseError("p", "one"), MetadataError("locked"))
    with taken(locked, "p", wait=True, watcher=Watcher(), stopped=lambda: False) as keeper:
        assert keeper is not None


def test_a_metadata_database_that_refuses_at_once_is_told(store):
    refusing = silent(store, MetadataError("no such table"))
    with pytest.raises(MetadataError), taken(refusing, "p", wait=True, watcher=Watcher(), stopped=lambda: False):
        pass
