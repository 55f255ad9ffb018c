"""Facts about sharing the event loop among connections."""

import asyncio

import pytest

from tailrace.delivery.grpc.http2.options import TransportOptions
from tailrace.delivery.grpc.http2.turns import Account, ReadTurns

OPTIONS = TransportOptions(share_s=1.0, turn_s=4.0, light_s=10.0, offence_s=5.0, offences_max=3, offences_per_s=1.0)


class Clock:
    def __init__(self):
        self.time_s = 100.0

    def __call__(self):
        return self.time_s


class Client:
    """A connection with so many seconds of work."""

    def __init__(self, name, clock, served, work_s, *, proven=True):
        self.account = Account(OPTIONS)
        self.account.proven = proven
        self.name, self.clock, self.served, self.work_s = name, clock, served, work_s

    def read_share(self, end_s):
        used_s = min(self.work_s, end_s - self.clock.time_s)
        self.clock.time_s += used_s
        self.work_s -= used_s
        self.served.append(self.name)
        return self.work_s > 0


@pytest.fixture
def clock():
    return Clock()


async def turn():
    """Let the loop go round once."""
    await asyncio.sleep(0)


async def test_who_comes_alone_reads_at_once(clock):
    turns, served = ReadTurns(OPTIONS, clock), []
    assert turns.offer(Client("a", clock, served, 0.5))
    assert served == ["a"]


async def test_all_together_read_no_longer_in_a_turn_than_they_may(clock):
    turns, served = ReadTurns(OPTIONS, clock), []
    begun_s = clock.time_s
    for number in range(20):
        turns.offer(Client(number, clock, served, 100.0))
    assert served == [0]  # it has more to read, so the others wait for the next turn
    await turn()
    assert clock.time_s - begun_s <= OPTIONS.turn_s + 2 * OPTIONS.share_s
    assert served == [0, 0, 1, 2, 3]


async def test_each_has_its_share_in_turn(clock):
    turns, served = ReadTurns(OPTIONS, clock), []
    for name in "abc":
        turns.offer(Client(name, clock, served, 100.0, proven=False))
    for _ in range(6):
        await turn()
    counts = [served.count(name) for name in "abc"]
    assert max(counts) - min(counts) <= 1
    assert min(counts) >= 6


async def test_who_costs_little_comes_before_who_costs_much_and_before_strangers(clock):
    turns, served = ReadTurns(OPTIONS, clock), []
    for number in range(10):
        turns.offer(Client(number, clock, served, 100.0, proven=False))
    served.clear()
    turns.offer(Client("good", clock, served, 0.5))
    await turn()
    assert served.index("good") <= 1  # one of the others has its share in any case


async def test_the_others_have_their_share_too(clock):
    turns, served = ReadTurns(OPTIONS, clock), []
    for number in range(5):
        turns.offer(Client(number, clock, served, 100.0))
    turns.offer(Client("stranger", clock, served, 3.0, proven=False))
    for _ in range(3):
        await turn()
    assert served.count("stranger") == 3


async def test_work_that_is_begun_counts_although_it_is_done_later(clock):
    turns, served = ReadTurns(OPTIONS, clock), []
    turns.charge(OPTIONS.turn_s)
    assert not turns.offer(Client("a", clock, served, 0.5))
    assert served == []
    await turn()
    assert served == ["a"]


async def test_it_is_crowded_where_many_wait(clock):
    turns, served = ReadTurns(TransportOptions(turn_s=0.0, waiting_max=2), clock), []
    assert not turns.crowded
    for name in "ab":
        turns.offer(Client(name, clock, served, 100.0))
    assert turns.crowded


def test_cost_is_forgotten_with_time():
    account = Account(OPTIONS)
    account.proven = True
    account.charge(18.0, 0.0)
    assert not account.is_light(0.1)
    assert account.is_light(1.0)


def test_a_stranger_is_not_light_before_a_call_was_of_use():
    account = Account(OPTIONS)
    assert not account.is_light(0.0)
    account.proven = True
    assert account.is_light(0.0)


def test_offences_cost_and_too_many_end_it():
    account = Account(OPTIONS)
    account.proven = True
    assert [account.offend(0.0) for _ in range(4)] == [True, True, True, False]
    assert not account.is_light(0.0)
    assert account.offend(2.0)
