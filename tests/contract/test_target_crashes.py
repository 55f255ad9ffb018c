"""A target whose process is killed at any moment has each message in the end, in order, twice only where it says so."""

import multiprocessing
import os
import random

import pytest

from brokers import PASSWORD_IN_URL
from tailrace.message.targets import TARGETS
from target_places import PLACES, Repeats, check
from target_worker import MESSAGES, tell, work

KILLS = 20 if os.environ.get("LONG_TESTS") else 3
WAIT_S = 60


@pytest.fixture(scope="module")
def processes():
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        ["target_worker", *(f"tailrace.message.target.{module}" for module in sorted(set(TARGETS.values())))]
    )
    return context


def run(processes, place, confirmed, kill_after):
    """Let a process send; kill it somewhat after so many batches. Return how it ended and how far it was told to be."""
    receiver, sender = processes.Pipe(duplex=False)
    url = place.url(port=place.proxy.port, password=PASSWORD_IN_URL, timeout_s=10)
    process = processes.Process(target=work, args=(url, place.part, confirmed, sender))
    process.start()
    sender.close()
    told = []
    try:
        while len(told) <= kill_after:
            assert receiver.poll(WAIT_S)
            told.append(receiver.recv())
        receiver.poll(random.random() * 0.02)
        process.kill()
    except EOFError:
        pass
    process.join(WAIT_S)
    receiver.close()
    return process.exitcode, max([confirmed, *told])


@pytest.mark.parametrize("kind", list(PLACES))
def test_a_target_whose_process_is_killed_has_each_message_in_the_end(kind, tmp_path, brokers, processes):
    place = PLACES[kind](tmp_path, brokers)
    _, messages = tell()
    confirmed = 0
    for _ in range(KILLS):
        _, confirmed = run(processes, place, confirmed, random.randrange(0, 5))
        assert confirmed <= MESSAGES
    assert run(processes, place, confirmed, MESSAGES) == (0, MESSAGES)
    check(place, messages, repeats=Repeats.ABSENT if place.marks and place.server_hides else place.repeats)
