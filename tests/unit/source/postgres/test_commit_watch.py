"""Which commits a transaction sees, against what capture has received."""

import threading
import time

import pytest

from tailrace.model.commit import CommitId, Draft, Progress
from tailrace.model.number import Position
from tailrace.source.base import Barrier
from tailrace.source.postgres.commit_watch import CommitWatch, Seen
from tailrace.source.postgres.position import format_position

EPOCH = 1 << 32


def place(lsn, system=7):
    return format_position(system, 1, lsn)


def draft(lsn, xid, *, more=False):
    return Draft(place(lsn), 0, xid, more=more)


def seen(*running, xmax=1000, lsn=10_000):
    return Seen(xmax, frozenset(running), lsn, "c1")


@pytest.fixture
def watch():
    made = CommitWatch()
    made.begin(None)
    made.note(Progress(place(100)))
    return made


@pytest.mark.parametrize(
    ("xmax", "running", "xid", "found"),
    [
        (1000, [], 999, True),
        (1000, [], 1000, False),
        (1000, [990], 990, False),
        (1000, [990], 989, True),
        (3 * EPOCH + 5, [], 4, True),
        (3 * EPOCH + 5, [], 5, False),
        (3 * EPOCH + 5, [], EPOCH - 1, True),  # of the epoch before
        (3 * EPOCH + 5, [3 * EPOCH - 1], EPOCH - 1, False),
        (3 * EPOCH - 2, [], 3, False),  # of the epoch that has begun since
        (3 * EPOCH - 2, [], EPOCH - 3, True),
    ],
)
def test_numbers_of_transactions_are_compared_across_epochs(xmax, running, xid, found):
    assert seen(*running, xmax=xmax).sees(xid) is found


def test_without_commits_the_log_has_what_is_seen(watch):
    look = watch.cut(seen(lsn=100))
    assert look.barrier == Barrier(None, "c1")
    assert look.contains(CommitId(place(100), 3))
    assert not look.contains(CommitId(place(101), 3))


def test_rows_contain_the_commits_that_are_seen(watch):
    watch.note([draft(200, 10), draft(300, 11), draft(400, 12)])
    look = watch.cut(seen(11, 12))
    assert look.barrier.position == place(200)
    assert [look.contains(CommitId(place(lsn))) for lsn in (200, 299, 300, 400)] == [True, True, False, False]


def test_a_later_commit_that_is_seen_without_an_earlier_one_is_no_place_in_the_log(watch):
    watch.note([draft(200, 10), draft(300, 11)])
    assert watch.cut(seen(10)) is None
    assert watch.cut(seen()).barrier.position == place(300)


def test_what_came_after_the_transaction_began_does_not_count(watch):
    watch.note([draft(200, 10), draft(300, 999)])
    look = watch.cut(seen(lsn=250))
    assert look.barrier.position == place(200)
    assert not look.contains(CommitId(place(300)))


def test_a_commit_in_parts_counts_with_its_last_one(watch):
    watch.note([draft(150, 10, more=True)])
    assert not watch.wait(200, time.monotonic(), threading.Event())
    watch.note([draft(200, 10)])
    assert watch.wait(200, time.monotonic(), threading.Event())
    assert watch.newest(200, "c1").position == place(200)


def test_positions_of_another_cluster_or_kind_are_not_contained(watch):
    look = watch.cut(seen())
    assert not look.contains(CommitId(place(1, system=8)))
    assert not look.contains(CommitId(Position("sqlite-5")))


def test_commits_are_forgotten_when_all_readers_see_them_and_not_before(watch):
    with watch.reading():
        older = seen(10, lsn=350)  # began before the commit was visible
        watch.note([draft(200, 10), draft(300, 11)])
        with watch.reading():
            assert watch.cut(seen()).barrier.position == place(300)
        assert watch.cut(older) is None
    with watch.reading():
        assert watch.cut(seen()).barrier.position == place(300)
    assert watch.newest(10_000, "c1").position == place(300)
    assert not watch._commits


def test_a_stream_that_begins_again_brings_what_the_log_lacks(watch):
    watch.note([draft(200, 10), draft(300, 11)])
    watch.begin(place(200))
    assert watch.newest(10_000, "c1").position == place(200)
    assert not watch.wait(300, time.monotonic(), threading.Event())
    watch.note([draft(300, 11)])
    assert watch.cut(seen()).barrier.position == place(300)
    watch.begin(place(500, system=8))
    assert watch.newest(10_000, "c1").position is None


def test_waiting_ends_when_capture_arrives_or_the_reader_stops(watch):
    stopping = threading.Event()
    thread = threading.Thread(target=lambda: watch.note([draft(900, 10)]))
    thread.start()
    assert watch.wait(900, time.monotonic() + 10, stopping)
    thread.join()
    stopping.set()
    assert not watch.wait(1000, time.monotonic() + 10, stopping)
