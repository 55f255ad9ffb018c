"""One contract, all targets: servers that are down, killed, slow or silent, and answers that are lost."""

import contextlib
import random
import threading
import time

import pytest

from tailrace.model.errors import SinkUnavailableError
from target_messages import Teller
from target_places import PLACES, Repeats, check
from trying import GIVE_UP_S, patiently

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(params=list(PLACES))
def place(request, tmp_path, brokers):
    return PLACES[request.param](tmp_path, brokers)


@pytest.fixture
def teller():
    return Teller()


class Sender:
    """Gives messages to a target as a sink does: after a failure the same again, cut into other batches."""

    def __init__(self, place, teller, *, timeout_s=2):
        self.target = place.target(timeout_s=timeout_s)
        patiently(self.target.open, teller.schemas)  # a busy server may be slower at first
        self.failures = 0
        self.confirmed = 0
        self._random = random.Random(7)

    def send(self, messages, *, largest=40, after_each=lambda: None):
        """Send messages until all have arrived."""
        self.confirmed = 0
        deadline = time.monotonic() + GIVE_UP_S
        while self.confirmed < len(messages):
            assert time.monotonic() < deadline, f"{self.failures} failures"
            through = min(self.confirmed + self._random.randint(1, largest), len(messages))
            batch = messages[self.confirmed : through]
            try:
                assert not self.target.send(batch, batch[-1].id.encode())
            except SinkUnavailableError:
                self.failures += 1
                time.sleep(0.02)
                continue
            self.confirmed = through
            after_each()


@pytest.fixture
def sender(place, teller):
    sender = Sender(place, teller)
    yield sender
    sender.target.close()


def test_a_server_that_is_down_is_unavailable_and_the_same_target_works_when_it_is_back(place, teller):
    sender = Sender(place, teller, timeout_s=1)
    messages = teller.changes(30)
    sender.send(messages[:10])
    kept = [] if place.server_keeps else place.read("orders")
    place.server.kill()
    for _ in range(2):
        with pytest.raises(SinkUnavailableError):
            sender.target.send(messages[10:], b"30")
    place.server.start()
    sender.send(messages[10:])
    sender.target.close()
    check(place, messages, repeats=place.repeats, kept=kept)


def test_a_target_cannot_be_opened_while_its_server_is_down_and_can_be_afterwards(place, teller):
    if not place.connects:
        pytest.skip("opening the target does not reach the server")
    place.server.kill()
    target = place.target(timeout_s=1)
    with pytest.raises(SinkUnavailableError):
        target.open(teller.schemas)
    place.server.start()
    patiently(target.open, teller.schemas)
    target.close()
    target = place.target()
    target.open(teller.schemas)
    messages = teller.changes(3)
    target.send(messages, b"3")
    target.close()
    check(place, messages)


def test_nothing_is_lost_when_the_server_is_killed_in_the_middle(place, teller, sender):
    if not place.server_keeps:
        pytest.skip("the server keeps everything in memory: what it has confirmed is lost with it")
    messages = teller.changes(4_000)
    stop = threading.Event()

    def kill_again_and_again():
        for number in range(3):
            reached = sender.confirmed + 400
            while sender.confirmed < reached and not stop.is_set():
                time.sleep(0.005)
            place.server.kill()
            while number == 0 and not sender.failures and not stop.is_set():
                time.sleep(0.005)
            place.server.start()

    killer = threading.Thread(target=kill_again_and_again)
    killer.start()
    try:
        sender.send(messages, largest=60, after_each=lambda: time.sleep(0.005))
    finally:
        stop.set()
        killer.join()
    assert sender.failures
    check(place, messages, repeats=place.repeats)


def test_repeats_after_a_lost_answer_are_absent_or_known_by_their_id(place, teller, sender):
    messages = teller.changes(20) + teller.snapshot(150)
    sender.send(messages[:10])
    for begin in range(10, len(messages), 40):
        place.proxy.lose_answers()
        sender.send(messages[begin : begin + 40])
        assert not place.proxy.losing
    check(place, messages, repeats=place.repeats)


@pytest.mark.parametrize("size_bytes", [0, 9_000])
def test_nothing_is_lost_when_connections_are_cut_in_the_middle_of_a_request(place, teller, sender, size_bytes):
    messages = [teller.change(number if place.documents else number % 7, "x" * 100) for number in range(400)]
    for begin in range(0, len(messages), 200):
        place.proxy.cut_after(size_bytes)
        sender.send(messages[begin : begin + 200])
        assert not place.proxy.cutting
    check(place, messages, repeats=place.repeats)


def test_a_slow_server_slows_us_and_loses_nothing(place, teller):
    sender = Sender(place, teller, timeout_s=30)
    messages = teller.changes(100)
    place.proxy.delay_s = 0.03
    sender.send(messages)
    assert sender.failures == 0
    sender.target.close()
    check(place, messages)


def test_a_server_that_stalls_is_unavailable_in_time_and_gets_everything_when_it_goes_on(place, teller):
    sender = Sender(place, teller, timeout_s=1)
    messages = teller.changes(40)
    sender.send(messages[:10])
    place.server.pause()
    try:
        begin = time.monotonic()
        with pytest.raises(SinkUnavailableError):
            sender.target.send(messages[10:30], b"30")
        assert time.monotonic() - begin < 20
    finally:
        place.server.go_on()
    sender.send(messages[10:])
    sender.target.close()
    check(place, messages, repeats=place.repeats)


def test_a_target_may_be_closed_while_its_server_is_away(place, teller, sender):
    sender.send(teller.changes(3))
    place.server.kill()
    sender.target.close()
    sender.target.close()


def test_the_mark_says_what_has_arrived_even_if_the_answer_was_lost(place, teller):
    if not place.marks:
        pytest.skip("the target keeps no marks")
    sender = Sender(place, teller, timeout_s=30)
    messages = teller.snapshot(60)
    sender.send(messages[:20])
    place.proxy.lose_answers()
    with contextlib.suppress(SinkUnavailableError):
        sender.target.send(messages[20:40], b"40")
    assert not place.proxy.losing
    sender.target.close()
    again = place.target()
    again.open(teller.schemas)
    assert again.mark() == b"40"
    again.send(messages[40:], b"60")
    again.close()
    check(place, messages, repeats=Repeats.ABSENT)
