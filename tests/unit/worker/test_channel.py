"""Facts about the channel between the main process and a worker."""

import asyncio
import os
import socket

import pytest

from tailrace.worker.channel import Channel
from tailrace.worker.message import FROM_WORKER, TO_WORKER, Cut, Measure

DEADLINE_S = 20.0


class Ends:
    """Both ends of a channel in one process."""

    def __init__(self):
        ours, its = socket.socketpair()
        self.received, self.lost = [], []
        self.ours = Channel(ours, FROM_WORKER, lambda *_: None, lambda: self.lost.append("ours"))
        self.its = Channel(
            its, TO_WORKER, lambda *message: self.received.append(message), lambda: self.lost.append("its")
        )

    async def until(self, condition):
        async with asyncio.timeout(DEADLINE_S):
            while not condition():
                await asyncio.sleep(0.001)

    def close(self):
        self.ours.close()
        self.its.close()


@pytest.fixture
async def ends():
    ends = Ends()
    yield ends
    ends.close()


async def test_messages_arrive_in_order_with_their_connections(ends):
    pairs = [socket.socketpair() for _ in range(40)]
    for number, (mine, _) in enumerate(pairs):
        ends.ours.send(Cut(number), mine if number % 3 == 0 else None)
    await ends.until(lambda: len(ends.received) == len(pairs))
    assert [message.job for message, _ in ends.received] == list(range(40))
    for (message, connection), (mine, other) in zip(ends.received, pairs, strict=True):
        assert (connection is not None) == (message.job % 3 == 0)
        if connection is not None:
            assert mine.fileno() == -1  # the sender has no part in it any more
            connection.sendall(b"%d" % message.job)
            assert other.recv(10) == b"%d" % message.job
            connection.close()
        other.close()
        mine.close()


async def test_what_does_not_fit_waits_and_of_what_is_posted_only_the_newest_is_sent(ends):
    large = 3000
    for number in range(large):
        ends.ours.send(Cut(number))
    assert ends.ours.unsent_bytes > 0
    for number in range(100):
        ends.ours.post("a", lambda number=number: Cut(large + number))
        ends.ours.post("b", lambda number=number: Cut(2 * large + number))
    await ends.until(lambda: len(ends.received) == large + 2)
    numbers = [message.job for message, _ in ends.received]
    assert numbers == [*range(large), large + 99, 2 * large + 99]
    assert ends.ours.unsent_bytes == 0
    ends.ours.post("a", Measure)
    await ends.until(lambda: len(ends.received) == large + 3)


async def test_the_end_of_one_side_is_noticed_once(ends):
    ends.its.close()
    await ends.until(lambda: ends.lost)
    ends.ours.send(Cut(1))
    assert ends.lost == ["ours"]


async def test_connections_that_were_not_sent_are_closed_with_the_channel(ends):
    mine, other = socket.socketpair()
    ends.ours.close()
    ends.ours.send(Cut(1), mine)
    assert other.recv(1) == b""
    other.close()


async def test_who_says_what_is_no_message_is_gone():
    ours, its = socket.socketpair()
    lost = []
    channel = Channel(ours, FROM_WORKER, lambda *_: None, lambda: lost.append(True))
    os.write(its.fileno(), b"\x02\0\0\0\0{}")
    async with asyncio.timeout(DEADLINE_S):
        while not lost:
            await asyncio.sleep(0.001)
    assert channel.closed
    assert its.recv(1) == b""
    its.close()
