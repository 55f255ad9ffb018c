"""When the reader looks for commits: by listening, and in a hurry after a write."""

import itertools

import pytest

from tailrace.source.sqlite.pace import Pace

SETTLE_S, IDLE_S = 0.25, 7.0


def looks_without_success(pace, since_s, count):
    """Return the pauses between looks that see nothing, each of which takes no time."""
    now_s, pauses = since_s, []
    for _ in range(count):
        pauses.append((pace.listens, pace.pause_s(now_s)))
        now_s += pauses[-1][1]
    return pauses


def test_after_what_was_written_is_seen_it_listens_and_looks_ever_less_often():
    pace = Pace(SETTLE_S, IDLE_S, now_s=100.0)
    pace.seen(100.0, 1, locks_writers=False)
    pauses = looks_without_success(pace, 100.0, 20)
    assert all(listens for listens, _ in pauses)
    waits = [pause for _, pause in pauses]
    assert waits == sorted(waits)
    assert waits[-1] == IDLE_S, "once nothing can be on its way any more"
    settling = [wait for wait in waits if wait != IDLE_S]
    assert SETTLE_S <= sum(settling) < SETTLE_S + max(settling)


def test_after_a_write_it_looks_in_a_hurry_for_as_long_as_its_commit_may_take():
    pace = Pace(SETTLE_S, IDLE_S, now_s=0.0)
    pace.touched(100.0)
    pauses = looks_without_success(pace, 100.0, 60)
    hurried = [pause for listens, pause in pauses if not listens and pause]
    assert hurried[0] <= 0.0002
    assert max(hurried) <= 0.008
    assert SETTLE_S <= sum(hurried) < SETTLE_S + max(hurried)
    for elapsed, pause in zip(itertools.accumulate(hurried), hurried[1:], strict=False):
        assert pause <= max(2.5 * elapsed, 0.0002), "a commit that took long is not seen much later"
    at_last = pauses[len(hurried) :]
    assert at_last[0] == (False, 0.0), "it looks once more, listening, before it waits long"
    assert at_last[1] == (True, IDLE_S)


def test_a_write_while_it_listens_makes_it_hurry_and_success_makes_it_listen_again():
    pace = Pace(SETTLE_S, IDLE_S, now_s=0.0)
    assert pace.listens
    pace.touched(1.0)
    assert not pace.listens
    pace.seen(1.001, 0, locks_writers=False)
    assert pace.listens


def test_it_was_prompt_if_the_first_look_after_a_write_saw_something():
    pace = Pace(SETTLE_S, IDLE_S, now_s=0.0)
    pace.seen(1.0, 1, locks_writers=False)
    assert not pace.prompt, "nothing was noticed"
    pace.touched(2.0)
    pace.seen(2.0, 1, locks_writers=False)
    assert pace.prompt
    pace.touched(3.0)
    pace.pause_s(3.0)
    pace.seen(3.001, 1, locks_writers=False)
    assert not pace.prompt, "more may have been written since it was noticed"


@pytest.mark.parametrize(("changes", "few"), [(0, True), (1, True), (8, True), (9, False), (1000, False)])
def test_few_changes_at_a_look_are_commits_that_come_singly(changes, few):
    pace = Pace(SETTLE_S, IDLE_S, now_s=0.0)
    pace.seen(1.0, changes, locks_writers=False)
    assert pace.few is few


@pytest.mark.parametrize(
    ("changes", "locks_writers", "rest_s"),
    [(1, False, 0.0005), (0, False, 0.0005), (20, False, 0.002), (1_000_000, False, 0.008), (1, True, 0.025)],
)
def test_the_more_was_found_the_longer_it_rests(changes, locks_writers, rest_s):
    pace = Pace(SETTLE_S, IDLE_S, now_s=0.0)
    pace.seen(10.0, changes, locks_writers=locks_writers)
    assert pace.rest_s(10.0) == pytest.approx(rest_s)
    assert pace.rest_s(10.1) < 0
